"""What every scalar environment over a compiled core has in common."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sched_env.engine.outlet import ScalarOutlet
from sched_env.env.actions import action_name, check_action, early_call, refuse_illegal
from sched_env.env.saving import Saved
from sched_env.errors import ConfigError
from sched_env.simulator.simulate import check_seed


class NativeEnv(Saved, gym.Env[NDArray[np.float32], np.int64]):
    """A Gymnasium environment whose state is one world of a compiled core.

    A subclass says how an episode starts (`_read_options`, `_start_episode`), what is told at its
    end (`_episode_info`), and how it is drawn.

    Args:
        world: The world of one server, with ``reset``, ``step_one``, ``view``, ``buffers``,
            ``state``, ``arrays`` and ``layout``.
        render_mode: One of ``metadata["render_modes"]`` or ``None``.
        raises: Whether an illegal action is an error.

    Attributes:
        elapsed_name: Under which the time that a step took stands in ``info``.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  (the base class declares it so)
        "render_modes": ["ansi", "rgb_array", "human"],
        "render_fps": 10,
    }
    elapsed_name: ClassVar[str]

    def __init__(self, world: Any, render_mode: str | None, *, raises: bool) -> None:
        self._check_render_mode(render_mode)
        self.render_mode = render_mode
        self._world = world
        self.layout: Any = world.layout
        low, high = self.layout.bounds()
        self.observation_space = spaces.Box(low, high, dtype=np.float32)
        self.action_space = spaces.Discrete(self.layout.num_actions)
        self._outlet = ScalarOutlet(*world.buffers())
        self._raises = raises
        self._is_reset = False

    @classmethod
    def _check_render_mode(cls, render_mode: str | None) -> None:
        modes = cls.metadata["render_modes"]
        if render_mode is not None and render_mode not in modes:
            raise ConfigError(
                f"render_mode {render_mode!r} is unknown: {', '.join(modes)}, or None"
            )

    def _read_options(self, options: dict[str, Any] | None) -> Any:
        """Check the options of a reset."""
        raise NotImplementedError

    def _start_episode(self, given: Any) -> None:
        """Start the next episode with checked options."""
        raise NotImplementedError

    def _episode_info(self) -> dict[str, Any]:
        """Return the metrics of an episode that has just ended."""
        raise NotImplementedError

    def _draw_text(self) -> str:
        """Return one screen."""
        raise NotImplementedError

    def _draw_image(self) -> NDArray[np.uint8]:
        """Return a picture, uint8 (height, width, 3)."""
        raise NotImplementedError

    def _action_name(self, action: int) -> str:
        """Return an action in words."""
        return action_name(action, self.layout.num_actions)

    @property
    def world(self) -> Any:
        """The compiled world of one server; its arrays are the environment's whole state."""
        return self._world

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the legal actions, bool (num_actions,)."""
        return self._outlet.mask.astype(np.bool_)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Start anew from the first episode of this seed; ``None`` goes on to the next.
            options: What the environment lets one choose; see its class.

        Returns:
            The observation, float32 (size,), and info with the ``action_mask``.

        Raises:
            ConfigError: The seed or an option is wrong.
        """
        given = self._read_options(options)
        if seed is not None:
            check_seed(seed)
            seed = int(seed)
        super().reset(seed=seed)
        state = self._world.state
        if seed is None and not self._is_reset:
            seed = int(self.np_random.integers(2**31))
        if seed is None:
            state["episode"] += 1
        else:
            state["env_seed"] = seed
            state["episode"] = 0
        self._start_episode(given)
        self._is_reset = True
        fresh = self._outlet.fresh()
        self._outlet.copy_to(fresh)
        _, _, observation, mask = fresh
        info = {self.elapsed_name: 0.0, "discount": 1.0, "invalid_action": False}
        return observation, {"action_mask": mask, **info}

    def step(
        self, action: np.int64 | int
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Take one decision; time passes until the next one is needed.

        Raises:
            ConfigError: The action is no whole number, or illegal and the environment
                is set to raise.
            EarlyCallError: There was no reset yet.
        """
        if not self._is_reset:
            raise early_call("step")
        number, outlet = check_action(action), self._outlet
        if self._raises:
            everywhere = np.ones(1, np.bool_)
            refuse_illegal(np.array([number]), outlet.masks, everywhere, self._action_name)
        fresh = outlet.fresh()
        self._world.step_one(number, outlet, fresh)
        _, _, observation, mask = fresh
        reward, elapsed, discount, terminated, truncated, invalid = outlet.result.tolist()
        info: dict[str, Any] = {
            "action_mask": mask,
            self.elapsed_name: elapsed,
            "discount": discount,
            "invalid_action": invalid > 0,
        }
        if terminated or truncated:
            info.update(self._episode_info())
        if self.render_mode == "human":
            print(self._draw_text())
        return observation, reward, terminated > 0, truncated > 0, info

    def render(self) -> Any:
        """Return a text screen (``ansi``), a picture uint8 (h, w, 3) (``rgb_array``), or print.

        Raises:
            EarlyCallError: There was no reset yet.
        """
        if not self._is_reset:
            raise early_call("render")
        if self.render_mode == "ansi":
            return self._draw_text()
        if self.render_mode == "rgb_array":
            return self._draw_image()
        if self.render_mode == "human":
            print(self._draw_text())
        return None

    def _show(self) -> None:
        self._world.view(self._outlet.observations, self._outlet.masks)

    def _own_arrays(self) -> dict[str, NDArray[Any]]:
        return {"masks": self._outlet.masks}
