"""Run policies x traces x loads x seeds on one server, paired by seed.

Every policy meets the same requests, service classes, SLOs and length predictions: the seed of a
cell draws all of them, and for a synthetic trace the trace itself, whichever policy serves. The
server, its budgets and its shedding are one configuration for all. A run ends when every request
has ended; what is unfinished at ten times the window counts as missed.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sched_env.config import EnvConfig
from sched_env.errors import SchedEnvError, UnknownNameError
from sched_env.evaluation.cell import CellFailure, CellRunner, Setting
from sched_env.evaluation.compare import compare
from sched_env.evaluation.entries import (
    Cell,
    PolicyEntry,
    PolicyLike,
    TraceEntry,
    TraceLike,
    check_loads,
    check_seeds,
    policy_entries,
    trace_entries,
)
from sched_env.evaluation.files import finite, make_folder
from sched_env.evaluation.journal import Journal
from sched_env.evaluation.machine import describe_machine, num_cpus
from sched_env.evaluation.results import EvaluationResult, write_results
from sched_env.metrics.fairness import STARVATION_S
from sched_env.metrics.summary import Row
from sched_env.workload.table import SPLITS

LOADS = (0.8, 1.0, 1.3)
"""Loads where none are given."""

_PARALLEL_FROM_REQUESTS = 500_000
"""Requests to simulate below which starting processes costs more than it saves."""

_COST_OF_KIND = {"network": 15, "tuned": 8}
"""Time for a request, over that under a heuristic."""


class EvaluationError(RuntimeError):
    """A simulation of the grid failed through a fault of ours."""


@dataclass(frozen=True)
class _Grid:
    policies: tuple[PolicyEntry, ...]
    traces: tuple[TraceEntry, ...]
    loads: tuple[float | None, ...]
    seeds: tuple[int, ...]

    def cells(self) -> list[Cell]:
        """Return the cells in the order of the rows."""
        return [
            Cell(policy, trace, load, seed)
            for policy in self.policies
            for trace in self.traces
            for load in self.loads
            for seed in self.seeds
        ]


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
        out_dir: Folder for the results; nothing is written if None.
        workers: Processes; 1 runs here, None decides by the size of the grid. The rows do not
            depend on it.
        progress: Show a progress bar on standard error.
        starvation_s: Wait in seconds above which a request counts as starved.
        allow_privileged: Accept policies that read true output lengths; their rows are of the kind
            "clairvoyant", and nothing is compared with them.

    Returns:
        Rows in the order policies, traces, loads, seeds, and the comparison by weighted goodput.

    Raises:
        SchedEnvError: a name, trace, load, seed, split or folder is wrong; the message says which.
        EvaluationError: a simulation failed through a fault of ours; the message names its cell.
    """
    if split not in SPLITS:
        raise UnknownNameError("split", split, SPLITS)
    if workers is not None and workers < 1:
        raise SchedEnvError(f"{workers} workers are not possible: give 1 or more")
    grid = _Grid(
        policy_entries(policies, allow_privileged=allow_privileged),
        trace_entries(traces),
        check_loads(loads),
        check_seeds(seeds),
    )
    setting = Setting(_evaluated(env or EnvConfig(), grid, split), split, starvation_s)
    folder = None if out_dir is None else make_folder(Path(out_dir))
    runner = CellRunner(setting)
    num_requests = [len(runner.window(trace, grid.seeds[0]).table) for trace in grid.traces]
    cells = grid.cells()
    processes = _num_processes(workers, grid, sum(num_requests))
    with Journal(folder) as journal, _progress_bar(len(cells), progress) as advance:
        found: list[Row | None] = [None] * len(cells)
        for index, row in _run_all(cells, runner, setting, processes):
            if isinstance(row, CellFailure):
                raise _failure(row, journal)
            journal.write(row)
            found[index] = row
            advance()
        rows = tuple(row for row in found if row is not None)
        config = _describe(grid, setting, num_requests)
        result = EvaluationResult(rows, compare(rows), config, describe_machine(), folder)
        if folder is not None:
            write_results(result, folder)
    return result


def _run_all(
    cells: Sequence[Cell], runner: CellRunner, setting: Setting, processes: int
) -> Iterator[tuple[int, Row | CellFailure]]:
    """Yield the index and the row of each cell, as they finish."""
    # Cells of one trace and seed follow each other, so that its window is made once.
    order = sorted(range(len(cells)), key=lambda i: (cells[i].trace.label, cells[i].seed))
    if processes == 1:
        for index in order:
            yield index, runner.run(cells[index])
        return
    with ProcessPoolExecutor(
        processes, multiprocessing.get_context("spawn"), _start_worker, (setting, cells)
    ) as pool:
        futures = {pool.submit(_run_in_worker, index): index for index in order}
        try:
            for future in as_completed(futures):
                yield futures[future], _result(future)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _result(future: Future[Row | CellFailure]) -> Row | CellFailure:
    try:
        return future.result()
    except BrokenProcessPool:
        raise SchedEnvError(
            "a worker process died: it ran out of memory, or the calling script lacks "
            "`if __name__ == '__main__':`; workers=1 needs neither"
        ) from None


_worker: tuple[CellRunner, Sequence[Cell]] | None = None


def _start_worker(setting: Setting, cells: Sequence[Cell]) -> None:
    global _worker
    _worker = CellRunner(setting), cells


def _run_in_worker(index: int) -> Row | CellFailure:
    if _worker is None:
        raise RuntimeError("the worker was not started")
    runner, cells = _worker
    return runner.run(cells[index])


def _num_processes(workers: int | None, grid: _Grid, num_requests: int) -> int:
    """Return how many processes to use for a grid of traces of ``num_requests`` in all.

    The rows are the same for any number.
    """
    if workers is None:
        cost = sum(_COST_OF_KIND.get(policy.kind, 1) for policy in grid.policies)
        work = num_requests * len(grid.loads) * len(grid.seeds) * cost
        workers = num_cpus() if work >= _PARALLEL_FROM_REQUESTS else 1
    try:
        pickle.dumps(grid.policies)
    except (pickle.PicklingError, TypeError, AttributeError):
        return 1  # a policy object that only this process knows
    return min(workers, len(grid.cells()))


def _evaluated(env: EnvConfig, grid: _Grid, split: str) -> EnvConfig:
    """Return the environment with what is evaluated in it.

    Columns that only a value head reads in training are left out of the observation.
    """
    return env.replace(
        trace=tuple(_source_text(trace) for trace in grid.traces),
        split=split,
        observation=env.observation.replace(privileged=False),
    )


def _failure(failure: CellFailure, journal: Journal) -> Exception:
    kept = f" (the rows so far are in {journal.path})" if journal.path else ""
    if failure.trace:
        return EvaluationError(f"{failure.cell}: {failure.message}{kept}\n{failure.trace}")
    return SchedEnvError(f"{failure.cell}: {failure.message}{kept}")


def _describe(grid: _Grid, setting: Setting, num_requests: Sequence[int]) -> dict[str, Any]:
    """Return everything that decided the rows as plain values."""
    return finite(
        {
            "policies": [
                {"label": one.label, "kind": one.kind, **one.description} for one in grid.policies
            ],
            "traces": [
                {"label": one.label, "trace": _source_text(one), "num_requests": count}
                for one, count in zip(grid.traces, num_requests, strict=True)
            ],
            "loads": list(grid.loads),
            "seeds": list(grid.seeds),
            "split": setting.split,
            "starvation_s": setting.starvation_s,
            "env": setting.env.to_dict(),
        }
    )


def _source_text(trace: TraceEntry) -> str:
    return trace.source if isinstance(trace.source, str) else trace.label


@contextmanager
def _progress_bar(total: int, shown: bool) -> Iterator[Callable[[], None]]:
    columns = (
        TextColumn("evaluate"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("simulations"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not shown) as bar:
        task = bar.add_task("evaluate", total=total)
        yield lambda: bar.advance(task)
