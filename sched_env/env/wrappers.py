"""Other shapes of the observation, for libraries that want the mask or the slots by name.

Both wrap a scalar environment, and each other::

    env = MaskInObservation(gym.make("sched_env/ContinuousBatching-v0"))
"""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from sched_env.engine.decode_layout import DecodeLayout
from sched_env.engine.layout import Layout

DictObs = dict[str, Any]


class MaskInObservation(gym.Wrapper[DictObs, Any, Any, Any], RecordConstructorArgs):
    """Put the mask of legal actions beside the observation.

    The observation is a dict of ``observations``, as before, and ``action_mask``, float32
    (num_actions,), 1 = legal: the keys that RLlib's ``ActionMaskingRLModule`` and TorchRL's
    ``ActionMask`` read.

    Args:
        env: An environment with ``action_masks()``.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        num_actions = int(env.get_wrapper_attr("layout").num_actions)
        mask_space = spaces.Box(0.0, 1.0, (num_actions,), np.float32)
        self.observation_space = spaces.Dict(
            {"observations": env.observation_space, "action_mask": mask_space}
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[DictObs, dict[str, Any]]:
        """Start an episode; see the wrapped environment."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._with_mask(observation, info), info

    def step(self, action: Any) -> tuple[DictObs, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take one decision; see the wrapped environment."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._with_mask(observation, info), reward, terminated, truncated, info

    @staticmethod
    def _with_mask(observation: Any, info: dict[str, Any]) -> DictObs:
        mask = info["action_mask"].astype(np.float32)
        return {"observations": observation, "action_mask": mask}


class DictObservation(gym.ObservationWrapper[DictObs, Any, Any], RecordConstructorArgs):
    """Split the observation into a dict of its parts.

    ``slots`` float32 (K + J, F), ``globals`` float32 (G,) and, where the environment has them,
    ``privileged`` float32 (P,); see ``layout``.

    Args:
        env: An environment with a ``layout``.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        gym.ObservationWrapper.__init__(self, env)
        self._layout: Layout | DecodeLayout = env.get_wrapper_attr("layout")
        lows, highs = (self._parts(bound) for bound in self._layout.bounds())
        self.observation_space = spaces.Dict(
            {name: spaces.Box(lows[name], highs[name], dtype=np.float32) for name in lows}
        )

    def observation(self, observation: Any) -> DictObs:
        """Return the parts of an observation."""
        return self._parts(observation)

    def _parts(self, observation: Any) -> DictObs:
        slots, global_part, privileged = self._layout.split(observation)
        parts = {"slots": slots, "globals": global_part}
        return {**parts, "privileged": privileged} if privileged.shape[-1] else parts
