"""What a scalar environment hands out belongs to whoever takes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from sched_env import ContinuousBatchingEnv, DecodeSchedulingEnv

HOLDS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda array: array,
    "a view": lambda array: array[1:],
    "a view of a view": lambda array: array[None][:, 1:],
    "a memoryview": memoryview,
    "a tensor": torch.from_numpy,
}


def steps(env: Any, count: int) -> Any:
    """Yield observation and mask of a reset and of so many steps under the first legal action."""
    observation, info = env.reset(seed=3)
    told = [observation, info["action_mask"]]
    del observation, info
    for _ in range(count):
        yield told
        action = int(told[1].argmax())
        told.clear()
        step = env.step(action)
        told += [step[0], step[4]["action_mask"]]
        del step


@pytest.mark.parametrize("hold", HOLDS)
def test_what_somebody_holds_is_never_filled_again(config: Any, hold: str) -> None:
    kept = []
    for number, (observation, mask) in enumerate(steps(ContinuousBatchingEnv(config), 60)):
        if number % 7 in (0, 1, 5):
            taken = [HOLDS[hold](array) for array in (observation, mask)]
            kept.append((taken, [np.asarray(one).tobytes() for one in taken]))
            taken = None
        del observation, mask
    for taken, before in kept:
        assert [np.asarray(one).tobytes() for one in taken] == before


def test_one_of_both_is_enough_to_keep_it(config: Any) -> None:
    masks, observations = [], []
    for number, (observation, mask) in enumerate(steps(ContinuousBatchingEnv(config), 60)):
        kept, array = (masks, mask) if number % 2 else (observations, observation)
        kept.append((array, array.copy()))
        del observation, mask, array
    for array, before in masks + observations:
        np.testing.assert_array_equal(array, before)


def test_what_nobody_holds_is_filled_again(config: Any) -> None:
    places = set()
    for observation, mask in steps(ContinuousBatchingEnv(config), 40):
        places.add((observation.ctypes.data, mask.ctypes.data))
        del observation, mask
    assert len(places) == 2


@pytest.mark.parametrize("make", [ContinuousBatchingEnv, DecodeSchedulingEnv])
def test_it_owns_its_memory_and_may_be_written_into(make: Any) -> None:
    env = make()
    twin = make()
    for (observation, mask), (same, same_mask) in zip(steps(env, 30), steps(twin, 30), strict=True):
        np.testing.assert_array_equal(observation, same)
        np.testing.assert_array_equal(mask, same_mask)
        assert observation.flags.owndata
        assert mask.flags.owndata
        observation[:] = np.nan
