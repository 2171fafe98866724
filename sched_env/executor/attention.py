"""Attention of a packed batch over the paged KV cache, once per layer for all its sequences.

The blocks of every sequence are gathered behind one another, then each token attends to its own
sequence up to itself. On CUDA that is one call of torch's variable-length flash attention for the
decodes at the front of the batch, which it splits along their keys, and one for the rest; without
further packages that call takes no blocks of 16 tokens. On a CPU it is scaled dot-product
attention, sequence by sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sched_env.executor.packed_batch import PackedBatch

# torch.nn.attention.varlen calls this operator; its own arguments differ from version to version.
flash_attention = torch.ops.aten._flash_attention_forward


@dataclass(frozen=True)
class JointCall:
    """Sequences behind one another that flash attention computes together.

    Attributes:
        first: The first of their tokens in the batch.
        last: Behind the last of them.
        query_starts: Where each sequence's tokens begin, and their end, from ``first`` on, int32
            (n + 1,).
        key_starts: Where each sequence's gathered keys begin, and their end, int32 (n + 1,).
        key_lengths: How many of these are in use, int32 (n,).
        max_queries: Tokens of the longest chunk.
        max_keys: No sequence has more keys.
    """

    first: int
    last: int
    query_starts: Tensor
    key_starts: Tensor
    key_lengths: Tensor
    max_queries: int
    max_keys: int


@dataclass(frozen=True)
class AttentionPlan:
    """What attends to what, the same for all layers.

    Attributes:
        pages: Blocks of all sequences behind one another, int64 (num_pages,).
        calls: For CUDA, of all sequences in order.
        spans: For the CPU, (first query, last + 1, first key, last + 1) of each sequence.
    """

    pages: Tensor
    calls: tuple[JointCall, ...] = ()
    spans: tuple[tuple[int, int, int, int], ...] = ()


def plan_attention(batch: PackedBatch, block_size: int, device: torch.device) -> AttentionPlan:
    """Return the plan of a batch, its arrays on ``device``."""
    if device.type == "cuda":
        return plan_jointly(batch, block_size, device)
    starts = (batch.page_starts[:-1] * block_size).tolist()
    queries, lengths = batch.query_starts.tolist(), batch.key_lengths.tolist()
    spans = tuple(
        (queries[i], queries[i + 1], starts[i], starts[i] + lengths[i])
        for i in range(batch.num_sequences)
    )
    return AttentionPlan(torch.as_tensor(batch.pages), spans=spans)


def plan_jointly(batch: PackedBatch, block_size: int, device: torch.device) -> AttentionPlan:
    """Return the plan of a batch for CUDA.

    The decodes at its front are a call of their own: of sequences with one query each, the kernel
    reads the keys once for all heads of a group, by several thread blocks side by side.
    """
    counts = np.diff(batch.query_starts)
    key_starts = batch.page_starts * block_size
    num_decodes = int(np.argmax(counts > 1)) if counts.max() > 1 else len(counts)

    def there(array: object) -> Tensor:
        return torch.as_tensor(array).to(device, non_blocking=True)

    def call(start: int, stop: int) -> JointCall:
        first, last = int(batch.query_starts[start]), int(batch.query_starts[stop])
        return JointCall(
            first=first,
            last=last,
            query_starts=there(batch.query_starts[start : stop + 1] - batch.query_starts[start]),
            key_starts=there(key_starts[start : stop + 1]),
            key_lengths=there(batch.key_lengths[start:stop]),
            max_queries=int(counts[start:stop].max()),
            max_keys=int(batch.key_lengths[start:stop].max()),
        )

    parts = ((0, num_decodes), (num_decodes, len(counts)))
    calls = tuple(call(start, stop) for start, stop in parts if start < stop)
    return AttentionPlan(there(batch.pages), calls)


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
    if plan.spans:
        return _attend_one_by_one(queries, gathered_keys, gathered_values, plan)
    found = [_attend_jointly(queries, gathered_keys, gathered_values, call) for call in plan.calls]
    return found[0] if len(found) == 1 else torch.cat(found)


def _attend_jointly(queries: Tensor, keys: Tensor, values: Tensor, call: JointCall) -> Tensor:
    return flash_attention(
        queries[call.first : call.last],
        keys,
        values,
        call.query_starts,
        call.key_starts,
        call.max_queries,
        call.max_keys,
        0.0,  # dropout
        call.max_queries > 1,  # causal, the last query at the last key; one query sees all keys
        False,  # no debug mask
        seqused_k=call.key_lengths,
    )[0]


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
