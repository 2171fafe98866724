"""How fast a learned policy decides: in the simulator, and for many environments at once."""

from __future__ import annotations

from typing import cast

from sched_env.agents.widening import shown
from sched_env.cli.speed import Load, Speed, Work, make_envs, measure
from sched_env.cli.trace_speed import LIGHT_RPS, light_chatbot
from sched_env.config import EnvConfig
from sched_env.policy.registry import resolve_policy
from sched_env.policy.runtime import ExportedPolicy
from sched_env.simulator import simulate

_POLICY = "pretrained/azure2023"
_NUM_WAITING_SLOTS = 24
_NUM_RUNNING_SLOTS = 8


def pointer_policy() -> ExportedPolicy:
    """Return the pointer network that ships with the package, made to look at 24 waiting slots.

    A pointer network has the same weights for any number of slots.
    """
    policy = cast("ExportedPolicy", resolve_policy(_POLICY))
    return shown(policy, _NUM_WAITING_SLOTS, _NUM_RUNNING_SLOTS)


def policy_speeds(num_requests: int, num_envs: int, *, repeats: int, seconds: float) -> list[Speed]:
    """Measure decisions per second, observation and iterations between them included."""
    policy, table = pointer_policy(), light_chatbot(num_requests)
    num_decisions = simulate(table, policy).num_decisions
    envs = make_envs(num_envs, Load("light", LIGHT_RPS, EnvConfig().scheduler.num_blocks))
    observations, infos = envs.reset(seed=0)

    def whole_trace() -> int:
        simulate(table, policy)
        return num_decisions

    def batch() -> int:
        nonlocal observations, infos
        for _ in range(100):
            actions = policy.act(observations, infos["action_mask"])
            observations, _, _, _, infos = envs.step(actions)
        return 100 * num_envs

    slots = f"pointer network, {_NUM_WAITING_SLOTS} waiting slots"
    works = [
        Work(f"{slots}, in the simulator", "decisions", whole_trace),
        Work(f"{slots}, {num_envs} envs", "decisions", batch),
    ]
    return measure(works, repeats=repeats, seconds=seconds)
