"""Compare policies on the same requests, server and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from sched_env.cli import value_lists
from sched_env.cli.main import Command
from sched_env.cli.served_env import DEFAULT_ENV, served_env
from sched_env.config import EnvConfig, LiveCost, Split, load_config
from sched_env.errors import ConfigError


@dataclass(frozen=True)
class EvaluateArguments:
    """Compare policies on the same requests, server and seeds.

    Prints tables, and writes results.json (one flat row per policy, trace, load and seed),
    results.parquet, summary.json, config.yaml and environment.json to the folder of --out.
    """

    overrides: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[KEY=VALUE ...]")
    ] = ()
    """Changes of single values of the environment, such as scheduler.num_blocks=2000."""

    policies: Annotated[str, tyro.conf.arg(metavar="A,B,...")] = (
        "fcfs,fixed_priority,aging,deadline,sjf,weighted_sjf"
    )
    """Heuristics, run or policy folders, MODULE:NAME in this folder; label=NAME sets the name."""

    trace: Annotated[str, tyro.conf.arg(metavar="FILE|NAME,...")] = "azure_conv"
    """Trace files or embedded workloads."""

    load: Annotated[str, tyro.conf.arg(metavar="X,...")] = "0.8,1.0,1.3"
    """Arrival rates over the rate that fcfs can drain; own keeps that of the trace."""

    seeds: int = 5
    """Number of paired seeds at each load."""

    split: Split = "test"
    """Part of each trace by time."""

    env: Annotated[str, tyro.conf.arg(metavar="CONFIG")] = DEFAULT_ENV
    """Server, clients and observation: a name or a YAML file."""

    out: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """Folder of the result files; without it nothing is written."""

    workers: int = 0
    """Processes; 0 decides by the size of the work. The results are the same for any number."""

    executor: Literal["none", "torch"] = "none"
    """torch: run the batches on a real model, whose measured step times move the clock."""

    model: str | None = None
    """With --executor torch: toy, llama-1b, llama-3b or llama-8b; by default toy."""

    device: str | None = None
    """With --executor torch: cpu, cuda or cuda:N; by default cpu."""


def run(arguments: EvaluateArguments) -> None:
    """Run the comparison and print its tables."""
    env = _on_executor(served_env(arguments.env, arguments.overrides), arguments)

    from sched_env.evaluation.budgets import opponents_table, policies_table
    from sched_env.evaluation.runner import evaluate
    from sched_env.evaluation.table import print_tables, result_tables

    result = evaluate(
        value_lists.names(arguments.policies, "--policies"),
        value_lists.names(arguments.trace, "--trace"),
        value_lists.loads(arguments.load),
        arguments.seeds,
        env,
        split=arguments.split,
        out_dir=Path(arguments.out) if arguments.out else None,
        workers=arguments.workers or None,
        progress=True,
    )
    tables = [policies_table(result.config["policies"]), opponents_table(result.comparison)]
    print_tables([*tables, *result_tables(result.rows, result.comparison)])
    if result.out_dir is not None:
        print(f"\nresults: {result.out_dir / 'results.json'}")


def _on_executor(env: EnvConfig, arguments: EvaluateArguments) -> EnvConfig:
    """Return the environment as --executor, --model and --device say."""
    given = {
        name: value
        for name in ("model", "device")
        if (value := getattr(arguments, name)) is not None
    }
    if arguments.executor == "none":
        if given:
            raise ConfigError(f"--{next(iter(given))} goes with --executor torch: add it")
        return env
    cost = env.cost if isinstance(env.cost, LiveCost) else LiveCost()
    return env.replace(cost=cost.replace(**given))


def shown_config(positionals: Sequence[str], options: dict[str, str]) -> EnvConfig:
    """Return the environment whose values ``--help`` shows."""
    return load_config(EnvConfig, options.get("env", DEFAULT_ENV), positionals)


COMMAND = Command(EvaluateArguments, run, shown_config)
