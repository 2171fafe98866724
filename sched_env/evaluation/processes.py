"""The cells of an evaluation, run here or in several processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from sched_env.errors import SchedEnvError
from sched_env.evaluation.cell import CellFailure, CellRunner, Setting
from sched_env.evaluation.entries import Cell
from sched_env.metrics.summary import Row


def run_cells(
    cells: Sequence[Cell], runner: CellRunner, setting: Setting, processes: int
) -> Iterator[Row | CellFailure]:
    """Yield the row of each cell, or why it has none, as they finish.

    Args:
        cells: What to simulate.
        runner: Runs them where one process is enough.
        setting: What runners in other processes are made of.
        processes: How many to use.
    """
    # Cells of one trace and seed follow each other, so that its window is made once.
    ordered = sorted(cells, key=lambda cell: (cell.trace.label, cell.seed))
    if min(processes, len(ordered)) <= 1:
        for cell in ordered:
            yield runner.run(cell)
        return
    with ProcessPoolExecutor(
        min(processes, len(ordered)),
        multiprocessing.get_context("spawn"),
        _start_worker,
        (setting, ordered),
    ) as pool:
        futures = [pool.submit(_run_in_worker, index) for index in range(len(ordered))]
        try:
            for future in as_completed(futures):
                yield _result(future)
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
