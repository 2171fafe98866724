"""Search for the weights of a policy with an evolution strategy.

Separable CMA-ES (Ros and Hansen, A simple modification in CMA-ES achieving linear time and space
complexity, 2008), as the package cmaes implements it. What is looked at on the validation split is
not the luckiest candidate but the mean of the search distribution, averaged over the latest
generations (Polyak and Juditsky, Acceleration of stochastic approximation by averaging, 1992); the
best look is kept, the starting point among them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sched_env.agents.score_search.scenarios import (
    Budget,
    ScenarioSet,
    ScenarioSource,
    layout_of,
)
from sched_env.agents.score_search.space import ScoreSpace
from sched_env.agents.score_search.weights import WeightSpace
from sched_env.agents.widening import shown
from sched_env.config import EnvConfig
from sched_env.config.experiment import ObjectiveConfig
from sched_env.config.tuning import TuningConfig
from sched_env.policy.card import Scalar
from sched_env.policy.runtime import SEARCH_BUDGET, ExportedPolicy
from sched_env.simulator.simulate import seen_by

NAME = "tuned_linear"
ALGORITHM = "sep-CMA-ES"

VALIDATION_DRAW = 2**31
"""Number of the draw of the validation scenarios of a seed."""

_SHARE_OF_OLD = 0.8
"""Of the running average of the means, per generation."""


@dataclass(frozen=True)
class Look:
    """One look at the validation split.

    Attributes:
        iteration: Generations before it.
        train_goodput: Mean over the last generation's candidates; None before the first.
        validation_goodput: Of the averaged mean of the search distribution.
        validation_p95_ttft_s: Its mean P95 TTFT.
        num_requests: Simulated up to here.
        is_best: Whether it is the best look so far.
    """

    iteration: int
    train_goodput: float | None
    validation_goodput: float
    validation_p95_ttft_s: float
    num_requests: int
    is_best: bool


@dataclass(frozen=True)
class SearchResult:
    """A finished search.

    Attributes:
        policy: The best policy, its card telling the search budget.
        looks: All looks at the validation split.
        budget: What the search has spent.
    """

    policy: ExportedPolicy
    looks: tuple[Look, ...]
    budget: Budget


class Space(Protocol):
    """What a search may change; the zero vector is where it starts."""

    @property
    def size(self) -> int:
        """Return how many numbers the search changes."""
        ...

    def policy(
        self, vector: NDArray[np.float64], name: str = "candidate", training: Any = None
    ) -> ExportedPolicy:
        """Return the policy that a vector stands for."""
        ...


def search(
    env: EnvConfig,
    tuning: TuningConfig,
    seed: int = 0,
    progress: Callable[[int, Look], None] | None = None,
    objective: ObjectiveConfig | None = None,
) -> SearchResult:
    """Tune a linear score on the training split of the environment's traces.

    Args:
        env: Traces, server, clients and observation.
        tuning: How long and on what to search.
        seed: Decides everything: the candidates and the scenarios.
        progress: Called with 0 and after each generation with its number, and with the last look.
        objective: What the best candidate is best at; goodput by default.

    Raises:
        ModuleNotFoundError: The extra ``tune`` is not installed.
        TraceError: A trace cannot be read or is too short.
    """
    slots = {
        "num_waiting_slots": tuning.num_waiting_slots,
        "num_running_slots": tuning.num_running_slots,
    }
    wanted = {key: count for key, count in slots.items() if count is not None}
    env = env.replace(observation=env.observation.replace(**wanted))
    space, budget = ScoreSpace(layout_of(env), env.observation.screen), Budget()
    keeper = evolve(space, env, tuning, seed, budget, progress, objective)
    card = _training(env, tuning, seed, keeper, budget)
    return SearchResult(space.policy(keeper.best, NAME, training=card), tuple(keeper.looks), budget)


def polish(
    policy: ExportedPolicy,
    env: EnvConfig,
    tuning: TuningConfig,
    seed: int = 0,
    progress: Callable[[int, Look], None] | None = None,
    objective: ObjectiveConfig | None = None,
) -> SearchResult:
    """Go on from a policy: search its last layer and its prior for final goodput.

    What the card says of a polish before stays; ``polish_requests`` counts those of all.

    Args:
        policy: A pointer network, or a linear score.
        env: Traces, server and clients.
        tuning: How long and on what to search.
        seed: Decides everything: the candidates and the scenarios.
        progress: Called with 0 and after each generation with its number, and with the last look.
        objective: What the best candidate is best at; goodput by default.

    Raises:
        ModuleNotFoundError: The extra ``tune`` is not installed.
        PolicyError: The policy is of another kind, or does not fit the environment.
    """
    policy = shown(policy, tuning.num_waiting_slots, tuning.num_running_slots)
    space, budget = WeightSpace(policy), Budget()
    keeper = evolve(space, seen_by(policy, env), tuning, seed, budget, progress, objective)
    best = [look for look in keeper.looks if look.is_best][-1]
    before = dict(policy.card.training)
    if SEARCH_BUDGET in before:
        before[SEARCH_BUDGET] = int(before[SEARCH_BUDGET]) + budget.num_requests
    mark = _next_polish(before)
    card = {
        **before,
        mark: ALGORITHM,
        f"{mark}_parameters": space.size,
        "polish_requests": int(before.get("polish_requests") or 0) + budget.num_requests,
        f"{mark}_iterations": tuning.iterations,
        f"{mark}_kept_iteration": best.iteration,
        "validation_goodput": best.validation_goodput,
        f"validation_goodput_before_{mark}": keeper.looks[0].validation_goodput,
        **_tail(keeper, best),
    }
    made = space.policy(keeper.best, policy.name, training=card)
    return SearchResult(made, tuple(keeper.looks), budget)


def _next_polish(training: Mapping[str, Any]) -> str:
    """Return what a card calls the next polish: polish, polish_2, polish_3 and so on."""
    later = (f"polish_{number}" for number in itertools.count(2))
    return next(mark for mark in itertools.chain(["polish"], later) if mark not in training)


def evolve(
    space: Space,
    env: EnvConfig,
    tuning: TuningConfig,
    seed: int,
    budget: Budget,
    progress: Callable[[int, Look], None] | None = None,
    objective: ObjectiveConfig | None = None,
) -> _Keeper:
    """Run the evolution strategy from the zero vector of ``space``; return what it kept."""
    import cmaes

    start = np.zeros(space.size)
    train = ScenarioSource(env, tuning, "train")
    validation = ScenarioSet(
        ScenarioSource(env, tuning, "validation").draw(
            tuning.validation_scenarios, seed, VALIDATION_DRAW
        ),
        space.policy(start),
        budget,
    )
    strategy = cmaes.SepCMA(
        mean=start, sigma=tuning.step_size, seed=seed % 2**32, population_size=tuning.population
    )
    objective = objective or ObjectiveConfig()
    keeper = _Keeper(space, validation, budget, objective)
    keeper.look(0, None, start)
    if progress is not None:
        progress(0, keeper.looks[-1])
    average = start
    for iteration in range(1, tuning.iterations + 1):
        conditions = train.draw(tuning.scenarios, seed, iteration)
        scenarios = ScenarioSet(conditions, space.policy(start), budget)
        vectors = [strategy.ask() for _ in range(tuning.population)]
        outcomes = [scenarios.outcome(space.policy(vector)) for vector in vectors]
        costs = [-objective.worth(*outcome) for outcome in outcomes]
        strategy.tell(list(zip(vectors, costs, strict=True)))
        average = _SHARE_OF_OLD * average + (1.0 - _SHARE_OF_OLD) * strategy.mean
        if iteration % tuning.validate_every == 0 or iteration == tuning.iterations:
            train_goodput = float(np.mean([outcome.goodput for outcome in outcomes]))
            keeper.look(iteration, train_goodput, average)
        if progress is not None:
            progress(iteration, keeper.looks[-1])
    return keeper


class _Keeper:
    """Keeps the vector that is worth most on the validation scenarios."""

    def __init__(
        self, space: Space, validation: ScenarioSet, budget: Budget, objective: ObjectiveConfig
    ) -> None:
        self._space, self._validation, self._budget = space, validation, budget
        self.objective = objective
        self._most = -np.inf
        self.best: NDArray[np.float64] = np.zeros(space.size)
        self.looks: list[Look] = []

    def look(
        self, iteration: int, train_goodput: float | None, vector: NDArray[np.float64]
    ) -> None:
        """Judge a vector; keep a copy if it is the best so far."""
        outcome = self._validation.outcome(self._space.policy(vector))
        worth = self.objective.worth(*outcome)
        is_best = worth > self._most
        if is_best:
            self.best, self._most = np.array(vector), worth
        requests = self._budget.num_requests
        self.looks.append(Look(iteration, train_goodput, *outcome, requests, is_best))


def _training(
    env: EnvConfig, tuning: TuningConfig, seed: int, keeper: _Keeper, budget: Budget
) -> dict[str, Scalar | tuple[Scalar, ...]]:
    """Return what the policy's card says of the search."""
    best = [look for look in keeper.looks if look.is_best][-1]
    return {
        "run": f"{NAME}__seed{seed}",
        "algorithm": ALGORITHM,
        "seed": seed,
        "num_parameters": len(keeper.best),
        SEARCH_BUDGET: budget.num_requests,
        "search_decisions": budget.num_decisions,
        "search_runs": budget.num_runs,
        "iterations": tuning.iterations,
        "population": tuning.population,
        "kept_iteration": best.iteration,
        "validation_goodput": best.validation_goodput,
        "validation_goodput_at_start": keeper.looks[0].validation_goodput,
        "traces": tuple(Path(trace).name for trace in env.trace),
        "split": "train",
        "loads": tuning.loads,
        "slo_factors": tuning.slo_factors,
        "kv_factors": tuning.kv_factors,
        "length_prediction": env.service.length_prediction.kind,
        "shed_hopeless": env.service.shed_hopeless,
        **_tail(keeper, best),
    }


def _tail(keeper: _Keeper, best: Look) -> dict[str, Scalar]:
    """Return what a card says of the P95 TTFT where the search cared for it."""
    weight = keeper.objective.p95_ttft_weight
    if weight == 0.0:
        return {}
    return {"p95_ttft_weight": weight, "validation_p95_ttft_s": best.validation_p95_ttft_s}
