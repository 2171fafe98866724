"""The pool of KV blocks: taking them, giving them back, and sharing equal ones.

Without prefix caching a block is only a count. With it (``enable_prefix_caching``) each block is a
record, as in vLLM's block pool (vllm/v1/core/block_pool.py):

- a full block is known by a hash of its tokens and of all blocks before it;
- a request that is admitted takes the leading blocks of its sequence that are known, all but those
  that hold its last token, whether others use them or they lie free;
- free blocks wait in a list, the next to be used first. A request gives its blocks back tail
  first: known ones to the end of the list, so that the least recently used one goes first, blocks
  without a hash to its head;
- a block forgets its hash when it is used anew.
"""

from __future__ import annotations

from typing import Any

from sched_env.compiled import compiled_part
from sched_env.engine.memory import (
    blocks_of,
    buckets_of,
    free_tables_of,
    hash_ids_of,
    requests_of,
    table_of,
    trace_of,
)
from sched_env.engine.sizes import num_tokens
from sched_env.workload.counter_rng import mix

NO_BLOCK = -1


@compiled_part
def empty_pool(state: Any) -> None:
    """Make all blocks free and unknown."""
    state.free_blocks = state.num_blocks
    if not state.enable_prefix_caching:
        return
    blocks = blocks_of(state)
    end = state.num_blocks  # of the list of free blocks: its head follows, its tail precedes it
    for i in range(end + 1):
        blocks[i].num_users = 0
        blocks[i].hash = 0
        blocks[i].previous = i - 1 if i > 0 else end
        blocks[i].next = i + 1 if i < end else 0
        blocks[i].next_in_bucket = NO_BLOCK
    buckets_of(state)[:] = NO_BLOCK
    state.num_free_tables = state.seat_capacity
    for i in range(state.seat_capacity):
        free_tables_of(state)[i] = i


@compiled_part
def take_blocks(state: Any, request: Any, count: int) -> None:
    """Hand ``count`` free blocks to a request; the caller knows that there are as many."""
    state.free_blocks -= count
    if state.enable_prefix_caching:
        note_blocks(state, request, count)
    request.num_blocks += count


@compiled_part
def note_blocks(state: Any, request: Any, count: int) -> None:
    """Write the next ``count`` free blocks into the table of a request."""
    blocks, table = blocks_of(state), _table_of(state, request)
    for i in range(request.num_blocks, request.num_blocks + count):
        block = blocks[state.num_blocks].next
        _unlink(blocks, block)
        _forget(state, block)
        blocks[block].num_users = 1
        table[i] = block


@compiled_part
def give_back_blocks(state: Any, request: Any) -> None:
    """Take all blocks from a request."""
    if state.enable_prefix_caching and request.num_blocks > 0:
        _release(state, request)
    else:
        state.free_blocks += request.num_blocks
    request.num_blocks = 0


@compiled_part
def _release(state: Any, request: Any) -> None:
    blocks, table, end = blocks_of(state), _table_of(state, request), state.num_blocks
    first = blocks[end].next
    for i in range(request.num_blocks - 1, -1, -1):
        block = table[i]
        blocks[block].num_users -= 1
        if blocks[block].num_users > 0:
            continue
        state.free_blocks += 1
        # Those without a hash keep their order before the old head of the list.
        _link_before(blocks, block, end if blocks[block].hash != 0 else first)
    _close_table(state, request)


@compiled_part
def _close_table(state: Any, request: Any) -> None:
    row = requests_of(state)[request.row]
    free_tables_of(state)[state.num_free_tables] = row.table
    state.num_free_tables += 1
    row.table = NO_BLOCK
    row.num_known_blocks = 0


@compiled_part
def _table_of(state: Any, request: Any) -> Any:
    """Return the table of a running request's blocks, which its row names."""
    return table_of(state, requests_of(state)[request.row].table)


@compiled_part
def open_table(state: Any, request: Any) -> None:
    """Give a request that is admitted a table for its blocks."""
    row = requests_of(state)[request.row]
    state.num_free_tables -= 1
    row.table = free_tables_of(state)[state.num_free_tables]
    row.num_known_blocks = 0


@compiled_part
def cached_blocks(state: Any, request: Any) -> int:
    """Return how many leading blocks of a waiting request are known, without its last token.

    A request whose computed tokens were kept (swapped out) takes none.
    """
    if not state.enable_prefix_caching or request.num_computed_tokens > 0:
        return 0
    count, parent = 0, 0
    for i in range((num_tokens(request) - 1) // state.block_size):
        parent = _hash_of(state, request, i, parent)
        if _find(state, parent) == NO_BLOCK:
            break
        count += 1
    return count


@compiled_part
def free_among_cached(state: Any, request: Any, count: int) -> int:
    """Return how many of the first ``count`` known blocks of a request lie free."""
    num_free, parent = 0, 0
    for i in range(count):
        parent = _hash_of(state, request, i, parent)
        num_free += blocks_of(state)[_find(state, parent)].num_users == 0
    return num_free


@compiled_part
def share_blocks(state: Any, request: Any, count: int) -> None:
    """Let a request use its first ``count`` known blocks."""
    blocks, table = blocks_of(state), _table_of(state, request)
    parent = 0
    for i in range(count):
        parent = _hash_of(state, request, i, parent)
        block = _find(state, parent)
        if blocks[block].num_users == 0:
            _unlink(blocks, block)
            state.free_blocks -= 1
        blocks[block].num_users += 1
        table[i] = block
    request.num_blocks = count
    requests_of(state)[request.row].num_known_blocks = count
    request.num_computed_tokens = count * state.block_size


@compiled_part
def know_blocks(state: Any, request: Any, tokens: int) -> None:
    """Make the full blocks among the first ``tokens`` of a request known by their hashes."""
    blocks, table = blocks_of(state), _table_of(state, request)
    row = requests_of(state)[request.row]
    first = row.num_known_blocks
    parent = blocks[table[first - 1]].hash if first > 0 else 0
    for i in range(first, tokens // state.block_size):
        parent = _hash_of(state, request, i, parent)
        _remember(state, table[i], parent)
        row.num_known_blocks += 1


@compiled_part
def _hash_of(state: Any, request: Any, index: int, parent: int) -> int:
    """Return the hash of block ``index`` of a request behind a block of hash ``parent``; never 0.

    Ids of the trace stand for ``hash_block_tokens`` tokens each; other blocks are the request's
    own.
    """
    start = index * state.block_size
    end = start + state.block_size
    first, last = start // state.hash_block_tokens, (end - 1) // state.hash_block_tokens
    source = trace_of(state)[state.trace_row + request.row]
    if end > request.prompt_tokens or last >= source.num_hashes:
        return mix(mix(parent, -1 - request.row), start) | 1
    for place in range(first, last + 1):
        parent = mix(parent, hash_ids_of(state)[source.first_hash + place])
    return mix(parent, start - first * state.hash_block_tokens) | 1


@compiled_part
def _find(state: Any, wanted: int) -> int:
    """Return the block that has been known longest by a hash, or none."""
    blocks = blocks_of(state)
    block = buckets_of(state)[_bucket(state, wanted)]
    while block != NO_BLOCK and blocks[block].hash != wanted:
        block = blocks[block].next_in_bucket
    return block


@compiled_part
def _bucket(state: Any, wanted: int) -> int:
    return (wanted >> 8) & (state.num_buckets - 1)


@compiled_part
def _remember(state: Any, block: int, its_hash: int) -> None:
    """Put a block at the end of its bucket."""
    blocks, buckets = blocks_of(state), buckets_of(state)
    blocks[block].hash = its_hash
    blocks[block].next_in_bucket = NO_BLOCK
    bucket = _bucket(state, its_hash)
    if buckets[bucket] == NO_BLOCK:
        buckets[bucket] = block
        return
    last = buckets[bucket]
    while blocks[last].next_in_bucket != NO_BLOCK:
        last = blocks[last].next_in_bucket
    blocks[last].next_in_bucket = block


@compiled_part
def _forget(state: Any, block: int) -> None:
    """Take a block out of its bucket."""
    blocks, buckets = blocks_of(state), buckets_of(state)
    if blocks[block].hash == 0:
        return
    bucket = _bucket(state, blocks[block].hash)
    if buckets[bucket] == block:
        buckets[bucket] = blocks[block].next_in_bucket
    else:
        before = buckets[bucket]
        while blocks[before].next_in_bucket != block:
            before = blocks[before].next_in_bucket
        blocks[before].next_in_bucket = blocks[block].next_in_bucket
    blocks[block].hash = 0


@compiled_part
def _unlink(blocks: Any, block: int) -> None:
    """Take a block out of the list of free ones."""
    blocks[blocks[block].previous].next = blocks[block].next
    blocks[blocks[block].next].previous = blocks[block].previous


@compiled_part
def _link_before(blocks: Any, block: int, place: int) -> None:
    """Put a block into the list of free ones, before ``place``."""
    before = blocks[place].previous
    blocks[block].previous = before
    blocks[block].next = place
    blocks[before].next = block
    blocks[place].previous = block
