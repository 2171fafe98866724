"""The scheduler decides as vLLM 0.33.0's does, record by record, on recorded logs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sched_env import Scheduler, SchedulerConfig

GOLDEN = Path(__file__).parents[1] / "golden"
LOGS = sorted((GOLDEN / "vllm").glob("*.json")) + sorted((GOLDEN / "vllm_async").glob("*.json"))


def config_of(settings: dict[str, Any]) -> SchedulerConfig:
    """Return our configuration of a log's settings, which bear vLLM's names."""
    ours = dict(settings)
    ours["num_blocks"] = ours.pop("num_gpu_blocks") - 1
    if "scheduler_reserve_full_isl" in ours:
        ours["reserve_full_isl"] = ours.pop("scheduler_reserve_full_isl")
    return SchedulerConfig(**ours)


def replay(log: dict[str, Any], scheduler: Scheduler) -> Iterator[dict[str, Any]]:
    """Run a log's requests and yield records as the log has them.

    With asynchronous scheduling an update belongs to the batch that was scheduled one call before.
    """
    depth = 2 if scheduler.config.async_scheduling else 1
    arrivals = sorted(enumerate(log["requests"]), key=lambda item: (item[1][0], item[0]))
    step, in_flight = 0, 0
    while arrivals or scheduler.has_unfinished or in_flight:
        if not (scheduler.has_unfinished or in_flight):
            step = max(step, arrivals[0][1][0])
        while arrivals and arrivals[0][1][0] <= step:
            add(scheduler, *arrivals.pop(0))
        record: dict[str, Any] = {"t": step}
        had_unfinished = scheduler.has_unfinished
        if had_unfinished:
            scheduled = scheduler.schedule()
            in_flight += 1
            record["s"] = [i if n == 1 else [i, n] for i, n in scheduled.items()]
            if scheduler.preempted:
                record["p"] = sorted(scheduler.preempted)
            record["fs"] = scheduler.free_blocks
        if in_flight == depth or not had_unfinished:
            finished = scheduler.update()
            in_flight -= 1
            if finished:
                record["f"] = sorted(finished)
        record["fu"] = scheduler.free_blocks
        record["q"] = [len(scheduler.waiting), len(scheduler.running)]
        yield record
        step += 1


def add(scheduler: Scheduler, index: int, request: list[Any]) -> None:
    _, prompt, max_tokens, eos_at, priority, arrival = request
    scheduler.add_request(
        index, prompt, max_tokens, eos_at=eos_at, priority=-priority, arrival_time=arrival
    )


def test_all_logs_are_found() -> None:
    assert len(LOGS) == 50
    assert sum("async" in path.stem for path in LOGS) == 10


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_log_is_equal_record_by_record(path: Path) -> None:
    log = json.loads(path.read_text())
    scheduler = Scheduler(config_of(log["settings"]))
    records = list(replay(log, scheduler))
    for ours, theirs in zip(records, log["steps"], strict=True):
        assert ours == theirs
    for index, (_, _, num_outputs, num_preemptions, reason) in enumerate(log["final"]):
        view = scheduler.request(index)
        assert len(view.output) == num_outputs
        assert view.num_preemptions == num_preemptions
        ours = {"max_model_len": "length"}.get(view.finish_reason, view.finish_reason)
        assert ours == reason


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
