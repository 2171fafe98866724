"""Hindsight search: improve the decisions of one run, knowing how it went.

A policy is told an output length for every request. Here the lengths it is told are first the true
ones and then whatever serves best: each is a lever that moves one request forward or back in the
order. A local search changes a few of them at a time and keeps what does not lower the weighted
goodput of the same run. What it ends with is a schedule that the server can really run, so it is a
lower bound of what is possible; no scheduler could know those levers beforehand.

Most of what such a search gains over its start is luck of selection. Its control is the best of as
many runs with levers drawn at random.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.config import EnvConfig
from sched_env.engine import kernels
from sched_env.engine.setup import run_world
from sched_env.errors import ConfigError
from sched_env.metrics.slo import goodput_weighted
from sched_env.policy.keys import Heuristic
from sched_env.policy.registry import resolve_policy
from sched_env.policy.runtime import ExportedPolicy
from sched_env.simulator.deciding_run import DecidingRun
from sched_env.simulator.result import read_result
from sched_env.simulator.simulate import cut_off_s, seen_by
from sched_env.workload.table import RequestTable

_STEPS_PER_CALL = 1_000_000
_MEAN_CHANGES = 4.0
_LEVER_SIGMA = 2.0
_LUCK_SIGMA = 0.5
_MISSED_IS_LIKELIER = 4.0


@dataclass(frozen=True)
class Hindsight:
    """What a search in hindsight found, beside its control.

    Attributes:
        start: Weighted goodput with the true lengths told.
        best: After the search.
        luck: The best of as many runs with random levers.
        num_runs: Runs of the search, and again of its control.
    """

    start: float
    best: float
    luck: float
    num_runs: int


class LeveredRun:
    """One run that can be repeated with other told lengths.

    Args:
        table: What arrives.
        policy: A name, a path of an exported policy, or a policy.
        env: The server and its clients.
        seed: Draws service classes and SLO jitter.
    """

    def __init__(
        self,
        table: RequestTable,
        policy: str | Path | Heuristic | ExportedPolicy,
        env: EnvConfig,
        seed: int = 0,
    ) -> None:
        decider = resolve_policy(policy)
        self._table = table
        until_s = cut_off_s(table)
        if isinstance(decider, Heuristic):
            env = env.replace(scheduler=decider.on_server(env.scheduler))
            key: Any = decider
        else:
            env = seen_by(decider, env)
            key = resolve_policy(env.observation.screen)
        self._world = run_world(env, table, key, seed=seed, until_s=until_s, count_itl=False)
        self._run: DecidingRun | None = None
        if isinstance(decider, ExportedPolicy):
            decider.check_layout(self._world.layout)
            self._run = DecidingRun(self._world, decider)

    def outcome(self, levers: NDArray[np.float64]) -> NDArray[Any]:
        """Return the requests of a run in which each true length is told ``exp(lever)`` as long.

        Args:
            levers: float64 (num_requests,).
        """
        told = np.maximum(self._table.output_tokens * np.exp(levers), 1e-3)
        self._world.arrays.trace["predicted_output_tokens"][: len(told)] = told
        if self._run is None:
            kernels.reset_one(self._world.address)
            while not kernels.run(self._world.address, _STEPS_PER_CALL):
                pass
        else:
            self._run.begin()
            while not self._run.advance(_STEPS_PER_CALL):
                pass
        return read_result(self._world, 0, len(self._table), 0, 0).requests.copy()


def hindsight(
    table: RequestTable,
    policy: str | Path | Heuristic | ExportedPolicy,
    env: EnvConfig,
    *,
    seed: int = 0,
    num_runs: int = 300,
) -> Hindsight:
    """Search for the levers under which a policy serves a table best.

    Args:
        table: What arrives, at its own rate.
        policy: What decides; its use of predicted lengths is what the levers act on.
        env: The server and its clients.
        seed: Draws the clients, and the changes that the search tries.
        num_runs: Runs of the search; its control takes as many again.

    Raises:
        ConfigError: Fewer than one run.
        PolicyError: The policy does not fit, or reads true lengths.
    """
    if num_runs < 1:
        raise ConfigError(f"{num_runs} runs are not enough to search: give 1 or more")
    run, count = LeveredRun(table, policy, env, seed), len(table)
    rng = np.random.default_rng([seed, 0])
    levers = np.zeros(count)
    requests = run.outcome(levers)
    start = best = goodput_weighted(requests)
    for _ in range(num_runs):
        tried = levers.copy()
        chance = np.where(requests["missed"] > 0, _MISSED_IS_LIKELIER, 1.0)
        changes = min(1 + int(rng.poisson(_MEAN_CHANGES)), count)
        rows = rng.choice(count, changes, replace=False, p=chance / chance.sum())
        tried[rows] = rng.normal(0.0, _LEVER_SIGMA, changes)
        outcome = run.outcome(tried)
        goodput = goodput_weighted(outcome)
        if goodput >= best:
            levers, best, requests = tried, goodput, outcome
    return Hindsight(start, best, _luck(run, count, seed, num_runs), num_runs)


def _luck(run: LeveredRun, count: int, seed: int, num_runs: int) -> float:
    """Return the best weighted goodput of runs with random levers."""
    rng = np.random.default_rng([seed, 1])
    best = -math.inf
    for _ in range(num_runs):
        best = max(best, goodput_weighted(run.outcome(rng.normal(0.0, _LUCK_SIGMA, count))))
    return best
