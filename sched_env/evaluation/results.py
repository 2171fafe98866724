"""What an evaluation leaves behind: flat rows, a summary, and how they came about."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import yaml

from sched_env.errors import SchedEnvError
from sched_env.evaluation.compare import Comparison
from sched_env.evaluation.files import finite, replacing, write_json, write_text
from sched_env.evaluation.folders import CONFIG
from sched_env.metrics.summary import Row

RESULTS = "results.json"
PARQUET = "results.parquet"
SUMMARY = "summary.json"
ENVIRONMENT = "environment.json"
PARTIAL = "results.partial.jsonl"


@dataclass(frozen=True)
class EvaluationResult:
    """A finished evaluation.

    Attributes:
        rows: One flat row for each policy, trace, load and seed, in that order.
        comparison: The policies compared by weighted goodput.
        config: Everything that decided the rows, as plain values.
        environment: Versions and machine.
        out_dir: Folder of the files, or None where nothing was written.
    """

    rows: tuple[Row, ...]
    comparison: Comparison
    config: dict[str, Any]
    environment: dict[str, Any]
    out_dir: Path | None = None


def write_results(result: EvaluationResult, folder: Path) -> None:
    """Write the files of an evaluation, each in one piece; ``results.json`` comes last.

    Args:
        result: What to write.
        folder: An existing folder.
    """
    write_text(folder / CONFIG, yaml.safe_dump(result.config, sort_keys=False))
    write_json(folder / ENVIRONMENT, result.environment)
    write_json(folder / SUMMARY, result.comparison.to_dict())
    with replacing(folder / PARQUET) as temporary:
        pyarrow.parquet.write_table(rows_table(result.rows), temporary)
    write_json(folder / RESULTS, list(result.rows))


def rows_table(rows: Sequence[Row]) -> pa.Table:
    """Return rows as an Arrow table: a column for each key, null where a row has no value."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    plain = [finite(row) for row in rows]
    return pa.table({name: pa.array([row.get(name) for row in plain]) for name in names})


def read_rows(path: Path) -> list[Row]:
    """Read ``results.json``, given the file or its folder.

    Raises:
        SchedEnvError: there is no such file, or it holds no results.
    """
    file = path / RESULTS if path.is_dir() else path
    if not file.is_file():
        raise SchedEnvError(f"no results at {file}: run sched-env evaluate with --out {path} first")
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SchedEnvError(f"{file} is no JSON ({error}): evaluate again") from None
    labels = {"policy", "trace", "load", "seed"}
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and labels <= set(row) for row in rows
    ):
        raise SchedEnvError(f"{file} is no list of rows with policy, trace, load and seed")
    return rows
