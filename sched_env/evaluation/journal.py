"""Rows on disk while an evaluation still runs, so that a kill loses none of them."""

from __future__ import annotations

import json
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Self

from sched_env.evaluation.files import finite
from sched_env.evaluation.results import PARTIAL
from sched_env.metrics.summary import Row


class Journal:
    """Append each finished row to ``results.partial.jsonl``; a whole evaluation removes it.

    An evaluation that fails or is killed leaves the rows so far, one JSON object a line, and the
    results of an earlier evaluation in the same folder as they were.
    """

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / PARTIAL
        self._file: TextIOWrapper | None = None

    def __enter__(self) -> Self:
        if self.path is not None:
            self._file = self.path.open("w", encoding="utf-8", newline="\n")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None and self.path is not None:
            self._file.close()
            if kind is None:
                self.path.unlink()

    def write(self, row: Row) -> None:
        """Append one row and hand it to the operating system."""
        if self._file is not None:
            self._file.write(json.dumps(finite(row), allow_nan=False) + "\n")
            self._file.flush()
