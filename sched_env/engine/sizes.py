"""How long a request is and what it needs."""

from __future__ import annotations

from typing import Any

from sched_env.compiled import compiled_part


@compiled_part
def num_tokens(request: Any) -> int:
    """Return the length of the sequence so far: prompt and outputs."""
    return request.prompt_tokens + request.num_output_tokens


@compiled_part
def tokens_left(request: Any) -> int:
    """Return the tokens of the sequence so far that are not computed.

    Output tokens that a batch in flight will bring count as there already (vLLM's
    ``num_output_placeholders``, of asynchronous scheduling alone).
    """
    return num_tokens(request) + request.num_output_placeholders - request.num_computed_tokens


@compiled_part
def decode_tokens_left(request: Any) -> float:
    """Return the predicted number of output tokens still to come, at least 1."""
    return predicted_beyond(request, request.num_output_tokens)


@compiled_part
def predicted_beyond(request: Any, outputs: int) -> float:
    """Return the predicted number of output tokens beyond so many, at least 1."""
    return max(request.predicted_output_tokens - outputs, 1.0)


@compiled_part
def is_decoding(request: Any) -> bool:
    """Tell whether only the last output token is left to compute."""
    has_output = request.num_output_tokens + request.num_output_placeholders > 0
    return has_output and tokens_left(request) == 1


@compiled_part
def is_next_decode(seat: Any) -> bool:
    """Tell whether a running request decodes, where no batch is in flight: it wants one token."""
    total = num_tokens(seat)
    return (
        seat.num_output_tokens > 0
        and total == seat.num_computed_tokens + 1
        and (not seat.is_prefill_chunk)
    )


@compiled_part
def blocks_for(tokens: int, block_size: int) -> int:
    """Return the number of KV blocks that hold ``tokens``."""
    return (tokens + block_size - 1) // block_size


@compiled_part
def blocks_to_grow(request: Any, tokens: int, block_size: int) -> int:
    """Return the blocks that ``tokens`` more computed tokens need beyond those held."""
    room = request.num_blocks * block_size - request.num_computed_tokens
    return 0 if tokens <= room else blocks_for(tokens - room, block_size)
