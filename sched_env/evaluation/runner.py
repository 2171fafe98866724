"""Run policies x traces x loads x seeds on one server, paired by seed.

Every policy meets the same requests, service classes, SLOs and length predictions: the seed of a
cell draws all of them, and for a synthetic trace the trace itself, whichever policy serves. The
server, its budgets and its shedding are one configuration for all. A run ends when every request
has ended; what is unfinished at ten times the window counts as missed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sched_env.config import EnvConfig
from sched_env.config.cost import LiveCost
from sched_env.errors import SchedEnvError, UnknownNameError
from sched_env.evaluation.cell import CellFailure, CellRunner, Setting
from sched_env.evaluation.compare import compare
from sched_env.evaluation.entries import Cell, PolicyLike, TraceLike
from sched_env.evaluation.fingerprints import package_sha256
from sched_env.evaluation.folders import EVALUATION, check_folder, make_folder
from sched_env.evaluation.grid import Grid, describe_grid, source_text
from sched_env.evaluation.journal import Journal
from sched_env.evaluation.machine import describe_machine, num_cpus
from sched_env.evaluation.processes import run_cells
from sched_env.evaluation.progress import ProgressBar, announce_compilation
from sched_env.evaluation.results import EvaluationResult, write_results
from sched_env.metrics.fairness import STARVATION_S
from sched_env.metrics.summary import Row
from sched_env.simulator.live import with_estimate
from sched_env.simulator.number_checks import is_number, is_whole
from sched_env.workload.table import SPLITS

LOADS = (0.8, 1.0, 1.3)
"""Loads where none are given."""

_PARALLEL_FROM_REQUESTS = 500_000
"""Requests to simulate below which starting processes costs more than it saves."""

_COST_OF_KIND = {"network": 15, "tuned": 8}
"""Time for a request, over that under a heuristic."""


class EvaluationError(RuntimeError):
    """A simulation of the grid failed through a fault of ours."""


def evaluate(
    policies: Sequence[PolicyLike] | Mapping[str, PolicyLike],
    traces: Sequence[TraceLike] | Mapping[str, TraceLike],
    loads: Sequence[float | None] | float | None = LOADS,
    seeds: int | Sequence[int] = 5,
    env: EnvConfig | None = None,
    *,
    split: str = "test",
    out_dir: str | Path | None = None,
    workers: int | None = None,
    progress: bool = False,
    starvation_s: float = STARVATION_S,
    allow_privileged: bool = False,
    max_requests: int | None = None,
) -> EvaluationResult:
    """Compare policies on the same requests, server and seeds.

    Args:
        policies: Registered names, folders of exported policies or runs, ``label=policy`` texts or
            policy objects; or a mapping from label to any of these.
        traces: Files, names of embedded workloads or tables; or a mapping from label to these.
        loads: Arrival rates over what fcfs can drain; arrival intervals are scaled. ``None`` keeps
            the trace's own rate.
        seeds: Number of paired seeds, or the seeds themselves.
        env: Server, cost, service classes and observation; the default server if None. Its trace,
            split and load are not used.
        split: Part of each trace by time: train, validation, test or all.
        out_dir: Folder for the results; nothing is written if None. An evaluation that was
            interrupted goes on there; a folder with results of something else is refused.
        workers: Processes; 1 runs here, None decides by the size of the grid. The rows do not
            depend on it.
        progress: Show a progress bar on standard error.
        starvation_s: Wait in seconds above which a request counts as starved.
        allow_privileged: Accept policies that read true output lengths; their rows are of the kind
            "clairvoyant", and nothing is compared with them.
        max_requests: Requests of each window that are run, from its start; None: all.

    Returns:
        Rows in the order policies, traces, loads, seeds, and the comparison by weighted goodput.

    Raises:
        SchedEnvError: a name, trace, load, seed, split or folder is wrong; the message says which.
        EvaluationError: a simulation failed through a fault of ours; the message names its cell.
    """
    if split not in SPLITS:
        raise UnknownNameError("split", split, SPLITS)
    _check_numbers(max_requests, starvation_s)
    check_workers(workers)
    grid = Grid.checked(policies, traces, loads, seeds, allow_privileged=allow_privileged)
    env = _evaluated(_with_times(env or EnvConfig(), workers), grid, split)
    setting = Setting(env, split, starvation_s, max_requests)
    if progress:
        announce_compilation()
    runner = CellRunner(setting)
    tables = runner.tables(grid.traces, grid.loads, grid.seeds[0])
    config = describe_grid(grid, setting, tables)
    if out_dir is not None:
        check_folder(Path(out_dir), EVALUATION, config)
    folder = None if out_dir is None else make_folder(Path(out_dir), EVALUATION)
    with Journal(folder, {**config, "sched_env_sha256": package_sha256()}) as journal:
        processes = workers or _default_workers(grid, sum(map(len, tables)), env)
        rows = _rows(grid, runner, setting, processes, journal, progress)
        result = EvaluationResult(rows, compare(rows), config, describe_machine(), folder)
        if folder is not None:
            write_results(result, folder)
    return result


def _rows(
    grid: Grid,
    runner: CellRunner,
    setting: Setting,
    processes: int,
    journal: Journal,
    progress: bool,
) -> tuple[Row, ...]:
    """Return the rows of all cells in their order; those in the journal are not run again."""
    cells = grid.cells()
    found = {_key_of_row(row): row for row in journal.kept}
    missing = [cell for cell in cells if _key_of_cell(cell) not in found]
    if not grid.can_be_sent():
        processes = 1
    with ProgressBar("evaluate", len(cells), shown=progress) as bar:
        before = ", done before" if found else ""
        bar.update(len(found), _stand(len(found), len(cells)) + before)
        for row in run_cells(missing, runner, setting, processes):
            if isinstance(row, CellFailure):
                raise _failure(row, journal)
            journal.write(row)
            found[_key_of_row(row)] = row
            bar.update(len(found), _stand(len(found), len(cells)))
    return tuple(found[_key_of_cell(cell)] for cell in cells)


def _stand(num_done: int, num_cells: int) -> str:
    return f"{num_done} of {num_cells} simulations"


def _key_of_row(row: Row) -> tuple[Any, ...]:
    return row["policy"], row["trace"], row["load"], row["seed"]


def _key_of_cell(cell: Cell) -> tuple[Any, ...]:
    return cell.policy.label, cell.trace.label, cell.load, cell.seed


def _check_numbers(max_requests: int | None, starvation_s: float) -> None:
    if max_requests is not None and not (is_whole(max_requests) and max_requests >= 1):
        raise SchedEnvError(f"max_requests {max_requests!r} is not possible: give 1 or more")
    if not (is_number(starvation_s) and 0.0 <= starvation_s < math.inf):
        raise SchedEnvError(f"starvation_s {starvation_s!r} is not possible: give 0 s or more")


def check_workers(workers: int | None) -> None:
    """Refuse a number of processes that cannot be; None is left to the size of the work.

    Raises:
        SchedEnvError: It is no whole number of at least 1.
    """
    if workers is not None and not (is_whole(workers) and workers >= 1):
        raise SchedEnvError(f"{workers!r} workers are not possible: give a whole number from 1 on")


def _with_times(env: EnvConfig, workers: int | None) -> EnvConfig:
    """Return the environment, a live one with the estimate that all of its cells share.

    Raises:
        SchedEnvError: Several workers would share the device of a live server.
    """
    if isinstance(env.cost, LiveCost) and (workers or 1) > 1:
        raise SchedEnvError(f"a live cost runs one server at a time, not {workers}: give 1 worker")
    return with_estimate(env)


def _default_workers(grid: Grid, num_requests: int, env: EnvConfig) -> int:
    """Return how many processes to use for a grid of traces of ``num_requests`` in all."""
    if isinstance(env.cost, LiveCost):
        return 1
    cost = sum(_COST_OF_KIND.get(policy.kind, 1) for policy in grid.policies)
    work = num_requests * len(grid.loads) * len(grid.seeds) * cost
    return num_cpus() if work >= _PARALLEL_FROM_REQUESTS else 1


def _evaluated(env: EnvConfig, grid: Grid, split: str) -> EnvConfig:
    """Return the environment with what is evaluated in it.

    Columns that only a value head reads in training are left out of the observation.
    """
    return env.replace(
        trace=tuple(source_text(trace) for trace in grid.traces),
        split=split,
        observation=env.observation.replace(privileged=False),
    )


def _failure(failure: CellFailure, journal: Journal) -> Exception:
    kept = ""
    if journal.path is not None and journal.num_rows:
        kept = f" (the same command goes on from the rows so far, in {journal.path})"
    if failure.trace:
        return EvaluationError(f"{failure.cell}: {failure.message}{kept}\n{failure.trace}")
    return SchedEnvError(f"{failure.cell}: {failure.message}{kept}")
