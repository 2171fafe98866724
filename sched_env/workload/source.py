"""Where the rows of a request table come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TraceSource:
    """Where a table comes from, and what was done to the rows on the way.

    Attributes:
        name: short name for reports (file name without folders, or a workload's name).
        format: name of the format or ``synthetic``.
        path: file that was read; ``None`` for generated tables.
        resolution_s: tick of the trace's clock in seconds, 0 if continuous. Arrivals closer than
            this tell of the clock, not of bursts.
        drops: rows left out, by reason.
        changes: rows kept but altered, by what was done to them.
        notes: sentences that a report should show.
    """

    name: str = "requests"
    format: str = "columns"
    path: str | None = None
    resolution_s: float = 0.0
    drops: Mapping[str, int] = field(default_factory=dict)
    changes: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def num_dropped(self) -> int:
        """Return the number of rows left out, over all reasons."""
        return sum(self.drops.values())

    def noted(
        self,
        *notes: str,
        drops: Mapping[str, int] | None = None,
        changes: Mapping[str, int] | None = None,
    ) -> TraceSource:
        """Return a copy with these notes appended and these counts added (zeros left out)."""
        return dataclasses.replace(
            self,
            notes=self.notes + notes,
            drops=_added(self.drops, drops or {}),
            changes=_added(self.changes, changes or {}),
        )


def _added(counts: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    total = dict(counts)
    for reason, count in more.items():
        if count:
            total[reason] = total.get(reason, 0) + int(count)
    return total
