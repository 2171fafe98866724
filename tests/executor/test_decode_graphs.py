"""Graphs of decode-only batches: on the CPU with work that is done again in place of a replay."""

from __future__ import annotations

import numpy as np
import pytest

from sched_env import SchedulerConfig
from sched_env.executor import attention, torch_executor
from sched_env.executor.decode_graphs import DecodeGraphs, graph_sizes
from sched_env.executor.packed_batch import Chunk, pack
from sched_env.executor.shapes import ModelShape
from sched_env.executor.torch_executor import TorchExecutor
from tests.executor.dense_reference import dense_logits
from tests.executor.flash_reference import plain_flash_attention
from tests.executor.serving import (
    KeepEverything,
    assert_outputs_are_those_of_the_dense_model,
    compute_chunks,
    random_tokens,
    serve,
)
from tests.executor.small_models import SMALL, TINY, TINY_TIED


def executor_with_graphs(
    shape: ModelShape,
    num_blocks: int,
    monkeypatch: pytest.MonkeyPatch,
    *,
    max_num_seqs: int,
    seed: int = 0,
) -> TorchExecutor:
    """Return an executor on the CPU that does all that one on CUDA does, kernels apart."""
    monkeypatch.setattr(attention, "flash_attention", plain_flash_attention)
    monkeypatch.setattr(torch_executor, "plan_attention", attention.plan_jointly)
    executor = TorchExecutor(shape, num_blocks, 4, dtype="float64", seed=seed)
    executor._graphs = DecodeGraphs(
        executor.decoder, executor.cache, max_num_seqs, record=record_by_hand
    )
    return executor


def record_by_hand(work: object) -> object:
    work()
    return work


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ((1, 1), (1, 1)),
        ((1, 9), (1, 10)),
        ((3, 15), (4, 16)),
        ((5, 8), (8, 12)),
        ((9, 90), (16, 112)),
        ((33, 100), (36, 112)),
        ((36, 1000), (36, 1024)),
        ((40, 513), (40, 640)),
    ],
)
def test_sizes_of_graphs(given: tuple[int, int], sizes: tuple[int, int]) -> None:
    assert graph_sizes(*given, max_num_seqs=36) == sizes


def test_a_graph_has_room_for_each_added_sequence_and_little_padding() -> None:
    for num_sequences in range(1, 65):
        for num_pages in (num_sequences, 3 * num_sequences, 777):
            sequences, pages = graph_sizes(num_sequences, num_pages, 64)
            needed = num_pages + sequences - num_sequences
            assert needed <= pages <= max(1.25 * needed, needed)


@pytest.mark.parametrize("shape", [TINY, TINY_TIED], ids=lambda shape: shape.name)
def test_batches_of_unequal_lengths_run_as_one_graph(
    shape: ModelShape, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = executor_with_graphs(shape, 40, monkeypatch, max_num_seqs=4)
    tokens = {row: random_tokens(shape, 40, row) for row in range(3)}
    dense = {row: dense_logits(executor.decoder, tokens[row]) for row in tokens}
    compute_chunks(executor, tokens, [(0, 0, 30), (1, 0, 3), (2, 0, 9)])
    steps = [[(2, 9 + i, 10 + i), (0, 30 + i, 31 + i), (1, 3 + i, 4 + i)] for i in range(10)]
    for pieces in steps:
        found = compute_chunks(executor, tokens, pieces)
        wanted = np.stack([dense[row][stop - 1] for row, _, stop in pieces])
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)
    assert set(executor._graphs._replays) == {(4, 14), (4, 16), (4, 20)}


def test_a_capture_leaves_the_cache_of_requests_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = executor_with_graphs(TINY, 12, monkeypatch, max_num_seqs=4)
    tokens = {row: random_tokens(TINY, 12, row) for row in range(2)}
    compute_chunks(executor, tokens, [(0, 0, 5), (1, 0, 6)])
    compute_chunks(executor, tokens, [(0, 5, 6), (1, 6, 7)])
    before = executor.cache[:, :, :-1].clone()
    executor._graphs.prepare(pack([Chunk(0, 6, 1, 2)], executor.tables))
    assert len(executor._graphs._replays) == 2
    assert (executor.cache[:, :, :-1] == before).all()


def test_batches_that_no_graph_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = executor_with_graphs(TINY, 12, monkeypatch, max_num_seqs=2)
    tokens = {row: random_tokens(TINY, 5, row) for row in range(3)}
    compute_chunks(executor, tokens, [(row, 0, 4) for row in range(3)])
    found = compute_chunks(executor, tokens, [(row, 4, 5) for row in range(3)])
    wanted = [dense_logits(executor.decoder, tokens[row])[-1] for row in range(3)]
    np.testing.assert_allclose(found, np.stack(wanted), rtol=0, atol=1e-10)
    assert not executor._graphs._replays


def test_outputs_survive_chunking_preemption_and_recompute_with_graphs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengths = [(11, 12), (5, 20), (17, 9), (1, 14), (9, 11), (23, 6)]
    config = SchedulerConfig(max_num_batched_tokens=10, max_num_seqs=4, num_blocks=14, block_size=4)
    executor = executor_with_graphs(TINY, 14, monkeypatch, max_num_seqs=4, seed=1)
    executor._tokens = KeepEverything()
    assert serve(executor, config, lengths) > 0
    assert executor._graphs._replays
    assert_outputs_are_those_of_the_dense_model(executor, lengths)


@pytest.mark.gpu
def test_graphs_equal_eager_execution_on_cuda(cuda: str) -> None:
    executor = TorchExecutor(SMALL, 128, 16, device=cuda, max_num_seqs=16)
    tokens = {row: random_tokens(SMALL, 400, row) for row in range(5)}
    starts = {0: 300, 1: 3, 2: 47, 3: 128, 4: 15}
    compute_chunks(executor, tokens, [(row, 0, start) for row, start in starts.items()])
    for i in range(40):
        pieces = [(row, start + i, start + i + 1) for row, start in starts.items()]
        graphed = compute_chunks(executor, tokens, pieces)
        graphs, executor._graphs = executor._graphs, None
        eager = compute_chunks(executor, tokens, pieces)
        executor._graphs = graphs
        # Padding may change which kernels run, and so how bfloat16 is rounded.
        np.testing.assert_allclose(graphed, eager, rtol=0, atol=0.1)
    assert len(graphs._replays) > 1
