"""Gymnasium's and stable-baselines3's checkers find nothing, with warnings as errors."""

from __future__ import annotations

import json
import warnings
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.env_checker import check_env as check_env_for_sb3

import sched_env
from sched_env import (
    ContinuousBatchingEnv,
    ContinuousBatchingVectorEnv,
    DecodeSchedulingEnv,
    DecodeSchedulingVectorEnv,
)
from sched_env.env import DictObservation, MaskInObservation
from sched_env.errors import ConfigError, SchedEnvError, TraceError

IDS = [name for name in gym.registry if name.startswith("sched_env/")]
CLASSES = {
    "sched_env/ContinuousBatching-v0": (ContinuousBatchingEnv, ContinuousBatchingVectorEnv),
    "sched_env/DecodeScheduling-v0": (DecodeSchedulingEnv, DecodeSchedulingVectorEnv),
}


@pytest.fixture
def configs(config: Any) -> dict[str, Any]:
    """Return a small configuration for each id."""
    return {
        "sched_env/ContinuousBatching-v0": config,
        "sched_env/DecodeScheduling-v0": {"num_slots": 6},
    }


def test_the_ids_are_registered_once() -> None:
    sched_env.register_envs()
    assert list(CLASSES) == IDS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_envs": 1.5}, "num_envs 1.5 is not allowed"),
        ({"num_envs": "x"}, "num_envs 'x' is not allowed"),
        ({"num_envs": True}, "num_envs True is not allowed"),
        ({"num_envs": 10**9}, "GiB of memory, more than"),
        ({"max_episode_steps": 0}, "max_episode_steps 0 is not allowed"),
        ({"max_episode_steps": "x"}, "max_episode_steps 'x' is not allowed"),
        ({"config": {1: 2}}, "1"),
        ({"config": 5}, "config is 5"),
        (
            {"config": {"scheduler": {"block_size": 2**31 - 1, "max_num_seqs": 1}}},
            "block_size: 2147483647 is",
        ),
        (
            {"config": {"observation": {"num_waiting_slots": 10**9}}},
            "num_waiting_slots: 1000000000 is",
        ),
        ({"config": {"scheduler": {"max_model_len": 1}}}, "no prompt fits this server"),
    ],
)
def test_arguments_of_another_kind_are_refused(
    arguments: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sched_env.engine.room.memory_bytes", lambda: 2**31)
    with pytest.raises(ConfigError, match=message):
        ContinuousBatchingVectorEnv(**{"num_envs": 2, **arguments})


@pytest.mark.parametrize("name", IDS)
def test_gymnasium_finds_no_fault(name: str, configs: Any, capsys: Any) -> None:
    check_env(gym.make(name, config=configs[name]).unwrapped)
    capsys.readouterr()  # it plays in render_mode="human" too


@pytest.mark.parametrize("name", IDS)
def test_gymnasiums_wrappers_are_left_out_unless_asked_for(name: str, configs: Any) -> None:
    bare = gym.make(name, config=configs[name])
    assert bare is bare.unwrapped
    checked = gym.make(name, config=configs[name], disable_env_checker=False)
    assert isinstance(checked, gym.wrappers.PassiveEnvChecker)
    _, info = checked.reset(seed=0)
    for _ in range(3):
        *_, info = checked.step(int(info["action_mask"].argmax()))
    limited = gym.make(name, config=configs[name], max_episode_steps=1)
    _, info = limited.reset(seed=0)
    assert limited.step(int(info["action_mask"].argmax()))[3]


@pytest.mark.parametrize("name", IDS)
def test_calls_before_the_first_reset_are_refused(name: str, configs: Any) -> None:
    for env in (
        gym.make(name, config=configs[name], render_mode="ansi"),
        gym.make(name, config=configs[name], disable_env_checker=False, render_mode="ansi"),
    ):
        with pytest.raises(ResetNeeded, match=r"step\(\) came before the first reset"):
            env.step(0)
        with pytest.raises(ResetNeeded, match=r"render\(\) came before the first reset"):
            env.render()
        env.reset(seed=0)
        assert env.render()
    envs = gym.make_vec(name, num_envs=2, config=configs[name])
    with pytest.raises(ResetNeeded, match=r"step\(\) came before the first reset"):
        envs.step(envs.action_space.sample())


@pytest.mark.parametrize("name", IDS)
def test_stable_baselines3_finds_no_fault(name: str, configs: Any) -> None:
    check_env_for_sb3(gym.make(name, config=configs[name]))


def test_privileged_observations_pass_too(config_with: Any, capsys: Any) -> None:
    config = config_with(observation={"privileged": True})
    env = gym.make("sched_env/ContinuousBatching-v0", config=config)
    check_env(env.unwrapped)
    check_env_for_sb3(env)
    capsys.readouterr()


@pytest.mark.parametrize("wrapper", [MaskInObservation, DictObservation])
def test_wrapped_environments_pass_too(wrapper: Any, config: Any, capsys: Any) -> None:
    env = wrapper(ContinuousBatchingEnv(config))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version")
        warnings.filterwarnings("ignore", message=".*has an unconventional shape")
        check_env(env, skip_render_check=True)
        check_env_for_sb3(env)
    capsys.readouterr()


@pytest.mark.parametrize("name", IDS)
def test_made_by_id_in_every_way(name: str, configs: Any) -> None:
    config = configs[name]
    scalar_class, vector_class = CLASSES[name]
    for form in (name, f"sched_env:{name}"):
        env = gym.make(form, config=config)
        assert isinstance(env.unwrapped, scalar_class)
        assert env.reset(seed=1)[0] in env.observation_space
    by_default = gym.make_vec(name, num_envs=3, config=config)
    assert isinstance(by_default, vector_class)
    synchronous = gym.make_vec(name, num_envs=3, vectorization_mode="sync", config=config)
    for envs in (by_default, synchronous):
        observations, infos = envs.reset(seed=4)
        assert observations in envs.observation_space
        assert infos["action_mask"].shape == (3, 12)
        envs.close()


@pytest.mark.parametrize("kwargs", [{}, {"config": "h100_8b_small_kv"}, None])
def test_specs_survive_json(kwargs: Any, config: Any) -> None:
    given = {"config": config} if kwargs is None else kwargs
    env = gym.make("sched_env/ContinuousBatching-v0", **given)
    assert env.spec is not None
    text = env.spec.to_json()
    assert json.loads(text)["kwargs"] == given
    again = gym.make(EnvSpec.from_json(text))
    assert again.unwrapped.config == env.unwrapped.config  # pyright: ignore


def test_the_mask_is_found_behind_wrappers(config: Any) -> None:
    env = gym.make("sched_env/ContinuousBatching-v0", config=config)
    _, info = env.reset(seed=1)
    mask = info["action_mask"]
    assert mask.dtype == "int8"
    assert (env.get_wrapper_attr("action_masks")() == mask.astype(bool)).all()
    assert env.action_space.sample(mask) in env.action_space


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"config": {"trase": "azure_conv"}}, "trase.*Did you mean 'trace'"),
        ({"config": {"scheduler": {"num_blocks": 0}}}, "num_blocks"),
        ({"config": "no_such_server"}, "no_such_server"),
        ({"render_mode": "film"}, "film"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(SchedEnvError, match=message):
        ContinuousBatchingEnv(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_envs": 0}, "num_envs 0"),
        ({"num_envs": 2, "render_mode": "human"}, "render_mode"),
        ({"num_envs": 2, "autoreset_mode": "Disabled"}, "'Disabled' is not offered"),
        ({"num_envs": 2, "autoreset_mode": "sometimes"}, "'NextStep' or 'SameStep'"),
    ],
)
def test_wrong_vector_arguments_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ContinuousBatchingVectorEnv(**arguments)


def test_a_split_without_requests_is_refused(config_with: Any, tmp_path: Any) -> None:
    path = tmp_path / "tiny.csv"
    path.write_text("arrival_time_s,prompt_tokens,output_tokens\n0,5,5\n9,5,5\n")
    for load in (None, 1.0):
        config = config_with(trace=str(path), split="validation", episode={"load": load})
        with pytest.raises(TraceError, match="no request arrives in the validation part"):
            ContinuousBatchingEnv(config)
