"""How far a long command is, on standard error."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

import numba
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from sched_env.compiled import cache_folder

_LINES_WITHOUT_TERMINAL = 10


def announce_compilation() -> None:
    """Say on standard error that the engine has to be compiled first, where that is so.

    Otherwise the first command on a machine would look as if it hung.
    """
    folder = cache_folder()
    if numba.config.DISABLE_JIT:  # pyright: ignore[reportAttributeAccessIssue]
        return
    if folder is None:
        sys.stderr.write(
            "compiling the engine, each time anew because no folder can be written to: name one "
            "in SCHED_ENV_CACHE_DIR\n"
        )
    elif not any(folder.rglob("kernels.*.nbi")):
        sys.stderr.write("compiling the engine, once on this machine: about a minute\n")


class ProgressBar:
    """A bar with a text; where there is no terminal, a line after each tenth."""

    def __init__(self, title: str, total: int, *, shown: bool = True) -> None:
        self._title, self._total, self._shown = title, total, shown
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn(title),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not (shown and self._console.is_terminal),
        )
        self._task = self._bar.add_task("", total=total)
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

    def update(self, completed: float, text: str) -> None:
        """Show how much of the total is done."""
        self._bar.update(self._task, completed=completed, description=text)
        done = completed / max(1, self._total)
        if self._shown and not self._console.is_terminal and done >= self._next_line:
            self._next_line = done + 1 / _LINES_WITHOUT_TERMINAL
            line = f"{self._title} {100 * done:.0f} %, {text}"
            self._console.print(line, highlight=False, soft_wrap=True)
