"""Training under several conditions at once: SLO tightness and KV pools side by side.

Each condition has its own native vector environment; together they look like one. Environments
are dealt out evenly, in the order of the conditions, and seeded by their place, so that a run
depends on its seed alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sched_env.config import EnvConfig
from sched_env.config.experiment import ConditionsConfig

_PER_ENV = ("action_mask", "discount", "invalid_action")


def condition_envs(env: EnvConfig, conditions: ConditionsConfig) -> list[EnvConfig]:
    """Return ``env`` under every KV pool and SLO tightness."""
    service, scheduler = env.service, env.scheduler
    return [
        env.replace(
            service=service.replace(slo_factor=service.slo_factor * slo_factor),
            scheduler=scheduler.with_pool_times(kv),
        )
        for kv in conditions.kv_factors
        for slo_factor in conditions.slo_factors
    ]


def dealt(num_envs: int, num_conditions: int) -> list[int]:
    """Return how many of ``num_envs`` environments each condition gets, as evenly as it goes."""
    share, rest = divmod(num_envs, num_conditions)
    return [share + (index < rest) for index in range(num_conditions)]


class MixedVectorEnv:
    """Native vector environments behind one another, with SAME_STEP autoreset.

    Attributes:
        num_envs: Environments of all parts together.
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        """Take the parts; they have the same observations and actions."""
        self.parts = list(parts)
        sizes = [int(part.num_envs) for part in self.parts]
        self.num_envs = sum(sizes)
        self._edges = [0, *itertools.accumulate(sizes)]
        self.single_observation_space = self.parts[0].single_observation_space
        self.single_action_space = self.parts[0].single_action_space

    @property
    def unwrapped(self) -> MixedVectorEnv:
        """Return the environment itself."""
        return self

    def reset(self, *, seed: int | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode everywhere; environment i gets the seed ``seed + i``."""
        firsts = self._edges[:-1]
        answers = [
            part.reset(seed=None if seed is None else seed + first)
            for part, first in zip(self.parts, firsts, strict=True)
        ]
        return np.concatenate([one[0] for one in answers]), self._infos([o[1] for o in answers])

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take one decision in each environment; see `NativeVectorEnv.step`."""
        answers = [
            part.step(actions[first:end])
            for part, (first, end) in zip(self.parts, itertools.pairwise(self._edges), strict=True)
        ]
        observations, rewards, terminated, truncated = (
            np.concatenate([answer[index] for answer in answers]) for index in range(4)
        )
        infos = self._infos([answer[4] for answer in answers])
        return observations, rewards, terminated, truncated, infos

    def _infos(self, infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        merged: dict[str, Any] = {
            name: np.concatenate([info[name] for info in infos])
            for name in _PER_ENV
            if all(name in info for info in infos)
        }
        ended = [info for info in infos if "final_info" in info]
        if ended:
            sizes = [int(part.num_envs) for part in self.parts]
            finals = [info.get("final_info", {}) for info in infos]
            merged["final_info"] = {
                name: _joined([final.get(name) for final in finals], sizes)
                for name in ended[0]["final_info"]
            }
            merged["final_obs"] = _joined([info.get("final_obs") for info in infos], sizes)
        return merged

    def get_state(self) -> dict[str, np.ndarray]:
        """Return the arrays from which `set_state` continues exactly."""
        return {
            f"{index}.{key}": value
            for index, part in enumerate(self.parts)
            for key, value in part.get_state().items()
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from what `get_state` returned."""
        for index, part in enumerate(self.parts):
            mark = f"{index}."
            part.set_state(
                {k.removeprefix(mark): v for k, v in state.items() if k.startswith(mark)}
            )

    def close(self) -> None:
        """Close every part."""
        for part in self.parts:
            part.close()


def _joined(arrays: Sequence[np.ndarray | None], sizes: Sequence[int]) -> np.ndarray:
    """Join arrays, with zeros (None for objects) in place of those that are missing."""
    given = next(array for array in arrays if array is not None)
    fill = None if given.dtype == object else np.zeros((), given.dtype)
    return np.concatenate(
        [
            array if array is not None else np.full((size, *given.shape[1:]), fill, given.dtype)
            for array, size in zip(arrays, sizes, strict=True)
        ]
    )
