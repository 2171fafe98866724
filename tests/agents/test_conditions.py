from __future__ import annotations

import numpy as np
import pytest

from sched_env.agents.conditions import condition_envs, dealt
from sched_env.agents.sb3 import make_sb3_vec_env
from sched_env.agents.validation import SplitSimulation
from sched_env.config import EnvConfig, ExperimentConfig
from sched_env.config.experiment import ConditionsConfig
from sched_env.env import ContinuousBatchingVectorEnv

ENV = EnvConfig(
    scheduler={"num_blocks": 1000},
    service={"slo_factor": 0.8},
    observation={"num_waiting_slots": 4, "num_running_slots": 2},
    episode={"horizon_s": 3.0, "load": (0.8, 1.2)},
)
CONDITIONS = ConditionsConfig(slo_factors=(1.0, 0.5), kv_factors=(1.0, 2.0))


def _draw(masks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (rng.random(masks.shape) * masks).argmax(axis=1)


def test_every_pool_meets_every_tightness() -> None:
    found = [
        (one.scheduler.num_blocks, one.service.slo_factor)
        for one in condition_envs(ENV, CONDITIONS)
    ]
    assert found == [(1000, 0.8), (1000, 0.4), (2000, 0.8), (2000, 0.4)]


@pytest.mark.parametrize(
    ("given", "sizes"), [(8, [2, 2, 2, 2]), (6, [2, 2, 1, 1]), (1, [1, 0, 0, 0])]
)
def test_environments_are_dealt_out_evenly(given: int, sizes: list[int]) -> None:
    assert dealt(given, 4) == sizes


def test_a_mixed_rollout_is_that_of_its_parts() -> None:
    mixed = make_sb3_vec_env(ENV, 6, seed=11, conditions=CONDITIONS)
    sizes = dealt(6, 4)
    parts = [
        ContinuousBatchingVectorEnv(size, config, autoreset_mode="SameStep")
        for config, size in zip(condition_envs(ENV, CONDITIONS), sizes, strict=True)
    ]
    edges = np.cumsum([0, *sizes])
    ours = mixed.reset()
    theirs = np.concatenate(
        [part.reset(seed=11 + int(first))[0] for part, first in zip(parts, edges, strict=False)]
    )
    rng, ends = np.random.default_rng(0), set()
    for _ in range(200):
        assert np.array_equal(ours, theirs)
        actions = _draw(mixed.action_masks(), rng)
        ours, rewards, dones, infos = mixed.step(actions)
        steps = [part.step(actions[edges[i] : edges[i + 1]]) for i, part in enumerate(parts)]
        theirs = np.concatenate([step[0] for step in steps])
        assert np.array_equal(rewards, np.concatenate([s[1] for s in steps]).astype(np.float32))
        assert np.array_equal(dones, np.concatenate([s[2] | s[3] for s in steps]))
        for index in np.flatnonzero(dones):
            part = int(np.searchsorted(edges, index, side="right")) - 1
            final = steps[part][4]["final_info"]["goodput_weighted"][index - edges[part]]
            assert infos[index]["goodput_weighted"] == final
            ends.add(part)
    assert ends == {0, 1, 2, 3}


def test_a_mixed_state_goes_on_exactly() -> None:
    env = make_sb3_vec_env(ENV, 6, seed=11, conditions=CONDITIONS)
    other = make_sb3_vec_env(ENV, 6, seed=5, conditions=CONDITIONS)
    env.reset()
    other.reset()
    rng = np.random.default_rng(1)
    for _ in range(30):
        env.step(_draw(env.action_masks(), rng))
    other.set_state(env.get_state())
    for _ in range(60):
        actions = _draw(env.action_masks(), rng)
        ours, theirs = env.step(actions), other.step(actions)
        assert all(np.array_equal(a, b) for a, b in zip(ours[:3], theirs[:3], strict=True))


def test_validation_meets_every_condition() -> None:
    experiment = ExperimentConfig(
        name="unit",
        env=ENV,
        conditions=CONDITIONS,
        agent={"validation_seeds": 2},
        comparison={"policies": ["fcfs"], "loads": [1.3]},
    )
    rows = SplitSimulation(experiment, "validation").rows("fcfs")
    assert len(rows) == 8
    assert len({row["goodput_weighted"] for row in rows}) == 8
