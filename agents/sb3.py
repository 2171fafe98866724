"""The native vector environment as a stable-baselines3 ``VecEnv``.

One call steps every environment and brings the next action masks along; no Python runs per
environment except for those whose episode ended. Episodes start anew in the same step; the last
observation of the old one is ``infos[i]["terminal_observation"]``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.vec_env import VecEnv

from sched_env.agents.conditions import MixedVectorEnv, condition_envs, dealt
from sched_env.agents.normaliser import ReturnNormaliser
from sched_env.compiled import compiled
from sched_env.config.experiment import ConditionsConfig
from sched_env.env import ContinuousBatchingVectorEnv, DecodeSchedulingVectorEnv
from sched_env.env.build import env_config as read_env_config
from sched_env.errors import UnknownNameError
from sched_env.registration import CONTINUOUS_BATCHING, DECODE_SCHEDULING

VecEnvIndices = int | Iterable[int] | None

_VECTOR_ENVS = {
    CONTINUOUS_BATCHING: ContinuousBatchingVectorEnv,
    DECODE_SCHEDULING: DecodeSchedulingVectorEnv,
}

_NO_INFO: dict[str, Any] = {}
"""Shared by all environments whose episode goes on: it is never written to."""


class SchedVecEnv(VecEnv):
    """A ``VecEnv`` over a native vector environment with SAME_STEP autoreset.

    Attributes:
        last_discounts: float32 (num_envs,), ``exp(-elapsed / tau)`` of the last step; the next one
            overwrites it.
        last_rewards: float32 (num_envs,), rewards of the last step as they were returned.
        normaliser: Scale of the returned rewards, or None. ``infos[i]["episode"]["r"]`` is never
            scaled.
    """

    def __init__(
        self, env: Any, *, seed: int | None = None, normalise_returns: bool = False
    ) -> None:
        """Wrap ``env``; ``seed`` gives environment i the seed ``seed + i`` at the next reset."""
        self.env = env
        num_envs = int(env.num_envs)
        self._masks = np.ones((num_envs, int(env.single_action_space.n)), dtype=np.int8)
        self._next_seed = seed
        self._actions = np.zeros(num_envs, dtype=np.int64)
        super().__init__(num_envs, env.single_observation_space, env.single_action_space)
        self.last_discounts = np.ones(num_envs, dtype=np.float32)
        self.last_rewards = np.zeros(num_envs, dtype=np.float32)
        self.normaliser = ReturnNormaliser(num_envs) if normalise_returns else None
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, dtype=np.int64)
        self._infos: list[dict[str, Any]] = [_NO_INFO] * num_envs
        self._started_s = time.monotonic()
        self.invalid_actions = 0
        self.steps = 0

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Seed environment i with ``seed + i`` at the next reset."""
        if seed is not None:
            self._next_seed = int(seed)
        return [None if seed is None else seed + index for index in range(self.num_envs)]

    def reset(self) -> np.ndarray:
        """Start a new episode everywhere and return float32 (num_envs, num_observed)."""
        observations, infos = self.env.reset(seed=self._next_seed)
        self._next_seed = None
        self._masks = infos["action_mask"]
        self._returns[:] = 0.0
        self._lengths[:] = 0
        return _own(observations)

    def step_async(self, actions: np.ndarray) -> None:
        """Keep ``actions``, int (num_envs,), for `step_wait`."""
        self._actions = np.asarray(actions, dtype=np.int64).reshape(-1)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Step every environment once.

        Returns:
            Observations, float32 (num_envs, num_observed); rewards, float32 (num_envs,); ends,
            bool (num_envs,); and one info dict an environment.
        """
        observations, paid, terminated, truncated, infos = self.env.step(self._actions)
        self._masks = infos["action_mask"]
        rewards, dones = np.empty(self.num_envs, np.float32), np.empty(self.num_envs, np.bool_)
        told = (paid, terminated, truncated, infos["discount"], infos["invalid_action"])
        kept = (self._returns, self._lengths, self.last_discounts)
        num_ended, num_illegal = _account(*told, *kept, rewards, dones)
        self.steps += self.num_envs
        self.invalid_actions += num_illegal
        env_infos = self._end_episodes(dones, truncated, infos) if num_ended else self._infos
        if self.normaliser is not None:
            rewards = self.normaliser(paid, self.last_discounts, dones)
        self.last_rewards = rewards.copy()
        return _own(observations), rewards, dones, env_infos

    def _end_episodes(
        self, dones: np.ndarray, truncated: np.ndarray, infos: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the infos of a step in which at least one episode ended."""
        env_infos = list(self._infos)
        now_s = round(time.monotonic() - self._started_s, 6)
        final = infos["final_info"]
        for index in np.flatnonzero(dones):
            stats = {"r": float(self._returns[index]), "l": int(self._lengths[index]), "t": now_s}
            env_infos[index] = {
                **_row(final, int(index)),
                "terminal_observation": np.array(infos["final_obs"][index], dtype=np.float32),
                "TimeLimit.truncated": bool(truncated[index]),
                "episode": stats,
            }
        self._returns[dones] = 0.0
        self._lengths[dones] = 0
        return env_infos

    def action_masks(self) -> np.ndarray:
        """Return bool (num_envs, num_actions), True = legal in the present states."""
        return self._masks.astype(np.bool_)

    def has_attr(self, attr_name: str) -> bool:
        """Tell whether every environment has ``attr_name``."""
        return attr_name == "action_masks" or hasattr(self.env.unwrapped, attr_name)

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Return ``attr_name`` once for each environment: they share one object."""
        count = len(list(self._get_indices(indices)))
        if attr_name == "render_mode":
            return [getattr(self.env.unwrapped, attr_name, None)] * count
        return [getattr(self.env.unwrapped, attr_name)] * count

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set ``attr_name`` of the native environment; single environments have none."""
        if indices is not None:
            raise ValueError("environments share their attributes: leave indices out")
        setattr(self.env.unwrapped, attr_name, value)

    def env_method(
        self, method_name: str, *args: Any, indices: VecEnvIndices = None, **kwargs: Any
    ) -> list[Any]:
        """Return the masks of each environment; no other method exists per environment."""
        if method_name != "action_masks" or args or kwargs:
            raise AttributeError(
                f"no method {method_name!r} per environment: only 'action_masks' exists"
            )
        masks = list(self.action_masks())
        return masks if indices is None else [masks[index] for index in self._get_indices(indices)]

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None
    ) -> list[bool]:
        """Return False for each environment: nothing is wrapped one by one."""
        return [False for _ in self._get_indices(indices)]

    def close(self) -> None:
        """Close the native environment."""
        self.env.close()

    def get_state(self) -> dict[str, np.ndarray]:
        """Return the arrays from which `set_state` continues exactly, masks included."""
        state = {f"env.{key}": value for key, value in self.env.unwrapped.get_state().items()}
        if self.normaliser is not None:
            for key, value in self.normaliser.get_state().items():
                state[f"normaliser.{key}"] = value
        state["masks"] = self.action_masks()
        state["returns"] = self._returns.copy()
        state["lengths"] = self._lengths.copy()
        return state

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from what `get_state` returned."""
        self.env.unwrapped.set_state(_part(state, "env."))
        if self.normaliser is not None:
            self.normaliser.set_state(_part(state, "normaliser."))
        self._masks = np.array(state["masks"], dtype=bool)
        self._returns = np.array(state["returns"])
        self._lengths = np.array(state["lengths"])
        self._next_seed = None


@compiled
def _account(
    paid: Any,
    terminated: Any,
    truncated: Any,
    discounts: Any,
    illegal: Any,
    returns: Any,
    lengths: Any,
    last_discounts: Any,
    rewards: Any,
    dones: Any,
) -> tuple[int, int]:
    """Book one step of every environment; return how many ended and how many acted illegally.

    The first five arrays are what the step told, the others are filled or go on.
    """
    num_ended, num_illegal = 0, 0
    for index in range(paid.size):
        returns[index] += paid[index]
        lengths[index] += 1
        last_discounts[index] = discounts[index]
        rewards[index] = paid[index]
        dones[index] = terminated[index] or truncated[index]
        num_ended += dones[index]
        num_illegal += illegal[index]
    return num_ended, num_illegal


def _own(observations: np.ndarray) -> np.ndarray:
    """Return observations that stay: what is read-only is a view that the next step overwrites."""
    return observations if observations.flags.writeable else observations.copy()


def _part(state: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {key.removeprefix(prefix): state[key] for key in state if key.startswith(prefix)}


def _row(infos: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return environment ``index``'s scalars of an info dict of arrays, as Python numbers."""
    row: dict[str, Any] = {}
    for key, values in infos.items():
        if not key.startswith("_") and isinstance(values, np.ndarray) and values.ndim == 1:
            value = values[index]
            row[key] = value.item() if isinstance(value, np.generic) else value
    return row


def make_sb3_vec_env(
    env_config: Any = None,
    num_envs: int = 64,
    seed: int | None = None,
    *,
    env_id: str = CONTINUOUS_BATCHING,
    normalise_returns: bool = False,
    conditions: ConditionsConfig | None = None,
) -> SchedVecEnv:
    """Return a stable-baselines3 ``VecEnv`` of ``num_envs`` environments.

    Args:
        env_config: What the environment takes as ``config``.
        num_envs: Number of environments stepped in one call.
        seed: Environment i starts from ``seed + i``.
        env_id: Which environment.
        normalise_returns: Divide rewards by the running scale of discounted returns.
        conditions: Deal the environments out over these variations of ``env_config``.

    Raises:
        UnknownNameError: There is no such environment.
    """
    if env_id not in _VECTOR_ENVS:
        raise UnknownNameError("environment", str(env_id), _VECTOR_ENVS)
    make = _VECTOR_ENVS[env_id]
    configs = [env_config]
    if conditions is not None:
        configs = condition_envs(read_env_config(env_config), conditions)
    parts = [
        make(size, config=config, autoreset_mode=AutoresetMode.SAME_STEP, copy=False)
        for config, size in zip(configs, dealt(num_envs, len(configs)), strict=True)
        if size
    ]
    env = parts[0] if len(parts) == 1 else MixedVectorEnv(parts)
    return SchedVecEnv(env, seed=seed, normalise_returns=normalise_returns)
