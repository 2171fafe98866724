"""Observations: their layout, their bounds, and each number against the state it tells of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sched_env import ContinuousBatchingEnv, ContinuousBatchingVectorEnv, RequestTable
from sched_env.engine.layout import Feature, Layout
from tests.env.made_worlds import Driver, make_world, random_config, random_table
from tests.env.rollouts import legal_action


def test_layout_splits_what_it_describes(config_with: Any) -> None:
    for privileged in (False, True):
        env = ContinuousBatchingEnv(config_with(observation={"privileged": privileged}))
        layout = env.layout
        observation, _ = env.reset(seed=1)
        assert observation.dtype == np.float32
        slots, global_part, future = layout.split(observation)
        assert slots.shape == (8, len(layout.slot_features))
        assert global_part.shape == (len(layout.global_features),)
        assert future.shape == (len(layout.privileged_features),)
        assert (len(future) > 0) == privileged
        assert slots.size + global_part.size + future.size == observation.size == layout.size
        assert np.shares_memory(slots, observation)
        batch = np.stack([observation, observation])
        assert layout.split(batch)[0].shape == (2, 8, len(layout.slot_features))
        assert layout.num_actions == env.action_space.n


def test_names_are_unique_and_bounds_are_in_order() -> None:
    layout = Layout(3, 2, privileged=True)
    for features in (layout.slot_features, layout.global_features, layout.privileged_features):
        names = [feature.name for feature in features]
        assert len(set(names)) == len(names)
    low, high = layout.bounds()
    assert (low < high).all()
    assert low.shape == high.shape == (layout.size,)


@pytest.mark.parametrize("load", [0.5, 3.0])
def test_observations_stay_within_their_bounds(config_with: Any, load: float) -> None:
    config = config_with(
        observation={"privileged": True},
        scheduler={"num_blocks": 60},
        service={"shed_hopeless": False},
        episode={"load": load, "horizon_s": 20.0},
    )
    vector = ContinuousBatchingVectorEnv(8, config)
    space = vector.single_observation_space
    lowest, highest = np.full(space.shape, np.inf), np.full(space.shape, -np.inf)
    observations, infos = vector.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(600):
        lowest = np.minimum(lowest, observations.min(axis=0))
        highest = np.maximum(highest, observations.max(axis=0))
        actions = np.array([legal_action(rng, mask) for mask in infos["action_mask"]])
        observations, *_, infos = vector.step(actions)
    assert (lowest >= space.low).all()
    assert (highest <= space.high).all()
    slots, global_part, future = vector.layout.split(highest - lowest)
    names = {feature.name for feature in vector.layout.slot_features}
    moved = {
        feature.name
        for place, feature in enumerate(vector.layout.slot_features)
        if slots[:, place].max() > 0
    }
    assert names - moved == set()
    assert (global_part > 0).sum() >= len(vector.layout.global_features) - 2
    assert (future > 0).all()


def named(features: Any, values: np.ndarray) -> dict[str, float]:
    return {f.name: float(value) for f, value in zip(features, values, strict=True)}


def rise(x: float, half: float) -> float:
    return x / (abs(x) + half)


def clip(x: float) -> float:
    return min(max(x, -1.0), 1.0)


class Expected:
    """The numbers of an observation, worked out from the records of the server."""

    def __init__(self, driver: Driver) -> None:
        self.state = driver.state
        layout = driver.world.layout
        self.waiting = driver.world.live(0, "front")[: layout.num_waiting_slots]
        self.running = driver.world.live(0, "running")[::-1][: layout.num_running_slots]
        self.all_running = driver.world.live(0, "running")
        self.layout, self.mask = layout, driver.mask
        self.clock_s = float(self.state["clock_s"])
        # How urgent the work of a request is stays as it was when it began to wait.
        self.best = max([-10.0, *(self.density(one) for one in self.waiting)])

    def density(self, request: Any) -> float:
        outputs = float(request["num_output_tokens"])
        left = max(float(request["predicted_output_tokens"]) - outputs, 1.0)
        work_s = float(request["lone_prefill_s"]) + left * float(request["token_time_s"])
        return math.log(float(request["weight"]) / work_s) / 5.0

    def slot(self, place: int) -> dict[str, float] | None:
        """Return the features of a slot, without the density of running ones; None if empty."""
        num_waiting = self.layout.num_waiting_slots
        is_running = place >= num_waiting
        shown = self.running if is_running else self.waiting
        position = place - num_waiting if is_running else place
        if position >= len(shown):
            return None
        request = shown[position]
        tokens = int(request["prompt_tokens"]) + int(request["num_output_tokens"])
        outputs, computed = int(request["num_output_tokens"]), int(request["num_computed_tokens"])
        size = int(self.state["block_size"])
        blocks = int(request["num_blocks"]) if is_running else math.ceil(tokens / size)
        wait_s = self.clock_s - float(request["arrival_time_s"])
        slack_s = float(request["ttft_slo_s"]) - wait_s - float(request["lone_prefill_s"])
        since_s = self.clock_s - float(request["first_token_s"])
        ahead_s = float(request["tpot_slo_s"]) * outputs - since_s
        left = max(float(request["predicted_output_tokens"]) - outputs, 1.0)
        slots = self.layout.num_running_slots if is_running else num_waiting
        features = {
            "present": 1.0,
            "is_running": float(is_running),
            "is_legal": float(self.mask[self.layout.num_levels + place]),
            "rank": position / slots,
            "short_slack": clip(slack_s / 0.5),
            "middle_slack": clip(slack_s / 2),
            "long_slack": clip(slack_s / 8),
            "blocks_of_free": blocks / (blocks + int(self.state["free_blocks"]) + 1),
            "wait": wait_s / (wait_s + 2),
            "is_late": float(outputs == 0 and wait_s > float(request["ttft_slo_s"])),
            "tpot_slack": rise(ahead_s, 0.5) if outputs else 0.0,
            "prefill_left": rise(tokens - computed, 512),
            "decode_left": rise(left, 128),
            "weight": rise(float(request["weight"]), 2),
            "blocks_of_pool": blocks / int(self.state["num_blocks"]),
            "preemptible": 1.0,
            "computed": rise(computed, 1024),
            "outputs": rise(outputs, 64),
            "preemptions": rise(int(request["num_preemptions"]), 1),
            "tpot_slo": rise(float(request["tpot_slo_s"]), 0.1),
        }
        if not is_running:
            features["density"] = self.density(request)
            features["density_gap"] = max(5 * (self.density(request) - self.best), -20.0)
        return features

    def all(self) -> dict[str, float]:
        """Return the global features that the records tell."""
        state = self.state
        pool, seats = int(state["num_blocks"]), int(state["max_num_seqs"])
        budget = int(state["max_num_batched_tokens"])
        slack_s = [
            float(one["arrival_time_s"] + one["ttft_slo_s"] - one["lone_prefill_s"]) - self.clock_s
            for one in self.waiting
        ]
        weights = [float(one["weight"]) for one in self.waiting]
        urgent = sum(w for w, slack in zip(weights, slack_s, strict=True) if slack < 0.5)
        late = sum(w for w, slack in zip(weights, slack_s, strict=True) if slack < 0.0)
        waits = [self.clock_s - float(one["arrival_time_s"]) for one in self.waiting]
        levels, num_waiting = self.layout.num_levels, self.layout.num_waiting_slots
        fitting = int(self.mask[levels : levels + num_waiting].sum())
        beyond = int(state["num_waiting"]) - len(self.waiting)
        return {
            "free_kv": int(state["free_blocks"]) / pool,
            "ledger_kv": max(int(state["ledger_blocks"]) / pool, -2.0),
            "running": len(self.all_running) / seats,
            "admitted": rise(int(state["num_admitted"]), 4),
            "ledger_tokens": int(state["ledger_tokens"]) / budget,
            "waiting": rise(int(state["num_waiting"]), 16),
            "beyond_slots": rise(beyond, 16),
            "urgent_weight": rise(urgent, 4),
            "late_weight": rise(late, 4),
            "fitting": rise(fitting, 4),
            "shortage": float(state["ledger_blocks"] < 0),
            "news": float(state["news"]),
            "longest_wait": rise(max(waits, default=0.0), 5),
        }


@pytest.mark.parametrize("seed", range(25))
def test_every_number_tells_what_the_layout_says(seed: int) -> None:
    rng = np.random.default_rng([3, seed])
    driver = Driver(make_world(random_config(rng), random_table(rng, 40)))
    driver.reset(seed)
    layout = driver.world.layout
    for _ in range(60):
        expected = Expected(driver)
        slots, global_part, _ = layout.split(driver.observations[0])
        for place in range(layout.num_slots):
            features = expected.slot(place)
            if features is None:
                assert not slots[place].any()
                continue
            given = named(layout.slot_features, slots[place])
            assert {name: given[name] for name in features} == pytest.approx(
                features, rel=1e-5, abs=1e-6
            )
        features = expected.all()
        given = named(layout.global_features, global_part)
        assert {name: given[name] for name in features} == pytest.approx(
            features, rel=1e-5, abs=1e-6
        )
        if driver.step(int(rng.choice(np.flatnonzero(driver.mask))))[1]:
            break


def privileged_driver(table: RequestTable) -> Driver:
    config = random_config(np.random.default_rng(1))
    config = config.replace(
        observation=config.observation.replace(privileged=True),
        episode=config.episode.replace(horizon_s=100.0),
    )
    driver = Driver(make_world(config, table))
    driver.reset(1, offset_s=0.0)
    return driver


@pytest.fixture
def table() -> RequestTable:
    rng = np.random.default_rng(2)
    return RequestTable.from_columns(
        arrival_time_s=[*np.zeros(6), *np.sort(rng.uniform(0.5, 4.0, 30))],
        prompt_tokens=rng.integers(2, 12, 36),
        output_tokens=rng.integers(2, 30, 36),
        service_class=rng.integers(0, 2, 36),
        predicted_output_tokens=rng.uniform(1, 40, 36),
    )


def test_no_public_number_tells_true_lengths_or_the_future(table: RequestTable) -> None:
    # The same until now; longer answers, and later arrivals of those to come.
    later = table.arrival_time_s.copy()
    later[6:] += 3.0
    other = table.with_columns(output_tokens=table.output_tokens + 7, arrival_time_s=later)
    drivers = [privileged_driver(one) for one in (table, other)]
    assert drivers[0].state["next_row"] == 6
    layout = drivers[0].world.layout
    for _ in range(4):  # the first iterations, without an end or an arrival
        first, second = (layout.split(driver.observations[0]) for driver in drivers)
        np.testing.assert_array_equal(first[0], second[0])
        np.testing.assert_array_equal(first[1], second[1])
        assert not np.array_equal(first[2], second[2])
        action = int(np.flatnonzero(drivers[0].mask)[-1])
        for driver in drivers:
            driver.step(action)


def test_privileged_numbers_tell_what_comes(table: RequestTable) -> None:
    driver = privileged_driver(table)
    now_s, row = float(driver.state["clock_s"]), int(driver.state["next_row"])
    layout = driver.world.layout
    future = named(layout.privileged_features, layout.split(driver.observations[0])[2])
    for ahead, half in ((1, 1.0), (4, 2.0), (16, 4.0), (64, 16.0)):
        coming = table.arrival_time_s[row + ahead - 1 : row + ahead]
        expected = rise(float(coming[0]) - now_s, half) if len(coming) else 1.0
        assert future[f"next_arrival_{ahead}"] == pytest.approx(expected, rel=1e-5)
    tokens = table.prompt_tokens + table.output_tokens
    for count, half in ((16, 16384), (64, 65536)):
        expected = rise(float(tokens[row : row + count].sum()), half)
        assert future[f"next_tokens_{count}"] == pytest.approx(expected, rel=1e-5)
    shown = driver.world.live(0, "front")["row"][: layout.num_waiting_slots]
    expected = rise(float(table.output_tokens[shown].sum()), 8192)
    assert future["true_shown_decode"] == pytest.approx(expected, rel=1e-5)


def test_the_class_docstring_lists_every_number() -> None:
    layout = Layout(24, 8, privileged=True)
    text = ContinuousBatchingEnv.__doc__ or ""
    rows = [line.strip() for line in text.splitlines() if line.count("|") == 7]
    listed = [row for row in rows if row[2].isdigit()]

    def row(number: int, one: Feature) -> str:
        scale = one.scale.replace("|x|", "abs(x)")  # a bar would end the column
        return f"| {number} | {one.name} | {one.unit} | {scale} | {one.low:g} | {one.high:g} |"

    parts = (layout.slot_features, layout.global_features, layout.privileged_features)
    assert listed == [row(number, one) for part in parts for number, one in enumerate(part)]
    assert f"`Discrete({Layout(24, 8).num_actions})`" in text


def test_an_observation_made_of_the_last_one_equals_one_written_anew() -> None:
    num_compared = 0
    for seed in range(60):
        rng = np.random.default_rng([4, seed])
        config, table = random_config(rng), random_table(rng, 40)
        going_on, anew = Driver(make_world(config, table)), Driver(make_world(config, table))
        going_on.reset(seed)
        anew.reset(seed)
        is_over = False
        while not is_over:
            action = legal_action(rng, going_on.mask)
            _, is_over, *_ = going_on.step(action)
            anew.step(action)
            anew.observations[:] = np.nan  # whatever lies there
            anew.world.view(anew.observations, anew.masks)
            assert going_on.observations.tobytes() == anew.observations.tobytes()
            num_compared += 1
    assert num_compared > 1000
