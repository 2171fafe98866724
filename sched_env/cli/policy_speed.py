"""How fast a learned policy decides: in the simulator, and for many environments at once."""

from __future__ import annotations

from functools import partial
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


def policy_speeds(num_requests: int, num_envs: int, *, repeats: int, seconds: float) -> list[Speed]:
    """Measure decisions per second, observation and iterations between them included.

    The pointer network that ships with the package is measured as it looks at requests, and made
    to look at 24 waiting slots: its weights are the same for any number of them.
    """
    as_shipped = cast("ExportedPolicy", resolve_policy(_POLICY))
    policy = shown(as_shipped, _NUM_WAITING_SLOTS, _NUM_RUNNING_SLOTS)
    table = light_chatbot(num_requests)
    envs = make_envs(num_envs, Load("light", LIGHT_RPS, EnvConfig().scheduler.num_blocks))
    observations, infos = envs.reset(seed=0)

    def whole_trace(policy: ExportedPolicy) -> int:
        return simulate(table, policy).num_decisions

    def batch() -> int:
        nonlocal observations, infos
        for _ in range(100):
            actions = policy.act(observations, infos["action_mask"])
            observations, _, _, _, infos = envs.step(actions)
        return 100 * num_envs

    slots = f"pointer network, {_NUM_WAITING_SLOTS} waiting slots"
    seen = as_shipped.card.observation
    as_seen = f"{seen.num_waiting_slots} waiting and {seen.num_running_slots} running slots"
    works = [
        Work(f"{slots}, in the simulator", "decisions", partial(whole_trace, policy)),
        Work(f"{slots}, {num_envs} envs", "decisions", batch),
        Work(
            f"{_POLICY}, {as_seen}, in the simulator", "decisions", partial(whole_trace, as_shipped)
        ),
    ]
    return measure(works, repeats=repeats, seconds=seconds)
