"""Switches in combination, and prefix caching, as vLLM 0.33.0's scheduler decides with them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.log_replay import first_difference, replay, scheduler_of

LOGS = sorted((Path(__file__).parents[1] / "golden" / "recorded").glob("*.json"))
SWITCHES = {
    "policy",
    "scheduler_reserve_full_isl",
    "watermark",
    "long_prefill_token_threshold",
    "long_prefill_token_threshold_adaptive",
    "enable_chunked_prefill",
    "max_num_active_seqs",
    "prefill_schedule_interval",
    "async_scheduling",
    "enable_prefix_caching",
}


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def test_logs_have_every_switch_and_hits() -> None:
    logs = [read(path) for path in LOGS]
    assert len(logs) == 12
    assert {name for log in logs for name in log["settings"]} >= SWITCHES
    hits = [tokens for log in logs for step in log["steps"] for _, tokens in step.get("h", [])]
    assert 0 in hits
    assert sum(tokens > 0 for tokens in hits) > 50


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_log_is_equal_record_by_record(path: Path) -> None:
    assert first_difference(read(path)) is None


def test_a_log_that_is_not_equal_is_seen() -> None:
    log = read(LOGS[0])
    log["steps"][-2]["fu"] += 1
    assert f"record {len(log['steps']) - 2}: " in str(first_difference(log))
    log = read(LOGS[0])
    log["final"][3][2] += 1
    assert "request 3: " in str(first_difference(log))
    log = read(LOGS[0])
    del log["steps"][-1]
    assert "after the last record" in str(first_difference(log))


@pytest.mark.parametrize("is_async", [False, True])
def test_what_livelocks_in_vllm_ends(is_async: bool) -> None:
    """Two equals under ``priority`` evict each other for ever, in both loops of vLLM."""
    settings = {
        "max_num_batched_tokens": 5,
        "max_num_seqs": 2,
        "num_gpu_blocks": 11,
        "block_size": 2,
        "policy": "priority",
        "max_model_len": 20,
        "scheduler_reserve_full_isl": False,
        "long_prefill_token_threshold": 3,
        "async_scheduling": is_async,
    }
    workload = {"settings": settings, "requests": [[0, 4, 11, 0, 0, 0.0], [0, 18, 1, 0, 0, 0.0]]}
    scheduler = scheduler_of(settings)
    records = list(itertools.islice(replay(workload, scheduler), 200))
    assert len(records) < 200
    reasons = {scheduler.request(index).finish_reason for index in range(2)}
    assert reasons == {"length", "no_progress"}
