"""Search the weights of a linear score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from sched_env.cli import value_lists
from sched_env.cli.idle_overrides import Key, refuse_idle
from sched_env.cli.main import Command
from sched_env.cli.optional import importing_extra
from sched_env.config import (
    ConfigModel,
    EnvConfig,
    ExperimentConfig,
    TuningConfig,
    find_config,
    list_configs,
    load_config,
)
from sched_env.config.experiment import ObjectiveConfig
from sched_env.config.yaml_text import read_yaml_mapping
from sched_env.errors import PolicyError

if TYPE_CHECKING:
    from sched_env.policy.runtime import ExportedPolicy

DEFAULT_CONFIG = "experiment/azure_conv"


@dataclass(frozen=True)
class TuneArguments:
    """Search the weights of a linear score over all that an agent observes.

    An evolution strategy (CMA-ES) searches on the training split; the best on the validation split
    is kept. Writes policy/, progress.csv, config.yaml and summary.json to the folder of --out.
    """

    config: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="CONFIG")]
    """Experiment or environment: a name such as experiment/azure_conv, or a YAML file."""

    overrides: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[KEY=VALUE ...]")
    ] = ()
    """Changes of single values, such as tuning.population=30 in an experiment."""

    trace: Annotated[str | None, tyro.conf.arg(metavar="FILE|NAME,...")] = None
    """Tune on these traces instead of those of the configuration."""

    iterations: int | None = None
    """Generations of the search."""

    start: str | None = None
    """Go on from this policy, a linear score or a pointer network with its last layer and prior."""

    seed: int = 0
    """Decides the whole search: candidates and scenarios."""

    out: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """Folder of the result; by default runs/NAME/tuned_linear__seedK."""


def run(arguments: TuneArguments) -> None:
    """Tune, and say what it cost and what it gained."""
    with importing_extra("tune"):
        import cmaes  # noqa: F401
    from sched_env.agents.score_search.files import (
        open_search_folder,
        search_question,
        write_search,
    )
    from sched_env.agents.score_search.search import Look, polish, search
    from sched_env.evaluation.folders import SEARCH, check_folder
    from sched_env.evaluation.progress import ProgressBar, announce_compilation
    from sched_env.policy.format import refuse_other_folder
    from sched_env.simulator.simulate import check_seed

    check_seed(arguments.seed)
    name, env, tuning, objective = _settings(arguments)
    start = None if arguments.start is None else _start(arguments.start)
    place = arguments.out or f"runs/{name}/tuned_linear__seed{arguments.seed}"
    question = search_question(env, tuning, arguments.seed, start, objective)
    check_folder(Path(place), SEARCH, question)
    refuse_other_folder(Path(place) / "policy", "move it away, or give another folder to --out")

    announce_compilation()
    with ProgressBar("tune", tuning.iterations) as bar:
        kept = ""

        def show(iteration: int, look: Look) -> None:
            nonlocal kept
            if look.is_best:
                kept = (
                    f"validation goodput {look.validation_goodput:.4f}, "
                    f"P95 TTFT {look.validation_p95_ttft_s:.2f} s"
                )
            bar.update(iteration, kept)

        if start is None:
            result = search(env, tuning, arguments.seed, show, objective)
        else:
            result = polish(start, env, tuning, arguments.seed, show, objective)
    policy = write_search(result, open_search_folder(Path(place), question))
    first, best = result.looks[0], [look for look in result.looks if look.is_best][-1]
    spent = result.budget
    print(
        f"validation goodput {first.validation_goodput:.4f} at the start, "
        f"{best.validation_goodput:.4f} at best; search budget {spent.num_requests:,} simulated "
        f"requests, {spent.num_decisions:,} decisions"
    )
    print(f"policy: {policy}")


def _start(policy: str) -> ExportedPolicy:
    """Return the policy to go on from.

    Raises:
        PolicyError: It is a heuristic.
    """
    from sched_env.policy.registry import resolve_policy
    from sched_env.policy.runtime import ExportedPolicy

    found = resolve_policy(policy)
    if not isinstance(found, ExportedPolicy):
        raise PolicyError(f"--start {policy} is a heuristic: give a policy folder")
    return found


def _settings(
    arguments: TuneArguments,
) -> tuple[str, EnvConfig, TuningConfig, ObjectiveConfig]:
    """Return a name for the folder, the environment, how to search and for what.

    Raises:
        SchedEnvError: There is no such configuration, or a value is wrong or would change nothing.
    """
    objective = ObjectiveConfig()
    loaded = load_config(model_of(arguments.config), arguments.config, arguments.overrides)
    refuse_idle(arguments.overrides, _idle_in(loaded, arguments.start))
    if isinstance(loaded, ExperimentConfig):
        name, env, tuning = loaded.name, loaded.env, loaded.tuning
        objective = loaded.objective
    else:
        assert isinstance(loaded, EnvConfig)
        name, env, tuning = Path(arguments.config).stem, loaded, TuningConfig()
    if arguments.trace is not None:
        env = env.replace(trace=tuple(value_lists.names(arguments.trace, "--trace")))
    if arguments.iterations is not None:
        tuning = tuning.replace(iterations=arguments.iterations)
    return name, env, tuning, objective


def _idle_in(loaded: ConfigModel, start: str | None) -> dict[Key, str]:
    """Return the keys without a say in a search, and why."""
    is_experiment = isinstance(loaded, ExperimentConfig)
    idle: dict[Key, str] = {("seed",): "give --seed"} if is_experiment else {}
    if start is not None:
        seen = ("env", "observation") if is_experiment else ("observation",)
        idle[seen] = (
            "the policy of --start is shown what it was; tuning.num_waiting_slots shows it more"
        )
    return idle


def model_of(name_or_path: str) -> type[ExperimentConfig] | type[EnvConfig]:
    """Return which of the two a configuration is: by its name, or by the keys of its file.

    Raises:
        UnknownNameError: Nothing of that name ships with the package.
        ConfigError: There is no such file, or it cannot be read.
    """
    known = list_configs()
    if name_or_path.startswith("env/") or (
        f"experiment/{name_or_path}" not in known and f"env/{name_or_path}" in known
    ):
        return EnvConfig
    values = read_yaml_mapping(find_config(name_or_path, "experiment"))
    extended = values.get("extends", "")
    texts = extended if isinstance(extended, list) else [extended]
    from_env = any(str(text).startswith("env/") for text in texts)
    keys = set(ExperimentConfig.model_fields) & set(values)
    return EnvConfig if from_env or (values and not keys and extended == "") else ExperimentConfig


def shown_config(positionals: Sequence[str], _options: dict[str, str]) -> ConfigModel:
    """Return the configuration whose values ``--help`` shows: CONFIG, or else the default one."""
    name, *overrides = positionals or [DEFAULT_CONFIG]
    return load_config(model_of(name), name, overrides)


COMMAND = Command(TuneArguments, run, shown_config)
