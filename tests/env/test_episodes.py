"""Seeds, options, and how episodes begin and end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sched_env import ContinuousBatchingEnv, ContinuousBatchingVectorEnv
from sched_env.errors import ConfigError
from tests.env.rollouts import assert_equal, episode, legal_action


def test_equal_seeds_give_equal_episodes(config: Any) -> None:
    first, second = ContinuousBatchingEnv(config), ContinuousBatchingEnv(config)
    for seed in (5, 6):
        assert_equal(episode(first, seed), episode(second, seed))
    assert_equal(episode(first, 5), episode(second, 5))  # whatever was played before


def test_reset_without_a_seed_goes_on_to_the_next_episode(config: Any) -> None:
    env, other = ContinuousBatchingEnv(config), ContinuousBatchingEnv(config)
    played = [episode(env, 5), *(episode(env, None) for _ in range(3))]
    starts = [first[0][0].tobytes() for first in played]
    assert len(set(starts)) == 4
    # Episodes that are not played to the end count as well.
    again = [other.reset(seed=5), *(other.reset() for _ in range(3))]
    for whole, start in zip(played, again, strict=True):
        assert_equal(whole[0], start)


def test_neighbouring_seeds_share_no_episode(config: Any) -> None:
    env = ContinuousBatchingEnv(config)
    drawn = set()
    for seed in range(6):
        env.reset(seed=seed)
        for _ in range(7):
            state = env.world.state[0]
            drawn.add((float(state["load"]), float(state["trace_start_s"])))
            env.reset()
    assert len(drawn) == 42


def test_the_first_reset_needs_no_seed(config: Any) -> None:
    env = ContinuousBatchingEnv(config)
    observation, info = env.reset()
    assert observation in env.observation_space
    assert info["action_mask"].any()


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, "one"])
def test_other_seeds_are_refused(config: Any, seed: Any) -> None:
    with pytest.raises((ConfigError, Exception), match=r"[Ss]eed"):
        ContinuousBatchingEnv(config).reset(seed=seed)


def test_load_and_place_in_the_trace_are_drawn(config_with: Any) -> None:
    env = ContinuousBatchingEnv(config_with(episode={"load": [0.8, 1.2]}))
    loads, starts = [], []
    for seed in range(60):
        env.reset(seed=seed)
        state = env.world.state[0]
        loads.append(float(state["load"]))
        starts.append(float(state["trace_start_s"]))
    assert 0.8 <= min(loads) < 0.85
    assert 1.15 < max(loads) <= 1.2
    assert min(starts) < 8.0
    assert max(starts) > 35.0


def test_each_trace_of_several_is_played(config_with: Any, trace_file: str) -> None:
    env = ContinuousBatchingEnv(
        config_with(trace=[trace_file, "azure_code"], episode={"horizon_s": 2.0})
    )
    first_row = []
    for seed in range(30):
        env.reset(seed=seed)
        first_row.append(int(env.world.state[0]["trace_row"]))
    assert 5 < sum(row < 300 for row in first_row) < 25


def arrivals(env: Any, count: int) -> np.ndarray:
    """Return prompt lengths of the first requests of the episode at hand."""
    requests = env.world.requests[0]
    return requests["prompt_tokens"][: min(count, int(env.world.state[0]["next_row"]))]


def test_trace_offset_says_where_the_episode_starts(config: Any, trace_file: str) -> None:
    rows = np.loadtxt(trace_file, delimiter=",", skiprows=1)
    env = ContinuousBatchingEnv(config)
    for offset in (0.0, 17.5):
        episode(env, 3, options={"trace_offset": offset})
        expected = rows[rows[:, 0] >= offset - 1e-9][:20, 1]
        given = arrivals(env, 20)
        assert len(given) > 5
        assert_equal(given, expected[: len(given)])


def test_warmup_starts_a_busy_server_and_holds_for_one_reset(config: Any) -> None:
    env = ContinuousBatchingEnv(config)
    cold = env.reset(seed=1, options={"trace_offset": 0.0})
    warm = env.reset(seed=1, options={"trace_offset": 0.0, "warmup_s": 4.0})
    assert env.world.state[0]["clock_s"] >= 4.0
    assert env.world.state[0]["num_running"] > 0
    assert env.world.state[0]["num_finished"] == 0  # counted from the end of the warm-up on
    *_, last = episode(env, 1, options={"warmup_s": 4.0})
    assert last[3]
    assert 10.0 <= env.world.state[0]["clock_s"] < 10.5
    again = env.reset(seed=1, options={"trace_offset": 0.0})
    assert_equal(again, cold)
    assert not np.array_equal(warm[0], cold[0])


def test_configured_warmup_equals_the_option(config: Any, config_with: Any) -> None:
    configured = ContinuousBatchingEnv(config_with(episode={"warmup_s": 3.0}))
    by_option = ContinuousBatchingEnv(config)
    assert_equal(episode(configured, 2), episode(by_option, 2, options={"warmup_s": 3.0}))


def test_a_long_warmup_meets_all_requests(config: Any, config_with: Any) -> None:
    long = {"trace_offset": 0.0, "warmup_s": 50.0}
    env = ContinuousBatchingEnv(config)
    *_, last = episode(env, 2, options=long)
    configured = ContinuousBatchingEnv(config_with(episode={"warmup_s": 50.0}))
    *_, expected = episode(configured, 2, options={"trace_offset": 0.0})
    assert_equal(last, expected)


def test_warmup_of_a_vector_reset_does_not_hold_for_the_episodes_after_it(config: Any) -> None:
    vector = ContinuousBatchingVectorEnv(2, config)
    plain = ContinuousBatchingVectorEnv(2, config)
    _, infos = vector.reset(seed=1, options={"warmup_s": 30.0})
    plain.reset(seed=1)
    rng = np.random.default_rng(0)
    restarted = np.zeros(2, np.bool_)
    while not restarted.all():
        actions = np.array([legal_action(rng, mask) for mask in infos["action_mask"]])
        *_, infos = vector.step(actions)
        restarted |= vector.world.state["episode"] == 1
    assert (vector.world.state["warmup_s"] == 0.0).all()
    assert (vector.world.state["horizon_s"] == 6.0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warmup": 3.0}, "no reset option 'warmup'. Did you mean 'warmup_s'"),
        ({3: 3.0}, "no reset option 3"),
        ({"trace_offset": 10**400}, "give seconds >= 0"),
        ({"warmup_s": float("nan")}, "give seconds >= 0"),
        ({"warmup_s": -1.0}, "warmup_s is -1.0"),
        ({"warmup_s": float("nan")}, "warmup_s is nan"),
        ({"warmup_s": True}, "warmup_s is True"),
        ({"trace_offset": "5"}, "trace_offset is '5'"),
        ({"trace_offset": 500.0}, "trace_offset is 500.0: the trace"),
    ],
)
def test_wrong_options_are_refused(config: Any, options: Any, message: str) -> None:
    for env in (ContinuousBatchingEnv(config), ContinuousBatchingVectorEnv(2, config)):
        with pytest.raises(ConfigError, match=message):
            env.reset(seed=1, options=options)


def test_truncated_only_at_the_horizon(config: Any) -> None:
    env = ContinuousBatchingEnv(config)
    for seed in range(4):
        *_, last = episode(env, seed, options={"trace_offset": 0.0})
        clock_s = float(env.world.state[0]["clock_s"])
        assert (last[2], last[3]) == (False, True)
        assert 6.0 <= clock_s < 6.2


def test_terminated_only_when_all_has_ended(config_with: Any) -> None:
    env = ContinuousBatchingEnv(config_with(episode={"horizon_s": 1000.0, "load": 1.0}))
    *steps, last = episode(env, 3)
    assert (last[2], last[3]) == (True, False)
    assert not any(step[2] or step[3] for step in steps[1:])
    state = env.world.state[0]
    assert state["next_row"] == 300
    assert (state["num_running"], state["num_waiting"]) == (0, 0)
    assert last[4]["num_injected"] == 300
    assert state["free_blocks"] == state["num_blocks"]


def test_an_ended_episode_stays_ended(config: Any) -> None:
    env = ContinuousBatchingEnv(config)
    *_, last = episode(env, 1)
    assert last[4]["action_mask"].tolist() == [0, 0, 0, 1] + [0] * 8  # full proceed alone
    after = env.step(3)
    assert after[1] == 0.0
    assert (after[2], after[3]) == (last[2], last[3])
    assert_equal(after[0], last[0])


def test_max_requests_ends_the_trace_early(config_with: Any) -> None:
    env = ContinuousBatchingEnv(
        config_with(episode={"horizon_s": 1000.0, "max_requests": 40, "load": 1.0})
    )
    *_, last = episode(env, 3)
    assert last[2]
    assert last[4]["num_injected"] == 40


def test_the_last_info_tells_about_the_episode(config_with: Any) -> None:
    env = ContinuousBatchingEnv(config_with(episode={"horizon_s": 1000.0, "load": 1.0}))
    *_, last = episode(env, 3)
    info = last[4]
    requests = env.world.requests[0]
    assert info["goodput_weighted"] == pytest.approx(
        1.0 - requests["weight"][requests["missed"] > 0].sum() / requests["weight"].sum()
    )
    assert info["is_success"] == (info["goodput_weighted"] >= 0.9)
    assert info["num_preemptions"] == requests["num_preemptions"].sum()
    assert info["num_finished"] + info["num_rejected"] == 300
    assert all(isinstance(value, int | float | bool | np.ndarray) for value in info.values())


def test_split_and_load_none_use_the_trace_as_recorded(config_with: Any, trace_file: str) -> None:
    rows = np.loadtxt(trace_file, delimiter=",", skiprows=1)
    env = ContinuousBatchingEnv(
        config_with(split="test", episode={"load": None, "horizon_s": 1000.0})
    )
    episode(env, 0)
    test = rows[rows[:, 0] >= 0.7 * rows[-1, 0]]
    requests = env.world.requests[0]
    count = int(env.world.state[0]["next_row"])
    assert count == len(test)
    np.testing.assert_allclose(
        requests["arrival_time_s"][:count], test[:, 0] - test[0, 0], atol=1e-6
    )
