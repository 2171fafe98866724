"""The zero vector is weighted shortest job first, and each number moves what it should."""

from __future__ import annotations

import numpy as np
import pytest

from sched_env.agents.score_search.space import ScoreSpace
from sched_env.engine.layout import Layout

SPACE = ScoreSpace(Layout(num_waiting_slots=4, num_running_slots=2))


def test_every_feature_that_can_tell_choices_apart_has_a_weight():
    layout = SPACE.layout
    slots = {feature.name for feature in layout.slot_features}
    assert set(SPACE.slot_names) == slots - {"present", "is_running", "is_legal"}
    assert SPACE.global_names == tuple(feature.name for feature in layout.global_features)
    policies = [SPACE.policy(row) for row in np.vstack([0 * np.eye(SPACE.size)[:1],
                                                        np.eye(SPACE.size)])]  # fmt: skip
    flat = [np.concatenate([w.ravel() for w in one.weights.values()]) for one in policies]
    assert all((flat[0] != other).any() for other in flat[1:])


def test_zero_is_weighted_shortest_job_first():
    weights = SPACE.policy(np.zeros(SPACE.size)).weights
    names = [feature.name for feature in SPACE.layout.slot_features]
    density = names.index("density")
    assert weights["admit.weight"][density] == 5.0
    assert weights["preempt.weight"][density] == -5.0
    for part in ("admit.weight", "preempt.weight"):
        assert np.count_nonzero(weights[part]) == 1
    assert not weights["proceed.weight"].any()
    assert weights["proceed.bias"].argmax() == 3
    assert weights["watermark"] == 0.0


@pytest.mark.parametrize(("value", "watermark"), [(2.0, 0.1), (-3.0, 0.0)])
def test_a_watermark_is_never_negative(value, watermark):
    vector = np.zeros(SPACE.size)
    vector[-1] = value
    assert SPACE.policy(vector).weights["watermark"][0] == pytest.approx(watermark)
