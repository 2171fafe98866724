"""How well an episode of the teaching environment can be played at best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sched_env.engine import decode_search as search
from sched_env.engine.allocation import records_of
from sched_env.engine.decode_machine import DECODE_REQUEST, NONE
from sched_env.engine.decode_records import EPISODE
from sched_env.env.decode import DecodeSchedulingEnv
from sched_env.errors import ConfigError

MOST_STATES = 2**25
"""Instances with more states than this are refused: they would take minutes and gigabytes."""


@dataclass(frozen=True)
class Decision:
    """One step of a plan: who gets it, and who is preempted before it.

    Attributes:
        request_id: The request that gets the step.
        preempted_request_id: The one that makes room for it, or ``None``.
    """

    request_id: int
    preempted_request_id: int | None


@dataclass(frozen=True)
class Optimum:
    """The best return of an episode, and a plan that attains it.

    Attributes:
        best_return: Discounted sum of the rewards.
        plan: One decision a step.
    """

    best_return: float
    plan: tuple[Decision, ...]


def find_optimum(env: DecodeSchedulingEnv) -> Optimum:
    """Search every way to play the episode that ``env`` has just begun.

    Every request counts as shown, so where an environment shows fewer than there are, the optimum
    may be out of its reach.

    Raises:
        ConfigError: A decision has been taken, or there are more than 2^25 states; 6 requests of 6
            tokens have 2^24.
    """
    num_taken = int(env.world.state[0]["decisions"])
    if num_taken > 0:
        raise ConfigError(
            f"decisions taken in this episode: {num_taken}; the optimum is that of a whole one, so "
            "call env.reset(...) first"
        )
    given = env.world.requests(0)
    count = search.num_states(given)
    if count > MOST_STATES:
        raise ConfigError(
            f"{len(given)} requests have {count:.3g} states, too many to search: give fewer "
            f"requests or tokens, up to {MOST_STATES:,} states"
        )
    states = records_of(3, EPISODE)
    requests = records_of((3, len(given)), DECODE_REQUEST)
    states[:] = env.world.state[0]
    requests[:] = given
    values = search.solve(states, requests)
    times = search.clocks(requests[0])
    code = 0
    plan: list[Decision] = []
    ids = given["request_id"].tolist()
    for _ in range(int(np.sum(1 + given["max_new_tokens"]))):
        search.load(states[0], requests[0], times, code)
        _, victim, row, code = search.best_choice(states, requests, values)
        plan.append(Decision(ids[row], None if victim == NONE else ids[victim]))
    return Optimum(float(values[0]), tuple(plan))
