"""A request of the scheduler for scripts, as it is shown."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

Status = Literal["waiting", "running", "preempted", "finished", "rejected"]


@dataclass(frozen=True)
class RequestView:
    """A request as it stands.

    Attributes:
        request_id: As given to ``add_request``.
        prompt_len: Prompt tokens.
        num_computed_tokens: Tokens whose KV is in the cache. vLLM counts a token of a scheduled
            batch at once; under ``rules="p07"`` it counts after the update.
        num_tokens: Prompt and output tokens.
        num_blocks: KV blocks held.
        output: Output tokens so far; preemption never takes one away.
        status: Where it is. P07 calls a preempted request waiting.
        num_preemptions: How often it was preempted.
        num_cached_tokens: Tokens that its last admission found in the prefix cache.
        finish_reason: ``stop``, ``length``, ``max_model_len``, ``kv_capacity`` (alone and still out
            of blocks), ``too_large`` (rejected: its prompt can never fit), ``no_progress`` (the run
            could not move), or empty.
    """

    request_id: Hashable
    prompt_len: int
    num_computed_tokens: int
    num_tokens: int
    num_blocks: int
    output: tuple[int, ...]
    status: Status
    num_preemptions: int
    num_cached_tokens: int
    finish_reason: str
