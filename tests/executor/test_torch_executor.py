"""The model on a paged cache against the dense reference, under a scheduler's decisions."""

from __future__ import annotations

import numpy as np
import pytest

from sched_env import Scheduler, SchedulerConfig
from sched_env.errors import ConfigError, UnknownNameError
from sched_env.executor.shapes import ModelShape, shape_of
from sched_env.executor.torch_executor import TorchExecutor
from tests.executor.dense_reference import dense_logits
from tests.executor.serving import (
    KeepEverything,
    assert_outputs_are_those_of_the_dense_model,
    compute_chunks,
    random_tokens,
    serve,
)
from tests.executor.small_models import SMALL, TINY, TINY_TIED


@pytest.mark.parametrize("shape", [TINY, TINY_TIED], ids=lambda shape: shape.name)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 2e-4)])
def test_chunks_and_decodes_in_one_batch_equal_the_dense_model(
    shape: ModelShape, dtype: str, tolerance: float
) -> None:
    executor = TorchExecutor(shape, 40, 4, dtype=dtype, seed=3)
    tokens = {row: random_tokens(shape, 30, row) for row in range(3)}
    dense = {row: dense_logits(executor.decoder, tokens[row]) for row in tokens}
    batches = [
        [(0, 0, 7), (1, 0, 1)],  # two prompts, one of them a single token
        [(0, 7, 8), (1, 1, 12), (2, 0, 5)],  # a decode, a chunk on cached tokens, a new prompt
        [(2, 5, 6), (0, 8, 9), (1, 12, 13)],
        [(0, 9, 29), (1, 13, 14), (2, 6, 30)],
    ]
    for pieces in batches:
        found = compute_chunks(executor, tokens, pieces)
        wanted = np.stack([dense[row][stop - 1] for row, _, stop in pieces])
        np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance)


def test_blocks_need_not_lie_in_order_and_stale_contents_do_not_matter() -> None:
    executor = TorchExecutor(TINY, 12, 4, dtype="float64")
    tokens = {row: random_tokens(TINY, 24, row) for row in range(4)}
    compute_chunks(executor, tokens, [(0, 0, 10), (1, 0, 6), (2, 0, 8)])
    executor.tables.release(1)
    compute_chunks(executor, tokens, [(3, 0, 9)])
    executor.tables.release(0)
    compute_chunks(executor, tokens, [(3, 9, 24)])
    blocks = executor.tables.table(3)
    assert np.any(np.diff(blocks) != 1)
    found = compute_chunks(executor, tokens, [(2, 8, 9)])
    wanted = dense_logits(executor.decoder, tokens[2][:9])[-1:]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("rules", ["vllm", "p07"])
def test_outputs_survive_chunking_preemption_and_recompute(rules: str) -> None:
    lengths = [(11, 12), (5, 20), (17, 9), (1, 14), (9, 11), (23, 6)]
    config = SchedulerConfig(
        max_num_batched_tokens=10, max_num_seqs=4, num_blocks=14, block_size=4, rules=rules
    )
    executor = TorchExecutor(TINY, 14, 4, dtype="float64", seed=1)
    executor._tokens = KeepEverything()
    assert serve(executor, config, lengths) > 0
    assert_outputs_are_those_of_the_dense_model(executor, lengths)


def test_what_has_ended_is_forgotten() -> None:
    config = SchedulerConfig(max_num_batched_tokens=16, max_num_seqs=2, num_blocks=20, block_size=4)
    executor = TorchExecutor(TINY, 20, 4)
    serve(executor, config, [(3, 2), (4, 2), (5, 2), (6, 2)])
    assert len(executor._tokens) <= 2
    executor.reset()
    assert executor.tables.num_free == 20
    assert not executor._tokens


def test_a_wrong_count_of_blocks_is_an_error_of_ours() -> None:
    config = SchedulerConfig(max_num_batched_tokens=16, max_num_seqs=2, num_blocks=20, block_size=4)
    executor = TorchExecutor(TINY, 20, 4)
    scheduler = Scheduler(config)
    scheduler.add_request("a", 9, 3)
    scheduler.schedule()
    scheduler._world.state["free_blocks"] -= 1
    with pytest.raises(RuntimeError, match="another number of blocks"):
        executor.run(scheduler._world)


def test_prompts_and_weights_come_from_the_seed() -> None:
    first, same, other = (TorchExecutor(TINY, 4, 4, seed=seed) for seed in (5, 5, 6))
    assert first.tokens_of(0, 9).tolist() == same.tokens_of(0, 9).tolist()
    assert first.tokens_of(0, 9).tolist() != other.tokens_of(0, 9).tolist()
    assert (first.decoder.output == same.decoder.output).all()
    assert not (first.decoder.output == other.decoder.output).all()


def test_devices_that_are_not_there_are_named() -> None:
    with pytest.raises(ConfigError, match="'cuda:99' is not there"):
        TorchExecutor(TINY, 4, 4, device="cuda:99")
    with pytest.raises(ConfigError, match="'gpu' is unknown"):
        TorchExecutor(TINY, 4, 4, device="gpu")
    with pytest.raises(ConfigError, match="'meta' is not supported"):
        TorchExecutor(TINY, 4, 4, device="meta")
    with pytest.raises(UnknownNameError, match="Did you mean 'float32'"):
        TorchExecutor(TINY, 4, 4, dtype="float23")
    with pytest.raises(ConfigError, match="fewer blocks"):
        TorchExecutor(TINY, 2**40, 16)


BFLOAT16_TOLERANCE = 0.1
"""bfloat16 keeps 8 bits; logits have a spread of about 1, and on a CPU they are off by 0.03."""

HALVES = [pytest.param("cpu", id="cpu"), pytest.param("cuda", id="cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", HALVES)
def test_bfloat16_is_close_to_the_dense_model(device: str, request: pytest.FixtureRequest) -> None:
    if device == "cuda":
        request.getfixturevalue("cuda")
    executor = TorchExecutor(SMALL, 64, 16, device=device, dtype="bfloat16", max_num_seqs=8)
    tokens = {row: random_tokens(SMALL, 90, row) for row in range(3)}
    dense = {row: dense_logits(executor.decoder, tokens[row]) for row in tokens}
    prompts = [[(0, 0, 37), (1, 0, 1)], [(0, 37, 38), (1, 1, 60), (2, 0, 16)]]
    decodes = [[(2, 16 + i, 17 + i), (0, 38 + i, 39 + i), (1, 60 + i, 61 + i)] for i in range(25)]
    for pieces in prompts + decodes:
        found = compute_chunks(executor, tokens, pieces)
        wanted = np.stack([dense[row][stop - 1] for row, _, stop in pieces])
        np.testing.assert_allclose(found, wanted, rtol=0, atol=BFLOAT16_TOLERANCE)


@pytest.mark.parametrize("device", HALVES)
def test_bfloat16_outputs_survive_preemption(device: str, request: pytest.FixtureRequest) -> None:
    if device == "cuda":
        request.getfixturevalue("cuda")
    lengths = [(40 + 7 * i, 60) for i in range(8)]
    config = SchedulerConfig(max_num_batched_tokens=64, max_num_seqs=8, num_blocks=24)
    executor = TorchExecutor(SMALL, 24, 16, device=device, dtype="bfloat16", max_num_seqs=8)
    executor._tokens = KeepEverything()
    assert serve(executor, config, lengths) > 0
    assert_outputs_are_those_of_the_dense_model(executor, lengths, 2 * BFLOAT16_TOLERANCE)


@pytest.mark.gpu
def test_memory_that_cuda_lacks_is_a_clear_error(cuda: str) -> None:
    with pytest.raises(ConfigError, match=r"GiB that cuda:0 has: .* fewer blocks"):
        TorchExecutor(shape_of("llama-8b"), 2**24, 16, device=cuda)
