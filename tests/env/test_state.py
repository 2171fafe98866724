"""Saved states, copies and pickles go on exactly."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sched_env import ContinuousBatchingEnv, ContinuousBatchingVectorEnv
from sched_env.config import EnvConfig
from sched_env.env.state import check_identity, identity_of
from sched_env.errors import ConfigError
from tests.env.rollouts import assert_equal, legal_action, rollout

COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda env: pickle.loads(pickle.dumps(env)),
}


def started(config: Any, seed: int = 3, steps: int = 25) -> tuple[Any, np.ndarray]:
    """Return an environment in the midst of an episode, and its mask."""
    env = ContinuousBatchingEnv(config)
    _, info = env.reset(seed=seed)
    played = rollout(env, steps, np.random.default_rng(1), info["action_mask"])
    return env, played[-1][4]["action_mask"]


def go_on(env: Any, mask: np.ndarray, steps: int = 60) -> list[Any]:
    played = rollout(env, steps, np.random.default_rng(2), mask)
    return [*played, env.reset()]


def test_set_state_goes_back(config: Any) -> None:
    env, mask = started(config)
    saved = env.get_state()
    first = go_on(env, mask)
    env.set_state(saved)
    assert_equal(env.action_masks(), mask.astype(np.bool_))
    assert_equal(go_on(env, mask), first)


def test_set_state_moves_to_another_environment(config: Any) -> None:
    env, mask = started(config)
    saved = {name: value.copy() for name, value in env.get_state().items()}
    expected = go_on(env, mask)
    fresh = ContinuousBatchingEnv(config)
    fresh.set_state(saved)
    del env
    assert_equal(go_on(fresh, mask), expected)


@pytest.mark.parametrize("num_envs", [None, 2])
def test_a_state_after_another_warmup_fits_an_equal_environment(
    config: Any, num_envs: int | None
) -> None:
    def make() -> Any:
        return (
            ContinuousBatchingVectorEnv(num_envs, config)
            if num_envs
            else ContinuousBatchingEnv(config)
        )

    def play(env: Any) -> list[Any]:
        mask = env.action_masks() if num_envs is None else env.get_state()["masks"]
        rng, steps = np.random.default_rng(5), []
        for _ in range(40):
            action = [legal_action(rng, one) for one in np.atleast_2d(mask)]
            steps.append(env.step(np.array(action) if num_envs else action[0]))
            mask = steps[-1][4]["action_mask"]
            if num_envs is None and (steps[-1][2] or steps[-1][3]):
                mask = env.reset()[1]["action_mask"]
        return [*(step[:4] for step in steps), env.reset()[0]]

    env = make()
    env.reset(seed=3)
    short = env.get_state()
    env.reset(options={"warmup_s": 40.0})
    long = env.get_state()
    assert long["requests"].nbytes > short["requests"].nbytes
    after_long = play(env)
    env.set_state(short)  # its own state from before the longer warm-up
    after_short = play(env)
    for saved, expected in ((long, after_long), (short, after_short), (long, after_long)):
        fresh = make()
        fresh.set_state(saved)
        assert_equal(play(fresh), expected)
        fresh.set_state(long)
        assert_equal(play(fresh), after_long)


def test_a_refused_state_changes_nothing(config: Any) -> None:
    vector = ContinuousBatchingVectorEnv(2, config)
    vector.reset(seed=1)
    before = vector.get_state()
    wider = ContinuousBatchingVectorEnv(3, config)
    wider.reset(seed=1, options={"warmup_s": 40.0})
    with pytest.raises(ConfigError, match="the same number of servers"):
        vector.set_state(wider.get_state())
    assert_equal(vector.get_state(), before)


def test_states_of_another_configuration_are_refused(config: Any, config_with: Any) -> None:
    env, _ = started(config)
    other = ContinuousBatchingEnv(config_with(scheduler={"max_num_seqs": 4}))
    for junk in (5, {}, {"state": 3}):
        with pytest.raises(ConfigError, match="give what get_state returned"):
            ContinuousBatchingEnv(config=config).set_state(junk)
        with pytest.raises(ConfigError, match="give what get_state returned"):
            ContinuousBatchingVectorEnv(1, config=config).set_state(junk)
    with pytest.raises(ConfigError, match="same configuration"):
        other.set_state(env.get_state())


def test_states_of_another_layout_are_refused(config: Any) -> None:
    world = ContinuousBatchingEnv(config).world
    arrays = dict(world.arrays._asdict())
    fields = dict(world.state.dtype.fields)
    fields["clock_s"], fields["busy_s"] = fields["busy_s"], fields["clock_s"]
    other = np.dtype(
        {
            "names": list(fields),
            "formats": [field[0] for field in fields.values()],
            "offsets": [field[1] for field in fields.values()],
            "itemsize": world.state.dtype.itemsize,
        }
    )
    swapped = {**arrays, "state": world.state.view(np.ndarray).view(other)}
    here, there = (identity_of(EnvConfig(), one, list(one)) for one in (arrays, swapped))
    assert here.tobytes() != there.tobytes()
    with pytest.raises(ConfigError, match="version"):
        check_identity({"configuration": there}, here)


@pytest.mark.parametrize("kind", COPIES)
def test_a_copy_goes_on_as_the_original_and_apart_from_it(config: Any, kind: str) -> None:
    env, mask = started(config)
    twin = COPIES[kind](env)
    expected = go_on(env, mask)  # the original moves first: the copy shares nothing with it
    del env
    assert_equal(go_on(twin, mask), expected)


@pytest.mark.parametrize("kind", COPIES)
def test_a_copy_of_a_vector_goes_on_too(config: Any, kind: str) -> None:
    vector = ContinuousBatchingVectorEnv(3, config)
    _, infos = vector.reset(seed=1)
    masks = infos["action_mask"]
    for _ in range(20):
        *_, infos = vector.step(masks.argmax(axis=1))
        masks = infos["action_mask"]
    twin, saved = COPIES[kind](vector), vector.get_state()

    def play(one: Any) -> list[Any]:
        rng, steps, legal = np.random.default_rng(0), [], masks
        for _ in range(150):
            steps.append(one.step(np.array([legal_action(rng, mask) for mask in legal])))
            legal = steps[-1][4]["action_mask"]
        return [list(step[:4]) for step in steps]

    expected = play(vector)
    assert_equal(play(twin), expected)
    vector.set_state(saved)
    assert_equal(play(vector), expected)


def test_a_pickle_goes_on_in_another_process(config: Any, tmp_path: Path, repository: Path) -> None:
    env, mask = started(config)
    (tmp_path / "env.pickle").write_bytes(pickle.dumps(env))
    expected = [step[:4] for step in rollout(env, 40, np.random.default_rng(2), mask)]
    script = (
        "import pickle, sys, numpy as np\n"
        "from tests.env.rollouts import rollout\n"
        "env = pickle.load(open(sys.argv[1] + '/env.pickle', 'rb'))\n"
        "mask = env.action_masks()\n"
        "steps = [s[:4] for s in rollout(env, 40, np.random.default_rng(2), mask)]\n"
        "pickle.dump(steps, open(sys.argv[1] + '/steps.pickle', 'wb'))\n"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::ResourceWarning", "-c", script, tmp_path],
        cwd=repository,
        env={**os.environ, "PYTHONPATH": str(repository)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert_equal(pickle.loads((tmp_path / "steps.pickle").read_bytes()), expected)


@pytest.mark.parametrize(
    "sections",
    [
        {"scheduler": {"num_blocks": 50}},
        {"scheduler": {"max_num_batched_tokens": 64}},
        {"service": {"slo_factor": 0.3}},
        {"observation": {"privileged": True}},
        {"observation": {"num_waiting_slots": 3, "num_running_slots": 5}},
        {"observation": {"screen": "fcfs"}},
        {"episode": {"load": [3.0, 4.0]}},
    ],
)
def test_states_of_equal_size_but_another_configuration_are_refused(
    config: Any, config_with: Any, sections: Any
) -> None:
    env, mask = started(config)
    other = ContinuousBatchingEnv(config_with(**sections))
    other.reset(seed=1)
    with pytest.raises(ConfigError, match="same configuration"):
        other.set_state(env.get_state())
    with pytest.raises(ConfigError, match="same configuration"):
        env.set_state(other.get_state())
    assert_equal(env.action_masks(), mask.astype(np.bool_))


def test_a_state_of_another_trace_is_refused_and_one_of_a_copied_trace_is_not(
    config_with: Any, trace_file: str, tmp_path: Path
) -> None:
    head, first, *rest = Path(trace_file).read_text().splitlines()
    time, prompt, _ = first.split(",")
    for output, is_other in ((first.split(",")[2], False), ("59", True)):
        path = tmp_path / f"{is_other}.csv"
        path.write_text("\n".join([head, f"{time},{prompt},{output}", *rest]) + "\n")
        other = ContinuousBatchingEnv(config_with(trace=str(path), episode={"load": None}))
        same = ContinuousBatchingEnv(config_with(episode={"load": None}))
        same.reset(seed=2)
        if is_other:
            with pytest.raises(ConfigError, match="another configuration, trace or version"):
                other.set_state(same.get_state())
        else:
            other.set_state(same.get_state())
            assert_equal(other.action_masks(), same.action_masks())


def test_there_is_nothing_to_save_before_the_first_reset(config: Any) -> None:
    for env in (ContinuousBatchingEnv(config), ContinuousBatchingVectorEnv(2, config)):
        with pytest.raises(ConfigError, match=r"get_state\(\) came before the first reset"):
            env.get_state()
