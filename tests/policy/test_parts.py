"""A policy made of parts: each kind of decision is taken by whom it was left to."""

from __future__ import annotations

import numpy as np
import pytest

from sched_env.config import EnvConfig
from sched_env.engine.layout import Layout
from sched_env.errors import PolicyError
from sched_env.policy.card import ObservationSchema
from sched_env.policy.parts import PARTS, MostBlocksVictim, PartsPolicy
from sched_env.policy.scores import linear_score
from sched_env.simulator.simulate import simulate
from sched_env.workload.readers import read_trace

LAYOUT = Layout(num_waiting_slots=4, num_running_slots=3)
SIZES = dict(zip(PARTS, (4, 4, 3), strict=True))


def score(seed):
    """Return a score with drawn weights that takes all three kinds of decisions."""
    rng = np.random.default_rng(seed)
    names = [feature.name for feature in LAYOUT.slot_features]
    globals_ = [feature.name for feature in LAYOUT.global_features]

    def drawn(names):
        return dict(zip(names, rng.normal(size=len(names)), strict=True))

    return linear_score(
        f"drawn_{seed}",
        admit=drawn(names),
        preempt=drawn(names),
        preempt_bias=0.0,
        stop=drawn(globals_),
        stop_bias=0.0,
        level=drawn(globals_),
        layout=LAYOUT,
    )


@pytest.fixture(scope="module")
def states():
    rng = np.random.default_rng(0)
    observations = rng.uniform(-1, 1, (300, LAYOUT.public_size)).astype(np.float32)
    masks = (rng.random((300, LAYOUT.num_actions)) < 0.5).astype(np.int8)
    masks[:, 3] = 1
    return observations, masks


def kind_of(actions):
    return np.digitize(actions, [4, 8])


@pytest.mark.parametrize("part", PARTS)
def test_only_the_part_that_was_left_to_another_changes(states, part):
    base, other = score(1), score(2)
    observations, masks = states
    mixed = PartsPolicy("mixed", base, {part: other}).act(observations, masks)
    alone = base.act(observations, masks)
    assert np.array_equal(kind_of(mixed), kind_of(alone))
    assert np.all(np.take_along_axis(masks, mixed[:, None], axis=1) == 1)
    index = PARTS.index(part)
    own = kind_of(alone) == index
    assert np.array_equal(mixed[~own], alone[~own])
    first = sum(list(SIZES.values())[:index])
    logits = other.logits(observations, masks)[:, first : first + SIZES[part]]
    assert np.array_equal(mixed[own], first + logits[own].argmax(axis=1))
    assert (mixed[own] != alone[own]).any()


def test_no_parts_and_own_parts_are_the_base(states):
    base = score(3)
    for parts in ({}, dict.fromkeys(PARTS, base)):
        assert np.array_equal(PartsPolicy("same", base, parts).act(*states), base.act(*states))


def test_blocks_per_token_are_what_the_cost_scored_victim_goes_by():
    schema = ObservationSchema.from_layout(LAYOUT)
    names = [feature.name for feature in LAYOUT.slot_features]
    seen = np.zeros((LAYOUT.num_slots, len(names)), np.float32)
    seen[4:, names.index("blocks_of_pool")] = [0.2, 0.3, 0.1]
    tokens = np.array([1000.0, 3000.0, 100.0])
    seen[4:, names.index("computed")] = tokens / (tokens + 1024.0)
    rest = np.zeros(len(LAYOUT.global_features), np.float32)
    observation = np.concatenate([seen.ravel(), rest])[None]
    masks = np.ones((1, LAYOUT.num_actions), np.int8)
    logits = MostBlocksVictim(schema).logits(observation, masks)
    assert logits[0, :8].tolist() == [0.0] * 8
    assert np.argsort(logits[0, 8:]).tolist() == [1, 0, 2]


def test_it_runs_as_any_other_policy():
    base = linear_score("base", admit={"density": 5.0}, preempt={"density": -5.0}, layout=LAYOUT)
    table = read_trace("azure_code", seed=0).take(np.arange(60))
    env = EnvConfig(observation={"num_waiting_slots": 4, "num_running_slots": 3})
    alone = simulate(table, base, env, seed=1, load=1.3).requests
    same = simulate(table, PartsPolicy("same", base, {"level": base}), env, seed=1, load=1.3)
    assert np.array_equal(alone["finish_s"], same.requests["finish_s"], equal_nan=True)


def test_parts_of_another_layout_or_of_no_kind_are_refused():
    other = linear_score("other", admit={}, preempt={}, layout=Layout(5, 3))
    with pytest.raises(PolicyError, match="num_waiting_slots is 4 here and 5 there"):
        PartsPolicy("mixed", score(1), {"victims": other})
    with pytest.raises(PolicyError, match="'order' is no part"):
        PartsPolicy("mixed", score(1), {"order": other})
