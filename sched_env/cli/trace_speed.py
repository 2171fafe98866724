"""How fast whole traces are simulated, and how a request's cost depends on the work at hand."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

from sched_env.cli.speed import Speed, Work, measure
from sched_env.config import EnvConfig
from sched_env.policy.keys import Heuristic
from sched_env.policy.names import find_registered, known_policies
from sched_env.simulator import simulate
from sched_env.workload import RequestTable, synthesize

LIGHT_RPS, OVERLOAD_RPS = 10.0, 40.0
"""Chatbot requests per second that the standard server serves at ease, and cannot serve."""

_SPARSE_RPS = 2.0
_GROWTH_FROM = 1_000

Ratio = tuple[str, float]


def _chatbot(num_requests: int, rate_rps: float) -> RequestTable:
    return synthesize("chatbot", num_requests=num_requests, rate_rps=rate_rps, seed=0)


def light_chatbot(num_requests: int) -> RequestTable:
    """Return chatbot requests at a rate that the standard server serves at ease."""
    return _chatbot(num_requests, LIGHT_RPS)


def trace_speeds(num_requests: int, *, repeats: int, seconds: float) -> list[Speed]:
    """Measure chatbot requests at light load under fcfs: requests and iterations per second."""
    table = light_chatbot(num_requests)
    iterations = simulate(table, "fcfs").num_iterations

    def once() -> int:
        simulate(table, "fcfs")
        return num_requests

    name = f"chatbot {LIGHT_RPS:g} requests/s, {num_requests:,} requests, fcfs"
    (requests,) = measure([Work(name, "requests", once)], repeats=repeats, seconds=seconds)
    scale = iterations / num_requests
    rounds = tuple(rate * scale for rate in requests.rounds_per_s)
    batches = replace(
        requests,
        unit="iterations",
        per_s=requests.per_s * scale,
        best_per_s=requests.best_per_s * scale,
        rounds_per_s=rounds,
    )
    return [requests, batches]


def growth(num_requests: int, repeats: int) -> list[Ratio]:
    """Return the cost of a request among many over that among 1,000."""
    few, many = _chatbot(_GROWTH_FROM, LIGHT_RPS), _chatbot(num_requests, LIGHT_RPS)
    ratio = _cost_ratio([(many, "fcfs", EnvConfig()), (few, "fcfs", EnvConfig())], repeats)
    return [(f"cost of a request, {num_requests:,} over {_GROWTH_FROM:,} requests", ratio)]


def overload(num_requests: int, repeats: int, policies: Sequence[str] = ()) -> list[Ratio]:
    """Return the cost of a request in overload over that at light load, for each heuristic.

    Args:
        num_requests: Requests of each trace.
        repeats: Measurements of which the median counts.
        policies: Names; all registered heuristics by default.
    """
    known = [name for name in known_policies() if isinstance(find_registered(name), Heuristic)]
    light, heavy = _chatbot(num_requests, LIGHT_RPS), _chatbot(num_requests, OVERLOAD_RPS)
    ratios = []
    for shed in (True, False):
        env = EnvConfig().replace(service={"shed_hopeless": shed})
        for name in policies or known:
            ratio = _cost_ratio([(heavy, name, env), (light, name, env)], repeats)
            how = "shedding" if shed else "shedding nobody"
            ratios.append((f"cost in overload over light load, {name}, {how}", ratio))
    return ratios


def jump_ahead(num_requests: int, repeats: int) -> list[Ratio]:
    """Return how many times as fast a run is with jumps as without, sparse and dense."""
    ratios = []
    stepwise = EnvConfig().replace(episode={"jump_ahead": False})
    for name, rate_rps in (("sparse", _SPARSE_RPS), ("dense", OVERLOAD_RPS)):
        table = _chatbot(num_requests, rate_rps)
        ratio = _cost_ratio([(table, "fcfs", stepwise), (table, "fcfs", EnvConfig())], repeats)
        ratios.append((f"jump-ahead on over off, {name} ({rate_rps:g} requests/s)", ratio))
    return ratios


def _cost_ratio(runs: Sequence[tuple[RequestTable, str, EnvConfig]], repeats: int) -> float:
    """Return the cost of a request in the first run over that in the second, in turn."""
    first, second = runs
    simulate(*second)  # compiles what is not compiled yet
    pairs = [_cost_s(*first) / _cost_s(*second) for _ in range(repeats)]
    return statistics.median(pairs)


def _cost_s(table: RequestTable, policy: str, env: EnvConfig) -> float:
    """Return seconds of processor time for each request, of as many runs as take 20 ms."""
    runs, started_s = 0, time.process_time()
    while (elapsed_s := time.process_time() - started_s) < 0.02 or runs == 0:
        simulate(table, policy, env)
        runs += 1
    return elapsed_s / (runs * len(table))
