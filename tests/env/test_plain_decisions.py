"""The decision process agrees with a plain model of its rules, decision by decision."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sched_env.engine.invariants import check_invariants
from sched_env.engine.records import FINISH_REASON_NAMES, STATUS_NAMES
from tests.env.made_worlds import Driver, make_world, plain_of, random_config, random_table
from tests.env.plain_decisions import Action, PlainDecisions


def action_of(number: int, driver: Driver) -> Action | None:
    layout = driver.world.layout
    first_running = layout.num_levels + layout.num_waiting_slots
    if not 0 <= number < layout.num_actions:
        return None
    if number < layout.num_levels:
        return "proceed", number
    if number < first_running:
        return "admit", number - layout.num_levels
    return "preempt", number - first_running


def compare(driver: Driver, plain: PlainDecisions) -> None:
    world, state = driver.world, driver.state
    legal = [action_of(number, driver) for number in np.flatnonzero(driver.mask).tolist()]
    assert legal == plain.legal()
    assert state["clock_s"] == pytest.approx(plain.clock_s, rel=1e-9)
    assert (state["terminated"], state["truncated"]) == (plain.terminated, plain.truncated)
    assert world.waiting_rows(0) == [job.row for job in plain.waiting]
    assert world.live(0, "running")["row"].tolist() == [job.row for job in plain.running]
    assert world.live(0, "admitted")["row"].tolist() == [job.row for job in plain.admitted]
    blocks, tokens, _ = plain.ledger()
    assert (state["ledger_blocks"], state["ledger_tokens"]) == (blocks, tokens)
    assert state["iteration"] == plain.iteration
    for record, job in zip(world.live(0, "running"), plain.running, strict=True):
        assert record["num_computed_tokens"] == job.computed
        assert record["num_output_tokens"] == job.outputs
        assert record["num_blocks"] == job.blocks


def compare_outcomes(driver: Driver, plain: PlainDecisions) -> None:
    for job in plain.jobs[: plain.num_arrived]:
        record = driver.world.find(0, job.row)
        assert STATUS_NAMES[record["status"]] == job.status
        assert FINISH_REASON_NAMES[record["finish_reason"]] == job.end_reason
        assert record["num_output_tokens"] == job.outputs
        assert record["num_preemptions"] == job.preemptions
        assert record["num_recomputed_tokens"] == job.lost_tokens
        assert record["missed"] == job.missed
        times = [record[f"{name}_s"] for name in ("first_scheduled", "first_token", "finish")]
        plain_times = [job.first_scheduled_s, job.first_token_s, job.finish_s]
        assert times == pytest.approx(plain_times, rel=1e-9, nan_ok=True)
    arrived = plain.jobs[: plain.num_arrived]
    assert driver.state["num_met"] == sum(job.met for job in arrived)
    met = sum(job.weight for job in arrived if job.met)
    assert driver.state["weight_met"] == pytest.approx(met)


def choose(rng: np.random.Generator, mask: np.ndarray, habits: np.ndarray) -> int:
    """Draw an action: mostly legal, by the habits of this rollout."""
    if rng.random() < 0.05:
        return int(rng.integers(-2, mask.size + 2))
    legal = np.flatnonzero(mask)
    weights = habits[legal] / habits[legal].sum()
    return int(rng.choice(legal, p=weights))


def play(seed: int, most_decisions: int = 250) -> set[str]:
    """Play a random episode in both; return what happened."""
    rng = np.random.default_rng([7, seed])
    config = random_config(rng)
    pool = config.scheduler.num_blocks * config.scheduler.block_size
    longest = max(pool * 2 // 3, 1) if rng.random() < 0.8 else pool + 5
    table = random_table(rng, longest)
    driver = Driver(make_world(config, table))
    plain = plain_of(config, table, seed)
    driver.reset(seed, offset_s=0.0)
    plain.reset()
    # Some rollouts love to admit, some to preempt, some to proceed.
    layout = driver.world.layout
    repeats = [layout.num_levels, layout.num_waiting_slots, layout.num_running_slots]
    habits = np.repeat(rng.dirichlet([0.5, 0.5, 0.5]) + 0.02, repeats)
    before = None
    for _ in range(most_decisions):
        compare(driver, plain)
        before = check_invariants(driver.world, before=before)
        if plain.is_over:
            break
        action = choose(rng, driver.mask, habits)
        reward, _, elapsed_s, discount, invalid = driver.step(action)
        plain.step(action_of(action, driver))
        assert invalid == plain.invalid
        assert reward == pytest.approx(plain.reward, rel=1e-9, abs=1e-9)
        assert elapsed_s == pytest.approx(plain.clock_s - plain.step_start_s, abs=1e-9)
        assert discount == pytest.approx(math.exp(-elapsed_s / 2.0), rel=1e-12)
    compare_outcomes(driver, plain)
    return what_happened(plain)


def what_happened(plain: PlainDecisions) -> set[str]:
    seen = {job.end_reason for job in plain.jobs}
    seen |= {"preempted" for job in plain.jobs if job.preemptions}
    seen |= {"met" for job in plain.jobs if job.met}
    seen |= {name for name in ("terminated", "truncated") if getattr(plain, name)}
    return seen


@pytest.mark.parametrize("batch", range(6))
def test_random_rollouts_agree_with_the_plain_model(batch: int) -> None:
    seen: set[str] = set()
    for number in range(20):
        seen |= play(batch * 20 + number)
    assert seen >= {"stop", "met", "preempted", "terminated", "truncated"}
    assert seen >= {"shed", "kv_capacity", "too_large"}
