"""A vLLM command line becomes our configuration, and what it cannot say is said."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sched_env import SchedulerConfig
from sched_env.errors import ConfigError


def test_a_command_line() -> None:
    config = SchedulerConfig.from_vllm_args(
        "vllm serve meta-llama/Llama-3.1-8B --max-num-seqs 128 --max_num_batched_tokens=8k "
        "--no-enable-prefix-caching --num-gpu-blocks-override 2588 --scheduling-policy priority "
        "--max-model-len 16K --long-prefill-token-threshold 512 --watermark 0.02 "
        "--no-scheduler-reserve-full-isl --prefill-schedule-interval 4 --max-num-active-seqs 100"
    )
    assert config == SchedulerConfig(
        max_num_seqs=128,
        max_num_batched_tokens=8000,
        num_blocks=2587,
        policy="priority",
        max_model_len=16384,
        long_prefill_token_threshold=512,
        watermark=0.02,
        reserve_full_isl=False,
        prefill_schedule_interval=4,
        max_num_active_seqs=100,
        async_scheduling=True,
    )
    assert config.not_modelled == ()


def test_what_is_not_given_is_as_in_vllm() -> None:
    config = SchedulerConfig.from_vllm_args("vllm serve some/model")
    assert (config.async_scheduling, config.enable_prefix_caching) == (True, True)
    assert (config.max_num_batched_tokens, config.max_num_seqs) == (2048, 256)
    assert config.reserve_full_isl


def test_flags_that_are_not_modelled_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = SchedulerConfig.from_vllm_args(
            "vllm serve m -tp 2 --gpu-memory-utilization 0.95 --max-num-seqs 8"
        )
    assert config.not_modelled == ("-tp", "--gpu-memory-utilization")
    assert "--gpu-memory-utilization" in caplog.text


@pytest.mark.parametrize(
    ("args", "field", "value"),
    [
        ({"max_num_seqs": 7}, "max_num_seqs", 7),
        ({"enable-chunked-prefill": False}, "enable_chunked_prefill", False),
        ({"no_async_scheduling": True}, "async_scheduling", False),
        (["serve", "m", "--no-async-scheduling"], "async_scheduling", False),
        (["serve", "m", "--max-model-len", "auto"], "max_model_len", None),
        ("--enable-prefix-caching=false", "enable_prefix_caching", False),
        ("--no-enable-prefix-caching some/model", "enable_prefix_caching", False),
        ("--max-num-batched-tokens 1.5k", "max_num_batched_tokens", 1500),
        ("--max-num-batched-tokens 2K", "max_num_batched_tokens", 2048),
    ],
)
def test_forms(args: Any, field: str, value: Any) -> None:
    assert getattr(SchedulerConfig.from_vllm_args(args), field) == value


def test_fields_given_beside_it_win() -> None:
    config = SchedulerConfig.from_vllm_args("--max-num-seqs 8", num_blocks=99, max_num_seqs=9)
    assert (config.num_blocks, config.max_num_seqs) == (99, 9)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ("--max-num-seq 3", "--max-num-seqs"),
        ("--max-num-seqs many", "whole number"),
        ("--max-num-seqs", "whole number"),
        ("--max-num-seqs 2.5", r"--max-num-seqs is '2\.5': give a whole number"),
        ("--max-num-seqs 2.0", "whole number"),
        ("--max-num-seqs 1.5K", "whole number"),
        ("--max-num-seqs 1.2345k", "whole number"),
        ("--enable-prefix-caching=fasle", "is 'fasle': give true or false, or the flag alone"),
        ({"enable_prefix_caching": "fasle"}, "is 'fasle': give true or false"),
        ("--watermark x", "number"),
        ("--scheduling-policy lifo", "policy"),
        ("--num-gpu-blocks-override 1", "num_blocks"),
    ],
)
def test_bad_values_are_refused(args: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        SchedulerConfig.from_vllm_args(args)


def test_limits_that_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="max_num_seqs"):
        SchedulerConfig(max_num_seqs=4, max_num_active_seqs=5)
    with pytest.raises(ConfigError, match="long_prefill_token_threshold"):
        SchedulerConfig(long_prefill_token_threshold_adaptive=True)
