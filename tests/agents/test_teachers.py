"""Who teaches is who does best on the training split, surely."""

from __future__ import annotations

import numpy as np
import pytest

from sched_env.agents.score_search.scenarios import ScenarioSource
from sched_env.agents.teachers import (
    LONG,
    NUM_HOME_TRIALS,
    NUM_TRIALS,
    best_teachers,
    serve_together,
    taught_conditions,
    teachers_csv,
)
from sched_env.agents.teaching_rules import (
    OWN_RULE,
    home_teachers,
    stretched_teachers,
)
from sched_env.config import EnvConfig, TuningConfig
from sched_env.config.experiment import ObjectiveConfig
from sched_env.config.tuning import StretchConfig
from sched_env.policy.registry import resolve_policy
from sched_env.simulator.simulate import seen_by

POLICY = resolve_policy("pretrained/azure2023")
ENV = seen_by(POLICY, EnvConfig(trace=("azure_code",)))
SMALL = TuningConfig(loads=(1.0,), slo_factors=(1.0, 0.6), requests_per_scenario=60)
LONGER = StretchConfig(prompt=2.0, output=3.0)


def test_every_stretch_tightness_and_pool_is_a_condition():
    tuning = SMALL.replace(kv_factors=(1.0, 2.0), stretches=(LONGER, StretchConfig()))
    found = taught_conditions(ENV, tuning)
    pieces = [one.source.draw(1, 0, 0)[0] for one in found]
    assert [one.stretch for one in found] == [StretchConfig()] * 4 + [LONGER] * 4
    assert [one.env.service.slo_factor for one in pieces[:4]] == [1.0, 1.0, 0.6, 0.6]
    assert [one.env.scheduler.num_blocks for one in pieces[:2]] == [4000, 8000]
    tried = [len(one.trials.draw(1, 0, 0)[0].table) for one in found]
    assert tried == [60 * LONG] * 4 + [60] * 4


def test_longer_pieces_are_those_of_a_source_that_asks_for_them():
    source = ScenarioSource(ENV, SMALL, "train")
    asked = ScenarioSource(ENV, SMALL.replace(requests_per_scenario=60 * LONG), "train")
    for ours, theirs in zip(source.longer(LONG).draw(3, 0, 5), asked.draw(3, 0, 5), strict=True):
        assert ours.env == theirs.env
        assert ours.seed == theirs.seed
        np.testing.assert_array_equal(ours.table.arrival_time_s, theirs.table.arrival_time_s)
    assert len(source.draw(1, 0, 5)[0].table) == 60


def test_a_stretch_multiplies_lengths_and_leaves_the_load():
    plain, long = (
        ScenarioSource(ENV, SMALL.replace(stretches=(stretch,)), "train").draw(1, 0, 0)[0].table
        for stretch in (StretchConfig(), LONGER)
    )
    np.testing.assert_array_equal(long.prompt_tokens, 2 * plain.prompt_tokens)
    np.testing.assert_array_equal(long.output_tokens, 3 * plain.output_tokens)
    assert long.span_s > plain.span_s


def test_servers_side_by_side_do_as_each_does_alone():
    pieces = ScenarioSource(ENV, SMALL, "train").draw(3, 0, 0)
    together = serve_together(pieces, POLICY)
    for piece, requests in zip(pieces, together, strict=True):
        assert serve_together([piece], POLICY)[0].tobytes() == requests.tobytes()


def test_the_best_teacher_gains_on_as_many_pieces_as_its_condition_has():
    tuning = SMALL.replace(stretches=(StretchConfig(), LONGER))
    conditions = taught_conditions(ENV, tuning)
    teachers, num_requests = best_teachers(POLICY, None, conditions, seed=0)
    assert [one.stretch for one in teachers] == [one.stretch for one in conditions]
    home, stretched = home_teachers(POLICY), stretched_teachers(POLICY)
    assert all(one.name in home for one in teachers[:2])
    assert all(one.name in stretched for one in teachers[2:])
    assert all(one.gain > 0.0 or one.name == OWN_RULE for one in teachers)
    runs = NUM_HOME_TRIALS * LONG * len(home) + NUM_TRIALS * len(stretched)
    assert num_requests == 60 * 2 * runs
    teacher = teachers[2]
    again = best_teachers(POLICY, None, conditions[2:3], seed=0).teachers
    assert [one.gain for one in again] == [teacher.gain]
    header, row = teachers_csv([teacher]).splitlines()
    assert header == "trace,prompt_factor,output_factor,slo_factor,num_blocks,teacher,gain"
    assert row.startswith(f"azure_code,2,3,1,4000,{teacher.name},")


def test_luck_does_not_teach_where_lengths_are_stretched(monkeypatch):
    calls = []

    def served(pieces, decider):
        calls.append(decider)
        gains = np.where(np.arange(len(pieces)) % 2, -0.09, 0.1)
        return list(gains * (len(calls) in (2, 5)))  # the second choice, at home and elsewhere

    monkeypatch.setattr("sched_env.agents.teachers.serve_together", served)
    monkeypatch.setattr("sched_env.agents.teachers.outcome_of", lambda gain: (gain, np.nan))
    conditions = taught_conditions(ENV, SMALL.replace(stretches=(StretchConfig(), LONGER)))
    teachers = best_teachers(POLICY, POLICY, conditions, seed=0).teachers
    assert [one.name for one in teachers] == ["specialist full"] * 2 + [OWN_RULE] * 2


@pytest.mark.parametrize(("price", "name"), [(0.0, "own"), (0.1, "own full")])
def test_whoever_teaches_is_worth_most_for_the_objective(monkeypatch, price, name):
    outcomes = iter([(0.9, 5.0), (0.85, 1.0), (0.8, 4.0)])
    monkeypatch.setattr(
        "sched_env.agents.teachers.serve_together",
        lambda pieces, decider: [next(outcomes)] * len(pieces) if pieces else [],
    )
    monkeypatch.setattr("sched_env.agents.teachers.outcome_of", lambda outcome: outcome)
    conditions = taught_conditions(ENV, SMALL.replace(slo_factors=(1.0,)))
    objective = ObjectiveConfig(p95_ttft_weight=price)
    teachers = best_teachers(POLICY, None, conditions, 0, objective=objective).teachers
    assert [one.name for one in teachers] == [name]
