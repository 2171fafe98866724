"""The scheduler decides as vLLM 0.33.0's does, record by record, on recorded logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sched_env import Scheduler, SchedulerConfig
from tests.engine.log_replay import first_difference

GOLDEN = Path(__file__).parents[1] / "golden"
LOGS = sorted((GOLDEN / "vllm").glob("*.json")) + sorted((GOLDEN / "vllm_async").glob("*.json"))


def test_all_logs_are_found() -> None:
    assert len(LOGS) == 50
    assert sum("async" in path.stem for path in LOGS) == 10


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_log_is_equal_record_by_record(path: Path) -> None:
    assert first_difference(json.loads(path.read_text())) is None


def p07_examples() -> list[dict[str, Any]]:
    return json.loads((GOLDEN / "p07_examples.json").read_text())["examples"]


@pytest.mark.parametrize("example", p07_examples(), ids=lambda example: example["name"])
@pytest.mark.parametrize("rules", ["p07", "vllm"])
def test_worked_example(example: dict[str, Any], rules: str) -> None:
    settings = {**example["assumed"], **example["given"]}
    settings.pop("max_tokens", None)
    number = {request[0]: i + 1 for i, request in enumerate(example["requests"])}
    scheduler = Scheduler(
        SchedulerConfig(rules=rules, **settings),  # pyright: ignore[reportArgumentType]
        sample_fn=lambda view: 100 * number[str(view.request_id)] + len(view.output),
    )
    for request_id, prompt, max_tokens in example["requests"]:
        scheduler.add_request(request_id, prompt, max_tokens)
    for expected in example["steps"]:
        check_step(scheduler, expected, is_last=example["name"] == "example3")
    for request_id, output in example.get("final_output", {}).items():
        assert list(scheduler.request(request_id).output) == output
    for request_id, count in example.get("num_preemptions", {}).items():
        assert scheduler.request(request_id).num_preemptions == count


def check_step(scheduler: Scheduler, expected: dict[str, Any], is_last: bool) -> None:
    assert list(scheduler.schedule().items()) == [tuple(pair) for pair in expected["schedule"]]
    if "waiting" in expected:
        assert list(scheduler.waiting) == expected["waiting"]
    assert list(scheduler.preempted) == expected.get("preempted", [])
    if is_last:
        assert scheduler.blocks_used == expected["blocks_used"]
        return
    finished = scheduler.update()
    if "finished" in expected:
        assert finished == expected["finished"]
    if "blocks_used" in expected:
        assert scheduler.blocks_used == expected["blocks_used"]
    for request_id, (computed, tokens, blocks) in expected.get("state", {}).items():
        view = scheduler.request(request_id)
        assert (view.num_computed_tokens, view.num_tokens, view.num_blocks) == (
            computed,
            tokens,
            blocks,
        )
    for request_id, output in expected.get("output", {}).items():
        assert list(scheduler.request(request_id).output) == output
