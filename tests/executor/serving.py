"""Let an executor compute what a test or a scheduler says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sched_env import Scheduler, SchedulerConfig
from sched_env.executor.packed_batch import Chunk
from sched_env.executor.shapes import ModelShape
from sched_env.executor.torch_executor import TorchExecutor
from tests.executor.dense_reference import dense_logits


class KeepEverything(dict):
    """Tokens that stay when their request has ended, so that a test can look at them."""

    def __delitem__(self, row: int) -> None:
        pass


def random_tokens(shape: ModelShape, count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(shape.vocab_size, size=count)


def compute_chunks(
    executor: TorchExecutor, tokens: dict[int, np.ndarray], pieces: Sequence[tuple[int, int, int]]
) -> np.ndarray:
    """Compute (row, start, stop) pieces as one batch and return the logits behind each."""
    size = executor.tables.block_size
    chunks = [Chunk(row, start, stop - start, -(-stop // size)) for row, start, stop in pieces]
    for chunk in chunks:
        executor.tables.grow(chunk.row, chunk.num_blocks)
    given = np.concatenate([tokens[row][start:stop] for row, start, stop in pieces])
    executor.compute(chunks, given)  # captures a graph where there are some
    return executor.logits(chunks, given).double().cpu().numpy()


def serve(executor: TorchExecutor, config: SchedulerConfig, lengths: list[tuple[int, int]]) -> int:
    """Serve requests (prompt, outputs) to the end, checking each batch; return preemptions."""
    scheduler = Scheduler(config)
    for row, (prompt_len, max_tokens) in enumerate(lengths):
        scheduler.add_request(row, prompt_len, max_tokens)
    preemptions = 0
    while scheduler.has_unfinished:
        scheduler.schedule()
        preemptions += len(scheduler.preempted)
        executor.run(scheduler._world)
        assert executor.tables.num_free == scheduler.free_blocks
        scheduler.update()
    return preemptions


def assert_outputs_are_those_of_the_dense_model(
    executor: TorchExecutor, lengths: list[tuple[int, int]], tolerance: float = 0.0
) -> None:
    """Check each token that was served: none is better by more than ``tolerance``."""
    for row, (prompt_len, max_tokens) in enumerate(lengths):
        known = executor.tokens_of(row, prompt_len)
        assert len(known) == prompt_len + max_tokens
        dense = dense_logits(executor.decoder, known[:-1])[prompt_len - 1 :]
        chosen = dense[np.arange(max_tokens), known[prompt_len:]]
        assert (dense.max(-1) - chosen <= tolerance).all()
