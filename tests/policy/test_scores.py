"""Linear scores do what their weights say."""

from __future__ import annotations

import numpy as np
import pytest

from sched_env.engine.layout import FULL_LEVEL, NUM_LEVELS, Layout
from sched_env.errors import PolicyError, UnknownNameError
from sched_env.policy.scores import linear_score

LAYOUT = Layout(num_waiting_slots=3, num_running_slots=2)


def decide(score, slots, globals_=None, legal=None):
    """Return the action for some features by name: those of each slot, and those of the server."""
    names = [feature.name for feature in LAYOUT.slot_features]
    seen = np.zeros((LAYOUT.num_slots, len(names)), np.float32)
    for slot, features in enumerate(slots):
        seen[slot, 0] = 1.0
        for name, value in features.items():
            seen[slot, names.index(name)] = value
    tail = np.zeros(len(LAYOUT.global_features), np.float32)
    for name, value in (globals_ or {"ledger_kv": 1.0}).items():
        tail[[feature.name for feature in LAYOUT.global_features].index(name)] = value
    mask = np.ones((1, LAYOUT.num_actions), np.int8)
    if legal is not None:
        mask[0] = 0
        mask[0, legal] = 1
    observation = np.concatenate([seen.ravel(), tail])[None]
    return int(score.act(observation, mask)[0])


def test_the_best_slot_is_admitted_before_anything_else():
    score = linear_score("heavy", admit={"weight": 1.0}, preempt={}, layout=LAYOUT)
    assert decide(score, [{"weight": 0.2}, {"weight": 0.6}, {"weight": 0.4}]) == NUM_LEVELS + 1


def test_victims_are_taken_only_where_nothing_else_is_legal():
    score = linear_score("light", admit={}, preempt={"weight": -1.0}, layout=LAYOUT)
    slots = [{}, {}, {}, {"weight": 0.6}, {"weight": 0.2}]
    assert decide(score, slots, legal=[FULL_LEVEL, 7, 8]) == FULL_LEVEL
    assert decide(score, slots, legal=[7, 8]) == 8


def test_a_watermark_holds_back_what_would_leave_too_little():
    score = linear_score("careful", admit={}, preempt={}, watermark=0.25, layout=LAYOUT)
    slots = [{"blocks_of_pool": 0.5}, {"blocks_of_pool": 0.1}, {"blocks_of_pool": 0.4}]
    assert decide(score, slots, {"ledger_kv": 1.0}) == NUM_LEVELS
    assert decide(score, slots, {"ledger_kv": 0.6}) == NUM_LEVELS + 1
    assert decide(score, slots, {"ledger_kv": 0.3}) == FULL_LEVEL
    # With nothing running, proceed is not legal: then the watermark yields.
    assert decide(score, slots, {"ledger_kv": 0.3}, legal=[NUM_LEVELS, NUM_LEVELS + 2]) == 4


@pytest.mark.parametrize(("risk", "level"), [(0.0, 3), (0.4, 2), (0.7, 1), (1.0, 0), (5.0, 0)])
def test_the_level_nearest_to_the_wanted_one_is_taken(risk, level):
    score = linear_score(
        "levels", admit={}, preempt={}, level={"decodes_at_risk": -1.0}, layout=LAYOUT
    )
    legal = list(range(NUM_LEVELS))
    assert decide(score, [], {"decodes_at_risk": risk}, legal) == level


def test_stopping_may_beat_an_admission():
    score = linear_score(
        "picky", admit={"density": 1.0}, preempt={}, stop={"full_step": 2.0}, stop_bias=0.0,
        layout=LAYOUT,
    )  # fmt: skip
    assert decide(score, [{"density": 1.0}], {"full_step": 0.1, "ledger_kv": 1.0}) == NUM_LEVELS
    assert decide(score, [{"density": 1.0}], {"full_step": 0.9, "ledger_kv": 1.0}) == FULL_LEVEL


def test_a_feature_that_is_not_observed_is_named():
    with pytest.raises(UnknownNameError, match=r"slot feature 'densty'.*'density'"):
        linear_score("odd", admit={"densty": 1.0}, preempt={})
    with pytest.raises(UnknownNameError, match="global feature 'free'"):
        linear_score("odd", admit={}, preempt={}, level={"free": 1.0})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "name: '' .*not empty"),
        ({"name": "x" * 201}, "name: 'xxx.*at most 200 characters"),
        ({"screen": "fcfss"}, "screen: 'fcfss' .*'fcfs'"),
        ({"training": {"run": [{}]}}, "training"),
    ],
)
def test_what_no_card_may_hold_is_refused_in_words(changes, message):
    with pytest.raises(PolicyError, match=message):
        linear_score(**{"name": "odd", "admit": {}, "preempt": {}, **changes})
