"""Two equal worlds under the same decisions, one stepped by numba's code, the other by C's."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from c_core import library
from sched_env.engine import kernels
from sched_env.engine.outlet import TERMINATED, TRUNCATED
from sched_env.engine.world import World

_CHANGING = ("requests", "seats", "front", "order", "heaps", "scratch")
_BUFFERS = ("observations", "masks", "results")
_ADDRESS = "_at"  # how fields end that say where a world's own arrays lie


class DifferenceError(AssertionError):
    """The two worlds differ; the message names the first field that does."""


def first_difference(one: World, other: World) -> str | None:
    """Return the first field that differs in what an episode changes, with both values."""
    found = difference_of(one.state, other.state, "state")
    for name in _CHANGING:
        found = found or difference_of(getattr(one.arrays, name), getattr(other.arrays, name), name)
    return found


def difference_of(left: NDArray[Any], right: NDArray[Any], name: str) -> str | None:
    """Return where two arrays of one type differ in any bit, but for addresses; ``None``: nowhere.

    Args:
        left: What numba made.
        right: What C made.
        name: What to call them.
    """
    if not left.dtype.names:
        return _number_that_differs(left, right, name)
    if not _differ(left, right):
        return None
    for field in left.dtype.names:
        if not field.endswith(_ADDRESS):
            found = difference_of(left[field], right[field], f"{name}.{field}")
            if found:
                return found
    return None


def _differ(left: NDArray[Any], right: NDArray[Any]) -> bool:
    """Tell whether records differ in any byte that counts."""
    unequal = _bytes(left) != _bytes(right)
    return bool((unequal & _is_compared(left.dtype)).any() if unequal.any() else False)


@functools.cache
def _is_compared(record: np.dtype[Any]) -> NDArray[np.bool_]:
    """Return which bytes of a record lie in a field that is no address, bool (itemsize,)."""
    compared = np.zeros(record.itemsize, np.bool_)
    for field, (dtype, offset, *_) in (record.fields or {}).items():
        if not field.endswith(_ADDRESS):
            compared[offset : offset + dtype.itemsize] = True
    return compared


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of each number or record along a last axis."""
    whole = np.ascontiguousarray(array)
    return whole.view(np.uint8).reshape(*whole.shape, whole.dtype.itemsize)


def _number_that_differs(left: NDArray[Any], right: NDArray[Any], name: str) -> str | None:
    if left.tobytes() == right.tobytes():
        return None
    place = tuple(np.argwhere((_bytes(left) != _bytes(right)).any(axis=-1))[0])
    return f"{name}{[int(i) for i in place]}: numba {left[place]!r}, C {right[place]!r}"


class Lockstep:
    """Steps a world and its copy by turns, and compares them to the last bit.

    Args:
        world: What :func:`library.check_world` lets pass; its episodes begin anew.
        twin: An equal one with arrays of its own.
        seed: Of the actions.

    Attributes:
        num_ended: Episodes that have ended.
    """

    def __init__(self, world: World, twin: World, seed: int = 0) -> None:
        for one in (world, twin):
            library.check_world(one)
        self._worlds = world, twin
        self._buffers = world.buffers(), twin.buffers()
        self._rng = np.random.default_rng(seed)
        self.num_ended = 0
        self._restart(np.ones(world.num_servers, np.bool_))
        self._compare("after the first reset")

    def run(self, num_steps: int, *, compare_all_every: int = 16) -> None:
        """Take ``num_steps`` decisions in each server, one in a hundred of them illegal.

        Observations, masks, results and the servers' records are compared each time, all arrays
        every so many steps and where an episode ends.

        Raises:
            DifferenceError: Something differs.
        """
        (world, twin), (ours, theirs) = self._worlds, self._buffers
        for number in range(num_steps):
            actions = self._actions(ours[1])
            num_flags = kernels.step_batch(world.address, 0, world.num_servers, actions, *ours)
            if num_flags != library.step(twin, actions, *theirs):
                raise DifferenceError(f"step {number}: the number of flags")
            self._compare_buffers(f"step {number}")
            ended = (ours[2][TERMINATED] > 0) | (ours[2][TRUNCATED] > 0)
            if ended.any() or number % compare_all_every == 0:
                self._compare(f"step {number}")
            if ended.any():
                self.num_ended += int(ended.sum())
                self._restart(ended)
        self._compare("at the end")

    def _actions(self, masks: NDArray[np.int8]) -> NDArray[np.int64]:
        """Return a random legal action for each server; one in a hundred is any number."""
        draws = self._rng.random(masks.shape) * masks
        actions = np.argmax(draws, axis=1)
        wild = self._rng.random(len(masks)) < 0.01
        actions[wild] = self._rng.integers(-2, masks.shape[1] + 2, int(wild.sum()))
        return actions

    def _restart(self, chosen: NDArray[np.bool_]) -> None:
        for world, (observations, masks, _) in zip(self._worlds, self._buffers, strict=True):
            world.state["episode"][chosen] += 1
            world.reset(observations, masks, chosen=chosen)

    def _compare_buffers(self, when: str) -> None:
        for name, left, right in zip(_BUFFERS, *self._buffers, strict=True):
            found = difference_of(left, right, name)
            if found:
                raise DifferenceError(f"{when}: {found}")
        found = difference_of(self._worlds[0].state, self._worlds[1].state, "state")
        if found:
            raise DifferenceError(f"{when}: {found}")

    def _compare(self, when: str) -> None:
        found = first_difference(*self._worlds)
        if found:
            raise DifferenceError(f"{when}: {found}")
