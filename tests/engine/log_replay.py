"""Replay a recorded log of a real scheduler with ours; tests/golden/README.md has the form.

``python -m tests.engine.log_replay LOG.json ...`` prints the first record of each log that differs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sched_env import Scheduler, SchedulerConfig

_REASONS = {"max_model_len": "length"}


def config_of(settings: dict[str, Any]) -> SchedulerConfig:
    """Return our configuration of a log's settings, which bear vLLM's names."""
    ours = {name: value for name, value in settings.items() if name != "hash_block_tokens"}
    ours["num_blocks"] = ours.pop("num_gpu_blocks") - 1
    if "scheduler_reserve_full_isl" in ours:
        ours["reserve_full_isl"] = ours.pop("scheduler_reserve_full_isl")
    return SchedulerConfig(**ours)


def scheduler_of(settings: dict[str, Any]) -> Scheduler:
    return Scheduler(config_of(settings), hash_block_tokens=settings.get("hash_block_tokens"))


def add(scheduler: Scheduler, index: int, row: list[Any]) -> None:
    """Add a request of a log; vLLM serves the smaller priority first, we the larger."""
    _, prompt, max_tokens, eos_at, priority, arrival_time = row[:6]
    scheduler.add_request(
        index,
        prompt,
        max_tokens,
        eos_at=eos_at,
        priority=-priority,
        arrival_time=arrival_time,
        hash_ids=row[6] if len(row) > 6 else (),
    )


def schedule(scheduler: Scheduler) -> dict[str, Any]:
    """Form a batch and return what a record says of it."""
    running = set(scheduler.running)
    scheduled = scheduler.schedule()
    record: dict[str, Any] = {"s": [i if n == 1 else [i, n] for i, n in scheduled.items()]}
    if scheduler.preempted:
        record["p"] = sorted(scheduler.preempted)
    admitted = [i for i in scheduled if i not in running]
    if scheduler.config.enable_prefix_caching and admitted:
        record["h"] = [[i, scheduler.request(i).num_cached_tokens] for i in admitted]
    record["fs"] = scheduler.free_blocks
    return record


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
            record |= schedule(scheduler)
            in_flight += 1
        if in_flight == depth or not had_unfinished:
            finished = scheduler.update()
            in_flight -= 1
            if finished:
                record["f"] = sorted(finished)
        record["fu"] = scheduler.free_blocks
        record["q"] = [len(scheduler.waiting), len(scheduler.running)]
        yield record
        step += 1


def first_difference(log: dict[str, Any]) -> str | None:
    """Return where our run of a log first differs from it, or None."""
    scheduler = scheduler_of(log["settings"])
    ours = replay(log, scheduler)
    for number, theirs in enumerate(log["steps"]):
        record = next(ours, None)
        if record != theirs:
            return f"record {number}: {record}, recorded {theirs}"
    more = next(ours, None)
    if more is not None:
        return f"after the last record: {more}"
    for index, (_, _, *theirs) in enumerate(log["final"]):
        view = scheduler.request(index)
        reason = _REASONS.get(view.finish_reason, view.finish_reason)
        if [len(view.output), view.num_preemptions, reason] != theirs:
            return f"request {index}: {view}, recorded {theirs}"
    return None


def main() -> None:
    for path in sys.argv[1:]:
        difference = first_difference(json.loads(Path(path).read_text()))
        print(f"{path}: {difference or 'equal'}")


if __name__ == "__main__":
    main()
