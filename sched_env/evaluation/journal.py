"""Rows on disk while an evaluation still runs: after a kill the same evaluation goes on from them.

``results.partial.jsonl`` holds what is evaluated on its first line, then one row a line, written as
Python spells JSON (``NaN`` stays ``NaN``), so that rows read back are those that were written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BufferedRandom
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sched_env.config.differences import describe_differences
from sched_env.errors import SchedEnvError
from sched_env.evaluation.folder_lock import lock_folder
from sched_env.evaluation.results import PARTIAL
from sched_env.metrics.summary import Row


class Journal:
    """Append each finished row to the journal of a folder; a whole evaluation removes it.

    An evaluation that fails or is killed leaves the rows so far, and the results of an earlier
    evaluation in the same folder as they were. A journal without rows stands for nothing.

    Attributes:
        path: The file; None keeps nothing.
        kept: Rows of the same evaluation that were finished before it was interrupted.
        num_rows: How many rows the journal holds, those that were kept included.
    """

    def __init__(self, folder: Path | None, question: Mapping[str, Any]) -> None:
        """Write to ``folder``; ``question`` is everything that decides the rows."""
        self.path = None if folder is None else folder / PARTIAL
        self.kept: list[Row] = []
        self.num_rows = 0
        self._question: dict[str, Any] = json.loads(json.dumps(question))
        self._file: BufferedRandom | None = None

    def __enter__(self) -> Self:
        """Open the file and read the rows that are there.

        Raises:
            SchedEnvError: the file belongs to another evaluation, or one that still runs.
        """
        if self.path is not None:
            self.path.touch()
            self._file = self.path.open("r+b")
            try:
                lock_folder(self._file, self.path.parent, "another evaluation")
                self._read(self._file, self.path)
            except BaseException:
                self._file.close()
                raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None and self.path is not None:
            if kind is None or self.num_rows == 0:
                self.path.unlink()
            self._file.close()

    def write(self, row: Row) -> None:
        """Append one row and hand it to the operating system."""
        self._append(row)
        self.num_rows += 1

    def _append(self, value: object) -> None:
        if self._file is not None:
            self._file.write(json.dumps(value).encode() + b"\n")
            self._file.flush()

    def _read(self, file: BufferedRandom, path: Path) -> None:
        """Take what whole lines there are, and leave the file where the next one belongs."""
        entries: list[dict[str, Any]] = []
        end = 0
        for line in file:
            entry = _parsed(line)
            if entry is None:
                break  # cut off by a kill
            entries.append(entry)
            end = file.tell()
        if len(entries) < 2:  # no row: whatever it was about, nothing would be lost
            entries, end = [], 0
        file.seek(end)
        file.truncate()
        if not entries:
            self._append(self._question)
            return
        differences = describe_differences(entries[0], self._question)
        if differences:
            raise SchedEnvError(
                f"{path.parent} holds an interrupted evaluation of something else: {differences}. "
                f"Name another folder, repeat that evaluation, or remove {path}"
            )
        self.kept = entries[1:]
        self.num_rows = len(self.kept)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
