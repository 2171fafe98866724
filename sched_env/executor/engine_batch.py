"""The batch that the engine has formed, read from its records."""

from __future__ import annotations

from dataclasses import dataclass

from sched_env.engine.records import FINISHED, REJECTED, TIMED_OUT
from sched_env.engine.world import World
from sched_env.executor.packed_batch import Chunk

_ENDED = (FINISHED, REJECTED, TIMED_OUT)


@dataclass(frozen=True)
class EngineBatch:
    """A formed batch of server 0.

    Attributes:
        chunks: What it computes, in batch order.
        rows: All running requests, those left out of the batch too.
        prompt_tokens: Of each chunk's request.
        num_tokens: Prompt and output tokens of each chunk's request.
        num_blocks_used: KV blocks that the engine counts as taken.
    """

    chunks: tuple[Chunk, ...]
    rows: frozenset[int]
    prompt_tokens: tuple[int, ...]
    num_tokens: tuple[int, ...]
    num_blocks_used: int


def read_batch(world: World) -> EngineBatch:
    """Return the batch that server 0 has formed and not run yet."""
    seats = world.seats(0)
    batch = seats[seats["num_scheduled_tokens"] > 0]
    counts = batch["num_scheduled_tokens"].tolist()
    computed = batch["num_computed_tokens"].tolist()
    totals = (batch["prompt_tokens"] + batch["num_output_tokens"]).tolist()
    blocks = batch["num_blocks"].tolist()
    rows = batch["row"].tolist()
    chunks = tuple(
        Chunk(rows[i], computed[i] - counts[i], counts[i], blocks[i]) for i in range(len(rows))
    )
    state = world.state[0]
    return EngineBatch(
        chunks=chunks,
        rows=frozenset(seats["row"].tolist()),
        prompt_tokens=tuple(batch["prompt_tokens"].tolist()),
        num_tokens=tuple(totals),
        num_blocks_used=int(state["num_blocks"]) - int(state["free_blocks"]),
    )


def has_ended(world: World, row: int) -> bool:
    """Tell whether a request that is not running has ended."""
    return int(world.requests[0, row]["status"]) in _ENDED
