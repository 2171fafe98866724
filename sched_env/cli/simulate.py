"""Run one policy over a whole trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from sched_env.cli import value_lists
from sched_env.cli.main import Command
from sched_env.cli.served_env import DEFAULT_ENV, served_env
from sched_env.config import EnvConfig, Split, load_config


@dataclass(frozen=True)
class SimulateArguments:
    """Run one policy over a whole trace, without torch.

    Prints a summary. With --out it writes requests.csv and requests.parquet (one row per request),
    events.csv and events.parquet, summary.json, and config.yaml, which tells what was run.
    """

    overrides: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[KEY=VALUE ...]")
    ] = ()
    """Changes of single values of the environment, such as scheduler.num_blocks=2000."""

    policy: Annotated[str, tyro.conf.arg(metavar="NAME|FOLDER")] = "fcfs"
    """A heuristic, a policy folder, a run folder, or MODULE:NAME of the current folder."""

    trace: Annotated[str, tyro.conf.arg(metavar="FILE|NAME")] = "azure_conv"
    """A trace file or an embedded workload."""

    load: Annotated[str, tyro.conf.arg(metavar="X")] = value_lists.OWN_RATE
    """Arrival rate over the rate that fcfs can drain; own keeps that of the trace."""

    seed: int = 0
    """Seed of service classes, SLOs and length predictions."""

    split: Split = "all"
    """Part of the trace by time."""

    env: Annotated[str, tyro.conf.arg(metavar="CONFIG")] = DEFAULT_ENV
    """Server, clients and observation: a name or a YAML file."""

    out: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """Folder of the files; without it nothing is written."""


def run(arguments: SimulateArguments) -> None:
    """Simulate, print the summary and write the files."""
    env = served_env(arguments.env, arguments.overrides)
    load = value_lists.load(arguments.load)

    from sched_env.cli.tables import print_row
    from sched_env.evaluation.cell import clock_text
    from sched_env.evaluation.entries import describe_policy
    from sched_env.evaluation.fingerprints import cost_sha256, table_sha256
    from sched_env.evaluation.folders import SIMULATION, check_folder
    from sched_env.evaluation.progress import announce_compilation
    from sched_env.metrics.summary import summarize
    from sched_env.policy.registry import resolve_policy
    from sched_env.simulator import simulate
    from sched_env.simulator.simulate import check_seed
    from sched_env.workload import read_env_trace

    check_seed(arguments.seed)
    policy = resolve_policy(arguments.policy)
    table = read_env_trace(env, arguments.trace).split(arguments.split)
    class_names = [one.name for one in env.service.classes]
    labels = {
        "policy": policy.name,
        "trace": table.source.name,
        "load": load,
        "seed": arguments.seed,
        "clock": clock_text(env.cost),
        "split": arguments.split,
    }
    question = {
        "policy": describe_policy(arguments.policy, policy),
        "trace": arguments.trace,
        "requests_sha256": table_sha256(table),
        "load": load,
        "seed": arguments.seed,
        "split": arguments.split,
        "cost_sha256": cost_sha256(env.cost),
        "env": env.to_dict(),
    }
    if arguments.out:
        check_folder(Path(arguments.out), SIMULATION, question)
    announce_compilation()
    result = simulate(
        table,
        policy,
        env,
        seed=arguments.seed,
        load=load,
        record_events=bool(arguments.out),
    )
    summary = summarize(result, labels=labels, class_names=class_names)
    print_row("Simulation", summary)
    if arguments.out:
        from sched_env.cli.simulation_files import write_simulation

        for path in write_simulation(result, summary, Path(arguments.out), class_names, question):
            print(path)


def shown_config(positionals: Sequence[str], options: dict[str, str]) -> EnvConfig:
    """Return the environment whose values ``--help`` shows."""
    return load_config(EnvConfig, options.get("env", DEFAULT_ENV), positionals)


COMMAND = Command(SimulateArguments, run, shown_config)
