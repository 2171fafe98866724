"""One simulation of the grid, here or in another process."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sched_env.config import EnvConfig, ServiceConfig
from sched_env.config.cost import LiveCost, ServerCost
from sched_env.errors import SchedEnvError
from sched_env.evaluation.entries import CLAIRVOYANT, Cell, PolicyEntry, TraceEntry
from sched_env.metrics.summary import Row, summarize
from sched_env.policy.keys import Heuristic
from sched_env.policy.registry import resolve_policy
from sched_env.policy.runtime import ExportedPolicy
from sched_env.simulator.simulate import at_load, check_load, fcfs_capacity_rps, simulate
from sched_env.workload import RequestTable, read_env_trace
from sched_env.workload.synthetic import WORKLOADS


@dataclass(frozen=True)
class Setting:
    """What all cells of an evaluation share: the server, its clients, and the window."""

    env: EnvConfig
    split: str
    starvation_s: float
    max_requests: int | None = None  # of a window, from its start; None: all


@dataclass(frozen=True)
class CellFailure:
    """Why a cell has no row; plain texts, so that it can be sent between processes."""

    cell: str
    message: str
    trace: str  # empty for a fault of the user


@dataclass(frozen=True)
class Window:
    """The requests of a trace that are simulated, and the rate that fcfs can drain them at."""

    table: RequestTable
    capacity_rps: float


class CellRunner:
    """Run cells of one evaluation, keeping policies and traces between them."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._policies: dict[str, Heuristic | ExportedPolicy] = {}
        self._windows: dict[tuple[str, int | None], Window] = {}

    def run(self, cell: Cell) -> Row | CellFailure:
        """Return the row of a cell, or why it has none."""
        try:
            return self._run(cell)
        except SchedEnvError as error:
            return CellFailure(str(cell), str(error), "")
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            return CellFailure(str(cell), reason, traceback.format_exc())

    def window(self, trace: TraceEntry, seed: int) -> Window:
        """Return the window of a trace, which for synthetic traces depends on the seed.

        Raises:
            TraceError: the trace cannot be read, or has no request in this split.
            UnknownNameError: no such trace.
        """
        key = (trace.label, seed if is_drawn(trace) else None)
        if key not in self._windows:
            if len(self._windows) >= _WINDOWS_KEPT:
                self._windows.clear()
            table = self._read(trace, seed).split(self._setting.split)
            if self._setting.max_requests is not None:
                table = table.take(np.arange(min(self._setting.max_requests, len(table))))
            self._windows[key] = Window(table, fcfs_capacity_rps(table, self._setting.env))
        return self._windows[key]

    def tables(
        self, traces: Sequence[TraceEntry], loads: Sequence[float | None], seed: int
    ) -> list[RequestTable]:
        """Return the requests of each trace under one seed, once every load is known to fit them.

        Raises:
            SchedEnvError: a trace cannot be read, or a load cannot be set on it.
        """
        tables = []
        for trace in traces:
            window = self.window(trace, seed)
            for load in loads:
                if load is not None:
                    check_load(window.table, load, window.capacity_rps)
            tables.append(window.table)
        return tables

    def _run(self, cell: Cell) -> Row:
        setting = self._setting
        window = self.window(cell.trace, cell.seed)
        policy = self._policy(cell.policy)
        table = window.table
        if cell.load is not None:
            table = at_load(table, cell.load, window.capacity_rps)
        privileged = cell.policy.kind == CLAIRVOYANT
        result = simulate(table, policy, setting.env, seed=cell.seed, allow_privileged=privileged)
        labels = {
            "policy": cell.policy.label,
            "trace": cell.trace.label,
            "load": cell.load,
            "seed": cell.seed,
            "clock": clock_text(setting.env.cost),
            "policy_kind": cell.policy.kind,
            "split": setting.split,
            "length_prediction": length_prediction_text(setting.env.service),
            "fcfs_capacity_rps": window.capacity_rps,
            "request_rate": table.mean_rate_rps,
        }
        return summarize(
            result,
            labels=labels,
            class_names=[one.name for one in setting.env.service.classes],
            starvation_s=setting.starvation_s,
        )

    def _read(self, trace: TraceEntry, seed: int) -> RequestTable:
        if isinstance(trace.source, RequestTable):
            return trace.source
        drawn_by = seed if is_drawn(trace) else 0
        return read_env_trace(self._setting.env, trace.source, seed=drawn_by)

    def _policy(self, entry: PolicyEntry) -> Heuristic | ExportedPolicy:
        if entry.label not in self._policies:
            privileged = entry.kind == CLAIRVOYANT
            found = resolve_policy(entry.target, allow_privileged=privileged)
            self._policies[entry.label] = found
        return self._policies[entry.label]


_WINDOWS_KEPT = 8
"""Windows held at once; cells come grouped by trace and seed."""


def is_drawn(trace: TraceEntry) -> bool:
    """Return whether the trace is an embedded workload, drawn anew for each seed."""
    return isinstance(trace.source, str) and trace.source in WORKLOADS


def clock_text(cost: ServerCost) -> str:
    """Return what moved the clock: measured (a live run) or modelled step times."""
    return "measured" if isinstance(cost, LiveCost) else "modelled"


def length_prediction_text(service: ServiceConfig) -> str:
    """Return what policies were told about output lengths: none, noisy(sigma) or oracle."""
    prediction = service.length_prediction
    return f"noisy({prediction.sigma:g})" if prediction.kind == "noisy" else prediction.kind
