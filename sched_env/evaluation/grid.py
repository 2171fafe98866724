"""The grid of an evaluation: policies x traces x loads x seeds, and what decided its rows."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sched_env.evaluation.cell import Setting
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
from sched_env.evaluation.files import finite
from sched_env.evaluation.fingerprints import cost_sha256, table_sha256
from sched_env.workload import RequestTable


@dataclass(frozen=True)
class Grid:
    """What is compared on what."""

    policies: tuple[PolicyEntry, ...]
    traces: tuple[TraceEntry, ...]
    loads: tuple[float | None, ...]
    seeds: tuple[int, ...]

    @classmethod
    def checked(
        cls,
        policies: Sequence[PolicyLike] | Mapping[str, PolicyLike],
        traces: Sequence[TraceLike] | Mapping[str, TraceLike],
        loads: Sequence[float | None] | float | None,
        seeds: int | Sequence[int],
        *,
        allow_privileged: bool = False,
    ) -> Grid:
        """Make a grid of what a user gave; see `sched_env.evaluation.runner.evaluate`.

        Raises:
            SchedEnvError: a policy, trace, load or seed is wrong; the message says which.
        """
        return cls(
            policy_entries(policies, allow_privileged=allow_privileged),
            trace_entries(traces),
            check_loads(loads),
            check_seeds(seeds),
        )

    def cells(self) -> list[Cell]:
        """Return the cells in the order of the rows."""
        return [
            Cell(policy, trace, load, seed)
            for policy in self.policies
            for trace in self.traces
            for load in self.loads
            for seed in self.seeds
        ]

    def can_be_sent(self) -> bool:
        """Return whether other processes can be given the policies."""
        try:
            pickle.dumps(self.policies)
        except (pickle.PicklingError, TypeError, AttributeError):
            return False  # a policy object that only this process knows
        return True


def describe_grid(grid: Grid, setting: Setting, tables: Sequence[RequestTable]) -> dict[str, Any]:
    """Return everything that decided the rows as plain values.

    Args:
        grid: What is compared.
        setting: What all cells share.
        tables: The requests of each trace, under the first seed.
    """
    return finite(
        {
            "policies": [
                {"label": one.label, "kind": one.kind, **one.description} for one in grid.policies
            ],
            "traces": [
                {
                    "label": one.label,
                    "trace": source_text(one),
                    "num_requests": len(table),
                    "requests_sha256": table_sha256(table),
                }
                for one, table in zip(grid.traces, tables, strict=True)
            ],
            "loads": list(grid.loads),
            "seeds": list(grid.seeds),
            "split": setting.split,
            "starvation_s": setting.starvation_s,
            "max_requests": setting.max_requests,
            "cost_sha256": cost_sha256(setting.env.cost),
            "env": setting.env.to_dict(),
        }
    )


def source_text(trace: TraceEntry) -> str:
    """Return what stands for a trace in files: its path or name, or the label of a table."""
    return trace.source if isinstance(trace.source, str) else trace.label
