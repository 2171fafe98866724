"""Playing scalar environments with actions drawn from their masks."""

from __future__ import annotations

from typing import Any

import numpy as np


def legal_action(rng: np.random.Generator, mask: Any) -> int:
    return int(rng.choice(np.flatnonzero(mask)))


def rollout(env: Any, steps: int, rng: np.random.Generator, mask: Any) -> list[tuple[Any, ...]]:
    """Play on for up to ``steps`` decisions; stop at an end."""
    played: list[tuple[Any, ...]] = []
    for _ in range(steps):
        played.append(env.step(legal_action(rng, mask)))
        mask = played[-1][4]["action_mask"]
        if played[-1][2] or played[-1][3]:
            break
    return played


def episode(env: Any, seed: int | None, *, options: Any = None, steps: int = 100_000) -> list[Any]:
    """Play an episode; return the reset and all steps."""
    first = env.reset(seed=seed, options=options)
    rng = np.random.default_rng(0)
    return [first, *rollout(env, steps, rng, first[1]["action_mask"])]


def assert_equal(left: Any, right: Any) -> None:
    """Compare observations, rewards and infos to the last bit; NaN equals NaN."""
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for name in left:
            assert_equal(left[name], right[name])
    elif isinstance(left, list | tuple):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_equal(one, other)
    else:
        np.testing.assert_array_equal(left, right)
