"""A small vector environment with the shapes of the real one, whose best action is known.

Each state shows waiting slots with a random worth in feature 1; admitting a slot pays its worth,
everything else pays nothing. Slots are present, and actions legal, at random. Episodes end after
``episode_length`` decisions: environments with an even index are truncated, odd ones terminate.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium import spaces

from sched_env.agents.networks import ObservationShape

SHAPE = ObservationShape(
    num_waiting_slots=3,
    num_running_slots=2,
    num_slot_features=4,
    num_globals=3,
    num_privileged=2,
    num_levels=4,
)


class FakeVectorEnv:
    """See the module."""

    def __init__(
        self,
        num_envs: int = 4,
        shape: ObservationShape = SHAPE,
        episode_length: int = 7,
        tau_s: float = 8.0,
    ) -> None:
        self.num_envs = num_envs
        self.shape = shape
        self.episode_length = episode_length
        self.tau_s = tau_s
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (shape.num_observed,))
        self.single_action_space = spaces.Discrete(shape.num_actions)
        self.render_mode = None
        self.layout = SimpleNamespace(shape=shape)
        self.rng = np.random.default_rng(0)
        self.ages = np.zeros(num_envs, dtype=np.int64)
        self.observations = np.zeros((num_envs, shape.num_observed), dtype=np.float32)
        self.masks = np.ones((num_envs, shape.num_actions), dtype=np.int8)
        self.is_closed = False

    @property
    def unwrapped(self) -> FakeVectorEnv:
        return self

    def reset(self, *, seed: int | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.ages[:] = 0
        self._draw()
        return self.observations.copy(), {"action_mask": self.masks.copy()}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        rows = np.arange(self.num_envs)
        legal = self.masks[rows, actions] == 1
        first = self.shape.num_levels
        slot = np.clip(actions - first, 0, self.shape.num_waiting_slots - 1)
        worth = self.observations[rows, slot * self.shape.num_slot_features + 1]
        admits = (actions >= first) & (actions < first + self.shape.num_waiting_slots)
        rewards = np.where(legal & admits, worth, 0.0).astype(np.float64)
        self.ages += 1
        ended = self.ages >= self.episode_length
        elapsed_s = self.rng.uniform(0.0, 2.0, self.num_envs)
        self._draw()
        infos: dict[str, Any] = {
            "elapsed_s": elapsed_s,
            "discount": np.exp(-elapsed_s / self.tau_s),
            "invalid_action": ~legal,
        }
        if ended.any():
            infos["final_obs"] = self.observations.copy()
            infos["final_info"] = {
                "goodput_weighted": np.full(self.num_envs, 0.75),
                "is_success": np.ones(self.num_envs, dtype=bool),
                "_is_success": ended,
            }
            self.ages[ended] = 0
            self._draw(ended)
        infos["action_mask"] = self.masks.copy()
        truncated = ended & (rows % 2 == 0)
        return self.observations.copy(), rewards, ended & ~truncated, truncated, infos

    def _draw(self, rows: np.ndarray | None = None) -> None:
        """Draw new states (everywhere, or where ``rows`` is True)."""
        shape = self.shape
        chosen = np.ones(self.num_envs, dtype=bool) if rows is None else rows
        count = int(chosen.sum())
        observations = self.rng.uniform(-0.9, 0.9, (count, shape.num_observed))
        present = self.rng.random((count, shape.num_slots)) < 0.8
        slots = observations[:, : shape.num_slot_columns].reshape(count, shape.num_slots, -1)
        slots *= present[:, :, None]
        slots[:, :, 0] = present
        legal = present & (self.rng.random(present.shape) < 0.7)
        levels = np.ones((count, shape.num_levels), dtype=bool)
        self.observations[chosen] = observations
        self.masks[chosen] = np.hstack([levels, legal])

    def get_state(self) -> dict[str, np.ndarray]:
        rng = json.dumps(self.rng.bit_generator.state).encode()
        return {
            "rng": np.frombuffer(rng, dtype=np.uint8).copy(),
            "ages": self.ages.copy(),
            "observations": self.observations.copy(),
            "masks": self.masks.copy(),
        }

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        self.rng.bit_generator.state = json.loads(state["rng"].tobytes().decode())
        self.ages = np.array(state["ages"])
        self.observations = np.array(state["observations"])
        self.masks = np.array(state["masks"])

    def close(self) -> None:
        self.is_closed = True
