"""Binary heaps of ENTRY records, the smallest (key, second_key, tie) on top."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from sched_env.compiled import compiled_part


@compiled_part
def precedes(left: Any, right: Any) -> bool:
    """Tell whether ``left`` comes before ``right``; both are ENTRY or WAITER records."""
    return goes_before(left.key, left.second_key, left.tie, right)


@compiled_part
def goes_before(key: float, second_key: float, tie: int, other: Any) -> bool:
    """Tell whether what has this key comes before ``other``, an ENTRY or a WAITER record."""
    if key != other.key:
        return key < other.key
    if second_key != other.second_key:
        return second_key < other.second_key
    return tie < other.tie


@compiled_part
def push(heap: NDArray[Any], size: int, key: float, second_key: float, tie: int, row: int) -> None:
    """Add an entry to a heap of ``size`` entries; the caller counts it."""
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        if not goes_before(key, second_key, tie, heap[parent]):
            break
        heap[child] = heap[parent]
        child = parent
    heap[child].key = key
    heap[child].second_key = second_key
    heap[child].tie = tie
    heap[child].row = row


@compiled_part
def drop_top(heap: NDArray[Any], size: int) -> None:
    """Remove the smallest entry of a heap of ``size`` entries; the caller counts it."""
    last = size - 1
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= last:
            break
        if child + 1 < last:
            child += precedes(heap[child + 1], heap[child])
        if not precedes(heap[child], heap[last]):
            break
        heap[parent] = heap[child]
        parent = child
    heap[parent] = heap[last]
