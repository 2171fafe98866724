"""Many servers in one call: the native vector environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from sched_env.engine.layout import Layout
from sched_env.env.actions import check_actions, refuse_early_step, refuse_illegal
from sched_env.env.build import (
    ConfigLike,
    build_world,
    env_config,
    shortest_span_s,
    with_longer_warmup,
)
from sched_env.env.episode_info import episode_info
from sched_env.env.state import (
    STATE_ARRAYS,
    as_bytes,
    check_number,
    check_saved,
    read_options,
    restore_bytes,
    server_seeds,
    set_warmup,
)
from sched_env.errors import ConfigError

_REWARD, _TERMINATED, _TRUNCATED, _ELAPSED, _DISCOUNT, _INVALID = range(6)


class ContinuousBatchingVectorEnv(VectorEnv[NDArray[np.float32], NDArray[np.int64], NDArray[Any]]):
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
        copy: Return fresh observations and masks. With ``False`` they are the buffers that the
            next step overwrites.

    ``infos`` holds arrays: ``action_mask`` int8 (num_envs, L + K + J), ``elapsed_s``, ``discount``
    and ``invalid_action`` (num_envs,), and, when an episode ends, its metrics under
    ``final_info`` (SAME_STEP) or at the top level (NEXT_STEP), each with a ``_name`` mask.

    Raises:
        ConfigError: The configuration or an argument is wrong.
        TraceError: A trace cannot be read.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  (the base class declares it so)
        "render_modes": [],
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        config: ConfigLike = None,
        *,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        copy: bool = True,
    ) -> None:
        check_number("num_envs", num_envs)
        if max_episode_steps is not None:
            check_number("max_episode_steps", max_episode_steps)
        mode = _autoreset_mode(autoreset_mode)
        if render_mode is not None:
            raise ConfigError(
                f"render_mode {render_mode!r} is not offered for many environments: "
                'use gymnasium.make("sched_env/ContinuousBatching-v0", render_mode=...)'
            )
        self.config = env_config(config)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.autoreset_mode = mode
        self.metadata = {**self.metadata, "autoreset_mode": mode}
        self._copy = copy
        self._world = build_world(self.config, num_envs)
        self._longest_warmup_s = self.config.episode.warmup_s
        self._limit = max_episode_steps or 0
        self.layout: Layout = self._world.layout
        low, high = self.layout.bounds()
        self.single_observation_space = spaces.Box(low, high, dtype=np.float32)
        self.single_action_space = spaces.Discrete(self.layout.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._observations, self._masks, self._results = self._world.buffers()
        self._ended = np.zeros(num_envs, np.bool_)
        self._everywhere = np.ones(num_envs, np.bool_)
        self._everywhere.setflags(write=False)
        self._is_reset = False

    @property
    def world(self) -> Any:
        """The compiled world; its arrays are the environment's whole state."""
        return self._world

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the legal actions, bool (num_envs, L + K + J)."""
        return self._masks.astype(np.bool_)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start a new episode everywhere.

        Args:
            seed: Server i gets ``seed + i``, or its own of a sequence; ``None`` goes on to the next
                episode of the seed at hand.
            options: ``{"trace_offset": seconds, "warmup_s": seconds}``, both optional.

        Returns:
            Observations, float32 (num_envs, size), and infos.

        Raises:
            ConfigError: An option is unknown or not a number.
        """
        given = read_options(options, shortest_span_s(self._world))
        self._set_seeds(seed)
        self._set_warmup(given.warmup_s)
        offset_s = given.trace_offset_s
        self._world.reset(self._observations, self._masks, offset_s=offset_s)
        self._ended[:] = False
        self._results[:] = 0.0
        self._results[:, _DISCOUNT] = 1.0
        self._is_reset = True
        return self._out(self._observations), self._infos(self._results.copy())

    def _set_seeds(self, seed: int | Sequence[int | None] | None) -> None:
        state = self._world.state
        if seed is None and not self._is_reset:
            seed = int(self.np_random.integers(2**31))
        if seed is None:
            state["episode"] += 1
            return
        seeds = server_seeds(seed, self.num_envs)
        if isinstance(seed, int | np.integer):
            VectorEnv.reset(self, seed=int(seed))
        for index, value in enumerate(seeds):
            if value is None:
                state["episode"][index] += 1
            else:
                state["env_seed"][index] = value
                state["episode"][index] = 0

    def _set_warmup(self, given_s: float | None) -> None:
        """Set the warm-up of the next episodes, the configured one unless another is given."""
        episode = self.config.episode
        warmup_s = episode.warmup_s if given_s is None else float(given_s)
        if warmup_s > self._longest_warmup_s:
            self._world = with_longer_warmup(self._world, self.config, warmup_s)
            self._longest_warmup_s = warmup_s
        everywhere = np.ones(self.num_envs, np.bool_)
        set_warmup(self._world.state, episode.horizon_s, warmup_s, everywhere)

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[
        NDArray[np.float32],
        NDArray[np.float64],
        NDArray[np.bool_],
        NDArray[np.bool_],
        dict[str, Any],
    ]:
        """Take one decision in each server; see the class for what comes back.

        With NEXT_STEP, a server whose episode has ended starts the next one instead, whatever its
        action; its reward is 0.

        Raises:
            ConfigError: There is not one whole number for each environment, or one is illegal and
                ``episode.invalid_action`` is ``raise``, or there was no reset yet.
        """
        refuse_early_step(self._is_reset)
        chosen = check_actions(actions, self.num_envs)
        restarted = self._ended
        if self.config.episode.invalid_action == "raise":
            refuse_illegal(chosen, self._masks, ~restarted)
        num_over = self._world.step(chosen, self._observations, self._masks, self._results)
        results = self._results.copy()
        if num_over or self._limit:
            self._settle_ends(results, restarted)
        terminated = results[:, _TERMINATED] > 0
        truncated = results[:, _TRUNCATED] > 0
        infos = self._infos(results)
        if num_over or self._limit:
            self._ended = terminated | truncated
            if self._ended.any():
                self._end_episodes(infos)
        return self._out(self._observations), results[:, _REWARD], terminated, truncated, infos

    def _settle_ends(self, results: NDArray[np.float64], restarted: NDArray[np.bool_]) -> None:
        """Start the episodes that are due, and say of an end whether it is one by time."""
        if restarted.any():
            self._restart(restarted)
            results[restarted] = 0.0
            results[restarted, _DISCOUNT] = 1.0
        if self._limit:
            self._apply_limit(results, restarted)
        results[results[:, _TERMINATED] > 0, _TRUNCATED] = 0.0

    def _apply_limit(self, results: NDArray[np.float64], restarted: NDArray[np.bool_]) -> None:
        """Truncate the episodes that have taken ``max_episode_steps`` decisions."""
        state = self._world.state
        late = (state["decisions"] >= self._limit) & ~restarted
        state["truncated"][late] = 1
        results[late, _TRUNCATED] = 1.0

    def _restart(self, chosen: NDArray[np.bool_]) -> None:
        """Go on to the next episode; options of the last reset do not hold for it."""
        episode = self.config.episode
        set_warmup(self._world.state, episode.horizon_s, episode.warmup_s, chosen)
        self._world.state["episode"][chosen] += 1
        self._world.reset(self._observations, self._masks, chosen=chosen)

    def _end_episodes(self, infos: dict[str, Any]) -> None:
        """Add the metrics of ended episodes, and with SAME_STEP start the next ones."""
        ended = self._ended.copy()
        final = self._metrics_of(ended)
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            infos.update(final)
            return
        final["action_mask"], final["_action_mask"] = self._masks.copy(), ended
        last = np.full(self.num_envs, None, dtype=object)
        for index in np.flatnonzero(ended):
            last[index] = self._observations[index].copy()
        infos["final_obs"], infos["_final_obs"] = last, ended
        infos["final_info"], infos["_final_info"] = final, ended
        self._restart(ended)
        self._ended[:] = False
        infos["action_mask"] = self._masks.copy() if self._copy else self._masks

    def _metrics_of(self, ended: NDArray[np.bool_]) -> dict[str, Any]:
        rows = {int(i): episode_info(self._world, int(i)) for i in np.flatnonzero(ended)}
        names = list(next(iter(rows.values())))
        metrics: dict[str, Any] = {}
        for name in names:
            values = np.zeros(self.num_envs, np.bool_ if name == "is_success" else np.float64)
            for index, row in rows.items():
                values[index] = row[name]
            metrics[name], metrics[f"_{name}"] = values, ended.copy()
        return metrics

    def _infos(self, results: NDArray[np.float64]) -> dict[str, Any]:
        everywhere = self._everywhere
        return {
            "action_mask": self._masks.copy() if self._copy else self._masks,
            "_action_mask": everywhere,
            "elapsed_s": results[:, _ELAPSED],
            "_elapsed_s": everywhere,
            "discount": results[:, _DISCOUNT],
            "_discount": everywhere,
            "invalid_action": results[:, _INVALID] > 0,
            "_invalid_action": everywhere,
        }

    def _out(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        return observations.copy() if self._copy else observations

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return copies of the arrays from which :meth:`set_state` goes on exactly."""
        arrays = self._world.arrays._asdict()
        state = {name: as_bytes(arrays[name]) for name in STATE_ARRAYS}
        return {**state, "masks": self._masks.copy(), "ended": self._ended.copy()}

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from what :meth:`get_state` of an equal environment returned.

        Raises:
            ConfigError: The state is that of another configuration.
        """
        check_saved(state, (*STATE_ARRAYS, "masks", "ended"))
        arrays = self._world.arrays._asdict()
        for name in STATE_ARRAYS:
            restore_bytes(arrays[name], state[name], name)
        self._masks[:] = state["masks"]
        self._ended[:] = state["ended"]
        self._world.view(self._observations, self._masks)
        self._is_reset = True


def _autoreset_mode(given: AutoresetMode | str) -> AutoresetMode:
    offered = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)
    for mode in offered:
        if given in (mode, mode.value):
            return mode
    names = " or ".join(repr(mode.value) for mode in offered)
    raise ConfigError(f"autoreset_mode {given!r} is not offered: give {names}")
