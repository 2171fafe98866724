"""Files that are whole or absent: written beside their place, then renamed into it."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sched_env.config.differences import describe_differences
from sched_env.errors import SchedEnvError

SIMULATION, EVALUATION, ARENA = "a simulation", "an evaluation", "an arena"
SEARCH, REPLAY, TRAINING = "a search", "a replay", "a training"
_MARKS = {
    "requests.parquet": (SIMULATION,),
    "results.parquet": (EVALUATION,),
    "results.partial.jsonl": (EVALUATION,),
    "arena.md": (ARENA,),
    "progress.csv": (SEARCH, TRAINING),
    "replay.json": (REPLAY,),
}
"""Files by which results are known, and of which kinds they may be."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that takes its place if the block succeeds.

    A process that is killed midway, or a machine that stops, leaves the file at ``path`` as it was.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)  # mkstemp makes files that only the owner can read
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file in one piece."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file in one piece; NaN and infinities become null."""
    write_text(path, json.dumps(finite(value), indent=1, allow_nan=False) + "\n")


def finite(value: Any) -> Any:
    """Return the value with every NaN and infinity in it replaced by ``None``."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def make_folder(path: Path, kind: str = "") -> Path:
    """Make a folder for results and return it.

    Args:
        path: where.
        kind: of what, one of those above if it is; the same may lie there already.

    Raises:
        SchedEnvError: a file, a training run or results of another kind are in the way, or the
            folder cannot be made or written to.
    """
    _refuse_taken(path, kind)
    with _results_to(path):
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path


def check_folder(path: Path, kind: str = "") -> Path:
    """Return a path at which a folder for results can be made, without making it.

    For work whose own faults come to light later: they leave no folder behind. Arguments and errors
    are those of `make_folder`.
    """
    _refuse_taken(path, kind)
    with _results_to(path):
        nearest = next(one for one in (path, *path.absolute().parents) if one.exists())
        with tempfile.TemporaryFile(dir=nearest):
            return path


def refuse_another(
    path: Path, what: str, there: Mapping[str, Any], here: Mapping[str, Any]
) -> None:
    """Refuse a folder whose results answer another question.

    Args:
        path: the folder, which holds results.
        what: their kind.
        there: everything that decided them.
        here: everything that decides what is to take their place.

    Raises:
        SchedEnvError: they differ; the message says in what.
    """
    differences = describe_differences(there, json.loads(json.dumps(here)))
    if differences:
        raise SchedEnvError(
            f"{path} holds the results of {what} of something else: {differences}. Name another "
            "folder, or remove them"
        )


def _refuse_taken(path: Path, kind: str) -> None:
    if path.exists() and not path.is_dir():
        raise SchedEnvError(f"{path} is a file: name a folder for the results")
    if (path / "checkpoints").is_dir() or (path / "policy.safetensors").is_file():
        raise SchedEnvError(
            f"{path} holds a training run or a policy, whose files the results would replace: "
            f"name another folder, such as {path / 'evaluation'}"
        )
    refuse_other_kinds(path, kind)


def refuse_other_kinds(path: Path, kind: str) -> None:
    """Refuse a folder with results of another kind than ``kind``.

    Raises:
        SchedEnvError: it holds some.
    """
    for file, kinds in _MARKS.items():
        if kind not in kinds and (path / file).is_file():
            raise SchedEnvError(f"{path} holds the results of {kinds[0]}: name another folder")


@contextmanager
def _results_to(path: Path) -> Iterator[None]:
    """Tell the user what keeps results from being written to ``path``."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise SchedEnvError(f"cannot write results to {path}: {reason}") from None
