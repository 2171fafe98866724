"""The batched step against its transcription in C: two cores that must agree to the last bit."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from c_core import library
from c_core.comparison import DifferenceError, Lockstep, first_difference
from c_core.driver import Driver
from sched_env.cli.speed import LOADS, make_envs
from sched_env.engine.keycall import IS_COMPILED
from sched_env.engine.world import World
from sched_env.errors import ConfigError

_BY_NAME = {"standard server": None, **{load.name: load for load in LOADS}}
_OTHER_RULES = {
    "rewards": {"reward_waiting": 0.1, "reward_recompute": 0.2},
    "blocks": {"reserve_full_isl": 0, "watermark_blocks": 5},
    "pool": {"num_blocks": 24},
    "seats": {"max_num_active_seqs": 5, "max_num_batched_tokens": 300},
    "deadlines": {"shed_hopeless": 0, "request_timeout_s": 1.5},
    "misses": {"shed_hopeless": 0, "slo_factor": 0.5, "length_sigma": np.nan},
    "lengths": {"max_model_len": 400, "jump_ahead": 0, "length_sigma": 0.0},
}


@pytest.fixture(autouse=True)
def _needs_a_compiler() -> None:
    if library.compiler() is None:
        pytest.skip("no C compiler here (cc, or what CC names)")
    if not IS_COMPILED:
        pytest.skip("the engine runs as plain Python")


def world_of(name: str, num_envs: int = 4, **settings: float) -> World:
    world = make_envs(num_envs, _BY_NAME[name]).unwrapped.world
    world.state["env_seed"] = np.arange(num_envs)
    for field, value in settings.items():
        world.state[field] = value
    return world


@pytest.mark.parametrize("name", _BY_NAME)
def test_c_does_the_same_to_the_last_bit(name: str) -> None:
    world = world_of(name, horizon_s=6.0)
    pair = Lockstep(world, copy.deepcopy(world))
    pair.run(4000)
    assert pair.num_ended > 0


@pytest.mark.parametrize("name", _OTHER_RULES)
def test_c_does_the_same_under_other_rules(name: str) -> None:
    world = world_of("KV-tight", horizon_s=5.0, **_OTHER_RULES[name])
    Lockstep(world, copy.deepcopy(world)).run(1000)


@pytest.mark.parametrize("smoothness", [3.0, 4.0, 99.0])
def test_c_takes_the_same_step_times(smoothness: float) -> None:
    world = world_of("idle", horizon_s=5.0)
    world.arrays.cost["mixed_smoothness"] = smoothness
    Lockstep(world, copy.deepcopy(world)).run(500)


def test_c_drains_a_trace_like_numba() -> None:
    world = world_of("busy", horizon_s=1e6)
    world.arrays.segments["end_row"] = 60
    pair = Lockstep(world, copy.deepcopy(world))
    pair.run(2000)
    assert pair.num_ended > 0


def test_both_are_measured_on_the_same_work() -> None:
    worlds = world_of("busy"), world_of("busy")
    times_s = [Driver(worlds[is_c], is_c=bool(is_c)).run(300) for is_c in range(2)]
    assert min(times_s) > 0.0
    assert worlds[0].state["decisions"].min() == 300
    assert first_difference(*worlds) is None


def test_a_difference_is_named() -> None:
    world = world_of("busy")
    twin = copy.deepcopy(world)
    assert first_difference(world, twin) is None
    twin.arrays.front["resting"]["weight"][2, 7] = 0.5
    assert first_difference(world, twin) == (
        "front.resting.weight[2, 7]: numba np.float32(0.0), C np.float32(0.5)"
    )
    twin.state["num_finished"][1] += 1
    assert "state.num_finished[1]" in str(first_difference(world, twin))


def test_a_changed_rule_is_found() -> None:
    world = world_of("busy")
    twin = copy.deepcopy(world)
    twin.state["shed_hopeless"] = 0
    with pytest.raises(DifferenceError, match=r"state\.shed_hopeless"):
        Lockstep(world, twin)


@pytest.mark.parametrize(
    ("field", "value"),
    [("async_scheduling", 1), ("prefill_schedule_interval", 4), ("enable_chunked_prefill", 0)],
)
def test_switches_that_c_does_not_know_are_refused(field: str, value: int) -> None:
    world = world_of("idle", **{field: value})
    with pytest.raises(ConfigError, match=field):
        library.check_world(world)


def test_a_missing_compiler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    with pytest.raises(ConfigError, match="no C compiler 'no-such-compiler -m64'"):
        library.core.__wrapped__()
