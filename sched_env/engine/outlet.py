"""Where servers leave what a step tells.

As a world crosses the border into compiled code as one number, so do the arrays that a step fills:
four of them, each taken apart anew, would take as long as the step of an idle server. The copies
that a scalar environment hands out are made there too. New arrays for them would take a quarter of
a step, so those that were handed out two steps ago are filled again, if nobody holds them any more.
"""

from __future__ import annotations

import ctypes
from sys import getrefcount
from typing import Any

import numpy as np
from numpy.typing import NDArray

REWARD, ELAPSED, DISCOUNT, TERMINATED, TRUNCATED, INVALID = range(6)
"""Rows of the results of a step; from TERMINATED on they are flags."""

NUM_RESULTS = 6

_HELD_BY_US = 2  # references to an array that only a `Fresh` holds, and the call that counts them

# Where the arrays of an outlet lie, for compiled code.
OUTLET = np.dtype(
    [
        ("observation_at", "i8"),  # of the first server, as the two below
        ("mask_at", "i8"),
        ("results_at", "i8"),
        ("num_observed", "i8"),
        ("num_actions", "i8"),
    ]
)

Fresh = tuple[int, int, NDArray[np.float32], NDArray[np.int8]]
"""An observation and a mask to hand out, whose contents are yet to come: where both lie, and the
arrays themselves. They own their memory, so that whoever looks at it holds them."""


class Outlet:
    """The arrays that the steps of N servers fill, always the same ones.

    Args:
        observations: float32 (N, size), C-contiguous; the next observations are made of them.
        masks: int8 (N, num_actions), C-contiguous.
        results: float64 (6, N), C-contiguous.

    Attributes:
        address: Where compiled code finds them: the address of an OUTLET record.
    """

    def __init__(
        self,
        observations: NDArray[np.float32],
        masks: NDArray[np.int8],
        results: NDArray[np.float64],
    ) -> None:
        self.observations, self.masks, self.results = observations, masks, results
        self._aim()

    def _aim(self) -> None:
        self._record = np.zeros(1, OUTLET)
        self._record["observation_at"] = self.observations.ctypes.data
        self._record["mask_at"] = self.masks.ctypes.data
        self._record["results_at"] = self.results.ctypes.data
        self._record["num_observed"] = self.observations.shape[1]
        self._record["num_actions"] = self.masks.shape[1]
        self.address = int(self._record.ctypes.data)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or a pickle needs: views and addresses are left out."""
        return {name: getattr(self, name) for name in ("observations", "masks", "results")}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        """Restore a copy or a pickle, whose arrays lie elsewhere."""
        self.__dict__.update(saved)
        self._aim()


class ScalarOutlet(Outlet):
    """The arrays that the steps of one server fill, and fresh ones.

    Attributes:
        observation: float32 (size,), a view.
        mask: int8 (num_actions,), a view.
        result: float64 (6,), a memoryview, which makes a list soonest.
    """

    def _aim(self) -> None:
        super()._aim()
        self.observation, self.mask = self.observations[0], self.masks[0]
        self.result = self.results[:, 0].data
        self._last, self._before_last = self._new(), self._new()

    def fresh(self) -> Fresh:
        """Return arrays that nobody else holds, for a copy of the observation and of the mask."""
        fresh = self._before_last
        if getrefcount(fresh[2]) > _HELD_BY_US or getrefcount(fresh[3]) > _HELD_BY_US:
            fresh = self._new()
        self._before_last, self._last = self._last, fresh
        return fresh

    def _new(self) -> Fresh:
        observation, mask = np.empty_like(self.observation), np.empty_like(self.mask)
        return _address_of(observation), _address_of(mask), observation, mask

    def copy_to(self, fresh: Fresh) -> None:
        """Copy observation and mask as they stand."""
        *_, observation, mask = fresh
        observation[:], mask[:] = self.observation, self.mask


def _address_of(array: Any) -> int:
    """Return where an array begins; ``array.ctypes`` takes three times as long."""
    return ctypes.addressof(ctypes.c_char.from_buffer(array))
