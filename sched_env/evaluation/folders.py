"""Folders of results: made, or refused where they hold something that would be replaced.

The same command may write to its own folder again. What another command left there stays, and so
does what answers another question: ``config.yaml`` holds everything that decided the results.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sched_env.config.differences import describe_differences
from sched_env.config.yaml_text import read_yaml_mapping
from sched_env.errors import SchedEnvError

CONFIG = "config.yaml"

SIMULATION, EVALUATION, ARENA = "a simulation", "an evaluation", "an arena"
SEARCH, REPLAY, TRAINING = "a search", "a replay", "a training"
SEARCH_START = "start_sha256"
"""Key of the configuration of a search, and of no other, for what it goes on from."""

_MARKS = {
    "requests.parquet": (SIMULATION,),
    "results.parquet": (EVALUATION,),
    "results.partial.jsonl": (EVALUATION,),
    "arena.md": (ARENA,),
    "progress.csv": (SEARCH, TRAINING),
    "replay.json": (REPLAY,),
}
"""Files by which results are known, and of which kinds they may be."""

_FINISHED = {
    SIMULATION: "summary.json",
    EVALUATION: "results.json",
    ARENA: "results.json",
    SEARCH: "summary.json",
}
"""The file that stands where results of a kind are whole."""


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


def check_folder(path: Path, kind: str = "", question: Mapping[str, Any] | None = None) -> Path:
    """Return a path at which a folder for results can be made, without making it.

    For work whose own faults come to light later: they leave no folder behind.

    Args:
        path: where.
        kind: as in `make_folder`.
        question: everything that decides the results, what ``config.yaml`` will hold.

    Raises:
        SchedEnvError: as in `make_folder`, or results of another question are in the way.
    """
    _refuse_taken(path, kind)
    if question is not None and (path / _FINISHED[kind]).is_file():
        _refuse_another(path, kind, question)
    with _results_to(path):
        nearest = next(one for one in (path, *path.absolute().parents) if one.exists())
        with tempfile.TemporaryFile(dir=nearest):
            return path


def holds(path: Path, kind: str) -> bool:
    """Tell whether a folder may hold results of a kind."""
    return any(kind in kinds and (path / file).is_file() for file, kinds in _MARKS.items())


def refuse_other_kinds(path: Path, kind: str) -> None:
    """Refuse a folder with results of another kind than ``kind``.

    Raises:
        SchedEnvError: it holds some.
    """
    for file, kinds in _MARKS.items():
        if kind not in kinds and (path / file).is_file():
            raise SchedEnvError(f"{path} holds the results of {kinds[0]}: name another folder")
    if kind != SEARCH and _is_searched(path):
        raise SchedEnvError(f"{path} holds the results of {SEARCH}: name another folder")


def _is_searched(path: Path) -> bool:
    """Tell a search from a training, which shares its file names, by its configuration."""
    try:
        return SEARCH_START in read_yaml_mapping(path / CONFIG)
    except SchedEnvError:
        return False


def _refuse_another(path: Path, kind: str, question: Mapping[str, Any]) -> None:
    try:
        there = read_yaml_mapping(path / CONFIG)
    except SchedEnvError:
        there = {}
    differences = describe_differences(there, json.loads(json.dumps(question)))
    if differences:
        raise SchedEnvError(
            f"{path} holds the results of {kind} of something else: {differences}. Name another "
            "folder, or remove them"
        )


def _refuse_taken(path: Path, kind: str) -> None:
    if (path.exists() or path.is_symlink()) and not path.is_dir():
        what = "a file" if path.exists() else "a link to nothing"
        raise SchedEnvError(f"{path} is {what}: name a folder for the results")
    if (path / "checkpoints").is_dir() or (path / "policy.safetensors").is_file():
        raise SchedEnvError(
            f"{path} holds a training run or a policy, whose files the results would replace: "
            f"name another folder, such as {path / 'evaluation'}"
        )
    refuse_other_kinds(path, kind)


@contextmanager
def _results_to(path: Path) -> Iterator[None]:
    """Tell the user what keeps results from being written to ``path``."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise SchedEnvError(f"cannot write results to {path}: {reason}") from None
