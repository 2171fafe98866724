"""The runs that a candidate is judged by: pieces of traces, each at its own conditions."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sched_env.config import EnvConfig, ServiceConfig
from sched_env.config.model import LARGEST_SIZE
from sched_env.config.tuning import StretchConfig, TuningConfig
from sched_env.engine.layout import Layout
from sched_env.engine.setup import run_world
from sched_env.engine.world import World
from sched_env.errors import ConfigError, TraceError
from sched_env.metrics.latency import percentiles, ttft_s
from sched_env.metrics.slo import goodput_weighted
from sched_env.policy.registry import resolve_policy
from sched_env.policy.runtime import ExportedPolicy
from sched_env.simulator.deciding_run import DecidingRun
from sched_env.simulator.result import read_result
from sched_env.simulator.simulate import at_load, check_load, cut_off_s, fcfs_capacity_rps
from sched_env.workload.columns import MAX_TOKENS
from sched_env.workload.env_trace import read_env_trace
from sched_env.workload.table import RequestTable

_DECISIONS_PER_CALL = 1_000_000


@dataclass
class Budget:
    """What a search has spent.

    Attributes:
        num_requests: Requests simulated under candidates, validation included.
        num_decisions: Decisions taken for them.
        num_runs: Scenarios run.
    """

    num_requests: int = 0
    num_decisions: int = 0
    num_runs: int = 0


class Outcome(NamedTuple):
    """How a policy does on a set of scenarios.

    Attributes:
        goodput: Mean weighted goodput.
        p95_ttft_s: Mean P95 TTFT of the scenarios in which a request had a token; NaN for none.
    """

    goodput: float
    p95_ttft_s: float


@dataclass(frozen=True)
class Condition:
    """One piece of a trace, perhaps stretched, at one load, SLO tightness and KV pool."""

    table: RequestTable
    env: EnvConfig
    seed: int

    def world(self) -> World:
        """Return a server that is about to receive the piece."""
        key = resolve_policy(self.env.observation.screen)
        until_s = cut_off_s(self.table)
        return run_world(
            self.env, self.table, key, seed=self.seed, until_s=until_s, count_itl=False
        )


class ScenarioSource:
    """Draws scenarios from one split of the environment's traces.

    Args:
        env: Traces, server, clients and observation.
        tuning: Conditions to draw from.
        split: ``train`` or ``validation``.

    Raises:
        TraceError: A trace cannot be read, or its split has fewer than two moments of arrival.
        ConfigError: A stretch, an SLO factor or a KV factor leads beyond what can be simulated.
        SchedEnvError: A load cannot be set on a trace, or no prompt fits a server.
    """

    def __init__(self, env: EnvConfig, tuning: TuningConfig, split: str) -> None:
        self._tuning = tuning
        self._tables: list[RequestTable] = []
        for trace in env.trace:
            table = part_with_a_rate(env, trace, split)
            self._tables += [stretched(table, stretch) for stretch in tuning.stretches]
        self._clients = [_clients(env, factor) for factor in tuning.slo_factors]
        self._servers = [_server(env, factor) for factor in tuning.kv_factors]
        self._capacities_rps = [
            [fcfs_capacity_rps(table, server) for table in self._tables] for server in self._servers
        ]
        for capacities_rps in self._capacities_rps:
            for table, capacity_rps in zip(self._tables, capacities_rps, strict=True):
                for load in tuning.loads:
                    check_load(table, load, capacity_rps)

    def longer(self, factor: int) -> ScenarioSource:
        """Return the same, but for pieces so many times as long."""
        other = copy.copy(self)
        length = factor * self._tuning.requests_per_scenario
        other._tuning = self._tuning.replace(requests_per_scenario=length)
        return other

    def draw(self, count: int, seed: int, iteration: int) -> list[Condition]:
        """Return ``count`` conditions, decided by the seed and the iteration alone.

        Traces, stretches, loads, tightness and pools follow each other as evenly as their numbers
        allow.
        """
        rng = np.random.default_rng([seed, iteration])
        tuning = self._tuning
        choices = [
            (trace, load, clients, server)
            for load in tuning.loads
            for clients in self._clients
            for server in range(len(self._servers))
            for trace in range(len(self._tables))
        ]
        order = np.concatenate(
            [rng.permutation(len(choices)) for _ in range(math.ceil(count / len(choices)))]
        )
        return [self._condition(*choices[index], rng) for index in order[:count]]

    def _condition(
        self,
        trace: int,
        load: float,
        clients: ServiceConfig,
        server: int,
        rng: np.random.Generator,
    ) -> Condition:
        table, env = self._tables[trace], self._servers[server]
        length = min(self._tuning.requests_per_scenario, len(table))
        start = int(rng.integers(len(table) - length + 1))
        piece = table.take(np.arange(start, start + length)).rebased()
        # The piece keeps its own bursts; the load is that of the whole split, as in an evaluation.
        scale = load * self._capacities_rps[server][trace] / table.mean_rate_rps
        if table.span_s > 0 and math.isfinite(scale):
            piece = piece.with_rate_scale(scale)
        else:
            piece = at_load(piece, load, self._capacities_rps[server][trace])
        return Condition(piece, env.replace(service=clients), int(rng.integers(2**62)))


def part_with_a_rate(env: EnvConfig, trace: str, split: str) -> RequestTable:
    """Return a part of a trace whose requests have a rate, so that a load can be set on them.

    Args:
        env: Its clients know the service classes.
        trace: File or name.
        split: ``train`` or ``validation``.

    Raises:
        TraceError: The trace cannot be read, or all requests of the part arrive at one time.
    """
    table = read_env_trace(env, trace).split(split)
    if table.span_s <= 0:
        few = "one request" if len(table) == 1 else f"{len(table)} requests, all at one time,"
        raise TraceError(f"{trace}: {few} in the {split} part; give a longer trace")
    return table


def _clients(env: EnvConfig, slo_factor: float) -> ServiceConfig:
    """Return the clients of a candidate, with SLOs of another tightness."""
    try:
        return env.service.replace(slo_factor=env.service.slo_factor * slo_factor)
    except ConfigError as error:
        raise ConfigError(
            f"slo_factors: {slo_factor:g} times that of the clients: {error}"
        ) from None


def _server(env: EnvConfig, kv_factor: float) -> EnvConfig:
    """Return the environment of a candidate, with a KV pool of another size."""
    try:
        scheduler = env.scheduler.with_pool_times(kv_factor)
    except ConfigError:
        raise ConfigError(
            f"kv_factors: {env.scheduler.num_blocks} blocks times {kv_factor:g} are more than "
            f"{LARGEST_SIZE}; give a smaller factor"
        ) from None
    return env.replace(scheduler=scheduler, observation=env.observation.replace(privileged=False))


def stretched(table: RequestTable, stretch: StretchConfig) -> RequestTable:
    """Return the same arrivals with prompts and outputs of other lengths.

    Raises:
        ConfigError: A length would be more than a table holds.
    """
    if not stretch.is_stretch:
        return table

    def times(tokens: NDArray[np.int32], factor: float) -> NDArray[np.int64]:
        longest = int(tokens.max(initial=0))
        if longest * factor > MAX_TOKENS:
            raise ConfigError(
                f"stretches: {longest} tokens times {factor:g} are more than {MAX_TOKENS}; give a "
                "smaller factor"
            )
        return np.maximum(np.rint(tokens * factor), 1.0).astype(np.int64)

    return table.with_columns(
        prompt_tokens=times(table.prompt_tokens, stretch.prompt),
        output_tokens=times(table.output_tokens, stretch.output),
    )


class ScenarioSet:
    """Servers that stand ready to run one candidate after another.

    Args:
        conditions: What to run.
        policy: Any policy of the layout that the candidates have.
        budget: Counts what is run.
    """

    def __init__(self, conditions: list[Condition], policy: ExportedPolicy, budget: Budget) -> None:
        self._budget = budget
        self._runs: list[DecidingRun] = []
        self._lengths = [len(one.table) for one in conditions]
        for one in conditions:
            world = one.world()
            policy.check_layout(world.layout)
            self._runs.append(DecidingRun(world, policy))

    def outcome(self, policy: ExportedPolicy) -> Outcome:
        """Return how a policy does, as means over the scenarios."""
        goodputs, tails_s = [], []
        for run, length in zip(self._runs, self._lengths, strict=True):
            run.use(policy)
            run.begin()
            while not run.advance(_DECISIONS_PER_CALL):
                pass
            result = read_result(run.world, 0, length, run.num_decisions, 0)
            goodput, tail_s = outcome_of(result.requests)
            goodputs.append(goodput)
            tails_s.append(tail_s)
            self._budget.num_requests += length
            self._budget.num_decisions += run.num_decisions
            self._budget.num_runs += 1
        known_s = [tail_s for tail_s in tails_s if math.isfinite(tail_s)]
        tail_s = float(np.mean(known_s)) if known_s else math.nan
        return Outcome(float(np.mean(goodputs)), tail_s)


def outcome_of(requests: NDArray[Any]) -> Outcome:
    """Return how the requests of one scenario have fared."""
    return Outcome(goodput_weighted(requests), percentiles(ttft_s(requests), (95,))[95])


def layout_of(env: EnvConfig) -> Layout:
    """Return the layout that a policy of the environment decides by."""
    seen = env.observation
    return Layout(seen.num_waiting_slots, seen.num_running_slots)
