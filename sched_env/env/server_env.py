"""What the environment of one server and that of many have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.config import EnvConfig
from sched_env.env.build import shortest_span_s, with_warmup
from sched_env.env.saving import Saved
from sched_env.env.state import ResetOptions, read_options, set_warmup
from sched_env.errors import ConfigError

_STATE_ARRAYS = (
    "state",
    "requests",
    "seats",
    "front",
    "order",
    "heaps",
    "scratch",
    "blocks",
    "tables",
)
"""The arrays of a world that an episode changes; the others are the same for ever."""

_LONGEST_WARMUP = "longest_warmup_s"


class ServerEnv(Saved):
    """Options of a reset, warm-up and saving of one server or of many.

    The arrays of ``_world`` are as long as the longest warm-up so far wants them.
    """

    config: EnvConfig
    state_arrays = _STATE_ARRAYS
    _longest_warmup_s: float

    def _read_options(self, options: dict[str, Any] | None) -> ResetOptions:
        return read_options(options, shortest_span_s(self._world))

    def _set_warmup(self, given_s: float | None) -> None:
        """Set the warm-up of the next episodes, the configured one unless another is given."""
        episode = self.config.episode
        warmup_s = episode.warmup_s if given_s is None else float(given_s)
        if warmup_s > self._longest_warmup_s:
            self._world = with_warmup(self._world, self.config, warmup_s)
            self._longest_warmup_s = warmup_s
        everywhere = np.ones(self._world.num_servers, np.bool_)
        set_warmup(self._world.state, episode.horizon_s, warmup_s, everywhere)

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return copies of the arrays from which :meth:`set_state` goes on exactly.

        Raises:
            EarlyCallError: There was no reset yet.
            ConfigError: The cost is live.
        """
        self._refuse_live()
        return super().get_state()

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from what :meth:`get_state` of an equal environment returned.

        Raises:
            ConfigError: The state is that of another configuration, trace or version, or the cost
                is live.
        """
        self._refuse_live()
        super().set_state(state)
        self._longest_warmup_s = float(state[_LONGEST_WARMUP][0])

    def _own_arrays(self) -> dict[str, NDArray[Any]]:
        return {**super()._own_arrays(), _LONGEST_WARMUP: np.array([self._longest_warmup_s])}

    def _fitting_world(self, state: Mapping[str, NDArray[Any]]) -> Any:
        """Return this world, or one for the warm-up of another length that a state came from."""
        longest_s = state.get(_LONGEST_WARMUP)
        if longest_s is None or longest_s.tolist() == [self._longest_warmup_s]:
            return self._world
        return with_warmup(self._world, self.config, float(longest_s[0]))

    def _refuse_live(self) -> None:
        if self._world.executor is not None:
            raise ConfigError("a live server cannot be saved: its KV cache lies on the device")
