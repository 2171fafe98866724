"""One server under a policy that decides, in one compiled loop.

Observation, forward pass and step follow each other without a return to Python, which makes a run
several times faster than the same policy asked through `ExportedPolicy.act`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sched_env.compiled import compiled
from sched_env.engine import kernels
from sched_env.engine.memory import memory_at, server_of
from sched_env.engine.outlet import INVALID, NUM_RESULTS, TERMINATED, TRUNCATED, Outlet
from sched_env.engine.world import World
from sched_env.policy.decisions import Network, decide
from sched_env.policy.runtime import ExportedPolicy


class Decider(Protocol):
    """Whatever answers an observation and a mask with an action."""

    def act(self, observations: NDArray[Any], masks: NDArray[Any]) -> NDArray[np.int64]:
        """Choose one action for each row."""
        ...


class AskingRun:
    """A world of one server, stepped by a decider that is asked in Python.

    Args:
        world: Its one server is about to receive all requests of a table.
        decider: Fits the world's layout.

    Attributes:
        num_decisions: Decisions so far.
        num_invalid_actions: How many of them were illegal.
    """

    def __init__(self, world: World, decider: Decider) -> None:
        self.world = world
        self.num_decisions = 0
        self.num_invalid_actions = 0
        self._decider = decider
        self._outlet = Outlet(*world.buffers())

    @property
    def is_over(self) -> bool:
        """Tell whether the run has ended."""
        state = self.world.state[0]
        return bool(state["terminated"] or state["truncated"])

    @property
    def observations(self) -> NDArray[Any]:
        """Return what is observed now, float32 (1, size): a view that the next step overwrites."""
        return self._outlet.observations

    @property
    def masks(self) -> NDArray[Any]:
        """Return what is legal now, (1, num_actions): a view that the next step overwrites."""
        return self._outlet.masks

    def begin(self) -> None:
        """Empty the server and bring it to its first decision."""
        self.num_decisions = self.num_invalid_actions = 0
        kernels.reset_one(self.world.address)
        self.world.begin_decisions(self.observations, self.masks)

    def advance(self, max_decisions: int) -> bool:
        """Take at most ``max_decisions`` decisions; tell whether the run has ended."""
        for _ in range(max_decisions):
            if self.is_over:
                break
            # Copies: a decider may write into what it is shown, and the next step builds on it.
            self.take(self._decider.act(self.observations.copy(), self.masks.copy()))
        return self.is_over

    def take(self, actions: NDArray[np.int64]) -> None:
        """Take one decision, int64 (1,), and come to the next one."""
        self.world.step(actions, self._outlet)
        self.num_decisions += 1
        self.num_invalid_actions += int(self._outlet.results[INVALID, 0])


def run_together(worlds: Sequence[World], decider: Decider) -> None:
    """Run worlds of one server to their ends, the decider asked for all of them at once.

    The servers know nothing of each other: each run is the one that it has alone.

    Args:
        worlds: Of one layout, each about to receive all requests of a table; there may be none.
        decider: Fits their layout.
    """
    if not worlds:
        return
    buffers = [world.buffers() for world in worlds]
    observations = np.concatenate([shown for shown, _, _ in buffers])
    masks = np.concatenate([legal for _, legal, _ in buffers])
    addresses = np.array([one.address for one in worlds], np.int64)
    ended = np.zeros(len(worlds), np.int8)
    for row, world in enumerate(worlds):
        kernels.reset_one(world.address)
        world.begin_decisions(observations[row : row + 1], masks[row : row + 1])
        ended[row] = world.state[0]["terminated"] or world.state[0]["truncated"]
    while len(going := np.flatnonzero(ended == 0)):
        actions = decider.act(observations[going], masks[going])
        _step_each(addresses, going, actions, observations, masks, ended)


@compiled
def _step_each(
    addresses: Any,
    going: NDArray[np.int64],
    actions: NDArray[np.int64],
    observations: NDArray[np.float32],
    masks: NDArray[np.int8],
    ended: NDArray[np.int8],
) -> None:
    """Take one decision in each world of rows ``going``; note which have ended.

    ``addresses`` is int64 (N,), of the MEMORY record of each world.
    """
    results = np.empty((NUM_RESULTS, 1))
    for place in range(len(going)):
        row = going[place]
        shown, legal = observations[row : row + 1], masks[row : row + 1]
        chosen = actions[place : place + 1]
        kernels.step_batch(addresses[row], 0, 1, chosen, shown, legal, results)
        ended[row] = results[TERMINATED, 0] + results[TRUNCATED, 0]


class DecidingRun(AskingRun):
    """The same under an exported policy, in compiled code."""

    def __init__(self, world: World, policy: ExportedPolicy) -> None:
        super().__init__(world, policy)
        self._logits = np.empty((1, policy.num_actions), np.float32)
        self._actions = np.empty(1, np.int64)
        self.use(policy)

    def use(self, policy: ExportedPolicy) -> None:
        """Let another policy of the same layout decide from now on."""
        self._network = policy.network

    def advance(self, max_decisions: int) -> bool:
        """Take at most ``max_decisions`` decisions; tell whether the run has ended."""
        made, invalid = _decide(
            self.world.address,
            self._network,
            self.observations,
            self.masks,
            self._outlet.results,
            self._logits,
            self._actions,
            max_decisions,
        )
        self.num_decisions += made
        self.num_invalid_actions += invalid
        return self.is_over


@compiled
def _decide(
    address: int,
    network: Network,
    observations: NDArray[Any],
    masks: NDArray[Any],
    results: NDArray[Any],
    logits: NDArray[Any],
    actions: NDArray[Any],
    max_decisions: int,
) -> tuple[int, int]:
    """Decide and step until the run or the given number ends; return decisions and illegal ones."""
    state = server_of(memory_at(address), 0)
    made, invalid = 0, 0
    while made < max_decisions and not (state.terminated or state.truncated):
        decide(network, observations, masks, logits, actions)
        kernels.step_batch(address, 0, 1, actions, observations, masks, results)
        made += 1
        invalid += int(results[INVALID, 0])
    return made, invalid
