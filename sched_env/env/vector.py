"""Many servers in one call: the native vector environment."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from sched_env.env.build import ConfigLike, build_world, env_config
from sched_env.env.episode_info import episode_info
from sched_env.env.native_vector import NativeVectorEnv, VectorOptions
from sched_env.env.server_env import ServerEnv
from sched_env.env.state import ResetOptions, check_number, set_warmup
from sched_env.registration import CONTINUOUS_BATCHING


class ContinuousBatchingVectorEnv(ServerEnv, NativeVectorEnv):
    """``num_envs`` servers stepped by one call of the compiled core.

    A rollout equals ``num_envs`` rollouts of :class:`ContinuousBatchingEnv` with seeds ``seed``,
    ``seed + 1`` and so on.

    Args:
        num_envs: Number of servers.
        config: Name or path of a YAML file, mapping or model; ``None`` is the standard server.
        render_mode: Only ``None``; render a single environment instead.
        max_episode_steps: Truncate an episode after so many decisions; ``None``: never.
        autoreset_mode: ``NEXT_STEP`` (Gymnasium's default) or ``SAME_STEP``
            (stable-baselines3's: the last observation is ``infos["final_obs"]``).
        copy: Return fresh arrays. With ``False`` all that a reset or a step returns are read-only
            views of buffers that the next step overwrites.
        num_threads: Threads that share the servers of a step; the numbers are the same with any.
            More than one pays from some hundred servers on.

    ``infos`` holds arrays: ``action_mask`` int8 (num_envs, L + K + J), ``elapsed_s``, ``discount``
    and ``invalid_action`` (num_envs,), and, when an episode ends, its metrics under
    ``final_info`` (SAME_STEP) or at the top level (NEXT_STEP), each with a ``_name`` mask.

    Raises:
        ConfigError: The configuration or an argument is wrong.
        TraceError: A trace cannot be read.
    """

    elapsed_name = "elapsed_s"
    scalar_id = CONTINUOUS_BATCHING

    def __init__(
        self,
        num_envs: int = 1,
        config: ConfigLike = None,
        *,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        copy: bool = True,
        num_threads: int = 1,
    ) -> None:
        check_number("num_threads", num_threads)
        options = VectorOptions(num_envs, render_mode, max_episode_steps, autoreset_mode, copy)
        options.check(self.scalar_id)
        self.config = env_config(config)
        raises = self.config.episode.invalid_action == "raise"
        world = build_world(self.config, num_envs, min(num_threads, num_envs))
        super().__init__(world, options, raises=raises)
        self._longest_warmup_s = self.config.episode.warmup_s

    def _start_episodes(self, given: ResetOptions) -> None:
        self._set_warmup(given.warmup_s)
        offset_s = given.trace_offset_s
        self._world.reset(self._observations, self._masks, offset_s=offset_s)

    def _start_next(self, chosen: NDArray[np.bool_]) -> None:
        """Start the next episodes; options of the last reset do not hold for them."""
        episode = self.config.episode
        set_warmup(self._world.state, episode.horizon_s, episode.warmup_s, chosen)
        self._world.reset(self._observations, self._masks, chosen=chosen)

    def _episode_info(self, index: int) -> dict[str, Any]:
        return episode_info(self._world, index)
