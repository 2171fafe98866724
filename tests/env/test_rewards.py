"""Rewards against sums made by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sched_env import EnvConfig, RequestTable
from tests.env.made_worlds import Driver, make_world

TAU = 2.0
FULL, ADMIT = 3, 4
CLASSES = [{"name": "only", "share": 1.0, "weight": 3.0, "ttft_slo_s": 0.4, "tpot_slo_s": 0.15}]
# A decode takes 0.1 s a request, a prompt token 0.01 s.
COST = {"kind": "affine", "base_s": 0.0, "per_decode_s": 0.1, "per_prefill_token_s": 0.01}


def driver_of(table: RequestTable, reward: dict[str, float], **changes: Any) -> Driver:
    """Return a server with room for one request at a time, about to receive ``table``."""
    config = EnvConfig(
        scheduler={"max_num_seqs": 1, **changes.pop("scheduler", {})},
        cost=COST,
        service={"classes": CLASSES, "shed_hopeless": False, **changes.pop("service", {})},
        observation={"num_waiting_slots": 4, "num_running_slots": 2, "screen": "fcfs"},
        reward={"goodput": 0.0, "miss": 0.0, **reward},
        episode={"load": None, "horizon_s": 1000.0, "discount_time_s": TAU, **changes},
    )
    driver = Driver(make_world(config, table))
    driver.reset(0, offset_s=0.0)
    return driver


def two_requests(arrivals: tuple[float, float] = (0.0, 0.0)) -> RequestTable:
    return RequestTable.from_columns(
        arrival_time_s=list(arrivals), prompt_tokens=[10, 10], output_tokens=[2, 2]
    )


def finish(driver: Driver) -> float:
    """Admit the head or proceed until the end; return the rewards, discounted from the start."""
    total, discount = 0.0, 1.0
    while True:
        action = ADMIT if driver.mask[ADMIT] else int(np.flatnonzero(driver.mask)[0])
        reward, is_over, elapsed_s, step_discount, _ = driver.step(action)
        assert step_discount == pytest.approx(math.exp(-elapsed_s / TAU))
        total += discount * reward
        discount *= step_discount
        if is_over:
            return total


def at(time_s: float) -> float:
    return math.exp(-time_s / TAU)


def test_goodput_is_paid_at_completion() -> None:
    # One after the other: prefill 0.1 s and a decode 0.1 s each.
    total = finish(driver_of(two_requests(), {"goodput": 0.5}))
    assert total == pytest.approx(0.5 * 3.0 * (at(0.2) + at(0.4)))


def test_a_missed_deadline_is_paid_once_when_it_passes() -> None:
    driver = driver_of(two_requests(), {"miss": 0.5, "goodput": 0.5}, service={"slo_factor": 1e-9})
    # The first misses its TPOT, at completion. The second one's first token comes at 0.3 s, past
    # its deadline: twice the lone prefill of 0.1 s, for the class's own part is nothing.
    expected = -0.5 * 3.0 * (at(0.2) + at(0.2))
    assert finish(driver) == pytest.approx(expected, rel=1e-6)
    assert driver.state["num_missed"] == 2


def test_a_miss_is_paid_at_rejection_too() -> None:
    table = RequestTable.from_columns(
        arrival_time_s=[0.0, 0.0, 0.05], prompt_tokens=[10, 10, 70_000], output_tokens=[2, 2, 1]
    )
    driver = driver_of(table, {"miss": 0.5})
    # The last one is too large; it is seen at 0.1 s, after the batch at hand.
    assert finish(driver) == pytest.approx(-0.5 * 3.0 * at(0.1))


def test_shed_requests_are_missed_when_they_are_shed() -> None:
    table = RequestTable.from_columns(
        arrival_time_s=[0.0, 0.0], prompt_tokens=[200, 10], output_tokens=[1, 1]
    )
    driver = driver_of(table, {"miss": 0.5, "goodput": 0.5}, service={"shed_hopeless": True})
    # The prefill of the first takes 2 s. The second is hopeless at 0.1 s + 0.4 s x jitter at most
    # and is looked at again after the batch.
    assert finish(driver) == pytest.approx(0.5 * 3.0 * (at(2.0) - at(2.0)), abs=1e-12)
    assert driver.world.requests[0]["finish_s"][:2] == pytest.approx([2.0, 2.0])
    assert (driver.state["num_met"], driver.state["num_rejected"]) == (1, 1)


def test_waiting_is_integrated_in_closed_form() -> None:
    # The first question comes at 0.1 s, after the first prefill. The second waits from then on
    # (its wait before is behind us) until it is admitted at 0.2 s.
    driver = driver_of(two_requests((0.0, 0.05)), {"waiting": 0.7})
    assert driver.state["clock_s"] == pytest.approx(0.1)
    expected = -0.7 * 3.0 * TAU * (at(0.0) - at(0.1))
    assert finish(driver) == pytest.approx(expected, rel=1e-12)


def test_waiting_of_an_arrival_inside_a_step_counts_from_the_arrival() -> None:
    table = RequestTable.from_columns(
        arrival_time_s=[0.0, 0.0, 0.25], prompt_tokens=[10, 10, 10], output_tokens=[2, 2, 1]
    )
    # The second waits until 0.2 s, the third from 0.25 s to 0.4 s.
    driver = driver_of(table, {"waiting": 0.7})
    expected = -0.7 * 3.0 * TAU * ((at(0.0) - at(0.2)) + (at(0.25) - at(0.4)))
    assert finish(driver) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("jump_ahead", [True, False])
def test_waiting_behind_a_long_decode(jump_ahead: bool) -> None:
    table = RequestTable.from_columns(
        arrival_time_s=[0.0, 0.0, 3.0], prompt_tokens=[10, 10, 10], output_tokens=[101, 1, 1]
    )
    driver = driver_of(table, {"waiting": 0.7}, jump_ahead=jump_ahead)
    long_s = 0.1 + 100 * 0.1
    second = at(0.0) - at(long_s)
    third = at(3.0) - at(long_s + 0.1)
    assert finish(driver) == pytest.approx(-0.7 * 3.0 * TAU * (second + third), rel=1e-9)


def test_recomputed_tokens_cost() -> None:
    # The second arrives while the first decodes, and finds no seat: news, so the first may go.
    driver = driver_of(two_requests((0.0, 0.05)), {"recompute": 2.0})
    preempt = 4 + 4
    assert driver.mask[preempt]
    assert driver.world.live(0, "running")["num_computed_tokens"].tolist() == [10]
    reward, _, elapsed_s, _, _ = driver.step(preempt)
    assert reward == pytest.approx(-2.0 * 10 * 1e-3)
    assert driver.state["num_recomputed_tokens"] == 10
    assert elapsed_s >= 0.0


def test_discount_is_of_the_time_that_passed_and_1_where_none_did() -> None:
    driver = driver_of(two_requests(), {}, scheduler={"max_num_seqs": 2})
    assert driver.mask[[ADMIT, ADMIT + 1]].all()
    _, _, elapsed_s, discount, _ = driver.step(ADMIT)
    assert (elapsed_s, discount) == (0.0, 1.0)
    while True:
        _, is_over, elapsed_s, discount, _ = driver.step(FULL)
        assert discount == pytest.approx(math.exp(-elapsed_s / TAU), rel=1e-15)
        if is_over:
            break
    assert elapsed_s > 0.0
