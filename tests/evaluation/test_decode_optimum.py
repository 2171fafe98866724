"""The search for the optimum against plain recursion, and what it has to dominate."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from sched_env import DecodeSchedulingEnv
from sched_env.errors import ConfigError
from sched_env.evaluation.decode_optimum import find_optimum

SMALL = {
    "free_kv_blocks": 5,
    "workload": {
        "num_requests": 3,
        "max_new_tokens": [1, 2],
        "arrival_gap_steps": [0, 3],
        "required_blocks": [2, 4],
    },
    "reward": {"latency": 0.1, "preemption": 0.03},
}


def best_by_recursion(env: Any, mask: Any) -> float:
    """Try every legal action, each on a copy."""
    returns = []
    for action in np.flatnonzero(mask):
        other = copy.deepcopy(env)
        _, reward, is_over, _, info = other.step(int(action))
        rest = 0.0 if is_over else best_by_recursion(other, info["action_mask"])
        returns.append(reward + info["discount"] * rest)
    return max(returns)


@pytest.mark.parametrize("discount", [1.0, 0.8])
def test_it_finds_what_plain_recursion_finds(discount: float) -> None:
    env = DecodeSchedulingEnv({**SMALL, "episode": {"discount": discount}})
    for seed in range(4):
        _, info = env.reset(seed=seed)
        best = best_by_recursion(env, info["action_mask"])
        assert find_optimum(env).best_return == pytest.approx(best, abs=1e-12)


def test_the_plan_attains_it_and_no_policy_beats_it() -> None:
    env = DecodeSchedulingEnv(
        {"workload": {"max_new_tokens": [1, 3], "priority": [-1, 3], "num_requests": [4, 6]}}
    )
    gains, num_preempted = [], 0
    for seed in range(12):
        env.reset(seed=seed)
        optimum = find_optimum(env)
        for decision in optimum.plan:
            if decision.preempted_request_id is not None:
                play(env, decision.preempted_request_id, preempts=True)
                num_preempted += 1
            play(env, decision.request_id, preempts=False)
        assert env.world.state["terminated"][0]
        plan_return = returned(env, seed, optimum.plan)
        assert plan_return == pytest.approx(optimum.best_return, abs=1e-12)
        policies = [policy_return(env, seed, name) for name in ("fixed_priority", "deadline")]
        assert optimum.best_return >= max(policies) - 1e-12
        gains.append(optimum.best_return - max(policies))
    assert max(gains) > 0.01
    assert num_preempted > 0


def play(env: Any, request_id: int, *, preempts: bool) -> float:
    rows = env.world.requests(0)["request_id"].tolist()
    slots = env.world.arrays.slots[0].tolist()
    slot = slots.index(rows.index(request_id))
    reward, info = env.step(slot + len(slots) * preempts)[1::3]
    assert not info["invalid_action"]
    return reward


def returned(env: Any, seed: int, plan: Any) -> float:
    env.reset(seed=seed)
    total = 0.0
    for decision in plan:
        if decision.preempted_request_id is not None:
            total += play(env, decision.preempted_request_id, preempts=True)
        total += play(env, decision.request_id, preempts=False)
    return total


def policy_return(env: Any, seed: int, policy: str) -> float:
    env.reset(seed=seed)
    total, is_over = 0.0, False
    while not is_over:
        _, reward, is_over, _, _ = env.step(env.policy_action(policy))
        total += reward
    return total


def test_the_optimum_of_an_episode_that_is_under_way_is_refused() -> None:
    env = DecodeSchedulingEnv(SMALL)
    _, info = env.reset(seed=0)
    env.step(int(np.flatnonzero(info["action_mask"])[0]))
    with pytest.raises(ConfigError, match=r"episode: 1; .* call env\.reset"):
        find_optimum(env)
    env.reset()
    assert find_optimum(env).plan


def test_too_many_states_are_refused() -> None:
    env = DecodeSchedulingEnv({"workload": {"num_requests": 9, "max_new_tokens": 6}})
    env.reset(seed=0)
    with pytest.raises(ConfigError, match=r"9 requests have .* too many to search"):
        find_optimum(env)
