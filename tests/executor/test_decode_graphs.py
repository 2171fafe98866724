"""What the graphs compute, checked on the CPU: padding changes no logits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sched_env.executor.attention import plan_attention
from sched_env.executor.block_tables import BlockTables
from sched_env.executor.decode_graphs import graph_sizes, is_worth_a_graph
from sched_env.executor.decoder import StepInputs
from sched_env.executor.packed_batch import Chunk, pack, pad_decodes
from sched_env.executor.torch_executor import TorchExecutor
from tests.executor.small_models import TINY


def test_a_padded_batch_has_the_same_logits() -> None:
    executor = TorchExecutor(TINY, 10, 4, dtype="float64")
    chunks = [Chunk(0, 0, 10, 3), Chunk(1, 0, 3, 1)]
    for chunk in chunks:
        executor.tables.grow(chunk.row, chunk.num_blocks)
    executor.logits(chunks, np.arange(13))
    decodes = [Chunk(1, 3, 1, 1), Chunk(0, 10, 1, 3)]
    wanted = executor.logits(decodes, np.array([7, 8]))
    padded = pad_decodes(pack(decodes, executor.tables), 4, 4, 10, 4)
    inputs = StepInputs(
        tokens=torch.tensor([7, 8, 0, 0]),
        positions=torch.as_tensor(padded.positions),
        slots=torch.as_tensor(padded.slots),
        last_tokens=torch.as_tensor(padded.last_tokens),
        plan=plan_attention(padded, 4, executor.device),
    )
    found = executor.decoder.forward(inputs, executor.cache)
    np.testing.assert_allclose(found[:2].numpy(), wanted.numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ((1, 1), (1, 1)),
        ((3, 5), (4, 8)),
        ((5, 8), (8, 8)),
        ((9, 9), (16, 16)),
        ((33, 100), (36, 128)),
        ((36, 1), (36, 1)),
    ],
)
def test_sizes_of_graphs(given: tuple[int, int], sizes: tuple[int, int]) -> None:
    assert graph_sizes(*given, max_num_seqs=36) == sizes


@pytest.mark.parametrize(
    ("lengths", "is_worth"), [([30, 30, 30, 30], True), ([30, 1, 1, 1, 1], False), ([5], True)]
)
def test_batches_that_would_be_mostly_padding_run_without_a_graph(
    lengths: list[int], is_worth: bool
) -> None:
    tables = BlockTables(64, 2)
    chunks = [Chunk(row, length - 1, 1, -(-length // 2)) for row, length in enumerate(lengths)]
    for chunk in chunks:
        tables.grow(chunk.row, chunk.num_blocks)
    assert is_worth_a_graph(pack(chunks, tables), max_num_seqs=8) == is_worth
    assert not is_worth_a_graph(pack([Chunk(0, 0, lengths[0], 0)], tables), 8)
