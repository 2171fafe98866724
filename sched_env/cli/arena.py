"""Run policies under every condition, and map who wins where."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from sched_env.cli import value_lists
from sched_env.cli.main import Command
from sched_env.cli.optional import importing_extra
from sched_env.cli.served_env import check_arena_overrides
from sched_env.config import ArenaConfig, load_config

DEFAULT_CONFIG = "arena/standard"


@dataclass(frozen=True)
class ArenaArguments:
    """Run policies under every condition, and map who wins where.

    Writes arena.md, regimes.png, results.json, summary.json, regimes.json, ceilings.json and a
    folder for each condition to the folder of --out.
    """

    config: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="CONFIG")]
    """Arena: a name such as standard, or a YAML file."""

    overrides: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[KEY=VALUE ...]")
    ] = ()
    """Changes of single values, such as num_seeds=5 or traces.mine=mine.csv."""

    policies: Annotated[str, tyro.conf.arg(metavar="A,B,...")] = ""
    """Policies besides those of the configuration: run folders, policy folders, label=NAME."""

    out: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """Folder of the results; by default runs/arena/NAME."""

    workers: int = 0
    """Processes; 0 decides by the size of the work. The results are the same for any number."""


def run(arguments: ArenaArguments) -> None:
    """Run the arena and print its tables."""
    check_arena_overrides(arguments.overrides)
    config = load_config(ArenaConfig, arguments.config, arguments.overrides)
    if arguments.policies:
        added = value_lists.names(arguments.policies, "--policies")
        config = config.replace(policies=(*config.policies, *added))
    if config.ceilings.enabled:
        with importing_extra("ceilings"):
            import scipy  # noqa: F401
    from sched_env.evaluation.arena.report import arena_tables, write_arena
    from sched_env.evaluation.arena.run import run_arena
    from sched_env.evaluation.table import print_tables

    folder = Path(arguments.out or f"runs/arena/{config.name}")
    result = run_arena(
        config,
        folder,
        workers=arguments.workers or None,
        progress=lambda name: print(name, file=sys.stderr, flush=True),
    )
    page = write_arena(result, folder)
    print_tables(arena_tables(result))
    print(f"\nreport: {page}")


def shown_config(positionals: Sequence[str], _options: dict[str, str]) -> ArenaConfig:
    """Return the arena whose values ``--help`` shows: CONFIG, or else the standard one."""
    name, *overrides = positionals or [DEFAULT_CONFIG]
    return load_config(ArenaConfig, name, overrides)


COMMAND = Command(ArenaArguments, run, shown_config)
