"""The order of request ids, which breaks the last ties of the priority policy as in vLLM.

The compiled core compares whole numbers. Whole-number ids stand for themselves; texts get numbers
that keep their order, found as the texts come.
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable

import numpy as np

from sched_env.engine.world import World

_GAP = 2**40
_LARGEST = 2**62


class IdOrder:
    """Numbers that order ids as Python does: whole numbers by value, texts by their letters.

    Ids of another kind, and numbers that are too large, keep the order in which they were added.
    """

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._numbers: list[int] = []
        self._rows: dict[str, int] = {}
        self._is_crowded = False

    def place(self, world: World, request_id: Hashable, row: int) -> None:
        """Give the request in ``row`` of a world's table its number.

        Where no number is left between two texts, all of them get new ones, in the world too.
        """
        ties = world.requests[0]["tie"]
        if isinstance(request_id, int | np.integer) and abs(int(request_id)) < _LARGEST:
            ties[row] = int(request_id)
        elif isinstance(request_id, str):
            ties[row] = self._number(request_id)
            self._rows[request_id] = row
            if self._is_crowded:
                self._spread(world)
        else:
            ties[row] = row

    def _number(self, text: str) -> int:
        place = bisect.bisect(self._texts, text)
        below = self._numbers[place - 1] if place > 0 else None
        above = self._numbers[place] if place < len(self._numbers) else None
        number = _between(below, above)
        self._is_crowded = number == below or abs(number) > _LARGEST
        self._texts.insert(place, text)
        self._numbers.insert(place, number)
        return number

    def _spread(self, world: World) -> None:
        """Number all texts anew with even gaps; whatever was in order stays in order."""
        half = len(self._texts) // 2
        self._numbers = [(place - half) * _GAP for place in range(len(self._texts))]
        ties = world.requests[0]["tie"]
        ties[[self._rows[text] for text in self._texts]] = self._numbers
        front = world.arrays.front[0]
        front["tie"] = ties[front["row"]]
        backlog = world.arrays.heaps[0, : int(world.state[0]["num_backlog"])]
        backlog["tie"] = ties[backlog["row"]]


def _between(below: int | None, above: int | None) -> int:
    """Return a number between two others; next to one of them if the other is missing."""
    if below is None:
        return 0 if above is None else above - _GAP
    return below + _GAP if above is None else (below + above) // 2
