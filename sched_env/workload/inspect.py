"""What is in a trace: span, rate, lengths, burstiness, prefix sharing, drops."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sched_env.errors import TraceError
from sched_env.workload.hash_ids import HashIds
from sched_env.workload.source import TraceSource
from sched_env.workload.table import RequestTable

PERCENTILES = (1, 5, 25, 50, 75, 90, 95, 99)


@dataclass(frozen=True)
class LengthSummary:
    """Token counts of one column.

    Attributes:
        mean: mean count.
        minimum: smallest count.
        maximum: largest count.
        percentiles: count at each of ``PERCENTILES``.
    """

    mean: float
    minimum: int
    maximum: int
    percentiles: dict[int, float]


@dataclass(frozen=True)
class PrefixSummary:
    """Prefix sharing under a cache that starts empty and never evicts.

    Attributes:
        block_tokens: tokens per block.
        num_blocks: blocks of all prompts.
        block_hit_rate: share of blocks that are leading hits: the request's first ids, up to the
            first one that no earlier request had.
        token_hit_rate: share of prompt tokens in leading hits, at most prompt - 1 per request.
        num_full_hits: requests whose every block is a hit.
    """

    block_tokens: int
    num_blocks: int
    block_hit_rate: float
    token_hit_rate: float
    num_full_hits: int


@dataclass(frozen=True)
class TraceSummary:
    """Figures of one trace.

    Attributes:
        num_requests: rows.
        num_failed: rows that the traced system failed and that were kept.
        span_s: first arrival to last, in seconds.
        mean_rate_rps: (rows - 1) / span; NaN if the span is 0.
        prompt_tokens: prompt lengths.
        output_tokens: output lengths.
        length_spearman: rank correlation of prompt and output length; NaN if either is constant.
        gap_cv: coefficient of variation of the gaps (1 = Poisson); NaN if the span is 0.
        zero_gap_share: share of gaps that are 0.
        dispersion_1s: variance / mean of arrivals per 1 s (1 = Poisson); NaN under 2 bins.
        dispersion_10s: the same per 10 s.
        prefix: prefix sharing, ``None`` where the trace has no ids.
        source: where the rows come from, with drops, changes and notes.
        file_sha256: of the file that was read, to tell it from copies that carry its name; ``None``
            for folders and tables made otherwise.
    """

    num_requests: int
    num_failed: int
    span_s: float
    mean_rate_rps: float
    prompt_tokens: LengthSummary
    output_tokens: LengthSummary
    length_spearman: float
    gap_cv: float
    zero_gap_share: float
    dispersion_1s: float
    dispersion_10s: float
    prefix: PrefixSummary | None
    source: TraceSource
    file_sha256: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return nested plain values, ready for JSON."""
        return dataclasses.asdict(self)


def summarize(table: RequestTable) -> TraceSummary:
    """Return the figures of a table.

    Raises:
        TraceError: the table is empty.
    """
    if not len(table):
        raise TraceError(f"{table.source.name} has no request; choose a wider window")
    gaps = np.diff(table.arrival_time_s)
    mean_gap = float(np.mean(gaps)) if len(gaps) else 0.0
    return TraceSummary(
        num_requests=len(table),
        num_failed=int(np.sum(table.failed)),
        span_s=table.span_s,
        mean_rate_rps=table.mean_rate_rps,
        prompt_tokens=_lengths(table.prompt_tokens),
        output_tokens=_lengths(table.output_tokens),
        length_spearman=spearman(table.prompt_tokens, table.output_tokens),
        gap_cv=float(np.std(gaps)) / mean_gap if mean_gap > 0 else float("nan"),
        zero_gap_share=float(np.mean(gaps == 0)) if len(gaps) else float("nan"),
        dispersion_1s=dispersion(table.arrival_time_s, 1.0),
        dispersion_10s=dispersion(table.arrival_time_s, 10.0),
        prefix=None if table.hash_ids is None else prefix_summary(table),
        source=table.source,
        file_sha256=_file_sha256(table.source.path),
    )


def _file_sha256(path: str | None) -> str | None:
    if path is None or not Path(path).is_file():
        return None
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _lengths(tokens: npt.NDArray[np.int32]) -> LengthSummary:
    values = np.percentile(tokens, PERCENTILES)
    return LengthSummary(
        mean=float(np.mean(tokens)),
        minimum=int(np.min(tokens)),
        maximum=int(np.max(tokens)),
        percentiles={p: float(v) for p, v in zip(PERCENTILES, values, strict=True)},
    )


def dispersion(arrival_time_s: npt.NDArray[np.float64], bin_s: float) -> float:
    """Return variance / mean of the arrivals per full bin of ``bin_s`` seconds; 1 for Poisson.

    NaN with fewer than two full bins, and with more than 10 million (a wrong time unit).
    """
    since_first = arrival_time_s - arrival_time_s[0]
    num_bins = since_first[-1] // bin_s
    if not 2 <= num_bins <= 1e7:
        return float("nan")
    inside = since_first[since_first < num_bins * bin_s]
    index = np.minimum(inside // bin_s, num_bins - 1).astype(np.int64)
    counts = np.bincount(index, minlength=int(num_bins))
    return float(np.var(counts) / np.mean(counts))


def spearman(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> float:
    """Return the rank correlation of two columns, ties at their mean rank; NaN if one is flat."""
    ranks = [_ranks(column) - (len(column) - 1) / 2 for column in (first, second)]
    norm = float(np.sqrt(np.sum(ranks[0] ** 2) * np.sum(ranks[1] ** 2)))
    return float(np.sum(ranks[0] * ranks[1])) / norm if norm > 0 else float("nan")


def _ranks(column: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    _, inverse, counts = np.unique(column, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts + 1) / 2)[inverse]


def prefix_summary(table: RequestTable) -> PrefixSummary:
    """Return how much of the prompts earlier requests had, in a cache that never evicts.

    Raises:
        TraceError: the table has no prefix ids.
    """
    hash_ids = table.hash_ids
    if hash_ids is None:
        raise TraceError(f"{table.source.name} has no prefix ids; nothing is shared")
    leading = leading_hits(hash_ids)
    prompt = table.prompt_tokens.astype(np.int64)
    hit_tokens = np.minimum(leading * hash_ids.block_tokens, prompt - 1)
    num_blocks = len(hash_ids.values)
    return PrefixSummary(
        block_tokens=hash_ids.block_tokens,
        num_blocks=num_blocks,
        block_hit_rate=int(np.sum(leading)) / num_blocks if num_blocks else 0.0,
        token_hit_rate=float(np.sum(hit_tokens) / np.sum(prompt)),
        num_full_hits=int(np.sum((leading == hash_ids.num_blocks) & (leading > 0))),
    )


def leading_hits(hash_ids: HashIds) -> npt.NDArray[np.int64]:
    """Return each request's number of leading ids that earlier requests had, int64 (n,)."""
    values = hash_ids.values
    _, first_use, inverse = np.unique(values, return_index=True, return_inverse=True)
    owner = np.repeat(np.arange(len(hash_ids)), hash_ids.num_blocks)
    is_miss = owner[first_use[inverse]] >= owner
    misses_before = np.concatenate(([0], np.cumsum(is_miss)))
    row_start = np.repeat(misses_before[hash_ids.offsets[:-1]], hash_ids.num_blocks)
    is_leading_hit = misses_before[1:] == row_start
    hits_before = np.concatenate(([0], np.cumsum(is_leading_hit)))
    return np.diff(hits_before[hash_ids.offsets])
