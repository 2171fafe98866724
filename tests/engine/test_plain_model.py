"""The compiled scheduler takes the same decisions as a plain model of the documented rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sched_env import Scheduler, SchedulerConfig
from sched_env.engine.invariants import Snapshot, check_invariants
from tests.engine.plain_model import PlainRequest, PlainRules, PlainScheduler

RULES = {"p07": (False, True), "vllm": (True, False)}


@dataclass
class Pair:
    """The compiled scheduler and the plain model, driven together."""

    ours: Scheduler
    plain: PlainScheduler
    before: Snapshot | None = None

    @classmethod
    def of(cls, rules: str, plain: PlainRules) -> Pair:
        config = SchedulerConfig(
            rules=rules,  # pyright: ignore[reportArgumentType]
            policy=plain.policy,  # pyright: ignore[reportArgumentType]
            max_num_batched_tokens=plain.budget,
            max_num_seqs=plain.seats,
            num_blocks=plain.blocks,
            block_size=plain.block_size,
            max_model_len=None if plain.max_model_len == np.inf else int(plain.max_model_len),
            reserve_full_isl=plain.reserve_full,
            readmit_after_preemption=plain.readmit,
            watermark=plain.watermark,
            long_prefill_token_threshold=plain.long_prefill,
            long_prefill_token_threshold_adaptive=plain.adaptive,
            enable_chunked_prefill=plain.chunked,
            max_num_active_seqs=plain.active,
            prefill_schedule_interval=plain.interval,
            async_scheduling=plain.async_scheduling,
            enable_prefix_caching=plain.caching,
            preemptive_priority=plain.preemptive,
            resume_first=plain.resume_first,
            victim=plain.victim,  # pyright: ignore[reportArgumentType]
            victim_tie=plain.tie,  # pyright: ignore[reportArgumentType]
            preemption="swap" if plain.swap else "recompute",
            no_evict="max" if plain.no_evict else "off",
            skip_ahead=plain.skip_ahead,
        )
        ours = Scheduler(config, hash_block_tokens=plain.hash_tokens)
        return cls(ours, PlainScheduler(plain))

    def add(self, request: PlainRequest) -> None:
        self.ours.add_request(
            request.request_id,
            request.prompt,
            request.max_tokens,
            eos_at=request.eos_at,
            priority=request.priority,
            arrival_time=request.arrival,
            hash_ids=request.hash_ids,
        )
        self.plain.add(replace(request))

    def schedule(self) -> None:
        assert list(self.ours.schedule().items()) == list(self.plain.schedule().items())
        assert list(self.ours.preempted) == self.plain.preempted

    def update(self) -> None:
        assert self.ours.update() == self.plain.update()

    @property
    def depth(self) -> int:
        """Return how many batches may be in flight."""
        return 2 if self.plain.rules.async_scheduling else 1

    def step(self) -> None:
        """Schedule if anything is unfinished, and update as a server would."""
        is_live = bool(self.plain.waiting or self.plain.running)
        if is_live:
            self.schedule()
        if len(self.plain.flights) == self.depth or (self.plain.flights and not is_live):
            self.update()

    def compare(self) -> None:
        ours, plain = self.ours, self.plain
        assert list(ours.waiting) == [one.request_id for one in plain.waiting]
        assert list(ours.running) == [one.request_id for one in plain.running]
        assert list(ours.finished) == plain.finished
        assert list(ours.rejected) == plain.rejected
        assert ours.free_blocks == plain.free
        assert ours.has_unfinished == bool(plain.waiting or plain.running)
        world, injected = ours._world, len(plain.requests)
        self.before = check_invariants(world, before=self.before, num_injected=injected)

    def compare_requests(self) -> None:
        for request in self.plain.requests.values():
            view = self.ours.request(request.request_id)
            assert view.finish_reason == request.reason
            assert view.output == tuple(request.output)
            assert view.num_preemptions == request.preemptions
            assert view.num_blocks == request.blocks


def random_rules(rng: np.random.Generator) -> tuple[str, PlainRules]:
    """Draw budgets and a few switches, most of them off."""
    name = str(rng.choice(["p07", "vllm"]))
    reserve_full, readmit = RULES[name]
    block_size = int(rng.choice([1, 2, 4, 16]))
    seats = int(rng.integers(1, 9))
    plain = PlainRules(
        budget=int(rng.integers(1, 40)),
        seats=seats,
        blocks=int(rng.integers(2, 40)),
        block_size=block_size,
        policy=str(rng.choice(["fcfs", "priority"])),
        max_model_len=float(rng.integers(8, 60)) if rng.random() < 0.3 else np.inf,
        reserve_full=reserve_full if rng.random() < 0.7 else not reserve_full,
        readmit=readmit,
    )
    switches: dict[str, Any] = {
        "watermark": float(rng.uniform(0, 0.3)),
        "long_prefill": int(rng.integers(1, 20)),
        "chunked": False,
        "active": int(rng.integers(1, seats + 1)),
        "interval": int(rng.integers(2, 6)),
        "async_scheduling": True,
        "caching": True,
        "preemptive": True,
        "resume_first": True,
        "victim": str(rng.choice(["tail", "priority", "least_computed", "most_blocks_per_token"])),
        "tie": "last",
        "swap": True,
        "no_evict": True,
        "skip_ahead": int(rng.integers(1, 4)),
    }
    chosen = {switch: switches[switch] for switch in switches if rng.random() < 0.15}
    if "long_prefill" in chosen:
        chosen["adaptive"] = bool(rng.random() < 0.5)
    divisors = [tokens for tokens in (1, 2, 4, 16, 32) if tokens % block_size == 0]
    return name, replace(plain, hash_tokens=int(rng.choice(divisors)), **chosen)


def random_request(rng: np.random.Generator, request_id: int, plain: PlainRules) -> PlainRequest:
    longest = max(plain.blocks * plain.block_size, 2)
    prompt = int(rng.integers(1, min(longest + 3, 50)))
    num_ids = -(-prompt // plain.hash_tokens) if plain.caching else 0
    shared = int(rng.integers(0, num_ids + 1))
    return PlainRequest(
        request_id,
        prompt=prompt,
        max_tokens=int(rng.integers(1, 16)),
        eos_at=int(rng.integers(0, 12)) if rng.random() < 0.3 else 0,
        priority=float(rng.integers(-2, 3)),
        # Times that tie let vLLM itself livelock under priority.
        arrival=float(request_id),
        hash_ids=(*range(shared), *(100 * request_id + i for i in range(shared, num_ids))),
    )


def is_over(pair: Pair) -> bool:
    return not (pair.plain.waiting or pair.plain.running or pair.plain.flights)


class Stall:
    """Steps since the plain model last made a token or ended a request.

    Some victim rules livelock. The guard of the compiled core ends that, the plain model has none.
    """

    def __init__(self) -> None:
        self.progress, self.steps = 0, 0

    def count(self, plain: PlainScheduler) -> int:
        made = sum(len(one.output) for one in plain.requests.values())
        progress = made + len(plain.finished) + len(plain.rejected) + len(plain.requests)
        self.steps = 0 if progress != self.progress else self.steps + 1
        self.progress = progress
        return self.steps


def run_both(pair: Pair, rng: np.random.Generator, most_requests: int) -> bool:
    """Serve random requests in both; tell whether the plain model stopped moving."""
    rules = pair.plain.rules
    count = int(rng.integers(2, most_requests))
    requests = [random_request(rng, i, rules) for i in range(count)]
    # Not in the order of arrival, and ids do not follow it either.
    rng.shuffle(requests)
    stall = Stall()
    while (requests or not is_over(pair)) and stall.count(pair.plain) < 64:
        while requests and rng.random() < 0.4:
            pair.add(requests.pop())
        pair.step()
        pair.compare()
    if stall.steps < 64:
        pair.compare_requests()
        assert pair.ours.blocks_used == 0
    return stall.steps == 64


@pytest.mark.parametrize("batch", range(20))
def test_random_workloads_run_as_in_the_plain_model(batch: int) -> None:
    num_stalled = 0
    for number in range(100):
        rng = np.random.default_rng([batch, number])
        num_stalled += run_both(Pair.of(*random_rules(rng)), rng, most_requests=12)
    assert num_stalled < 5


@pytest.mark.parametrize("batch", range(3))
def test_long_queues_in_which_many_evict_run_as_in_the_plain_model(batch: int) -> None:
    num_stalled = 0
    for number in range(20):
        rng = np.random.default_rng([99, batch, number])
        name, rules = random_rules(rng)
        rules = replace(
            rules,
            preemptive=True,
            skip_ahead=int(rng.integers(0, 30)),
            seats=int(rng.integers(1, 4)),
            active=None,
        )
        num_stalled += run_both(Pair.of(name, rules), rng, most_requests=80)
    assert num_stalled < 2


class SchedulerMachine(RuleBasedStateMachine):
    """Add, schedule and update in any order that is allowed, under any rules."""

    @initialize(seed=st.integers(0, 2**32 - 1))
    def start(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.pair = Pair.of(*random_rules(self.rng))
        self.count = 0

    @rule(
        prompt=st.integers(1, 60),
        max_tokens=st.integers(1, 20),
        eos_at=st.integers(0, 10),
        priority=st.integers(-2, 2),
    )
    def add(self, prompt: int, max_tokens: int, eos_at: int, priority: int) -> None:
        arrival = float(self.count)
        request = PlainRequest(self.count, prompt, max_tokens, eos_at, priority, arrival)
        self.pair.add(request)
        self.count += 1

    @precondition(lambda self: len(self.pair.plain.flights) < self.pair.depth)
    @rule()
    def schedule(self) -> None:
        self.pair.schedule()

    @precondition(lambda self: self.pair.plain.flights)
    @rule()
    def update(self) -> None:
        self.pair.update()

    @invariant()
    def agree(self) -> None:
        if hasattr(self, "pair"):
            self.pair.compare()

    def teardown(self) -> None:
        if hasattr(self, "pair"):
            self.pair.compare_requests()


def test_any_sequence_of_calls_agrees_with_the_plain_model() -> None:
    run_state_machine_as_test(
        SchedulerMachine, settings=settings(max_examples=60, stateful_step_count=40)
    )


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("rules", ["p07", "vllm"])
def test_outputs_are_those_of_a_run_without_preemption(rules: str, policy: str) -> None:
    rng = np.random.default_rng(3)
    prompts, lengths = rng.integers(1, 30, 12), rng.integers(1, 25, 12)

    def outputs(num_blocks: int) -> tuple[list[tuple[int, ...]], int]:
        scheduler = Scheduler(
            SchedulerConfig(
                max_num_batched_tokens=32,
                max_num_seqs=6,
                num_blocks=num_blocks,
                block_size=4,
                rules=rules,  # pyright: ignore[reportArgumentType]
                policy=policy,  # pyright: ignore[reportArgumentType]
            ),
            sample_fn=lambda view: 1000 * int(str(view.request_id)) + len(view.output),
        )
        for i, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
            scheduler.add_request(i, int(prompt), int(length), priority=i % 3, arrival_time=i)
        while scheduler.has_unfinished:
            scheduler.schedule()
            scheduler.update()
        views = [scheduler.request(i) for i in range(12)]
        return [view.output for view in views], sum(view.num_preemptions for view in views)

    tight, num_preemptions = outputs(15)
    ample, none = outputs(1000)
    assert num_preemptions > 0
    assert none == 0
    assert tight == ample
