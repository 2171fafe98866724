"""Run batches on the real model: its blocks, its tokens, its measured time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sched_env.engine.world import World
from sched_env.errors import ConfigError
from sched_env.executor.attention import plan_attention
from sched_env.executor.block_tables import BlockTables
from sched_env.executor.decode_graphs import DecodeGraphs
from sched_env.executor.decoder import Decoder, StepInputs
from sched_env.executor.device import check_memory, device_of, dtype_of
from sched_env.executor.engine_batch import has_ended, read_batch
from sched_env.executor.packed_batch import Chunk, PackedBatch, pack
from sched_env.executor.shapes import ModelShape
from sched_env.executor.step_clock import StepClock


class TorchExecutor:
    """A model with a KV pool of its own, which computes what a scheduler decides.

    The scheduler counts blocks; which ones a request holds is decided here. A request that has
    lost its blocks is computed anew, its output tokens included, as on a real server.

    Args:
        shape: The model.
        num_blocks: KV blocks that requests can use.
        block_size: Tokens in a block.
        device: ``cpu`` or a CUDA device.
        dtype: Of weights, activations and cache; by default bfloat16 on CUDA and float32 on a CPU.
        max_num_seqs: Most requests of a batch; CUDA graphs are made up to it.
        seed: Draws weights and prompts.
        cpu_time: On a CPU, count the time that this process computed instead of the time that
            passed.

    Raises:
        ConfigError: The device is not there, or its memory cannot hold the model and the cache.
    """

    def __init__(
        self,
        shape: ModelShape,
        num_blocks: int,
        block_size: int = 16,
        *,
        device: str = "cpu",
        dtype: str | None = None,
        max_num_seqs: int = 64,
        seed: int = 0,
        cpu_time: bool = False,
    ) -> None:
        self.shape = shape
        self.device = device_of(device)
        self.dtype = dtype_of(dtype, self.device)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)  # streams and events are those of the current one
        check_memory(shape, num_blocks * block_size, self.device, self.dtype)
        self.tables = BlockTables(num_blocks, block_size)
        self._seed = seed
        self._tokens: dict[int, NDArray[np.int64]] = {}
        self._cached: dict[int, int] = {}
        self.decoder = Decoder(shape, self.device, self.dtype, seed)
        # The last block belongs to nobody: padding writes there.
        self.cache = self.decoder.new_cache(num_blocks + 1, block_size)
        self._graphs = None
        if self.device.type == "cuda":
            self._graphs = DecodeGraphs(self.decoder, self.cache, max_num_seqs)
        self._clock = StepClock(self.device, cpu_time=cpu_time)

    def reset(self) -> None:
        """Forget all requests; their blocks are free again."""
        self.tables.release_all_but(())
        self._tokens.clear()
        self._cached.clear()

    def run(self, world: World) -> float:
        """Compute the batch that server 0 has formed and return its time in seconds.

        Raises:
            RuntimeError: The engine's count of blocks or tokens is not that of the cache.
        """
        batch = read_batch(world)
        self._forget_all_but(batch.rows, world)
        for chunk in batch.chunks:
            if chunk.start == 0:  # new, or preempted and admitted again
                self._drop(chunk.row)
        tokens: list[NDArray[np.int64]] = []
        for chunk, prompt, total in zip(
            batch.chunks, batch.prompt_tokens, batch.num_tokens, strict=True
        ):
            known = self.tokens_of(chunk.row, prompt)
            if len(known) != total or self._cached.get(chunk.row, 0) != chunk.start:
                raise RuntimeError(f"request {chunk.row} is not where the engine has it")
            self.tables.grow(chunk.row, chunk.num_blocks)
            tokens.append(known[chunk.start : chunk.start + chunk.num_tokens])
        if self.tables.num_blocks - self.tables.num_free != batch.num_blocks_used:
            raise RuntimeError("the cache holds another number of blocks than the engine counts")
        following, step_time_s = self.compute(batch.chunks, np.concatenate(tokens))
        for chunk, token, total in zip(batch.chunks, following, batch.num_tokens, strict=True):
            computed = chunk.start + chunk.num_tokens
            self._cached[chunk.row] = computed
            if computed == total:
                self._tokens[chunk.row] = np.append(self._tokens[chunk.row], token)
        return step_time_s

    def tokens_of(self, row: int, num_prompt_tokens: int) -> NDArray[np.int64]:
        """Return prompt and output tokens of a request; the prompt is drawn at first."""
        if row not in self._tokens:
            rng = np.random.Generator(np.random.Philox(key=[self._seed, row]))
            self._tokens[row] = rng.integers(self.shape.vocab_size, size=num_prompt_tokens)
        return self._tokens[row]

    def _forget_all_but(self, rows: frozenset[int], world: World) -> None:
        """Take back the blocks of who does not run any more, and the tokens of who has ended."""
        for row in set(self.tables.rows) - rows:
            self._drop(row)
        for row in self._tokens.keys() - rows:
            if has_ended(world, row):
                del self._tokens[row]

    def _drop(self, row: int) -> None:
        self.tables.release(row)
        self._cached.pop(row, None)

    def compute(
        self, chunks: Sequence[Chunk], tokens: NDArray[np.int64]
    ) -> tuple[list[int], float]:
        """Compute chunks whose blocks are held.

        Args:
            chunks: What to compute.
            tokens: Their tokens behind one another, int64 (num_tokens,).

        Returns:
            The most likely token behind each chunk, and the measured time in seconds.

        Raises:
            ConfigError: The device's memory is too small for the step.
        """
        try:
            if self._graphs is not None:
                self._graphs.prepare(pack(chunks, self.tables))
            self._clock.start()
            following = self.logits(chunks, tokens).argmax(-1).tolist()
        except torch.OutOfMemoryError:
            raise ConfigError(
                f"{self.device} has too little memory left for a step of {len(tokens)} tokens: "
                "give fewer blocks (num_blocks) or fewer tokens a step (max_num_batched_tokens)"
            ) from None
        return following, self._clock.stop()

    def logits(self, chunks: Sequence[Chunk], tokens: NDArray[np.int64]) -> Tensor:
        """Return the logits behind each chunk, (len(chunks), vocab_size)."""
        batch = pack(chunks, self.tables)
        if self._graphs is not None and self._graphs.serves(batch):
            return self._graphs.replay(batch, tokens)
        return self.decoder.forward(self._inputs(batch, tokens), self.cache)

    def _inputs(self, batch: PackedBatch, tokens: NDArray[np.int64]) -> StepInputs:
        def there(array: NDArray[np.int64]) -> Tensor:
            return torch.as_tensor(array).to(self.device, non_blocking=True)

        return StepInputs(
            tokens=there(tokens),
            positions=there(batch.positions),
            slots=there(batch.slots),
            last_tokens=there(batch.last_tokens),
            plan=plan_attention(batch, self.tables.block_size, self.device),
        )
