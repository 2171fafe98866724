"""How long one iteration takes: every step-time model as the compiled core evaluates it.

Decode only, for n sequences with S tokens of context in all:
``a + b n + d max(S - S0, 0)``.
With prefill, for T new tokens in all and chunks of c tokens on ``past`` cached ones:
``o + g smax(Tk, ceil(T); p) + b' n + d' S + e sum max(c, p0) (past + c/2)``, where ceil rounds up
to a tile and ``smax(x, y; p) = (x^p + y^p)^(1/p)``. The second formula alone is the roofline
(``has_one_regime``). A measured table multiplies the formula by what was measured
over what the formula gives, interpolated (see ``table_ratio``). To all comes the engine's own time,
per step and per sequence. Times are in seconds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sched_env.compiled import compiled, compiled_part
from sched_env.cost.table_ratio import TABLE_FIELDS, is_beyond_table, mean_past, table_ratio

COST = np.dtype(
    [
        # decode only: a + b n + d max(S - S0, 0)
        ("decode_base_s", "f8"),
        ("decode_per_sequence_s", "f8"),
        ("decode_per_context_token_s", "f8"),
        ("decode_free_context_tokens", "f8"),
        # with prefill: o + g smax(Tk, ceil(T); p) + b' n + d' S + e sum max(c, p0)(past + c/2)
        ("mixed_base_s", "f8"),
        ("mixed_per_token_s", "f8"),
        ("mixed_knee_tokens", "f8"),
        ("mixed_smoothness", "f8"),
        ("mixed_tile_tokens", "f8"),
        ("mixed_per_sequence_s", "f8"),
        ("mixed_per_context_token_s", "f8"),
        ("mixed_per_attention_s", "f8"),
        ("mixed_min_chunk_tokens", "f8"),
        # engine overhead of every step
        ("overhead_per_step_s", "f8"),
        ("overhead_per_sequence_s", "f8"),
        ("has_one_regime", "i8"),  # steps without prefill follow the second formula too
        ("has_table", "i8"),
        ("refuses_beyond", "i8"),  # a server whose steps may lie beyond the table is no server
        *TABLE_FIELDS,
    ],
    align=True,
)

SHARP = 99.0
"""From this smoothness on, ``smax`` is the plain maximum."""


@compiled
def step_time_s(
    cost: Any,
    num_decodes: int,
    context_tokens: int,
    prefill_tokens: int,
    attention: float,
    num_sequences: int,
) -> float:
    """Return the time of one iteration in seconds.

    Args:
        cost: A COST record.
        num_decodes: Sequences that compute one token behind their context.
        context_tokens: Their tokens of context together.
        prefill_tokens: New tokens of all prefill chunks.
        attention: ``sum max(c, p0) (past + c/2)`` over the prefill chunks.
        num_sequences: Sequences of the batch, prefilling ones included.
    """
    kernels_s = _formula_s(cost, num_decodes, context_tokens, prefill_tokens, attention)
    if cost.has_table:
        past = mean_past(prefill_tokens, attention, cost.mixed_min_chunk_tokens)
        kernels_s *= table_ratio(cost, num_decodes, context_tokens, prefill_tokens, past)
    return overhead_s(cost, num_sequences) + kernels_s


@compiled
def is_beyond_reach(
    cost: Any, num_decodes: int, context_tokens: int, prefill_tokens: int, attention: float
) -> bool:
    """Tell whether a step lies further beyond a measured table than its margin; arguments as above.

    Formulas have no such end.
    """
    if not cost.has_table:
        return False
    past = mean_past(prefill_tokens, attention, cost.mixed_min_chunk_tokens)
    return is_beyond_table(cost, num_decodes, context_tokens, prefill_tokens, past)


@compiled_part
def _formula_s(
    cost: Any, num_decodes: int, context_tokens: int, prefill_tokens: int, attention: float
) -> float:
    if prefill_tokens == 0 and not cost.has_one_regime:
        return decode_s(cost, decode_share_s(cost, num_decodes), context_tokens)
    tile = cost.mixed_tile_tokens
    new_tokens = math.ceil((num_decodes + prefill_tokens) / tile) * tile
    return (
        cost.mixed_base_s
        + cost.mixed_per_token_s
        * _smooth_max(cost.mixed_knee_tokens, new_tokens, cost.mixed_smoothness)
        + cost.mixed_per_sequence_s * num_decodes
        + cost.mixed_per_context_token_s * context_tokens
        + cost.mixed_per_attention_s * attention
    )


@compiled_part
def decode_share_s(cost: Any, num_decodes: int) -> float:
    """Return what a step of decodes takes whatever their context: ``a + b n``."""
    return cost.decode_base_s + cost.decode_per_sequence_s * num_decodes


@compiled_part
def decode_s(cost: Any, share_s: float, context_tokens: int) -> float:
    """Return what a step of decodes takes, by the first formula, from that share of it."""
    paid_context = max(context_tokens - cost.decode_free_context_tokens, 0.0)
    return share_s + cost.decode_per_context_token_s * paid_context


@compiled_part
def overhead_s(cost: Any, num_sequences: int) -> float:
    """Return the engine's own time of a step."""
    return cost.overhead_per_step_s + cost.overhead_per_sequence_s * num_sequences


@compiled_part
def _smooth_max(left: float, right: float, smoothness: float) -> float:
    if smoothness >= SHARP:
        return max(left, right)
    if smoothness == 2.0:
        return math.sqrt(left * left + right * right)
    if smoothness == 4.0:
        return math.sqrt(math.sqrt(left**4 + right**4))
    larger, smaller = max(left, right), min(left, right)
    if larger == 0.0:
        return 0.0
    return larger * (1.0 + (smaller / larger) ** smoothness) ** (1.0 / smoothness)


@compiled
def lone_prefill_s(cost: Any, prompt_tokens: int, max_num_batched_tokens: int) -> float:
    """Return the time to prefill a prompt on an idle server, chunk by chunk.

    Full chunks differ only in their attention, in which a step is linear: all of them together
    take their number times the step of mean attention, however many a long prompt has. Under a
    measured table, which is not quite linear, this is a close estimate.
    """
    num_full = prompt_tokens // max_num_batched_tokens
    past = num_full * max_num_batched_tokens
    total_s = 0.0
    if num_full > 0:
        paid_tokens = max(max_num_batched_tokens, cost.mixed_min_chunk_tokens)
        mean_attention = paid_tokens * 0.5 * past
        total_s += num_full * step_time_s(cost, 0, 0, max_num_batched_tokens, mean_attention, 1)
    rest = prompt_tokens - past
    if rest > 0:
        attention = max(rest, cost.mixed_min_chunk_tokens) * (past + 0.5 * rest)
        total_s += step_time_s(cost, 0, 0, rest, attention, 1)
    return total_s
