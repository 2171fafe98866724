"""Prefix caching shares what it should, and no more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sched_env import EnvConfig, RequestTable, Scheduler, SchedulerConfig, simulate
from sched_env.engine.invariants import check_invariants
from sched_env.errors import ConfigError
from sched_env.policy.keys import Heuristic
from sched_env.workload import read_trace
from sched_env.workload.hash_ids import HashIds


def cached(scheduler: Scheduler, name: str) -> int:
    return scheduler.request(name).num_cached_tokens


def serve(
    scheduler: Scheduler, name: str, prompt: int, ids: tuple[int, ...], outputs: int = 1
) -> int:
    """Serve one request to its end; return the tokens that it found in the cache."""
    scheduler.add_request(name, prompt, outputs, hash_ids=ids)
    found = 0
    while scheduler.has_unfinished:
        scheduler.schedule()
        found = max(found, cached(scheduler, name))
        scheduler.update()
    return found


def caching(num_blocks: int = 100, block_size: int = 4, **switches: object) -> SchedulerConfig:
    return SchedulerConfig(
        num_blocks=num_blocks,
        block_size=block_size,
        enable_prefix_caching=True,
        **switches,  # pyright: ignore[reportArgumentType]
    )


def test_only_leading_full_blocks_and_never_the_last_token() -> None:
    scheduler = Scheduler(caching())
    assert serve(scheduler, "first", 12, (1, 2, 3)) == 0
    assert serve(scheduler, "same", 12, (1, 2, 3)) == 8  # the last token is computed again
    assert serve(scheduler, "longer", 13, (1, 2, 3, 4)) == 12
    assert serve(scheduler, "other head", 12, (9, 2, 3)) == 0
    assert serve(scheduler, "branch", 12, (1, 2, 7)) == 8
    assert serve(scheduler, "partial", 7, (1, 2)) == 4


def test_without_ids_nothing_is_shared() -> None:
    scheduler = Scheduler(caching())
    assert serve(scheduler, "a", 40, ()) == 0
    assert serve(scheduler, "b", 40, ()) == 0


def test_one_id_of_512_tokens_is_many_blocks() -> None:
    scheduler = Scheduler(caching(num_blocks=1000, block_size=16), hash_block_tokens=512)
    assert serve(scheduler, "a", 700, (5, 6)) == 0
    # 43 whole blocks of 16, of which the last holds no last token: 688 of 700 tokens.
    assert serve(scheduler, "b", 700, (5, 6)) == 688
    assert serve(scheduler, "c", 600, (5, 8)) == 512


def test_a_preempted_request_finds_its_own_blocks() -> None:
    scheduler = Scheduler(caching(num_blocks=8, block_size=16))
    for name in ("A", "B"):
        scheduler.add_request(name, 32, 60)
    lost = 0
    while scheduler.has_unfinished:
        scheduler.schedule()
        if scheduler.preempted:
            (victim,) = scheduler.preempted
            lost = scheduler.request(victim).num_tokens
        scheduler.update()
    assert scheduler.request("B").num_preemptions == 1
    assert len(scheduler.request("B").output) == 60
    assert 0 < cached(scheduler, "B") < lost


def test_cached_free_blocks_count_as_free_and_the_oldest_goes_first() -> None:
    scheduler = Scheduler(caching(num_blocks=6))
    serve(scheduler, "old", 8, (1, 2))
    serve(scheduler, "new", 8, (3, 4))
    assert scheduler.free_blocks == 6
    serve(scheduler, "third", 12, (5, 6, 7))  # takes two unused blocks and one of old's
    assert serve(scheduler, "old again", 9, (1, 2)) == 4  # its tail went first
    assert serve(scheduler, "new again", 9, (3, 4)) == 0  # and then both of new's
    assert serve(scheduler, "third again", 13, (5, 6, 7)) == 4


def test_blocks_in_use_are_shared() -> None:
    scheduler = Scheduler(caching(num_blocks=20))
    scheduler.add_request("a", 16, 30, hash_ids=(1, 2, 3, 4))
    scheduler.schedule()
    scheduler.update()
    used = scheduler.blocks_used
    scheduler.add_request("b", 17, 30, hash_ids=(1, 2, 3, 4))
    assert scheduler.schedule()["b"] == 1
    assert scheduler.blocks_used == used + 2  # a's next token, and b's last one
    check_invariants(scheduler._world, num_injected=2)


def test_a_simulation_computes_less_with_it() -> None:
    count = 60
    ids = HashIds.from_lists([[1, 2, 3, 100 + i] for i in range(count)], 64)
    table = RequestTable.from_columns(
        arrival_time_s=np.linspace(0, 3, count),
        prompt_tokens=np.full(count, 250),
        output_tokens=np.full(count, 20),
        hash_ids=ids,
    )
    env = EnvConfig()
    computed, ttft = {}, {}
    for flag in (False, True):
        scheduler = env.scheduler.replace(enable_prefix_caching=flag)
        result = simulate(table, "fcfs", env.replace(scheduler=scheduler))
        computed[flag] = result.num_computed_tokens
        requests = result.requests
        ttft[flag] = float(np.mean(requests["first_token_s"] - requests["arrival_time_s"]))
    assert computed[False] - computed[True] == (count - 1) * 192
    assert ttft[True] < ttft[False]


def test_blocks_that_do_not_go_with_the_ids_are_refused() -> None:
    table = RequestTable.from_columns(
        arrival_time_s=np.zeros(2),
        prompt_tokens=np.full(2, 600),
        output_tokens=np.full(2, 2),
        hash_ids=HashIds.from_lists([[1, 2], [1, 3]], 512),
    )
    env = EnvConfig()
    scheduler = env.scheduler.replace(enable_prefix_caching=True, block_size=24)
    with pytest.raises(ConfigError, match="512"):
        simulate(table, "fcfs", env.replace(scheduler=scheduler))


def test_hits_of_a_public_trace(shared_dir: Path) -> None:
    """Conversations of Mooncake, one after another, nothing evicted: the known hit rates."""
    (path,) = (shared_dir / "traces" / "mooncake").glob("conversation*.jsonl")
    table = read_trace(path)
    assert table.hash_ids is not None
    full_blocks = int(np.sum(table.prompt_tokens // 512))
    config = caching(
        num_blocks=len(table.hash_ids.values) + 512, block_size=512, max_num_batched_tokens=2**20
    )
    scheduler = Scheduler(config)
    hits = 0
    for row in np.argsort(table.arrival_time_s, kind="stable"):
        scheduler.add_request(
            int(row), int(table.prompt_tokens[row]), 1, hash_ids=table.hash_ids.row(row).tolist()
        )
        scheduler.schedule()
        hits += cached(scheduler, row)
        scheduler.update()
    assert hits / 512 / full_blocks == pytest.approx(0.360, abs=0.0005)
    assert hits / int(table.prompt_tokens.sum()) == pytest.approx(0.352, abs=0.0005)


def cold_wait_passes(tokens_per_pass: int) -> int:
    """Return the batches before a cold request is served while a hot one comes with each."""
    count = 400
    order = Heuristic(
        "test_cache_order",
        lambda request, now: (
            -(request.num_cached_tokens + tokens_per_pass * request.passes_waited),
            request.arrival_time_s,
        ),
    )
    hot, cold = [1, 2, 3, 4], [50, 51, 52, 53]
    ids = HashIds.from_lists([hot, cold] + [hot] * (count - 2), 250)
    table = RequestTable.from_columns(
        arrival_time_s=np.maximum(np.arange(count) * 0.1 - 0.11, 0.0),  # one with each batch
        prompt_tokens=np.full(count, 1001),
        output_tokens=np.full(count, 1),
        hash_ids=ids,
    )
    env = EnvConfig(
        cost={"kind": "affine", "base_s": 0.1, "per_decode_s": 0.0, "per_prefill_token_s": 0.0}
    )
    scheduler = env.scheduler.replace(
        enable_prefix_caching=True, block_size=250, num_blocks=40, max_num_seqs=1
    )
    service = env.service.replace(shed_hopeless=False)
    result = simulate(table, order, env.replace(scheduler=scheduler, service=service))
    request = result.requests[1]
    return round((request["first_scheduled_s"] - request["arrival_time_s"]) / 0.1)


def test_field_case_10_a_cold_request_is_served_in_time_with_aging_alone() -> None:
    assert cold_wait_passes(100) <= 10
    assert cold_wait_passes(0) > 300
