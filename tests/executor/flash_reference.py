"""The attention that CUDA calls, written plainly, so that its calls can be checked on a CPU."""

from __future__ import annotations

import torch


def plain_flash_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cum_seq_q: torch.Tensor,
    cum_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    seqused_k: torch.Tensor,
) -> tuple[torch.Tensor]:
    """Attend as flash attention does; a causal chunk's last query stands at its last key."""
    assert dropout_p == 0.0
    assert not return_debug_mask
    for array in (cum_seq_q, cum_seq_k, seqused_k):
        assert array.dtype == torch.int32
        assert array.is_contiguous()
    assert len(cum_seq_q) == len(cum_seq_k) == len(seqused_k) + 1
    assert (int(cum_seq_q[0]), int(cum_seq_q[-1])) == (0, len(query))
    assert int(cum_seq_k[-1]) <= len(key)
    found = torch.full_like(query, torch.nan)
    group = query.shape[1] // key.shape[1]
    for i in range(len(seqused_k)):
        first, last = int(cum_seq_q[i]), int(cum_seq_q[i + 1])
        start, used = int(cum_seq_k[i]), int(seqused_k[i])
        assert 0 < last - first <= max_q
        assert 0 < used <= int(cum_seq_k[i + 1]) - start
        assert used <= max_k
        for row in range(first, last):
            stop = start + used - (last - 1 - row) * is_causal
            keys = key[start:stop].repeat_interleave(group, 1)
            values = value[start:stop].repeat_interleave(group, 1)
            scores = torch.einsum("hd,khd->hk", query[row], keys) / query.shape[2] ** 0.5
            found[row] = torch.einsum("hk,khd->hd", torch.softmax(scores, 1), values)
    return (found,)
