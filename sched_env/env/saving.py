"""Environments that can be saved: their whole state is the arrays of one compiled world."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sched_env.env.actions import early_call
from sched_env.env.state import check_identity, identity_of, restore_state, saved_state


class Saved:
    """Saves and restores an environment over ``_world``.

    A subclass says what it keeps besides (`_own_arrays`), and writes down what is seen (`_show`).

    Attributes:
        config: The configuration.
        state_arrays: Names of the world's arrays that an episode changes.
    """

    config: Any
    state_arrays: ClassVar[tuple[str, ...]]
    _world: Any
    _is_reset: bool

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return copies of the arrays from which :meth:`set_state` goes on exactly.

        Raises:
            EarlyCallError: There was no reset yet.
        """
        if not self._is_reset:
            raise early_call("get_state")
        return saved_state(self._memory(self._world), self._own_arrays(), self._identity)

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from what :meth:`get_state` of an equal environment returned.

        Raises:
            ConfigError: The state is that of another configuration, trace or version.
        """
        check_identity(state, self._identity)
        world = self._fitting_world(state)
        restore_state({**self._memory(world), **self._own_arrays()}, state)
        self._world = world
        self._show()
        self._is_reset = True

    def _own_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what is saved beside the world's arrays, by name."""
        raise NotImplementedError

    def _show(self) -> None:
        """Write the observations and masks as things stand."""
        raise NotImplementedError

    @cached_property
    def _identity(self) -> NDArray[np.uint8]:
        """What a saved state must have been taken from."""
        return identity_of(self.config, self._world.arrays._asdict(), self.state_arrays)

    def _fitting_world(self, state: Mapping[str, NDArray[Any]]) -> Any:
        """Return a world that a state fits into, whose configuration is this environment's."""
        return self._world

    def _memory(self, world: Any) -> dict[str, NDArray[Any]]:
        arrays = world.arrays._asdict()
        return {name: arrays[name] for name in self.state_arrays}
