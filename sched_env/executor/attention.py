"""Attention of a packed batch over the paged KV cache, once per layer for all its sequences.

The blocks of every sequence are gathered behind one another, then each token attends to its own
sequence up to itself: prefill chunks and decodes alike. On CUDA that is one call of torch's
variable-length flash attention, which without further packages takes no block table; on a CPU it is
scaled dot-product attention, sequence by sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from sched_env.executor.packed_batch import PackedBatch

_CAUSAL = (-1, 0)
"""Window of varlen_attn: all earlier tokens; the last query stands at the last key."""


@dataclass(frozen=True)
class AttentionPlan:
    """What attends to what, the same for all layers.

    Attributes:
        pages: Blocks of all sequences behind one another, int64 (num_pages,).
        query_starts: Where each sequence's tokens begin, and their end, int32 (n + 1,).
        key_starts: Where each sequence's gathered keys begin, and their end, int32 (n + 1,).
        key_lengths: How many of these are in use, int32 (n,).
        max_queries: Tokens of the longest chunk.
        max_keys: Keys of the longest sequence.
        spans: (first query, last + 1, first key, last + 1) of each sequence, for the CPU.
    """

    pages: Tensor
    query_starts: Tensor
    key_starts: Tensor
    key_lengths: Tensor
    max_queries: int
    max_keys: int
    spans: tuple[tuple[int, int, int, int], ...] = ()


def plan_attention(batch: PackedBatch, block_size: int, device: torch.device) -> AttentionPlan:
    """Return the plan of a batch, its arrays on ``device``."""
    key_starts = batch.page_starts * block_size
    queries = batch.query_starts.tolist()
    keys, lengths = key_starts.tolist(), batch.key_lengths.tolist()
    spans = tuple(
        (queries[i], queries[i + 1], keys[i], keys[i] + lengths[i])
        for i in range(batch.num_sequences)
    )

    def there(array: object) -> Tensor:
        return torch.as_tensor(array).to(device, non_blocking=True)

    return AttentionPlan(
        pages=there(batch.pages),
        query_starts=there(batch.query_starts),
        key_starts=there(key_starts),
        key_lengths=there(batch.key_lengths),
        max_queries=max(stop - start for start, stop, _, _ in spans),
        max_keys=max(lengths),
        spans=spans,
    )


def attend(queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan) -> Tensor:
    """Return what each token gathers from its sequence.

    Args:
        queries: (num_tokens, num_heads, head_dim).
        keys: The layer's cache, (num_blocks, block_size, num_kv_heads, head_dim), the batch's own
            keys included.
        values: As ``keys``.
        plan: What attends to what.

    Returns:
        (num_tokens, num_heads, head_dim).
    """
    gathered_keys = keys.index_select(0, plan.pages).flatten(0, 1)
    gathered_values = values.index_select(0, plan.pages).flatten(0, 1)
    if queries.is_cuda:
        return _attend_jointly(queries, gathered_keys, gathered_values, plan)
    return _attend_one_by_one(queries, gathered_keys, gathered_values, plan)


def _attend_jointly(queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    found = varlen_attn(
        queries,
        keys,
        values,
        plan.query_starts,
        plan.key_starts,
        plan.max_queries,
        plan.max_keys,
        window_size=_CAUSAL,
        enable_gqa=True,
        seqused_k=plan.key_lengths,
    )
    assert isinstance(found, Tensor)  # a pair only where more is asked for
    return found


def _attend_one_by_one(
    queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan
) -> Tensor:
    found = torch.empty_like(queries)
    for first, last, first_key, last_key in plan.spans:
        count, length = last - first, last_key - first_key
        mask = None
        if 1 < count < length:
            mask = torch.ones(count, length, dtype=torch.bool).tril(length - count)
        one = functional.scaled_dot_product_attention(
            queries[first:last].transpose(0, 1)[None],
            keys[first_key:last_key].transpose(0, 1)[None],
            values[first_key:last_key].transpose(0, 1)[None],
            attn_mask=mask,
            is_causal=count == length,
            enable_gqa=True,
        )
        found[first:last] = one[0].transpose(0, 1)
    return found
