"""Replay a real server's run on the simulated server, and compare request by request."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import tyro

from sched_env.cli.main import Command
from sched_env.cli.scheduler_options import scheduler_fields, scheduler_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class _RunAndCost:
    """Replay a real server's run: its arrivals and lengths on the simulated server.

    Compares TTFT, TPOT, E2EL, queue wait and makespan with the real ones. Give the limits that the
    real server had; further switches are those of the scheduler's configuration.
    """

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN.csv")]
    """The recorded run; docs/replay.md lists its columns."""

    cost: Annotated[str, tyro.conf.arg(metavar="PRESET|TABLE.csv|PROFILE")]
    """Step times: a preset, a table of measured steps, or a profile folder."""

    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """Folder of replay.json, settings.json, requests.csv and replay.png."""

    cost_group: str | None = None
    """Which gpu/model[/tpN][/precision] of a table that holds several."""

    engine_overhead_ms: float | None = None
    """Engine's own time per step, in ms; by default the measured value of the GPU."""

    engine_overhead_per_seq_ms: float | None = None
    """Engine's own time per sequence of a batch, in ms; by default the measured value."""

    prefix_caching: bool = False
    """The same as --enable-prefix-caching; without prompt tokens, requests find only own blocks."""


ReplayArguments: Any = dataclasses.make_dataclass(
    "ReplayArguments",
    scheduler_fields(),
    bases=(_RunAndCost,),
    namespace={"__doc__": _RunAndCost.__doc__},
    frozen=True,
    kw_only=True,
)
"""The arguments of the command: run, step times, and every field of ``SchedulerConfig``."""


def run(arguments: Any) -> None:
    """Replay the run, print the comparison and write the files."""
    scheduler = scheduler_of(arguments)
    if arguments.prefix_caching:
        scheduler = scheduler.replace(enable_prefix_caching=True)

    from sched_env.cost.selection import chosen_cost, counting_beyond
    from sched_env.evaluation.folders import REPLAY, check_folder
    from sched_env.evaluation.plots import can_plot
    from sched_env.evaluation.replay import replay_run, replay_table, write_replay
    from sched_env.evaluation.table import print_tables
    from sched_env.workload.served_run import read_served_run

    served = read_served_run(arguments.run)
    cost = chosen_cost(
        arguments.cost,
        group=arguments.cost_group,
        per_step_ms=arguments.engine_overhead_ms,
        per_seq_ms=arguments.engine_overhead_per_seq_ms,
    )
    out = check_folder(Path(arguments.out), REPLAY)
    replay = replay_run(served, scheduler, counting_beyond(cost))
    print_tables([replay_table(replay)])
    for note in replay.notes:
        print(f"note: {note}")
    for path in write_replay(replay, out):
        print(path)
    if can_plot():
        from sched_env.evaluation.replay_plot import PLOT_FILE, plot_replay

        plot_replay(replay, out / PLOT_FILE)
        print(out / PLOT_FILE)
    else:
        print('no chart: matplotlib is not installed; run pip install "sched-env[profiles]"')


COMMAND = Command(ReplayArguments, run)
