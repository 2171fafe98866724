"""CUDA graphs of decode-only batches: one launch where eager execution takes hundreds.

A graph has fixed sizes, so a batch is padded to the next size of a short list, in sequences and in
blocks of all sequences together. How these blocks are shared out is read at each replay: batches of
equal and of very unequal lengths run as the same graph, and their time depends on how many tokens
they attend to, not on the longest one. A graph is captured when a batch first needs it, outside
measured time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sched_env.executor.attention import AttentionPlan, JointCall
from sched_env.executor.decoder import Decoder, StepInputs
from sched_env.executor.packed_batch import NOBODY, PackedBatch, pad_decodes

_STRIDE = 8
_PAGES_PER_DOUBLING = 4
_NO_TOKENS = np.empty(0, np.int64)

Work = Callable[[], None]


def graph_sizes(num_sequences: int, num_pages: int, max_num_seqs: int) -> tuple[int, int]:
    """Return to how many sequences and blocks a decode-only batch is padded.

    Sequences: 1, 2, 4, then multiples of 8, at most ``max_num_seqs``. Blocks: one more for each
    sequence added, then up to 1 to 8, 10, 12, 14, 16, 20 and so on, four sizes to a doubling.
    """
    if num_sequences <= 4:
        sequences = 1 << (num_sequences - 1).bit_length()
    else:
        sequences = -(-num_sequences // _STRIDE) * _STRIDE
    sequences = max(min(sequences, max_num_seqs), num_sequences)
    pages = num_pages + sequences - num_sequences
    step = max((1 << (pages - 1).bit_length()) // (2 * _PAGES_PER_DOUBLING), 1)
    return sequences, -(-pages // step) * step


class GraphRecorder:
    """Record work on the current CUDA device as graphs of one stream and one memory pool.

    A graph may overwrite what another one has left in that pool: results go elsewhere.
    """

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        """Run the work once, capture it, and return what replays it."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            work()  # loads kernels and chooses algorithms, which a capture must not
        torch.cuda.current_stream().wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            work()
        return graph.replay


class DecodeGraphs:
    """The graphs of one model and one cache.

    Args:
        decoder: The model.
        cache: Its KV cache, whose last block belongs to no request.
        max_num_seqs: Most sequences of a graph; larger batches run without.
        record: Turns work into what does the same again, by default as a CUDA graph.
    """

    def __init__(
        self,
        decoder: Decoder,
        cache: Tensor,
        max_num_seqs: int,
        record: Callable[[Work], Work] | None = None,
    ) -> None:
        self._decoder = decoder
        self._cache = cache
        self._max_num_seqs = max_num_seqs
        self._spare, self._block_size = cache.shape[2] - 1, cache.shape[3]
        self._record = record or GraphRecorder()
        self._replays: dict[tuple[int, int], Work] = {}
        # All graphs read the front of the same inputs and write the front of the same logits.
        most = graph_sizes(max_num_seqs, self._spare + _STRIDE, max_num_seqs)
        self._inputs = _static_inputs(*most, self._block_size, decoder.device)
        self._logits = torch.empty(
            max_num_seqs, decoder.shape.vocab_size, device=decoder.device, dtype=decoder.dtype
        )

    def serves(self, batch: PackedBatch) -> bool:
        """Tell whether a batch runs as a graph."""
        return batch.is_decode_only and batch.num_sequences <= self._max_num_seqs

    def prepare(self, batch: PackedBatch) -> None:
        """Capture the graph that a batch needs, if any, unless it is there already."""
        if self.serves(batch):
            sizes = self._sizes(batch)
            if sizes not in self._replays:
                self._replays[sizes] = self._capture(*sizes)

    def replay(self, batch: PackedBatch, tokens: NDArray[np.int64]) -> Tensor:
        """Compute a decode-only batch that was prepared.

        Returns:
            Its logits, (n, vocab_size), until the next replay.
        """
        sizes = self._sizes(batch)
        self._fill(pad_decodes(batch, *sizes, self._spare, self._block_size), tokens)
        self._replays[sizes]()
        return self._logits[: batch.num_sequences]

    def _sizes(self, batch: PackedBatch) -> tuple[int, int]:
        return graph_sizes(batch.num_sequences, len(batch.pages), self._max_num_seqs)

    def _fill(self, padded: PackedBatch, tokens: NDArray[np.int64]) -> None:
        """Copy a batch to where its graph reads it; behind ``tokens`` any token will do."""
        call = self._inputs.plan.calls[0]
        for place, array in (
            (self._inputs.tokens, tokens),
            (self._inputs.positions, padded.positions),
            (self._inputs.slots, padded.slots),
            (self._inputs.plan.pages, padded.pages),
            (call.key_lengths, padded.key_lengths),
            (call.key_starts, padded.page_starts * self._block_size),
        ):
            place[: len(array)].copy_(torch.as_tensor(array), non_blocking=True)

    def _capture(self, sequences: int, pages: int) -> Work:
        inputs = self._front(sequences, pages)

        def work() -> None:
            self._logits[:sequences].copy_(self._decoder.forward(inputs, self._cache))

        # Recording runs the work, which must not write into a request's blocks.
        self._fill(pad_decodes(NOBODY, sequences, pages, self._spare, self._block_size), _NO_TOKENS)
        return self._record(work)

    def _front(self, sequences: int, pages: int) -> StepInputs:
        """Return the front of the inputs, of the sizes of a graph."""
        inputs, call = self._inputs, self._inputs.plan.calls[0]
        front = JointCall(
            first=0,
            last=sequences,
            query_starts=call.query_starts[: sequences + 1],
            key_starts=call.key_starts[: sequences + 1],
            key_lengths=call.key_lengths[:sequences],
            max_queries=1,
            max_keys=pages * self._block_size,
        )
        return StepInputs(
            tokens=inputs.tokens[:sequences],
            positions=inputs.positions[:sequences],
            slots=inputs.slots[:sequences],
            last_tokens=inputs.last_tokens[:sequences],
            plan=AttentionPlan(inputs.plan.pages[:pages], (front,)),
        )


def _static_inputs(sequences: int, pages: int, block_size: int, device: torch.device) -> StepInputs:
    """Return inputs of the largest graph."""

    def zeros(count: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.zeros(count, dtype=dtype, device=device)

    call = JointCall(
        first=0,
        last=sequences,
        query_starts=torch.arange(sequences + 1, dtype=torch.int32, device=device),
        key_starts=zeros(sequences + 1, torch.int32),
        key_lengths=zeros(sequences, torch.int32),
        max_queries=1,
        max_keys=pages * block_size,
    )
    return StepInputs(
        tokens=zeros(sequences),
        positions=zeros(sequences),
        slots=zeros(sequences),
        last_tokens=torch.arange(sequences, device=device),
        plan=AttentionPlan(zeros(pages), (call,)),
    )
