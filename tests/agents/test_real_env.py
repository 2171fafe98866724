"""The agents over the real environment: adapter, both algorithms, and one whole run."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sb3_contrib.common.maskable.utils import get_action_masks
from stable_baselines3 import PPO

from sched_env.agents.export import env_layout, export_run, policy_card
from sched_env.agents.model import make_model
from sched_env.agents.rollout import ElapsedRolloutBuffer
from sched_env.agents.sb3 import make_sb3_vec_env
from sched_env.agents.train import train
from sched_env.agents.validation import validation_episodes
from sched_env.config import AgentConfig, EnvConfig, ExperimentConfig
from sched_env.env import ContinuousBatchingEnv, ContinuousBatchingVectorEnv
from sched_env.errors import ConfigError
from sched_env.policy.format import write_policy
from sched_env.policy.runtime import ExportedPolicy, load_policy
from sched_env.policy.scores import linear_score

ENV = EnvConfig(
    observation={"num_waiting_slots": 6, "num_running_slots": 3, "privileged": True},
    episode={"horizon_s": 3.0, "load": (0.8, 1.2)},
)
NUM_ENVS, NUM_STEPS = 8, 32
UPDATE = NUM_ENVS * NUM_STEPS


def _experiment(num_updates: int = 4, **agent: object) -> ExperimentConfig:
    return ExperimentConfig(
        name="real",
        env=ENV,
        agent=AgentConfig(
            num_envs=NUM_ENVS, num_steps=NUM_STEPS, minibatch_size=64, hidden_size=8, **agent
        ),
        total_decisions=num_updates * UPDATE,
        checkpoint_every_decisions=UPDATE,
        evaluate_every_decisions=2 * UPDATE,
        comparison={"policies": ["fcfs"], "loads": [1.0], "num_seeds": 1},
    )


def test_a_rollout_through_the_adapter_equals_the_native_one() -> None:
    adapter = make_sb3_vec_env(ENV, NUM_ENVS, seed=11)
    native = ContinuousBatchingVectorEnv(NUM_ENVS, ENV, autoreset_mode="SameStep")
    ours = adapter.reset()
    theirs, _ = native.reset(seed=11)
    rng = np.random.default_rng(0)
    num_ends = 0
    for _ in range(150):
        assert np.array_equal(ours, theirs)
        assert np.array_equal(get_action_masks(adapter), native.action_masks())
        actions = (rng.random(native.action_masks().shape) * native.action_masks()).argmax(axis=1)
        ours, rewards, dones, infos = adapter.step(actions)
        theirs, paid, terminated, truncated, native_infos = native.step(actions)
        assert np.array_equal(rewards, paid.astype(np.float32))
        assert np.array_equal(dones, terminated | truncated)
        assert np.allclose(adapter.last_discounts, native_infos["discount"])
        for index in np.flatnonzero(dones):
            num_ends += 1
            last = native_infos["final_obs"][index]
            assert np.array_equal(infos[index]["terminal_observation"], last)
            assert infos[index]["TimeLimit.truncated"] == truncated[index]
            assert {"goodput_weighted", "is_success", "episode"} <= set(infos[index])
    assert num_ends > 0


def test_a_saved_state_goes_on_exactly() -> None:
    env = make_sb3_vec_env(ENV, NUM_ENVS, seed=11, normalise_returns=True)
    env.reset()
    full = np.full(NUM_ENVS, env_layout(ENV).num_levels - 1)
    for _ in range(20):
        env.step(full)
    other = make_sb3_vec_env(ENV, NUM_ENVS, seed=99, normalise_returns=True)
    other.reset()
    other.set_state(env.get_state())
    for _ in range(60):
        actions = env.action_masks().argmax(axis=1)
        ours, theirs = env.step(actions), other.step(actions)
        assert all(np.array_equal(a, b) for a, b in zip(ours[:3], theirs[:3], strict=True))


@pytest.mark.parametrize("algorithm", ["maskable_ppo", "ppo"])
def test_both_algorithms_learn_on_the_real_environment(algorithm: str) -> None:
    experiment = _experiment(algorithm=algorithm, network="mlp")
    env = make_sb3_vec_env(experiment.env, NUM_ENVS, 0, normalise_returns=True)
    model = make_model(experiment, env)
    model.learn(2 * UPDATE)
    assert np.isfinite(model.rollout_buffer.advantages).all()
    assert (model.rollout_buffer.discounts < 1).any()
    assert (env.invalid_actions == 0) == (algorithm == "maskable_ppo")


def test_stock_ppo_of_stable_baselines3_runs_on_the_adapter() -> None:
    env = make_sb3_vec_env(ENV, NUM_ENVS, 0)
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=NUM_STEPS,
        batch_size=64,
        gamma=1.0,
        rollout_buffer_class=ElapsedRolloutBuffer,
        rollout_buffer_kwargs={"discount_source": env},
        device="cpu",
    )
    model.learn(UPDATE)
    assert model.num_timesteps == UPDATE


def test_episodes_of_an_evaluation_are_the_same_each_time() -> None:
    experiment = _experiment()
    card = policy_card(experiment, num_decisions=0)
    rng = np.random.default_rng(0)
    weights = {
        name: rng.normal(0.0, 0.3, shape).astype(np.float32)
        for name, shape in card.tensor_shapes().items()
    }
    policy = ExportedPolicy(card, weights)
    episodes = validation_episodes(experiment)
    first = episodes.curves(policy)
    assert episodes.curves(policy) == validation_episodes(experiment).curves(policy) == first

    env = ContinuousBatchingEnv(episodes.env.env.config)
    paid, lengths, successes = [], [], []
    for seed in range(1000, 1000 + episodes.env.num_envs):
        observation, info = env.reset(seed=seed)
        paid.append(0.0)
        for length in itertools.count(1):
            action = policy.act(observation[None], info["action_mask"][None])[0]
            observation, reward, terminated, truncated, info = env.step(action)
            paid[-1] += reward
            if terminated or truncated:
                lengths.append(length)
                successes.append(info["is_success"])
                break
    assert first["eval/mean_reward"] == pytest.approx(np.mean(paid), rel=1e-9)
    assert first["eval/mean_ep_length"] == np.mean(lengths)
    assert first["eval/success_rate"] == np.mean(successes)


def test_one_whole_run_and_its_export(tmp_path: Path) -> None:
    result = train(_experiment(), tmp_path / "run")
    assert result.summary["parity_equal"] == result.summary["parity_states"] == 10_000
    again = train(_experiment(), tmp_path / "run")
    assert again.summary == result.summary
    policy = load_policy(export_run(tmp_path / "run", tmp_path / "copy"))
    assert policy.weights_sha256 == load_policy(result.policy_dir).weights_sha256
    policy.check_layout(env_layout(ENV))
    with pytest.raises(ConfigError, match="holds a run already"):
        train(_experiment(), tmp_path / "run", resume=False)
    with pytest.raises(ConfigError, match="no run to go on with"):
        train(_experiment(), tmp_path / "none", resume=True)


def test_a_run_from_a_linear_score_that_is_polished_at_its_end(tmp_path: Path) -> None:
    pytest.importorskip("cmaes")
    score = linear_score("score", admit={"density": 5.0}, preempt={}, layout=env_layout(ENV))
    write_policy(tmp_path / "score", score.weights, score.card)
    prior = {"kind": "linear_score", "policy": str(tmp_path / "score"), "strength": 4.0}
    tuning = {
        "population": 4,
        "scenarios": 2,
        "requests_per_scenario": 40,
        "validate_every": 1,
        "validation_scenarios": 4,
    }
    experiment = _experiment(2, prior=prior).replace(
        conditions={"slo_factors": [1.0, 0.7]},
        tuning=tuning,
        polish_iterations=2,
        cloning={
            "pieces": 1,
            "num_waiting_slots": 5,
            "requests_per_piece": 30,
            "polish_iterations": 1,
        },
    )
    stages: dict[str, list[float]] = {}
    result = train(
        experiment,
        tmp_path / "run",
        progress=lambda now: stages.setdefault(now.stage, []).append(now.share_done),
    )
    assert list(stages) == ["train", "polish", "second polish", "cloning"]
    assert all(shares == sorted(shares) for shares in stages.values())
    assert all(shares[-1] == 1.0 for shares in stages.values())
    assert result.summary["parity_equal"] == result.summary["parity_states"] == 10_000
    policy = load_policy(result.policy_dir)
    training = policy.card.training
    assert training["num_decisions"] <= 2 * UPDATE
    assert training["prior"] == "score"
    assert training["polish_iterations"] == 2
    assert training["polish_2_iterations"] == 1
    assert training["polish_requests"] == 40 * (2 * 2 * 4 + 3 * 4) + 30 * (2 * 4 + 2 * 4)
    assert training["validation_goodput"] >= training["validation_goodput_before_polish_2"]
    assert training["clone_states"] > 0
    assert result.summary["cloning"] == {
        "is_kept": training["clone_kept"],
        "validation_goodput_before": training["validation_goodput_before_cloning"],
        "validation_goodput_after": training["validation_goodput_of_clone"],
    }
    assert policy.card.observation.num_waiting_slots == 5
    assert len((tmp_path / "run/teachers.csv").read_text().splitlines()) == 3
    looks = (tmp_path / "run/polish.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in looks] == ["iteration", "0", "1", "2"]
    looks = (tmp_path / "run/second_polish.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in looks] == ["iteration", "0", "1"]
    again = train(experiment, tmp_path / "again")
    assert load_policy(again.policy_dir).weights_sha256 == policy.weights_sha256


_SCRIPT = """
import sys
from pathlib import Path
from tests.agents.test_real_env import _experiment, train

train(_experiment(), Path(sys.argv[1]), progress=lambda p: print(p.num_decisions, flush=True))
"""


def test_a_run_that_is_killed_outright_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    whole = train(_experiment(), tmp_path / "whole")
    command = [sys.executable, "-c", _SCRIPT, str(tmp_path / "cut")]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < 2 * UPDATE:
            pass
        process.kill()
    assert not (tmp_path / "cut" / "summary.json").exists()
    exported = load_policy(export_run(tmp_path / "cut", tmp_path / "early"))
    assert exported.card.training["num_decisions"] >= 2 * UPDATE
    first: list[int] = []
    resumed = train(
        _experiment(), tmp_path / "cut", progress=lambda p: first.append(p.num_decisions)
    )
    assert first[0] >= 3 * UPDATE
    assert resumed.summary == whole.summary
    weights = [tmp_path / name / "policy/policy.safetensors" for name in ("whole", "cut")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
