"""ServeGen clients: rates and gap shapes per 600 s window, token lengths as distributions.

A client is a pair of files. ``chunk-N-trace.csv`` has no header; its rows are
``window_start_s, rate_req_per_s, cv, family, param1, param2``. ``chunk-N-dataset.json`` maps the
start of longer windows to the distributions of prompt and output tokens, written as the text of a
Python dict, which is parsed here and never evaluated. Requests are drawn: gaps of the window's
family and shape, scaled to the window's rate; prompt and output independently or with a chosen
correlation.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sched_env.errors import TraceError
from sched_env.workload.arrivals import MAX_NUM_ARRIVALS, unit_gamma_gaps, unit_weibull_gaps
from sched_env.workload.readers.csv_columns import CsvColumns
from sched_env.workload.readers.raw_requests import SERVEGEN_PURPOSE, RawRequests, ReadOptions
from sched_env.workload.readers.servegen_lengths import LengthWindows
from sched_env.workload.readers.trace_file import TraceFile

FIELDS = ("window_start_s", "rate_req_per_s", "cv", "family", "param1", "param2")
TRACE_SUFFIX, DATASET_SUFFIX = "-trace.csv", "-dataset.json"
DEFAULT_WINDOW_S = 3600.0
"""Length of the part that is drawn when the caller names none: from the first traffic on."""

_FAMILIES = ("Gamma", "Weibull", "")
_NUMBER = re.compile(r"-?[0-9.]+([eE][+-]?[0-9]+)?")
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RateWindows:
    """The windows of one client.

    Attributes:
        start_s: float64 (m,), increasing.
        width_s: length of every window in seconds.
        rate_rps: float64 (m,), >= 0.
        family: gap family of each window, ``Gamma``, ``Weibull`` or empty (exponential).
        shape: float64 (m,), shape parameter of the gaps.
    """

    start_s: FloatArray
    width_s: float
    rate_rps: FloatArray
    family: tuple[str, ...]
    shape: FloatArray

    def first_traffic_s(self) -> float | None:
        """Return the start of the first window with traffic, or ``None``."""
        busy = np.flatnonzero(self.rate_rps > 0)
        return float(self.start_s[busy[0]]) if len(busy) else None

    def overlap_s(self, start_s: float, end_s: float) -> FloatArray:
        """Return the seconds of each window that lie in (start, end), float64 (m,)."""
        first = np.maximum(self.start_s, start_s)
        return np.maximum(0.0, np.minimum(self.start_s + self.width_s, end_s) - first)

    def draw(self, rng: np.random.Generator, start_s: float, end_s: float) -> FloatArray:
        """Draw arrivals in (start, end) in seconds of the windows' clock, sorted.

        The gap after an arrival has the shape of the window it starts in; a gap that crosses into
        the next window runs on at that window's rate, so that every window keeps its mean rate.
        """
        arrivals: list[FloatArray] = []
        left = math.nan
        overlap_s = self.overlap_s(start_s, end_s)
        for index in np.flatnonzero((overlap_s > 0) & (self.rate_rps > 0)).tolist():
            expected = float(overlap_s[index] * self.rate_rps[index])
            if math.isnan(left):
                left = float(self._unit_gaps(rng, index, 1)[0])
            renewals = [np.array([left])]
            while left <= expected:
                gaps = self._unit_gaps(rng, index, int(expected - left) + 32)
                renewals.append(left + np.cumsum(gaps))
                left = float(renewals[-1][-1])
            times = np.concatenate(renewals)
            inside = times[times <= expected]
            left = float(times[len(inside)]) - expected
            arrivals.append(max(self.start_s[index], start_s) + inside / self.rate_rps[index])
        return np.concatenate(arrivals) if arrivals else np.zeros(0)

    def _unit_gaps(self, rng: np.random.Generator, index: int, size: int) -> FloatArray:
        if self.family[index] == "Gamma":
            return unit_gamma_gaps(rng, float(self.shape[index]), size)
        if self.family[index] == "Weibull":
            return unit_weibull_gaps(rng, float(self.shape[index]), size)
        return rng.standard_exponential(size)


def is_trace_row(fields: tuple[str, ...]) -> bool:
    """Return whether the first line of a CSV file is a row of ServeGen windows."""
    numbers = [field for index, field in enumerate(fields) if index != FIELDS.index("family")]
    return (
        len(fields) == len(FIELDS)
        and fields[FIELDS.index("family")] in _FAMILIES
        and all(_NUMBER.fullmatch(number) for number in numbers)
    )


def is_dataset(file: TraceFile) -> bool:
    """Return whether a JSON file looks like the dataset of a client."""
    return b'"input_tokens"' in file.data[:4096] and b'"output_tokens"' in file.data


def read_servegen(file: TraceFile, options: ReadOptions) -> RawRequests:
    """Draw the requests of one client from its pair of files.

    Raises:
        TraceError: a bad value, no dataset beside the trace, or no traffic in the window.
    """
    return _drawn([file], options)


def read_servegen_folder(folder: Path, options: ReadOptions) -> RawRequests:
    """Draw and merge the requests of all clients of a folder.

    Raises:
        TraceError: the folder has no client, or one of them cannot be read.
    """
    paths = sorted(folder.glob(f"chunk-*{TRACE_SUFFIX}*"), key=_chunk_number)
    if not paths:
        raise TraceError(
            f"{folder} is a folder without ServeGen clients (chunk-N{TRACE_SUFFIX}); give one "
            "trace file"
        )
    return _drawn([TraceFile.load(path) for path in paths], options)


def _chunk_number(path: Path) -> tuple[int, str]:
    digits = re.search(r"chunk-([0-9]{1,9})", path.name)
    return (int(digits.group(1)) if digits else 0, path.name)


def _drawn(files: list[TraceFile], options: ReadOptions) -> RawRequests:
    if options.time_unit is not None:
        raise TraceError(f"{files[0].name}: ServeGen windows are in seconds; leave time_unit out")
    clients = [read_windows(file) for file in files]
    start_s, end_s = options.window_s or _default_window(files, clients)
    expected = sum(
        float(np.sum(client.overlap_s(start_s, end_s) * client.rate_rps)) for client in clients
    )
    if expected > MAX_NUM_ARRIVALS:
        raise TraceError(
            f"{files[0].name}: about {expected:.3g} requests from {start_s:g} to {end_s:g} s, more "
            f"than {MAX_NUM_ARRIVALS}; give a shorter window_s"
        )
    arrivals, prompts, outputs = [], [], []
    for index, (file, client) in enumerate(zip(files, clients, strict=True)):
        rng = np.random.default_rng([options.seed, SERVEGEN_PURPOSE, index])
        arrivals.append(client.draw(rng, start_s, end_s))
        if len(arrivals[-1]):
            lengths = LengthWindows.load(_dataset_path(file))
            prompt, output = lengths.draw(rng, arrivals[-1], options.length_correlation)
            prompts.append(prompt)
            outputs.append(output)
    if not prompts:
        raise TraceError(
            f"{files[0].name}: no request from {start_s:g} to {end_s:g} s; choose another window_s"
        )
    times = np.concatenate(arrivals)
    order = np.argsort(times, kind="stable")
    return RawRequests(
        format="servegen",
        arrival=times[order],
        ticks_per_s=1.0,
        resolution_s=0.0,
        prompt_tokens=np.concatenate(prompts)[order],
        output_tokens=np.concatenate(outputs)[order],
        notes=(
            f"{len(files)} ServeGen client(s), windows from {start_s:g} to {end_s:g} s, drawn with "
            f"seed {options.seed}; correlation of lengths {options.length_correlation:g}",
        ),
    )


def _default_window(files: list[TraceFile], clients: list[RateWindows]) -> tuple[float, float]:
    starts = [start for client in clients if (start := client.first_traffic_s()) is not None]
    if not starts:
        raise TraceError(f"{files[0].name}: no window has traffic; give another client")
    return min(starts), min(starts) + DEFAULT_WINDOW_S


def _dataset_path(file: TraceFile) -> Path:
    stem = file.name.removesuffix(".gz")
    if not stem.endswith(TRACE_SUFFIX):
        raise TraceError(
            f"{file.name}: ServeGen windows in a file that is not named chunk-N{TRACE_SUFFIX}, so "
            f"its dataset cannot be found; rename both files"
        )
    stem = stem.removesuffix(TRACE_SUFFIX) + DATASET_SUFFIX
    for name in (stem, f"{stem}.gz"):
        if (path := file.path.parent / name).is_file():
            return path
    raise TraceError(f"{file.name}: its dataset {stem} is not beside it; put it into that folder")


def read_windows(file: TraceFile) -> RateWindows:
    """Read ``chunk-N-trace.csv``.

    Raises:
        TraceError: naming line and column of the first bad value.
    """
    source = CsvColumns(file, FIELDS)
    columns = {name: source.numbers(name) for name in FIELDS if name != "family"}
    family = tuple(str(value).strip() for value in source.values("family"))
    start_s, rate_rps, shape = (
        columns["window_start_s"],
        columns["rate_req_per_s"],
        columns["param1"],
    )
    for row in range(source.num_rows):
        if family[row] not in _FAMILIES:
            raise source.fault(row, "family", family[row], "Gamma, Weibull or empty")
        if not 0 <= rate_rps[row] <= 1e6:
            raise source.fault(row, "rate_req_per_s", rate_rps[row], "a rate from 0 to 1e6")
        if not 0 <= start_s[row] <= 1e10 or (row and start_s[row] <= start_s[row - 1]):
            wanted = "a later start than the row before"
            raise source.fault(row, "window_start_s", start_s[row], wanted)
        if rate_rps[row] > 0 and family[row] and not 0.01 <= shape[row] <= 1e6:
            raise source.fault(row, "param1", shape[row], "a shape from 0.01 to 1e6")
    width_s = float(np.min(np.diff(start_s))) if source.num_rows > 1 else 600.0
    return RateWindows(start_s, width_s, rate_rps, family, shape)
