"""Which steps a profile measures: sizes of decode, prefill and mixed batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sched_env.executor.shapes import ModelShape

_LEAST_CONTEXT = 16
_LEAST_CHUNK = 16
_LEAST_PAST = 128


@dataclass(frozen=True)
class StepPoint:
    """The sizes of one step.

    Attributes:
        num_decodes: Sequences that compute one token.
        context_tokens: Tokens that each of them attends to, its own included.
        prefill_tokens: Tokens of one prefill chunk; 0: none.
        prefill_past: Tokens that the chunk finds in the cache.
    """

    num_decodes: int
    context_tokens: int
    prefill_tokens: int
    prefill_past: int

    @property
    def phase(self) -> str:
        """Return ``decode``, ``prefill`` or ``mixed``."""
        if self.prefill_tokens == 0:
            return "decode"
        return "mixed" if self.num_decodes else "prefill"

    @property
    def new_tokens(self) -> int:
        """Return the tokens that the step computes."""
        return self.num_decodes + self.prefill_tokens

    @property
    def kv_tokens(self) -> int:
        """Return the tokens whose keys and values the step reads."""
        chunk = self.prefill_past + self.prefill_tokens
        return self.num_decodes * self.context_tokens + chunk

    def floor_s(self, shape: ModelShape, bytes_per_number: int, bandwidth: float) -> float:
        """Return the least time in which memory of ``bandwidth`` bytes/s gives what is read."""
        cached = self.kv_tokens - self.new_tokens
        numbers = shape.step_parameters + shape.kv_elements_per_token * cached
        return numbers * bytes_per_number / bandwidth


@dataclass(frozen=True)
class GridLimits:
    """How far the grid reaches.

    Attributes:
        max_num_seqs: Most decoding sequences.
        max_num_batched_tokens: Most tokens of a step.
        max_context_tokens: Longest context of a sequence.
        num_kv_tokens: Tokens that the KV cache holds.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_context_tokens: int
    num_kv_tokens: int


def tile_edges(limit: int) -> list[int]:
    """Return the powers of two up to ``limit``, each with its successor, and ``limit``.

    Kernels work in tiles: a step is longest for its size just behind a multiple of the tile.
    """
    powers = [1 << i for i in range(limit.bit_length())]
    return sorted(
        {size for power in powers for size in (power, power + 1) if size <= limit} | {limit}
    )


def powers_of_two(least: int, most: int, factor: int = 2) -> list[int]:
    """Return ``least`` and what follows by ``factor`` below ``most``, and ``most``."""
    sizes = []
    while least < most:
        sizes.append(least)
        least *= factor
    return [*sizes, most]


def step_grid(limits: GridLimits) -> list[StepPoint]:
    """Return the points within ``limits``: decode, prefill, mixed."""
    points = [*_decodes(limits), *_prefills(limits), *_mixed(limits)]
    return [
        point
        for point in points
        if point.kv_tokens <= limits.num_kv_tokens
        and point.new_tokens <= limits.max_num_batched_tokens
    ]


def _contexts(limits: GridLimits, factor: int) -> list[int]:
    least = min(_LEAST_CONTEXT, limits.max_context_tokens)
    return powers_of_two(least, limits.max_context_tokens, factor)


def _pasts(limits: GridLimits, chunk: int) -> list[int]:
    """Return what a chunk may find in the cache: the same values for all chunks, as far as room."""
    longest = limits.max_context_tokens - chunk
    far = 3 * limits.max_context_tokens // 4
    powers = powers_of_two(_LEAST_PAST, max(far, _LEAST_PAST), 4)
    return [0, *(past for past in powers if past <= min(far, longest))]


def _decodes(limits: GridLimits) -> Iterator[StepPoint]:
    for num_decodes in tile_edges(limits.max_num_seqs):
        for context in _contexts(limits, 2):
            yield StepPoint(num_decodes, context, 0, 0)


def _prefills(limits: GridLimits) -> Iterator[StepPoint]:
    for chunk in tile_edges(min(limits.max_num_batched_tokens, limits.max_context_tokens)):
        for past in _pasts(limits, chunk):
            yield StepPoint(0, 0, chunk, past)


def _mixed(limits: GridLimits) -> Iterator[StepPoint]:
    """Yield few sizes of each axis: their product is what takes time."""
    room = min(limits.max_num_batched_tokens - limits.max_num_seqs, limits.max_context_tokens)
    for num_decodes in powers_of_two(1, limits.max_num_seqs, 4):
        for context in _contexts(limits, 4):
            for chunk in powers_of_two(min(_LEAST_CHUNK, max(room, 1)), max(room, 1), 4):
                pasts = _pasts(limits, chunk)
                for past in sorted({pasts[0], pasts[-1]}):
                    yield StepPoint(num_decodes, context, chunk, past)
