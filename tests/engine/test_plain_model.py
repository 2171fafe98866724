"""The compiled scheduler takes the same decisions as a plain model of the documented rules."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
        )
        return cls(Scheduler(config), PlainScheduler(plain))

    def add(self, request: PlainRequest) -> None:
        self.ours.add_request(
            request.request_id,
            request.prompt,
            request.max_tokens,
            eos_at=request.eos_at,
            priority=request.priority,
            arrival_time=request.arrival,
        )
        self.plain.add(replace(request))

    def schedule(self) -> None:
        assert list(self.ours.schedule().items()) == list(self.plain.schedule().items())
        assert list(self.ours.preempted) == self.plain.preempted

    def update(self) -> None:
        assert self.ours.update() == self.plain.update()

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
    name = str(rng.choice(["p07", "vllm"]))
    reserve_full, readmit = RULES[name]
    block_size = int(rng.choice([1, 2, 4, 16]))
    plain = PlainRules(
        budget=int(rng.integers(1, 40)),
        seats=int(rng.integers(1, 9)),
        blocks=int(rng.integers(2, 40)),
        block_size=block_size,
        policy=str(rng.choice(["fcfs", "priority"])),
        max_model_len=float(rng.integers(8, 60)) if rng.random() < 0.3 else np.inf,
        reserve_full=reserve_full if rng.random() < 0.7 else not reserve_full,
        readmit=readmit,
    )
    return name, plain


def random_request(rng: np.random.Generator, request_id: int, plain: PlainRules) -> PlainRequest:
    longest = max(plain.blocks * plain.block_size, 2)
    return PlainRequest(
        request_id,
        prompt=int(rng.integers(1, min(longest + 3, 50))),
        max_tokens=int(rng.integers(1, 16)),
        eos_at=int(rng.integers(0, 12)) if rng.random() < 0.3 else 0,
        priority=float(rng.integers(-2, 3)),
        # Times that tie let vLLM itself livelock under priority.
        arrival=float(request_id),
    )


@pytest.mark.parametrize("batch", range(6))
def test_random_workloads_run_as_in_the_plain_model(batch: int) -> None:
    for number in range(50):
        rng = np.random.default_rng([batch, number])
        pair = Pair.of(*random_rules(rng))
        rules = pair.plain.rules
        requests = [random_request(rng, i, rules) for i in range(int(rng.integers(2, 12)))]
        # Not in the order of arrival, and ids do not follow it either.
        rng.shuffle(requests)
        step = 0
        while requests or pair.plain.waiting or pair.plain.running:
            while requests and rng.random() < 0.4:
                pair.add(requests.pop())
            pair.schedule()
            pair.update()
            pair.compare()
            step += 1
            assert step < 2000
        pair.compare_requests()
        assert pair.ours.blocks_used == 0


class SchedulerMachine(RuleBasedStateMachine):
    """Add, schedule and update in any order that is allowed, under any rules."""

    @initialize(seed=st.integers(0, 2**32 - 1))
    def start(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.pair = Pair.of(*random_rules(self.rng))
        self.in_flight = False
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

    @precondition(lambda self: not self.in_flight)
    @rule()
    def schedule(self) -> None:
        self.pair.schedule()
        self.in_flight = True

    @precondition(lambda self: self.in_flight)
    @rule()
    def update(self) -> None:
        self.pair.update()
        self.in_flight = False

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
