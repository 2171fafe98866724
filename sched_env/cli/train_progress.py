"""A progress bar of training, on standard error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

_LINES_WITHOUT_TERMINAL = 10
_SHOWN = {"eval/goodput_weighted": "validation goodput", "rollout/ep_rew_mean": "reward"}


class Standing(Protocol):
    """Where a training run stands."""

    @property
    def num_decisions(self) -> int:
        """Decisions taken so far."""
        ...

    @property
    def total_decisions(self) -> int:
        """Decisions of the whole run."""
        ...

    @property
    def decisions_per_s(self) -> float:
        """Speed of this session."""
        ...

    @property
    def metrics(self) -> Mapping[str, float]:
        """The newest curves, by TensorBoard tag."""
        ...


class TrainProgressBar:
    """Shows how far a run is; a line now and then where there is no terminal."""

    def __init__(self, total_decisions: int) -> None:
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("train"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total_decisions)
        self._next_line = 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def update(self, standing: Standing) -> None:
        """Show where the run stands."""
        text = describe(standing)
        self._bar.update(
            self._task,
            completed=standing.num_decisions,
            total=standing.total_decisions,
            description=text,
        )
        done = standing.num_decisions / max(1, standing.total_decisions)
        if not self._console.is_terminal and done >= self._next_line:
            self._next_line = done + 1 / _LINES_WITHOUT_TERMINAL
            self._console.print(
                f"train {100 * done:.0f} %, {text}", highlight=False, soft_wrap=True
            )


def describe(standing: Standing) -> str:
    """Return the speed and the curves that matter most, in one short line."""
    parts = [f"{standing.decisions_per_s:,.0f} decisions/s"]
    for tag, name in _SHOWN.items():
        if math.isfinite(standing.metrics.get(tag, math.nan)):
            parts.append(f"{name} {standing.metrics[tag]:.4g}")
    return ", ".join(parts)
