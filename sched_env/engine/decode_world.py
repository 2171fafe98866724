"""The memory of N teaching machines, and the compiled core's entries as methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.engine import decode_view as kernels
from sched_env.engine.allocation import as_records, records_of
from sched_env.engine.decode_layout import DecodeLayout
from sched_env.engine.decode_machine import DECODE_REQUEST, POLICY_NAMES
from sched_env.engine.decode_records import EPISODE, DecodeArrays
from sched_env.engine.outlet import NUM_RESULTS, Fresh, Outlet, ScalarOutlet
from sched_env.errors import ConfigError, UnknownNameError

_MOST_BYTES = 2**34


class DecodeWorld:
    """N teaching machines.

    Args:
        num_envs: N.
        settings: EPISODE fields that are the same for all.
        instance: DECODE_REQUEST (num_requests,) in order of arrival, played in each episode; empty:
            each episode draws its own.

    Raises:
        ConfigError: They need too much memory.
    """

    def __init__(
        self, num_envs: int, settings: Mapping[str, float], instance: NDArray[Any]
    ) -> None:
        most = instance.size or int(settings["num_requests_high"])
        num_slots = int(settings["num_slots"])
        self.layout = DecodeLayout(num_slots)
        num_bytes = num_envs * (
            most * DECODE_REQUEST.itemsize + EPISODE.itemsize + 4 * self.layout.size
        )
        if num_bytes > _MOST_BYTES:
            raise ConfigError(
                f"{num_envs} machines of {most} requests and {num_slots} slots need "
                f"{num_bytes / 2**30:,.0f} GiB of memory: give fewer environments, requests or "
                "slots"
            )
        state = records_of(num_envs, EPISODE)
        for name, value in settings.items():
            state[name] = value
        self.arrays = DecodeArrays(
            state=state,
            requests=records_of((num_envs, most), DECODE_REQUEST),
            slots=np.zeros((num_envs, num_slots), np.int64),
            instance=as_records(instance),
        )

    @property
    def state(self) -> NDArray[Any]:
        """Return the EPISODE records (N,)."""
        return self.arrays.state

    def requests(self, index: int) -> NDArray[Any]:
        """Return the requests of machine ``index``, DECODE_REQUEST (num_requests,)."""
        return self.arrays.requests[index, : int(self.state[index]["num_requests"])]

    def buffers(self) -> tuple[NDArray[np.float32], NDArray[np.int8], NDArray[np.float64]]:
        """Return fresh observations (N, size), masks (N, 2 S) and step results (6, N)."""
        count = len(self.state)
        return (
            np.zeros((count, self.layout.size), np.float32),
            np.zeros((count, self.layout.num_actions), np.int8),
            np.zeros((NUM_RESULTS, count), np.float64),
        )

    def reset(
        self,
        observations: NDArray[np.float32],
        masks: NDArray[np.int8],
        *,
        chosen: NDArray[np.bool_] | None = None,
    ) -> None:
        """Start the next episode of the chosen machines (all by default)."""
        if chosen is None:
            chosen = np.ones(len(self.state), np.bool_)
        kernels.reset_batch(*self.arrays, chosen, observations, masks)

    def step(self, actions: NDArray[np.int64], outlet: Outlet) -> int:
        """Take one decision in each machine, into an outlet; return how many flags it set."""
        state, requests, slots, _ = self.arrays
        filled = outlet.observations, outlet.masks, outlet.results
        return kernels.step_batch(state, requests, slots, actions, *filled)

    def step_one(self, action: int, outlet: ScalarOutlet, fresh: Fresh) -> None:
        """Take one decision in the only machine, into an outlet and fresh arrays of it."""
        self.step(np.array([action]), outlet)
        outlet.copy_to(fresh)

    def view(self, observations: NDArray[np.float32], masks: NDArray[np.int8]) -> None:
        """Write observations and masks as things stand."""
        state, requests, slots, _ = self.arrays
        kernels.view_batch(state, requests, slots, observations, masks)

    def policy_actions(self, policy: str) -> NDArray[np.int64]:
        """Return what a policy of the machine does next, int64 (N,).

        Raises:
            UnknownNameError: There is no such policy.
        """
        if policy not in POLICY_NAMES:
            raise UnknownNameError("policy", str(policy), POLICY_NAMES)
        state, requests, slots, _ = self.arrays
        actions = np.zeros(len(state), np.int64)
        kernels.policy_batch(state, requests, slots, POLICY_NAMES.index(policy), actions)
        return actions
