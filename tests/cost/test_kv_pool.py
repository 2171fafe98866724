"""KV pools from hardware."""

from __future__ import annotations

import pytest

from sched_env.cost.hardware import gpu_spec, kv_bytes_per_token, model_spec, num_parameters
from sched_env.cost.kv_pool import kv_pool
from sched_env.errors import ConfigError, UnknownNameError


def test_the_recorded_server_has_the_recorded_blocks() -> None:
    # vLLM 0.19, Llama 3.1 8B, RTX 4090: num_gpu_blocks 2588 in its log.
    pool = kv_pool("rtx-4090", "llama-3.1-8b")
    assert (pool.num_gpu_blocks, pool.num_blocks) == (2588, 2587)
    assert pool.weight_bytes == pytest.approx(16.06e9, rel=1e-3)
    assert pool.num_tokens == 2587 * 16


def test_without_the_reserve_the_pool_comes_out_larger() -> None:
    assert kv_pool("rtx-4090", "llama-3.1-8b", reserve_bytes=0).num_gpu_blocks == 3178


@pytest.mark.parametrize(
    ("model", "parameters", "kv_bytes"),
    [
        ("llama-3.1-8b", 8_030_261_248, 131_072),
        ("llama-3.1-70b", 70_553_706_496, 327_680),
        ("qwen3-8b", 8_190_000_000, 147_456),
        ("qwen3-32b", 32_760_000_000, 262_144),
    ],
)
def test_sizes_of_models_are_the_published_ones(model, parameters, kv_bytes) -> None:
    assert num_parameters(model_spec(model)) == pytest.approx(parameters, rel=1e-3)
    assert kv_bytes_per_token(model_spec(model)) == kv_bytes
    assert kv_bytes_per_token(model_spec(model), "fp8") == kv_bytes / 2


def test_more_gpus_share_weights_and_heads() -> None:
    one = kv_pool("h100-sxm", "llama-3.1-8b", reserve_bytes=0)
    two = kv_pool("h100-sxm", "llama-3.1-8b", tp=2, reserve_bytes=0)
    assert two.weight_bytes == one.weight_bytes / 2
    assert two.block_bytes == one.block_bytes / 2
    sixteen = kv_pool("h100-sxm", "llama-3.1-8b", tp=16, reserve_bytes=0)
    assert sixteen.block_bytes == one.block_bytes / 8  # there are 8 KV heads


def test_faults_say_what_to_do() -> None:
    with pytest.raises(ConfigError, match="no room for KV blocks"):
        kv_pool("rtx-4090", "llama-3.1-70b")
    with pytest.raises(ConfigError, match="tp 3 does not divide 32"):
        kv_pool("rtx-4090", "llama-3.1-8b", tp=3)
    with pytest.raises(ConfigError, match=r"gpu_memory_utilization 1\.1"):
        kv_pool("rtx-4090", "llama-3.1-8b", gpu_memory_utilization=1.1)
    with pytest.raises(UnknownNameError, match="Did you mean 'rtx-4090'"):
        kv_pool("rtx4090", "llama-3.1-8b")
    assert gpu_spec("rtx-4090").memory_bytes == 25_250_627_584
