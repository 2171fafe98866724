"""What those who may teach do: whom they admit, at which level, and whom they preempt."""

from __future__ import annotations

import numpy as np
import pytest

from sched_env.agents.score_search.scenarios import ScenarioSource
from sched_env.agents.teachers import serve_together
from sched_env.agents.teaching_rules import (
    NUM_CANDIDATES,
    OWN_RULE,
    TURNS,
    FixedLevel,
    HeadOfLine,
    LeastSlack,
    home_teachers,
    stretched_teachers,
)
from sched_env.config import EnvConfig, TuningConfig
from sched_env.engine.layout import PREFILL_LEVELS, Layout
from sched_env.metrics.preemption import num_recomputed_tokens
from sched_env.policy.card import ObservationSchema
from sched_env.policy.parts import PartsPolicy
from sched_env.policy.registry import resolve_policy
from sched_env.policy.scores import linear_score
from sched_env.simulator.simulate import seen_by

POLICY = resolve_policy("pretrained/azure2023")
ENV = seen_by(POLICY, EnvConfig(trace=("azure_code",)))


def test_who_may_teach_depends_on_what_there_is():
    assert list(home_teachers(POLICY)) == ["own", "own full", "patient own"]
    assert list(home_teachers(POLICY, POLICY)) == ["specialist", "specialist full", "patient own"]
    alone, both = stretched_teachers(POLICY), stretched_teachers(POLICY, POLICY)
    assert next(iter(alone)) == OWN_RULE
    assert set(both) - set(alone) == {"specialist", "specialist full"}
    assert sum(name.endswith(TURNS) for name in both) == 3


def test_teachers_throw_least_away_unless_they_take_turns():
    tuning = TuningConfig(
        slo_factors=(1.0, 0.6),
        kv_factors=(0.25,),
        loads=(1.5,),
        requests_per_scenario=150,
        stretches=({"output": 8.0},),
    )
    pieces = ScenarioSource(ENV, tuning, "train").draw(4, 0, 0)
    most = linear_score("most", admit={}, preempt={"computed": 1.0}, layout=POLICY.card.observation)
    wasted = [
        sum(num_recomputed_tokens(one) for one in serve_together(pieces, decider))
        for decider in (
            stretched_teachers(POLICY)["own"].policy,
            stretched_teachers(POLICY)["weighted_sjf turns"].policy,
            PartsPolicy("most", POLICY, {"victims": most}),
        )
    ]
    assert 0 < wasted[0] < min(wasted[1:])


@pytest.mark.parametrize(("wanted", "legal", "level"), [(0.5, [1, 3], 1), (1.0, [0, 1, 2], 2)])
def test_a_fixed_level_is_the_nearest_legal_one(wanted, legal, level):
    masks = np.zeros((1, 7), np.int8)
    masks[0, legal] = 1
    logits = FixedLevel(PREFILL_LEVELS, wanted).logits(np.zeros((1, 3), np.float32), masks)
    assert np.where(masks[0], logits[0], -9.0)[:4].argmax() == level
    assert not logits[0, 4:].any()


SEEN = ObservationSchema.from_layout(Layout(3, 2))
FEATURES = [feature.name for feature in SEEN.slot_features]


def observation(*slots: dict[str, float]) -> np.ndarray:
    """Return an observation (1, size) with these slots, waiting ones first, 0 elsewhere."""
    observations = np.zeros((1, Layout(3, 2).public_size), np.float32)
    for index, slot in enumerate(slots):
        for name, value in {"present": 1.0, **slot}.items():
            observations[0, index * len(FEATURES) + FEATURES.index(name)] = value
    return observations


def waits(slack_s: float) -> dict[str, float]:
    """Return a slot whose first token has to be begun in ``slack_s``."""
    scales_s = {"short_slack": 0.5, "middle_slack": 2.0, "long_slack": 8.0}
    return {name: float(np.clip(slack_s / scale, -1, 1)) for name, scale in scales_s.items()}


def test_slack_is_that_of_the_first_token_or_of_the_next_one():
    masks = np.ones((1, SEEN.num_actions), np.int8)
    preempted = {**waits(-3.0), "outputs": 0.5, "tpot_slack": 0.5}  # 0.5 s
    shown = observation(waits(0.25), preempted, waits(6.0))
    logits = LeastSlack(SEEN).logits(shown, masks)[0]
    first = SEEN.num_levels
    np.testing.assert_allclose(logits[first : first + 3], [-0.25, -0.5, -6.0], rtol=1e-5)
    assert not logits[:first].any()
    assert not logits[first + 3 :].any()


def test_who_takes_turns_preempts_who_is_furthest_ahead():
    policy = linear_score("any", admit={}, preempt={}, layout=Layout(3, 2))
    masks = np.zeros((1, SEEN.num_actions), np.int8)
    masks[0, -2:] = 1
    running = [{"is_running": 1.0, "computed": computed} for computed in (0.2, 0.6)]
    running[0]["tpot_slack"], running[1]["tpot_slack"] = -0.1, 0.3
    shown = observation({}, {}, {}, *running)
    first = SEEN.num_actions - 2
    for name, rule in (home_teachers(policy) | stretched_teachers(policy)).items():
        assert int(rule.policy.act(shown, masks)[0]) == first + name.endswith(TURNS)


@pytest.mark.parametrize(
    ("legal", "action"),
    [
        ([3, 4, 5, 6], 5),  # the second slot has least slack and fits
        ([3, 4, 6], 3),  # it does not fit: nobody is admitted
        ([4, 6], 4),  # only admissions are legal: whoever fits
    ],
)
def test_who_waits_for_the_head_admits_nobody_else(legal, action):
    masks = np.zeros((1, SEEN.num_actions), np.int8)
    masks[0, legal] = 1
    greedy = linear_score("any", admit={"present": 1.0}, preempt={}, layout=Layout(3, 2))
    patient = HeadOfLine(greedy, LeastSlack(SEEN), SEEN)
    shown = observation(waits(1.5), waits(0.2), waits(4.0))
    assert patient.act(shown, masks).tolist() == [action]


def test_only_the_first_of_the_queue_are_waited_for():
    layout = Layout(NUM_CANDIDATES + 1, 2)
    seen = ObservationSchema.from_layout(layout)
    observations = np.zeros((1, layout.public_size), np.float32)
    slots = [waits(2.0) for _ in range(NUM_CANDIDATES + 1)]
    slots[3], slots[-1] = waits(1.0), waits(0.1)
    for index, slot in enumerate(slots):
        for name, value in {"present": 1.0, **slot}.items():
            observations[0, index * len(FEATURES) + FEATURES.index(name)] = value
    masks = np.ones((1, seen.num_actions), np.int8)
    greedy = linear_score("any", admit={"present": 1.0}, preempt={}, layout=layout)
    patient = HeadOfLine(greedy, LeastSlack(seen), seen)
    assert patient.act(observations, masks).tolist() == [seen.num_levels + 3]


def test_nobody_waits_where_nobody_is_shown():
    masks = np.zeros((1, SEEN.num_actions), np.int8)
    masks[0, 3] = 1
    greedy = linear_score("any", admit={"present": 1.0}, preempt={}, layout=Layout(3, 2))
    patient = HeadOfLine(greedy, LeastSlack(SEEN), SEEN)
    assert patient.act(observation(), masks).tolist() == [3]
