"""Run a whole trace under one policy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import cast

import numpy as np

import sched_env.baselines  # noqa: F401  (registers the heuristics)
from sched_env.config.cost import LiveCost
from sched_env.config.env import EnvConfig
from sched_env.engine import kernels, live
from sched_env.engine.setup import run_world
from sched_env.engine.world import World
from sched_env.errors import ConfigError, TraceError
from sched_env.policy.keys import Heuristic
from sched_env.policy.registry import resolve_policy
from sched_env.policy.runtime import ExportedPolicy
from sched_env.simulator.deciding_run import AskingRun, DecidingRun
from sched_env.simulator.live import check_live, shared_executor, with_estimate
from sched_env.simulator.number_checks import is_number, is_whole
from sched_env.simulator.result import SimulationResult, read_result
from sched_env.workload.table import RequestTable

DRAIN_FACTOR = 10.0
"""A run is cut off at this many times the window of arrivals; what is unfinished then is missed."""

LEAST_LOAD, MOST_LOAD = 1e-6, 1e6
"""Beyond these the arrivals of any trace lie all at once, or further apart than clocks can tell."""

_SHORTEST_WINDOW_S = 60.0
_BATCHES_PER_CALL = 100_000
_FIRST_EVENTS = 65_536


def simulate(
    table: RequestTable,
    policy: str | Path | Heuristic | ExportedPolicy,
    env: EnvConfig | None = None,
    *,
    seed: int = 0,
    load: float | None = None,
    record_events: bool = False,
    allow_privileged: bool = False,
    until_s: float | None = None,
) -> SimulationResult:
    """Serve all requests of ``table`` under ``policy`` until the last one has ended.

    With a live cost the batches run on a real model, and their measured times move the clock.

    Args:
        table: What arrives.
        policy: A name, a path of an exported policy, or a policy.
        env: The server, its clients and the step-time model; the standard one by default.
        seed: Draws service classes, SLO jitter and length predictions, the same for any policy.
        load: Arrival rate over what fcfs can drain; ``None`` keeps the table's own arrivals.
        record_events: Whether to keep the event log.
        allow_privileged: Accept a heuristic that reads true output lengths.
        until_s: When the run is cut off; ``None``: at ``DRAIN_FACTOR`` times the arrivals' window.

    Raises:
        ConfigError: The load or the seed is not allowed, the observation is privileged, or a live
            server's device is not there.
        PolicyError: The policy does not fit the environment.
        TraceError: The table is empty, or is none.
    """
    if not isinstance(table, RequestTable):
        raise TraceError(f"{table!r} is no table of requests: read_trace(...) makes one of a file")
    if not isinstance(env, EnvConfig | None):
        raise ConfigError(f"env is {env!r}: give an EnvConfig(...)")
    if until_s is not None and not (is_number(until_s) and until_s > 0.0):
        raise ConfigError(f"until_s is {until_s!r}: give seconds above 0")
    env = env or EnvConfig()
    if env.observation.privileged:
        raise ConfigError(
            "observation.privileged shows the future: it is for a value head in training; "
            "set it to false to simulate or evaluate"
        )
    check_seed(seed)
    if len(table) == 0:
        raise TraceError(f"{table.source.name}: no requests to simulate; give a longer window")
    decider = resolve_policy(policy, allow_privileged=allow_privileged)
    check_live(env)
    env = with_estimate(env)
    if load is not None:
        table = at_load(table, load, fcfs_capacity_rps(table, env))
    if until_s is None:
        until_s = cut_off_s(table)
    if isinstance(decider, Heuristic):
        env = env.replace(scheduler=decider.on_server(env.scheduler))
        return _run_heuristic(table, decider, env, seed, until_s, record_events)
    return _run_deciding(table, decider, env, seed, until_s, record_events)


def check_seed(seed: int) -> None:
    """Refuse what is no seed.

    Raises:
        ConfigError: It is not a whole number from 0 to 2^63 - 1.
    """
    if not (is_whole(seed) and 0 <= seed < 2**63):
        raise ConfigError(f"seed {seed!r} is not allowed: give a whole number from 0 to 2^63 - 1")


def cut_off_s(table: RequestTable) -> float:
    """Return when a run of ``table`` is cut off unless told otherwise.

    That is ``DRAIN_FACTOR`` times the window of arrivals, or times a minute if that is longer.
    """
    return DRAIN_FACTOR * max(float(table.arrival_time_s[-1]), _SHORTEST_WINDOW_S)


def _run_heuristic(
    table: RequestTable,
    key: Heuristic,
    env: EnvConfig,
    seed: int,
    until_s: float,
    record_events: bool,
) -> SimulationResult:
    num_events = _FIRST_EVENTS if record_events else 0
    world = run_world(
        env,
        table,
        key,
        seed=seed,
        until_s=until_s,
        num_events=num_events,
        shows_requests=False,
    )
    if _attached(world, env) is None:
        _drain(world)
    else:
        kernels.reset_one(world.address)
        while live.serve(world):
            _make_event_room(world, 1)
    return read_result(world, 0, len(table), 0, 0)


def _attached(world: World, env: EnvConfig) -> live.BatchExecutor | None:
    """Let a live world's batches run on its model, and return that."""
    if not isinstance(env.cost, LiveCost):
        return None
    executor = shared_executor(env.cost, env.scheduler)
    live.attach(world, executor)
    return executor


def _drain(world: World) -> None:
    kernels.reset_one(world.address)
    while not kernels.run(world.address, _BATCHES_PER_CALL):
        _make_event_room(world, 1)


def _make_event_room(world: World, count: int) -> None:
    """Let the event log, if there is one, take ``count`` more admissions and preemptions."""
    state = world.state[0]
    needed = int(state["event_reserve"]) + int(state["num_recurring_events"]) + count
    while 0 < world.arrays.events.shape[1] < needed:
        world.grow_events()


def _run_deciding(
    table: RequestTable,
    policy: ExportedPolicy,
    env: EnvConfig,
    seed: int,
    until_s: float,
    record_events: bool,
) -> SimulationResult:
    env = seen_by(policy, env)
    screen = cast("Heuristic", resolve_policy(env.observation.screen))
    num_events = _FIRST_EVENTS if record_events else 0
    world = run_world(env, table, screen, seed=seed, until_s=until_s, num_events=num_events)
    policy.check_layout(world.layout)
    is_live = _attached(world, env) is not None
    run: DecidingRun | AskingRun
    run = (
        DecidingRun(world, policy)
        if isinstance(policy, ExportedPolicy) and not is_live
        else AskingRun(world, policy)
    )
    # Where nothing is to decide, each request is admitted and preempted once at most.
    room = 2 * len(table)
    _make_event_room(world, room)
    run.begin()
    _make_event_room(world, room)
    while not run.advance(1 if record_events else _BATCHES_PER_CALL):
        _make_event_room(world, room)
    return read_result(world, 0, len(table), run.num_decisions, run.num_invalid_actions)


def seen_by(network: ExportedPolicy, env: EnvConfig) -> EnvConfig:
    """Return the environment as an exported policy was trained to see it.

    How many requests a policy looks at, and in which order, is its own affair; the server stays
    the same.
    """
    seen = network.card.observation
    return env.replace(
        observation=env.observation.replace(
            num_waiting_slots=seen.num_waiting_slots,
            num_running_slots=seen.num_running_slots,
            screen=network.card.screen,
        )
    )


def at_load(table: RequestTable, load: float, capacity_rps: float) -> RequestTable:
    """Return ``table`` with arrival intervals scaled to ``load`` times ``capacity_rps``.

    Raises:
        ConfigError: The load is not possible, see :func:`check_load`.
        TraceError: All requests arrive at once, so there is no rate to scale.
    """
    check_load(table, load, capacity_rps)
    return table.with_rate_scale(load * capacity_rps / table.mean_rate_rps)


def check_load(table: RequestTable, load: float, capacity_rps: float) -> None:
    """Refuse to set a load that cannot be.

    Raises:
        ConfigError: The load is below 0.000001 or above 1,000,000, or no number, or the server can
            serve none of the requests.
        TraceError: All requests arrive at once, so there is no rate to scale.
    """
    check_load_alone(load)
    if table.span_s <= 0:
        raise TraceError(
            f"{table.source.name}: all requests arrive at one time, so no load can be set; "
            "leave the load out"
        )
    check_capacity(table, capacity_rps)


def check_load_alone(load: float) -> None:
    """Refuse what is no load on any trace.

    Raises:
        ConfigError: It is no number from 0.000001 to 1,000,000.
    """
    if not (is_number(load) and LEAST_LOAD <= load <= MOST_LOAD):
        shown = f"{load:g}" if isinstance(load, float) else repr(load)
        raise ConfigError(
            f"load {shown} is not possible: give a number from {LEAST_LOAD:g} to {MOST_LOAD:g}, "
            "such as 0.8; 1.0 is the rate that fcfs can drain"
        )


def check_capacity(table: RequestTable, capacity_rps: float) -> None:
    """Refuse to set a load on a server that can serve none of the requests.

    Raises:
        ConfigError: The rate that fcfs drains is not finite.
    """
    if not math.isfinite(capacity_rps):
        raise ConfigError(
            f"{table.source.name}: no prompt fits this server, so it drains no rate that a load "
            "could refer to; raise num_blocks, block_size or max_model_len, or keep the trace's "
            "own rate (load: null)"
        )


def fcfs_capacity_rps(table: RequestTable, env: EnvConfig) -> float:
    """Return the rate at which fcfs drains all requests of ``table`` when present at time 0.

    This is load 1.0; it is infinite where the server rejects every request. Nothing is shed or
    timed out in this run.
    """
    patient = env.service.model_copy(update={"shed_hopeless": False, "request_timeout_s": None})
    at_once = table.with_columns(arrival_time_s=np.zeros(len(table)))
    world = run_world(
        env.model_copy(update={"service": patient}),
        at_once,
        cast("Heuristic", resolve_policy("fcfs")),
        seed=0,
        until_s=math.inf,
        count_itl=False,
        shows_requests=False,
    )
    _drain(world)
    drained_s = float(world.state[0]["clock_s"])
    return len(table) / drained_s if drained_s > 0 else math.inf
