"""Measured step times: a CSV file with one timed step a row, in groups by what was measured.

| column | meaning |
|---|---|
| ``gpu``, ``model``, ``tp``, ``precision`` | what was measured: these four make a group |
| ``n_decode`` | decoding sequences of the step |
| ``ctx`` | tokens of context of each of them |
| ``prefill_tokens`` | tokens of the prefill chunk, 0 for none |
| ``prefill_past`` | tokens of that prompt computed before |
| ``ms`` | time of the step in milliseconds |
| ``kind`` | may be left out; ``measured_...``: the engine's own time is in ``ms`` |
| ``source`` | may be left out; where the row comes from |

Other columns are passed over.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sched_env.errors import ConfigError, UnknownNameError, did_you_mean

DECODE, PREFILL, MIXED = "decode", "prefill", "mixed"
PHASES = (DECODE, PREFILL, MIXED)

GROUP_COLUMNS = ("gpu", "model", "tp", "precision")
NUMBER_COLUMNS = ("n_decode", "ctx", "prefill_tokens", "prefill_past", "ms")
COLUMNS = (*GROUP_COLUMNS, *NUMBER_COLUMNS)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MeasuredSteps:
    """Timed steps of one GPU, model, tensor-parallel size and precision.

    Attributes:
        group: Its name, ``gpu/model[/tpN][/precision]``, where bf16 goes without saying.
        n_decode: float64 (n,), decoding sequences.
        ctx: float64 (n,), context of each of them in tokens.
        prefill_tokens: float64 (n,).
        prefill_past: float64 (n,), tokens computed before the chunk.
        ms: float64 (n,).
        has_engine_time: Whether ``ms`` holds the engine's own time too.
        sources: Where the rows come from.
    """

    group: str
    n_decode: Floats
    ctx: Floats
    prefill_tokens: Floats
    prefill_past: Floats
    ms: Floats
    has_engine_time: bool = False
    sources: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.ms)

    @property
    def gpu(self) -> str:
        """Return the name of the GPU."""
        return self.group.split("/")[0]

    @property
    def phases(self) -> npt.NDArray[np.str_]:
        """Return ``decode``, ``prefill`` or ``mixed`` for each row (n,)."""
        no_decode = np.where(self.n_decode == 0, PREFILL, MIXED)
        return np.where(self.prefill_tokens == 0, DECODE, no_decode)

    @property
    def context_tokens(self) -> Floats:
        """Return the context of all decoding sequences together (n,)."""
        return self.n_decode * self.ctx

    def take(self, rows: npt.ArrayLike) -> MeasuredSteps:
        """Return some rows, by mask or by index."""
        chosen = np.asarray(rows)
        return MeasuredSteps(
            self.group,
            **{name: getattr(self, name)[chosen] for name in NUMBER_COLUMNS},
            has_engine_time=self.has_engine_time,
            sources=self.sources,
        )


def read_measured_steps(path: str | Path) -> dict[str, MeasuredSteps]:
    """Read a table of measured steps; return its groups by name, in order of the file.

    Raises:
        ConfigError: The file cannot be read, lacks a column, or a row has a wrong value; the
            message names the line.
    """
    rows: dict[str, list[tuple[float, ...]]] = {}
    kinds: dict[str, set[str]] = {}
    sources: dict[str, dict[str, None]] = {}
    for place, row in _rows(Path(path)):
        group = _group_name(place, row)
        rows.setdefault(group, []).append(_numbers(place, row))
        kinds.setdefault(group, set()).add(row.get("kind", "").partition("_")[0])
        sources.setdefault(group, {})[row.get("source", "")] = None
    if not rows:
        raise ConfigError(f"{path}: no row of measured times; give a table with at least one")
    return {
        group: MeasuredSteps(
            group,
            *np.array(found, np.float64).T,
            has_engine_time=kinds[group] == {"measured"},
            sources=tuple(filter(None, sources[group])),
        )
        for group, found in rows.items()
    }


def choose_group(
    groups: Mapping[str, MeasuredSteps], name: str | None, source: str
) -> MeasuredSteps:
    """Return the group of that name, or the only one.

    Raises:
        ConfigError: There are several groups, and none is named.
        UnknownNameError: No group has that name.
    """
    if name is not None:
        if name not in groups:
            raise UnknownNameError(f"group in {source}", name, groups)
        return groups[name]
    if len(groups) > 1:
        raise ConfigError(
            f"{source} holds {len(groups)} groups, and none is chosen: give one of "
            f"{', '.join(groups)} as the group"
        )
    return next(iter(groups.values()))


def slug(text: str) -> str:
    """Return a name as presets spell it: lower case, with hyphens."""
    return "-".join(text.lower().replace("_", " ").replace("/", " ").split())


def group_name(gpu: str, model: str, tp: int, precision: str) -> str:
    """Return ``gpu/model[/tpN][/precision]``; bf16 goes without saying."""
    parts = [slug(gpu), slug(model)]
    if tp > 1:
        parts.append(f"tp{tp}")
    if slug(precision) != "bf16":
        parts.append(slug(precision))
    return "/".join(parts)


def group_parts(group: str) -> tuple[str, str, int, str]:
    """Return (gpu, model, tp, precision) of a group's name."""
    gpu, model, *rest = group.split("/")
    tp = next((int(one[2:]) for one in rest if one[:2] == "tp" and one[2:].isdigit()), 1)
    precision = next((one for one in rest if one != f"tp{tp}"), "bf16")
    return gpu, model, tp, precision


def _rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (place, cells by column) of each data row."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = [name.strip() for name in next(reader, [])]
            _check_header(path, header)
            for fields in reader:
                place = f"{path}, line {reader.line_num}"
                if not fields:
                    continue
                if len(fields) != len(header):
                    raise ConfigError(
                        f"{place}: {len(fields)} fields where {len(header)} are wanted; correct "
                        "or delete the line"
                    )
                yield place, {name: one.strip() for name, one in zip(header, fields, strict=True)}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; check the path") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: not a CSV file in UTF-8 ({error}); check the path") from None


def _check_header(path: Path, header: list[str]) -> None:
    for column in COLUMNS:
        if column not in header:
            raise ConfigError(
                f"{path}: column {column!r} is missing.{did_you_mean(column, header)} A table of "
                f"measured steps has {', '.join(COLUMNS)}"
            )
    doubled = {name for name in header if header.count(name) > 1}
    if doubled:
        raise ConfigError(f"{path}: column {min(doubled)!r} occurs twice; rename one")


def _group_name(place: str, row: dict[str, str]) -> str:
    for column in GROUP_COLUMNS:
        if not row[column]:
            raise ConfigError(f"{place}, column {column}: empty; name what was measured")
    tp = _number(place, row, "tp")
    if not (tp >= 1 and tp.is_integer()):
        raise ConfigError(f"{place}, column tp: {row['tp']!r} is not a whole number of 1 or more")
    return group_name(row["gpu"], row["model"], int(tp), row["precision"])


def _numbers(place: str, row: dict[str, str]) -> tuple[float, ...]:
    numbers = tuple(_number(place, row, name) for name in NUMBER_COLUMNS)
    n_decode, _, prefill_tokens, _, ms = numbers
    if n_decode == 0 and prefill_tokens == 0:
        raise ConfigError(f"{place}: a step with neither n_decode nor prefill_tokens; delete it")
    if ms == 0:
        raise ConfigError(f"{place}, column ms: 0 is not a time above 0; correct or delete the row")
    return numbers


def _number(place: str, row: dict[str, str], column: str) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ConfigError(
            f"{place}, column {column}: {row[column]!r} is not a number >= 0; correct or delete "
            "the row"
        )
    return value


def step_columns(steps: MeasuredSteps) -> dict[str, Any]:
    """Return the columns of a group as they stand in the file, by name."""
    gpu, model, tp, precision = group_parts(steps.group)
    kind = "measured_step" if steps.has_engine_time else "composed"
    fixed = {"gpu": gpu, "model": model, "tp": tp, "precision": precision}
    columns: dict[str, Any] = {name: [value] * len(steps) for name, value in fixed.items()}
    columns |= {name: getattr(steps, name) for name in NUMBER_COLUMNS}
    return columns | {
        "kind": [kind] * len(steps),
        "source": ["; ".join(steps.sources)] * len(steps),
    }
