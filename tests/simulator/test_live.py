"""Live runs: with an executor that answers with modelled times they equal simulations."""

from __future__ import annotations

import copy
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from sched_env import EnvConfig, RequestTable, simulate
from sched_env.config import AffineCost, LiveCost
from sched_env.cost.step_time import step_time_s
from sched_env.engine.live import attach
from sched_env.engine.world import World
from sched_env.env import ContinuousBatchingEnv, build
from sched_env.errors import ConfigError, UnknownNameError
from sched_env.executor.engine_batch import read_batch
from sched_env.simulator.live import check_live, make_executor, with_estimate
from tests.env.rollouts import assert_equal, episode, legal_action

ESTIMATE = AffineCost(base_s=0.01, per_decode_s=0.002, per_prefill_token_s=0.0003)


class ModelledExecutor:
    """Takes as long as the step-time model says, and looks at what it is given."""

    def __init__(self) -> None:
        self.num_batches = 0
        self.num_resets = 0

    def reset(self) -> None:
        self.num_resets += 1

    def run(self, world: World) -> float:
        batch = read_batch(world)
        state = world.state[0]
        assert sum(chunk.num_tokens for chunk in batch.chunks) == state["batch_tokens"] > 0
        self.num_batches += 1
        return step_time_s(
            world.arrays.cost.view(np.recarray)[0],
            int(state["batch_decodes"]),
            int(state["batch_context_tokens"]),
            int(state["batch_prefill_tokens"]),
            float(state["batch_attention"]),
            len(batch.chunks),
        )


def table(num_requests: int = 60) -> RequestTable:
    rng = np.random.default_rng(8)
    return RequestTable.from_columns(
        arrival_time_s=np.sort(rng.uniform(0, 20, num_requests)),
        prompt_tokens=rng.integers(5, 400, num_requests),
        output_tokens=rng.integers(1, 60, num_requests),
    )


def env_of(cost: Any, num_blocks: int = 60) -> EnvConfig:
    env = EnvConfig(cost=cost)
    return env.replace(
        scheduler=env.scheduler.replace(
            num_blocks=num_blocks, max_num_seqs=8, max_num_batched_tokens=256
        ),
        observation=env.observation.replace(num_waiting_slots=6, num_running_slots=3),
        reward=env.reward.replace(waiting=0.1, recompute=0.1),
        episode=env.episode.replace(load=None),
    )


@pytest.fixture
def modelled(monkeypatch: pytest.MonkeyPatch) -> ModelledExecutor:
    executor = ModelledExecutor()
    simulating = sys.modules["sched_env.simulator.simulate"]
    monkeypatch.setattr(simulating, "shared_executor", lambda *_: executor)
    monkeypatch.setattr(build, "make_executor", lambda *_: executor)
    return executor


@pytest.mark.parametrize("policy", ["fcfs", "aging", "weighted_sjf"])
def test_a_live_run_equals_the_simulation_of_its_step_times(
    policy: str, modelled: ModelledExecutor
) -> None:
    wanted = simulate(table(), policy, env_of(ESTIMATE), seed=3, record_events=True)
    live = env_of(LiveCost(estimate=ESTIMATE))
    found = simulate(table(), policy, live, seed=3, record_events=True)
    assert wanted.requests["num_preemptions"].sum() > 0
    assert found.requests.tobytes() == wanted.requests.tobytes()
    assert found.events is not None
    assert wanted.events is not None
    assert found.events.tobytes() == wanted.events.tobytes()
    assert found.itl_counts.tolist() == wanted.itl_counts.tolist()
    assert (found.busy_s, found.kv_usage_mean) == (wanted.busy_s, wanted.kv_usage_mean)
    assert found.num_iterations == wanted.num_iterations
    assert modelled.num_resets == 1
    assert modelled.num_batches <= found.num_iterations


@pytest.mark.parametrize("jump_ahead", [True, False])
def test_a_live_environment_equals_the_simulated_one(
    jump_ahead: bool, modelled: ModelledExecutor
) -> None:
    def made(cost: Any) -> ContinuousBatchingEnv:
        env = env_of(cost, num_blocks=300)
        changed = env.episode.replace(jump_ahead=jump_ahead, horizon_s=15.0)
        return ContinuousBatchingEnv(env.replace(episode=changed))

    for seed in range(3):
        wanted = episode(made(ESTIMATE), seed, steps=300)
        assert_equal(episode(made(LiveCost(estimate=ESTIMATE)), seed, steps=300), wanted)
    assert modelled.num_batches > 100
    assert modelled.num_resets > 2


def test_the_real_model_serves_a_trace_and_its_times_add_up() -> None:
    env = env_of(LiveCost(estimate=ESTIMATE))
    result = simulate(table(12), "fcfs", env, seed=3)
    assert (result.requests["finish_reason"] > 0).all()
    assert 0.0 < result.busy_s <= result.span_s
    assert result.busy_s != simulate(table(12), "fcfs", env_of(ESTIMATE), seed=3).busy_s


@pytest.mark.gpu
def test_a_model_on_cuda_serves_a_trace(cuda: str) -> None:
    live = env_of(LiveCost(device=cuda, estimate=ESTIMATE))
    result = simulate(table(), "fcfs", live, seed=3)
    assert (result.requests["finish_reason"] > 0).all()
    assert 0.0 < result.busy_s <= result.span_s


def test_the_real_model_runs_an_environment() -> None:
    config = env_of(LiveCost(estimate=ESTIMATE)).to_dict()
    env = gym.make("sched_env/ContinuousBatching-v0", config=config)
    rng = np.random.default_rng(0)
    _, info = env.reset(seed=1)
    elapsed_s = 0.0
    for _ in range(30):
        _, _, terminated, truncated, info = env.step(legal_action(rng, info["action_mask"]))
        elapsed_s += info["elapsed_s"]
        if terminated or truncated:
            break
    assert elapsed_s > 0.0
    with pytest.raises(ConfigError, match="cannot be saved"):
        env.unwrapped.get_state()
    with pytest.raises(ConfigError, match="cannot be copied"):
        copy.deepcopy(env.unwrapped)
    with pytest.raises(ConfigError, match="starts empty"):
        env.reset(options={"warmup_s": 1.0})


def test_an_estimate_is_measured_where_none_is_given() -> None:
    env = with_estimate(env_of(LiveCost()))
    assert isinstance(env.cost, LiveCost)
    assert isinstance(env.cost.estimate, AffineCost)
    assert env.cost.estimate.base_s > 0
    assert with_estimate(env) is env
    modelled = env_of(ESTIMATE)
    assert with_estimate(modelled) is modelled


def test_what_a_live_server_cannot_do_is_refused() -> None:
    live = env_of(LiveCost(estimate=ESTIMATE))
    with pytest.raises(ConfigError, match=r"one server, not 4.*vectorization_mode"):
        gym.make_vec("sched_env/ContinuousBatching-v0", num_envs=4, config=live)
    with pytest.raises(ConfigError, match="starts empty"):
        check_live(live.replace(episode=live.episode.replace(warmup_s=2.0)))
    with pytest.raises(ConfigError, match="'cuda:9' is not there"):
        make_executor(LiveCost(device="cuda:9"), live.scheduler)
    with pytest.raises(UnknownNameError, match="Did you mean 'toy'"):
        make_executor(LiveCost(model="toi"), live.scheduler)


def test_sizes_of_blocks_are_those_of_the_server() -> None:
    env = env_of(LiveCost(estimate=ESTIMATE))
    executor = make_executor(LiveCost(), env.scheduler)
    assert executor.tables.num_blocks == 60
    assert executor.tables.block_size == 16
    world = build.build_world(env, 1)
    attach(world, executor)
    assert world.state["live"][0] == 1
