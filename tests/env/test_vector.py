"""A vector rollout equals as many scalar rollouts, over several episodes, in both modes."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from sched_env import ContinuousBatchingEnv, ContinuousBatchingVectorEnv
from sched_env.errors import ConfigError
from tests.env.rollouts import assert_equal, legal_action

NUM_ENVS = 3
STEP_INFOS = ("action_mask", "elapsed_s", "discount", "invalid_action")


class Scalars:
    """Scalar environments that reset themselves as a vector environment would."""

    def __init__(self, config: Any, seed: int, mode: AutoresetMode) -> None:
        self.envs = [ContinuousBatchingEnv(config) for _ in range(NUM_ENVS)]
        self.mode = mode
        self.ended = [False] * NUM_ENVS
        self.num_resets = [0] * NUM_ENVS
        self.first = [env.reset(seed=seed + i) for i, env in enumerate(self.envs)]

    def step(self, index: int, action: int) -> tuple[Any, ...]:
        """Return what the vector environment should, and the last step of an ended episode."""
        env = self.envs[index]
        if self.ended[index]:
            self.ended[index] = False
            self.num_resets[index] += 1
            observation, info = env.reset()
            return observation, 0.0, False, False, info, None
        step = env.step(action)
        if not (step[2] or step[3]):
            return *step, None
        if self.mode is AutoresetMode.NEXT_STEP:
            self.ended[index] = True
            return *step, step
        self.num_resets[index] += 1
        observation, info = env.reset()
        return observation, *step[1:4], info, step


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("kind", ["one trace", "two traces, warm, privileged"])
def test_rollouts_are_equal(
    config_with: Any, trace_file: str, mode: AutoresetMode, kind: str
) -> None:
    config, seed = config_with(episode={"horizon_s": 4.0}), 0
    if kind != "one trace":
        config, seed = (
            config_with(
                trace=[trace_file, "azure_code"],
                observation={"privileged": True},
                episode={"horizon_s": 2.0, "warmup_s": 1.0},
            ),
            123,
        )
    vector = ContinuousBatchingVectorEnv(NUM_ENVS, config, autoreset_mode=mode)
    scalars = Scalars(config, seed, mode)
    observations, infos = vector.reset(seed=seed)
    for index, (observation, info) in enumerate(scalars.first):
        assert_equal(observations[index], observation)
        assert_equal(infos["action_mask"][index], info["action_mask"])
    rng = np.random.default_rng(seed)
    masks = infos["action_mask"]
    while min(scalars.num_resets) < 3:
        actions = np.array([legal_action(rng, mask) for mask in masks])
        observations, rewards, terminated, truncated, infos = vector.step(actions)
        masks = infos["action_mask"]
        for index, action in enumerate(actions.tolist()):
            expected = scalars.step(index, action)
            given = observations[index], rewards[index], terminated[index], truncated[index]
            assert_equal(given, expected[:4])
            last = expected[5]
            source = expected[4] if mode is AutoresetMode.NEXT_STEP else _step_info(expected)
            for name in STEP_INFOS:
                assert_equal(infos[name][index], source[name])
            check_end(infos, index, last, mode)
    assert sum(scalars.num_resets) >= 9


def _step_info(expected: tuple[Any, ...]) -> dict[str, Any]:
    """With SAME_STEP the mask is that of the new episode, the rest that of the last step."""
    last = expected[5]
    return expected[4] if last is None else {**last[4], "action_mask": expected[4]["action_mask"]}


def check_end(infos: dict[str, Any], index: int, last: Any, mode: AutoresetMode) -> None:
    """Compare the metrics of an episode, and that none are told where none ended."""
    if mode is AutoresetMode.SAME_STEP:
        has_final = bool(infos["_final_info"][index]) if "_final_info" in infos else False
        assert has_final == (last is not None)
        metrics = infos.get("final_info", {})
    else:
        metrics = infos
    if last is None:
        assert not metrics.get("_goodput_weighted", np.zeros(NUM_ENVS, np.bool_))[index]
        return
    if mode is AutoresetMode.SAME_STEP:
        assert_equal(infos["final_obs"][index], last[0])
        assert infos["_final_obs"][index]
        assert_equal(infos["final_info"]["action_mask"][index], last[4]["action_mask"])
    for name in set(last[4]) - set(STEP_INFOS):
        assert metrics[f"_{name}"][index]
        assert_equal(metrics[name][index], last[4][name])


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_it_agrees_with_gymnasiums_own_synchronous_vector(config: Any, mode: AutoresetMode) -> None:
    ours = ContinuousBatchingVectorEnv(NUM_ENVS, config, autoreset_mode=mode)
    theirs = gym.make_vec(
        "sched_env/ContinuousBatching-v0",
        NUM_ENVS,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
        config=config,
    )
    (first, infos), (expected, expected_infos) = ours.reset(seed=9), theirs.reset(seed=9)
    assert_equal(first, expected)
    rng = np.random.default_rng(0)
    num_ended = 0
    while num_ended < 6:
        assert_equal(infos["action_mask"], expected_infos["action_mask"])
        actions = np.array([legal_action(rng, mask) for mask in infos["action_mask"]])
        *given, infos = ours.step(actions)
        *expected_step, expected_infos = theirs.step(actions)
        assert_equal(given, expected_step)
        assert given[0].dtype == expected_step[0].dtype
        for name in ("final_obs", "_final_obs"):
            assert (name in infos) == (name in expected_infos)
            if name in infos:
                kept = expected_infos["_final_obs"]
                assert_equal(list(infos[name][kept]), list(expected_infos[name][kept]))
        num_ended += int(np.sum(given[2] | given[3]))


@pytest.mark.parametrize("copy", [True, False])
def test_an_illegal_action_is_told_once_and_an_end_beside_it_too(config: Any, copy: bool) -> None:
    options = {"autoreset_mode": "SameStep", "max_episode_steps": 25}
    ours = ContinuousBatchingVectorEnv(NUM_ENVS, config, copy=copy, **options)
    _, infos = ours.reset(seed=4)
    rng = np.random.default_rng(1)
    num_ended = 0
    for step in range(60):
        actions = np.array([legal_action(rng, mask) for mask in infos["action_mask"]])
        is_wild = rng.random(NUM_ENVS) < (0.3 if step % 3 == 0 else 0.0)
        actions[is_wild] = ours.single_action_space.n
        _, _, terminated, truncated, infos = ours.step(actions)
        assert_equal(infos["invalid_action"], is_wild)
        assert not (terminated & truncated).any()
        assert ("final_info" in infos) == bool((terminated | truncated).any())
        num_ended += int((terminated | truncated).sum())
    assert num_ended >= 2 * NUM_ENVS


def test_returned_arrays_are_never_touched_again(config: Any) -> None:
    vector = ContinuousBatchingVectorEnv(NUM_ENVS, config, autoreset_mode="SameStep")
    returned: list[tuple[Any, Any]] = []

    def keep(*items: Any) -> None:
        for item in items:
            if isinstance(item, dict):
                keep(*item.values())
            elif item.dtype != object:
                returned.append((item, item.copy()))

    observations, infos = vector.reset(seed=1)
    keep(observations, infos)
    rng = np.random.default_rng(1)
    for _ in range(150):
        actions = np.array([legal_action(rng, mask) for mask in infos["action_mask"]])
        *step, infos = vector.step(actions)
        keep(*step, infos)
    assert all(np.array_equal(item, kept) for item, kept in returned)


def test_without_copies_the_buffers_are_returned(config: Any) -> None:
    vector = ContinuousBatchingVectorEnv(NUM_ENVS, config, copy=False)
    observations, infos = vector.reset(seed=1)
    again, *step, more = vector.step(infos["action_mask"].argmax(axis=1))
    assert again is observations
    assert more["action_mask"] is infos["action_mask"]
    assert more["elapsed_s"] is infos["elapsed_s"]
    infos["of the caller"] = "stays with it"
    *later, last = vector.step(infos["action_mask"].argmax(axis=1))
    assert all(one is other for one, other in zip(step, later[1:], strict=True))
    assert last.keys() == more.keys()
    for shown in (observations, infos["action_mask"], *step, more["invalid_action"]):
        with pytest.raises(ValueError, match="read-only"):
            shown[0] = 1


def test_a_copy_without_copies_has_buffers_of_its_own(config: Any) -> None:
    vector = ContinuousBatchingVectorEnv(NUM_ENVS, config, copy=False)
    observations, infos = vector.reset(seed=1)
    before, actions = observations.copy(), infos["action_mask"].argmax(axis=1)
    twin = copy.deepcopy(vector)
    seen = twin.step(actions)[0]
    assert np.array_equal(observations, before)
    assert np.array_equal(vector.step(actions)[0], seen)
    assert twin.step(infos["action_mask"].argmax(axis=1))[0] is seen


def rollout(vector: ContinuousBatchingVectorEnv, num_steps: int) -> bytes:
    """Return all numbers that random legal actions bring."""
    observations, infos = vector.reset(seed=3)
    rng, numbers = np.random.default_rng(3), [observations.tobytes()]
    for _ in range(num_steps):
        actions = np.array([legal_action(rng, mask) for mask in infos["action_mask"]])
        *step, infos = vector.step(actions)
        numbers += [item.tobytes() for item in step]
        numbers += [infos[name].tobytes() for name in ("action_mask", "elapsed_s", "discount")]
    return b"".join(numbers)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("limit", [None, 7])
def test_views_tell_what_copies_tell(config: Any, mode: AutoresetMode, limit: int | None) -> None:
    options: dict[str, Any] = {"autoreset_mode": mode, "max_episode_steps": limit}
    copying, viewing = (
        ContinuousBatchingVectorEnv(NUM_ENVS, config, copy=copies, **options)
        for copies in (True, False)
    )
    _, infos = copying.reset(seed=5)
    viewing.reset(seed=5)
    rng, num_ended = np.random.default_rng(5), 0
    while num_ended < 3 * NUM_ENVS:
        actions = np.array([legal_action(rng, mask) for mask in infos["action_mask"]])
        *copied, infos = copying.step(actions)
        *viewed, seen = viewing.step(actions)
        num_ended += int((copied[2] | copied[3]).sum())
        assert all(np.array_equal(one, other) for one, other in zip(copied, viewed, strict=True))
        last, last_seen = (told.pop("final_obs", []) for told in (infos, seen))
        assert all(np.array_equal(one, other) for one, other in zip(last, last_seen, strict=True))
        np.testing.assert_equal(seen, infos)


@pytest.mark.parametrize("num_threads", [2, 3, 8])
def test_the_numbers_are_the_same_with_any_number_of_threads(config: Any, num_threads: int) -> None:
    alone = ContinuousBatchingVectorEnv(5, config)
    together = ContinuousBatchingVectorEnv(5, config, num_threads=num_threads)
    assert rollout(together, 120) == rollout(alone, 120)
    assert rollout(copy.deepcopy(together), 20) == rollout(alone, 20)


@pytest.mark.parametrize("num_threads", [0, -1, 1.5, True, "two"])
def test_a_wrong_number_of_threads_is_refused(config: Any, num_threads: Any) -> None:
    with pytest.raises(ConfigError, match="num_threads"):
        ContinuousBatchingVectorEnv(2, config, num_threads=num_threads)


@pytest.mark.parametrize(
    ("argument", "value"), [("copy", "no"), ("copy", 1), ("autoreset_mode", np.zeros(2))]
)
def test_other_wrong_arguments_are_refused(config: Any, argument: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=argument):
        ContinuousBatchingVectorEnv(2, config, **{argument: value})


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_limit_of_steps_truncates(config: Any, mode: str) -> None:
    vector = ContinuousBatchingVectorEnv(2, config, max_episode_steps=5, autoreset_mode=mode)
    _, infos = vector.reset(seed=1)
    ends: list[bool] = []
    for _ in range(14):
        actions = infos["action_mask"].argmax(axis=1)
        _, _, terminated, truncated, infos = vector.step(actions)
        assert not terminated.any()
        ends.append(bool(truncated.all()))
    cycle = 6 if mode == "NextStep" else 5
    assert [step for step, ended in enumerate(ends) if ended] == list(range(4, 14, cycle))


@pytest.mark.parametrize("actions", [[0, 0], [0.5, 0.5, 0.5], [[0], [0], [0]], ["a", "b", "c"], 0])
def test_actions_of_another_shape_are_refused(config: Any, actions: Any) -> None:
    vector = ContinuousBatchingVectorEnv(NUM_ENVS, config)
    vector.reset(seed=0)
    with pytest.raises(ConfigError, match="one whole number for each of the 3"):
        vector.step(np.array(actions))


def test_seeds_of_a_list_go_to_their_environments(config: Any) -> None:
    vector = ContinuousBatchingVectorEnv(NUM_ENVS, config)
    observations, _ = vector.reset(seed=[7, 3, 7])
    for observation, seed in zip(observations, (7, 3, 7), strict=True):
        assert_equal(observation, ContinuousBatchingEnv(config).reset(seed=seed)[0])
    for seed in (-1, 1.5, True, 2**63, "abc"):
        with pytest.raises(ConfigError, match="seed"):
            vector.reset(seed=seed)
    with pytest.raises(ConfigError, match="one whole number for each of the 3"):
        vector.step([[0], [1, 2], [0]])
    with pytest.raises(ConfigError, match="2 seeds given for 3"):
        vector.reset(seed=[1, 2])
