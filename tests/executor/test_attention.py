"""The calls that CUDA makes, checked on the CPU with a plain stand-in for torch's kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sched_env.executor import attention
from sched_env.executor.block_tables import BlockTables
from sched_env.executor.packed_batch import Chunk, pack, pad_decodes
from tests.executor.flash_reference import plain_flash_attention

CPU = torch.device("cpu")


@pytest.fixture
def layer() -> dict[str, Any]:
    rng = torch.Generator().manual_seed(3)
    keys, values = (torch.randn(9, 4, 2, 8, generator=rng, dtype=torch.float64) for _ in range(2))
    tables = BlockTables(8, 4)
    for row, num_blocks in ((0, 1), (1, 2), (0, 3), (2, 1)):
        tables.grow(row, num_blocks)
    return {"keys": keys, "values": values, "tables": tables, "rng": rng}


@pytest.mark.parametrize(
    ("chunks", "calls"),
    [
        ([Chunk(0, 3, 7, 3), Chunk(1, 4, 1, 2), Chunk(2, 0, 3, 1)], [(0, 11)]),
        ([Chunk(1, 0, 8, 2), Chunk(0, 9, 1, 3)], [(0, 9)]),
        ([Chunk(1, 7, 1, 2), Chunk(0, 9, 1, 3)], [(0, 2)]),
        ([Chunk(1, 7, 1, 2), Chunk(0, 9, 1, 3), Chunk(2, 0, 3, 1)], [(0, 2), (2, 5)]),
        ([Chunk(1, 7, 1, 2), Chunk(0, 2, 5, 3), Chunk(2, 2, 1, 1)], [(0, 1), (1, 7)]),
    ],
)
def test_joint_calls_equal_sequence_by_sequence(
    chunks: list[Chunk],
    calls: list[tuple[int, int]],
    layer: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attention, "flash_attention", plain_flash_attention)
    batch = pack(chunks, layer["tables"])
    queries = torch.randn(batch.num_tokens, 6, 8, generator=layer["rng"], dtype=torch.float64)
    plan, joint = (
        make(batch, 4, CPU) for make in (attention.plan_attention, attention.plan_jointly)
    )
    assert [(call.first, call.last) for call in joint.calls] == calls
    wanted, found = (
        attention.attend(queries, layer["keys"], layer["values"], one) for one in (plan, joint)
    )
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=0, atol=1e-12)


def test_padding_changes_no_real_sequence(
    layer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "flash_attention", plain_flash_attention)
    batch = pack([Chunk(0, 9, 1, 3), Chunk(1, 4, 1, 2)], layer["tables"])
    padded = pad_decodes(batch, 4, 9, spare_block=8, block_size=4)
    plan = attention.plan_jointly(padded, 4, CPU)
    assert plan.calls[0].key_starts.tolist() == [0, 12, 20, 24, 28]
    queries = torch.randn(4, 6, 8, generator=layer["rng"], dtype=torch.float64)
    found = attention.attend(queries, layer["keys"], layer["values"], plan)
    real = attention.plan_attention(batch, 4, CPU)
    wanted = attention.attend(queries[:2], layer["keys"], layer["values"], real)
    np.testing.assert_allclose(found[:2].numpy(), wanted.numpy(), rtol=0, atol=1e-12)


def test_torch_takes_the_call_that_cuda_makes() -> None:
    tables = BlockTables(8, 4)
    tables.grow(0, 3)
    tables.grow(1, 2)
    batch = pack([Chunk(1, 4, 1, 2), Chunk(0, 3, 7, 3)], tables)
    meta = torch.device("meta")
    plan = attention.plan_jointly(batch, 4, meta)
    queries = torch.empty(batch.num_tokens, 6, 8, dtype=torch.bfloat16, device=meta)
    keys, values = (torch.empty(9, 4, 2, 8, dtype=torch.bfloat16, device=meta) for _ in range(2))
    assert attention.attend(queries, keys, values, plan).shape == queries.shape
