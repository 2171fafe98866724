"""The call that CUDA makes, checked on the CPU with a plain stand-in for torch's kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sched_env.executor import attention
from sched_env.executor.block_tables import BlockTables
from sched_env.executor.packed_batch import Chunk, pack, pad_decodes


def documented_varlen_attn(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
    *,
    window_size: tuple[int, int],
    enable_gqa: bool,
    seqused_k: torch.Tensor,
) -> torch.Tensor:
    """Do what the documentation of ``varlen_attn`` says; the last query stands at the last key."""
    assert window_size == (-1, 0)
    assert enable_gqa
    assert cu_seq_q.dtype == cu_seq_k.dtype == seqused_k.dtype == torch.int32
    found = torch.zeros_like(query)
    group = query.shape[1] // key.shape[1]
    for i in range(len(seqused_k)):
        first, last = int(cu_seq_q[i]), int(cu_seq_q[i + 1])
        start, used = int(cu_seq_k[i]), int(seqused_k[i])
        assert last - first <= max_q
        assert used <= int(cu_seq_k[i + 1]) - start
        assert used <= max_k
        for row in range(first, last):
            stop = start + used - (last - 1 - row)
            for head in range(query.shape[1]):
                keys, values = key[start:stop, head // group], value[start:stop, head // group]
                weights = torch.softmax(keys @ query[row, head] / query.shape[2] ** 0.5, 0)
                found[row, head] = weights @ values
    return found


@pytest.fixture
def layer() -> dict[str, Any]:
    rng = torch.Generator().manual_seed(3)
    keys, values = (torch.randn(9, 4, 2, 8, generator=rng, dtype=torch.float64) for _ in range(2))
    tables = BlockTables(8, 4)
    for row, num_blocks in ((0, 1), (1, 2), (0, 3), (2, 1)):
        tables.grow(row, num_blocks)
    return {"keys": keys, "values": values, "tables": tables, "rng": rng}


@pytest.mark.parametrize(
    "chunks",
    [
        [Chunk(0, 3, 7, 3), Chunk(1, 4, 1, 2), Chunk(2, 0, 3, 1)],
        [Chunk(1, 0, 8, 2), Chunk(0, 9, 1, 3)],
    ],
)
def test_one_joint_call_equals_sequence_by_sequence(
    chunks: list[Chunk], layer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", documented_varlen_attn)
    batch = pack(chunks, layer["tables"])
    plan = attention.plan_attention(batch, 4, torch.device("cpu"))
    queries = torch.randn(batch.num_tokens, 6, 8, generator=layer["rng"], dtype=torch.float64)
    wanted = attention.attend(queries, layer["keys"], layer["values"], plan)
    keys, values = (layer[name][plan.pages].flatten(0, 1) for name in ("keys", "values"))
    found = attention._attend_jointly(queries, keys, values, plan)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=0, atol=1e-12)


def test_a_padded_plan_is_that_of_a_graph(
    layer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", documented_varlen_attn)
    batch = pack([Chunk(0, 9, 1, 3), Chunk(1, 4, 1, 2)], layer["tables"])
    padded = pad_decodes(batch, 4, 4, spare_block=8, block_size=4)
    plan = attention.plan_attention(padded, 4, torch.device("cpu"))
    assert plan.key_starts.tolist() == [0, 16, 32, 48, 64]
    queries = torch.randn(4, 6, 8, generator=layer["rng"], dtype=torch.float64)
    keys, values = (layer[name][plan.pages].flatten(0, 1) for name in ("keys", "values"))
    found = attention._attend_jointly(queries, keys, values, plan)
    real = attention.plan_attention(batch, 4, torch.device("cpu"))
    wanted = attention.attend(queries[:2], layer["keys"], layer["values"], real)
    np.testing.assert_allclose(found[:2].numpy(), wanted.numpy(), rtol=0, atol=1e-12)
