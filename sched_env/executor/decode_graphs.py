"""CUDA graphs of decode-only batches: one launch where eager execution takes hundreds.

A graph has fixed sizes, so a batch is padded to the next size of a short list, in sequences and in
blocks of the longest one. A batch of very unequal lengths, most of which would be padding, runs
without a graph. A graph is captured when a batch first needs it, outside measured time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sched_env.executor.attention import AttentionPlan
from sched_env.executor.decoder import Decoder, StepInputs
from sched_env.executor.packed_batch import PackedBatch, pad_decodes

_STRIDE = 8
_MOST_PADDING = 4
_WARM_UPS = 3


def graph_sizes(num_sequences: int, num_pages: int, max_num_seqs: int) -> tuple[int, int]:
    """Return to how many sequences, and blocks of each, a decode-only batch is padded.

    Sequences: 1, 2, 4, then multiples of 8, at most ``max_num_seqs``; blocks: a power of two.
    """
    if num_sequences <= 4:
        sequences = 1 << (num_sequences - 1).bit_length()
    else:
        sequences = -(-num_sequences // _STRIDE) * _STRIDE
    return max(min(sequences, max_num_seqs), num_sequences), 1 << (num_pages - 1).bit_length()


def is_worth_a_graph(batch: PackedBatch, max_num_seqs: int) -> bool:
    """Tell whether a batch only decodes and at most quadruples its blocks by padding."""
    if not batch.is_decode_only:
        return False
    sequences, pages = graph_sizes(batch.num_sequences, _widest(batch), max_num_seqs)
    return sequences * pages <= _MOST_PADDING * len(batch.pages)


def _widest(batch: PackedBatch) -> int:
    """Return the number of blocks of the longest sequence."""
    return int(np.diff(batch.page_starts).max())


@dataclass(frozen=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    inputs: StepInputs
    logits: Tensor


class DecodeGraphs:
    """The graphs of one model and one cache.

    Args:
        decoder: The model.
        cache: Its KV cache, whose last block belongs to no request.
        max_num_seqs: Most sequences of a batch.
    """

    def __init__(self, decoder: Decoder, cache: Tensor, max_num_seqs: int) -> None:
        self._decoder = decoder
        self._cache = cache
        self._max_num_seqs = max_num_seqs
        self._captured: dict[tuple[int, int], _Captured] = {}
        # One pool for all: a graph's results are read before the next one runs.
        self._pool = torch.cuda.graph_pool_handle()

    def serves(self, batch: PackedBatch) -> bool:
        """Tell whether a batch runs as a graph."""
        return is_worth_a_graph(batch, self._max_num_seqs)

    def prepare(self, batch: PackedBatch) -> None:
        """Capture the graph that a batch needs, if any, unless it is there already."""
        if self.serves(batch):
            sizes = self._sizes(batch)
            if sizes not in self._captured:
                self._captured[sizes] = self._capture(*sizes)

    def replay(self, batch: PackedBatch, tokens: NDArray[np.int64]) -> Tensor:
        """Compute a decode-only batch that was prepared; return its logits, (n, vocab_size)."""
        sequences, pages = self._sizes(batch)
        captured = self._captured[sequences, pages]
        spare, block_size = self._cache.shape[2] - 1, self._cache.shape[3]
        padded = pad_decodes(batch, sequences, pages, spare, block_size)
        given = np.zeros(sequences, np.int64)
        given[: len(tokens)] = tokens
        inputs, plan = captured.inputs, captured.inputs.plan
        for place, array in (
            (inputs.tokens, given),
            (inputs.positions, padded.positions),
            (inputs.slots, padded.slots),
            (plan.pages, padded.pages),
            (plan.key_lengths, padded.key_lengths),
        ):
            place.copy_(torch.as_tensor(array), non_blocking=True)
        captured.graph.replay()
        return captured.logits[: batch.num_sequences]

    def _sizes(self, batch: PackedBatch) -> tuple[int, int]:
        return graph_sizes(batch.num_sequences, _widest(batch), self._max_num_seqs)

    def _capture(self, sequences: int, pages: int) -> _Captured:
        inputs = self._static_inputs(sequences, pages)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                self._decoder.forward(inputs, self._cache)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            logits = self._decoder.forward(inputs, self._cache)
        return _Captured(graph, inputs, logits)

    def _static_inputs(self, sequences: int, pages: int) -> StepInputs:
        """Return inputs whose memory the graph reads; every sequence is padding at first."""
        spare, block_size = self._cache.shape[2] - 1, self._cache.shape[3]
        device = self._decoder.device

        def full(count: int, value: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.full((count,), value, dtype=dtype, device=device)

        starts = torch.arange(sequences + 1, dtype=torch.int32, device=device)
        plan = AttentionPlan(
            pages=full(sequences * pages, spare),
            query_starts=starts,
            key_starts=starts * (pages * block_size),
            key_lengths=full(sequences, 1, torch.int32),
            max_queries=1,
            max_keys=pages * block_size,
        )
        return StepInputs(
            tokens=full(sequences, 0),
            positions=full(sequences, 0),
            slots=full(sequences, spare * block_size),
            last_tokens=torch.arange(sequences, device=device),
            plan=plan,
        )
