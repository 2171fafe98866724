"""What every vector environment over a compiled core has in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from sched_env.engine.outlet import (
    DISCOUNT,
    ELAPSED,
    NUM_RESULTS,
    REWARD,
    TERMINATED,
    TRUNCATED,
    Outlet,
)
from sched_env.env.actions import action_name, check_actions, early_call, refuse_illegal
from sched_env.env.saving import Saved
from sched_env.env.state import check_number, server_seeds
from sched_env.errors import ConfigError

StepOutcome = tuple[
    NDArray[np.float32], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]
]
"""Observations, rewards, terminated, truncated and infos of a step."""


@dataclass(frozen=True)
class VectorOptions:
    """Arguments that every vector environment takes, as given."""

    num_envs: int
    render_mode: str | None
    max_episode_steps: int | None
    autoreset_mode: AutoresetMode | str
    copy: bool

    def check(self, scalar_id: str) -> None:
        """Refuse what is not allowed.

        Raises:
            ConfigError: A value is not allowed.
        """
        check_number("num_envs", self.num_envs)
        if self.max_episode_steps is not None:
            check_number("max_episode_steps", self.max_episode_steps)
        _autoreset_mode(self.autoreset_mode)
        if not isinstance(self.copy, bool | np.bool_):
            raise ConfigError(f"copy {self.copy!r} is not allowed: give True or False")
        if self.render_mode is not None:
            raise ConfigError(
                f"render_mode {self.render_mode!r} is not offered for many environments: "
                f'use gymnasium.make("{scalar_id}", render_mode=...)'
            )


class NativeVectorEnv(Saved, VectorEnv[NDArray[np.float32], NDArray[np.int64], NDArray[Any]]):
    """A vector environment whose state is one world of a compiled core.

    A subclass says how episodes start (`_read_options`, `_start_episodes`, `_start_next`) and what
    is told at their end (`_episode_info`).

    Args:
        world: The world of ``num_envs`` servers; see `sched_env.env.native.NativeEnv`.
        options: Checked arguments.
        raises: Whether an illegal action is an error.

    Attributes:
        elapsed_name: Under which the time that a step took stands in ``infos``.
        scalar_id: Id of the environment, for messages.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  (the base class declares it so)
        "render_modes": [],
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }
    elapsed_name: ClassVar[str]
    scalar_id: ClassVar[str]

    def __init__(self, world: Any, options: VectorOptions, *, raises: bool) -> None:
        num_envs = options.num_envs
        self.num_envs = num_envs
        self.render_mode = options.render_mode
        self.autoreset_mode = _autoreset_mode(options.autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self._copy = options.copy
        self._world = world
        self._limit = options.max_episode_steps or 0
        self._raises = raises
        self.layout: Any = world.layout
        low, high = self.layout.bounds()
        self.single_observation_space = spaces.Box(low, high, dtype=np.float32)
        self.single_action_space = spaces.Discrete(self.layout.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._observations, self._masks, self._results = world.buffers()
        self._outlet = Outlet(self._observations, self._masks, self._results)
        self._flags = np.zeros((NUM_RESULTS - TERMINATED, num_envs), np.bool_)
        self._num_flags = 0  # that are set
        self._ended = np.zeros(num_envs, np.bool_)
        self._everywhere = np.ones(num_envs, np.bool_)
        self._everywhere.setflags(write=False)
        self._look_at_buffers()
        self._is_reset = False

    def _look_at_buffers(self) -> None:
        """Make the views that ``copy=False`` hands out: the next step builds on what they show."""
        observations, masks = self._observations.view(), self._masks.view()
        results, flags = self._results.view(), self._flags.view()
        for view in (observations, masks, results, flags):
            view.flags.writeable = False
        self._seen = self._told(observations, masks, results, flags)

    def __setstate__(self, saved: dict[str, Any]) -> None:
        """Restore a copy or a pickle, in which views have become arrays of their own."""
        self.__dict__.update(saved)
        self._look_at_buffers()

    def _read_options(self, options: dict[str, Any] | None) -> Any:
        """Check the options of a reset."""
        raise NotImplementedError

    def _start_episodes(self, given: Any) -> None:
        """Start the next episode everywhere with checked options."""
        raise NotImplementedError

    def _start_next(self, chosen: NDArray[np.bool_]) -> None:
        """Start the next episode where one has ended."""
        raise NotImplementedError

    def _episode_info(self, index: int) -> dict[str, Any]:
        """Return the metrics of an episode that has just ended."""
        raise NotImplementedError

    def _action_name(self, action: int) -> str:
        """Return an action in words."""
        return action_name(action, self.layout.num_actions)

    @property
    def world(self) -> Any:
        """The compiled world; its arrays are the environment's whole state."""
        return self._world

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the legal actions, bool (num_envs, num_actions)."""
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
            options: What the environment lets one choose; see its class.

        Returns:
            Observations, float32 (num_envs, size), and infos.

        Raises:
            ConfigError: An option is unknown or not a number.
        """
        given = self._read_options(options)
        self._set_seeds(seed)
        self._start_episodes(given)
        self._ended[:] = False
        self._results[:] = 0.0
        self._results[DISCOUNT] = 1.0
        self._flags[:] = False
        self._num_flags = 0
        self._is_reset = True
        observations, *_, infos = self._outcome()
        return observations, infos

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

    def step(self, actions: NDArray[np.int64]) -> StepOutcome:
        """Take one decision in each server; see the class for what comes back.

        With NEXT_STEP, a server whose episode has ended starts the next one instead, whatever its
        action; its reward is 0.

        Raises:
            ConfigError: There is not one whole number for each environment, or one is illegal and
                the environment is set to raise.
            EarlyCallError: There was no reset yet.
        """
        if not self._is_reset:
            raise early_call("step")
        chosen = check_actions(actions, self.num_envs)
        restarted = self._ended
        if self._raises:
            refuse_illegal(chosen, self._masks, ~restarted, self._action_name)
        num_flags = self._world.step(chosen, self._outlet)
        if not (num_flags or self._num_flags or self._limit):
            return self._outcome()
        if restarted.any():
            self._restart(restarted)
            self._results[:, restarted] = 0.0
            self._results[DISCOUNT, restarted] = 1.0
        if self._limit:
            self._apply_limit(restarted)
        self._flags[:] = self._results[TERMINATED:]
        self._num_flags = int(np.count_nonzero(self._flags))
        self._ended = self._flags[0] | self._flags[1]
        outcome = self._outcome()
        return self._end_episodes(outcome) if self._ended.any() else outcome

    def _apply_limit(self, restarted: NDArray[np.bool_]) -> None:
        """Truncate the episodes that have taken ``max_episode_steps`` decisions."""
        state, results = self._world.state, self._results
        late = (state["decisions"] >= self._limit) & ~restarted
        state["truncated"][late] = 1
        results[TRUNCATED, late & (results[TERMINATED] == 0.0)] = 1.0

    def _restart(self, chosen: NDArray[np.bool_]) -> None:
        self._world.state["episode"][chosen] += 1
        self._start_next(chosen)

    def _end_episodes(self, outcome: StepOutcome) -> StepOutcome:
        """Return an outcome with the metrics of ended episodes.

        With SAME_STEP the next ones start: what they observe takes the place of the last one's.
        """
        _, rewards, terminated, truncated, infos = outcome
        ended = self._ended.copy()
        final = self._metrics_of(ended)
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            infos.update(final)
            return outcome
        final["action_mask"], final["_action_mask"] = self._masks.copy(), ended
        last = np.full(self.num_envs, None, dtype=object)
        for index in np.flatnonzero(ended):
            last[index] = self._observations[index].copy()
        self._restart(ended)
        self._ended[:] = False
        observations, *_, first = self._outcome()
        infos["action_mask"] = first["action_mask"]
        infos["final_obs"], infos["_final_obs"] = last, ended
        infos["final_info"], infos["_final_info"] = final, ended
        return observations, rewards, terminated, truncated, infos

    def _metrics_of(self, ended: NDArray[np.bool_]) -> dict[str, Any]:
        told: dict[str, Any] = {}
        table = np.zeros((0, self.num_envs))
        for index in np.flatnonzero(ended).tolist():
            told = self._episode_info(index)
            if not len(table):
                table = np.zeros((len(told), self.num_envs))
            table[:, index] = list(told.values())
        metrics: dict[str, Any] = dict(zip(told, table, strict=True))
        metrics["is_success"] = metrics["is_success"].astype(np.bool_)
        metrics.update(dict.fromkeys([f"_{name}" for name in told], ended))
        return metrics

    def _outcome(self) -> StepOutcome:
        """Return what a step tells, as the buffers have it: copies, or views that stay the same."""
        if not self._copy:
            observations, rewards, terminated, truncated, infos = self._seen
            return observations, rewards, terminated, truncated, infos.copy()
        masks, results, flags = self._masks.copy(), self._results.copy(), self._flags.copy()
        return self._told(self._observations.copy(), masks, results, flags)

    def _told(
        self,
        observations: NDArray[np.float32],
        masks: NDArray[np.int8],
        results: NDArray[np.float64],
        flags: NDArray[np.bool_],
    ) -> StepOutcome:
        """Return those arrays as a step hands them out."""
        everywhere = self._everywhere
        infos: dict[str, Any] = {
            "action_mask": masks,
            "_action_mask": everywhere,
            self.elapsed_name: results[ELAPSED],
            f"_{self.elapsed_name}": everywhere,
            "discount": results[DISCOUNT],
            "_discount": everywhere,
            "invalid_action": flags[2],
            "_invalid_action": everywhere,
        }
        return observations, results[REWARD], flags[0], flags[1], infos

    def _show(self) -> None:
        self._world.view(self._observations, self._masks)

    def _own_arrays(self) -> dict[str, NDArray[Any]]:
        return {"masks": self._masks, "ended": self._ended}


def _autoreset_mode(given: AutoresetMode | str) -> AutoresetMode:
    offered = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)
    for mode in offered:
        if isinstance(given, str | AutoresetMode) and given in (mode, mode.value):
            return mode
    names = " or ".join(repr(mode.value) for mode in offered)
    raise ConfigError(f"autoreset_mode {given!r} is not offered: give {names}")
