"""The model written down once more, dense, in NumPy float64: no cache, no batch, one sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def _plain(tensor: Any) -> Floats:
    return tensor.detach().cpu().double().numpy()


def _norm(hidden: Floats, weights: Floats, eps: float) -> Floats:
    return hidden / np.sqrt((hidden**2).mean(-1, keepdims=True) + eps) * weights


def _turn(heads: Floats, theta: float) -> Floats:
    """Turn heads, (tokens, heads, dim), written with complex numbers."""
    half = heads.shape[-1] // 2
    angles = np.outer(np.arange(len(heads)), theta ** (-np.arange(half) / half))
    turned = (heads[..., :half] + 1j * heads[..., half:]) * np.exp(1j * angles)[:, None]
    return np.concatenate((turned.real, turned.imag), -1)


def _attend(queries: Floats, keys: Floats, values: Floats) -> Floats:
    """Attend causally, one head at a time; all (tokens, dim)."""
    scores = queries @ keys.T / np.sqrt(queries.shape[1])
    scores[np.triu_indices(len(scores), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ values


def dense_logits(decoder: Any, tokens: NDArray[np.int64]) -> Floats:
    """Return the logits behind every token of one sequence, float64 (tokens, vocab_size)."""
    shape = decoder.shape
    width, group = shape.num_heads * shape.head_dim, shape.num_heads // shape.num_kv_heads
    hidden = _plain(decoder.embedding)[tokens]
    for layer in decoder.layers:
        normed = _norm(hidden, _plain(layer.attention_norm), shape.norm_eps)
        heads = normed @ _plain(layer.query_key_value).T
        queries = heads[:, :width].reshape(len(tokens), -1, shape.head_dim)
        keys, values = np.split(heads[:, width:], 2, axis=1)
        keys = keys.reshape(len(tokens), -1, shape.head_dim)
        values = values.reshape(len(tokens), -1, shape.head_dim)
        queries, keys = _turn(queries, shape.rope_theta), _turn(keys, shape.rope_theta)
        found = [
            _attend(queries[:, head], keys[:, head // group], values[:, head // group])
            for head in range(shape.num_heads)
        ]
        hidden = hidden + np.concatenate(found, -1) @ _plain(layer.attention_output).T
        normed = _norm(hidden, _plain(layer.feed_forward_norm), shape.norm_eps)
        gate, up = np.split(normed @ _plain(layer.gate_up).T, 2, axis=1)
        hidden = hidden + (gate / (1 + np.exp(-gate)) * up) @ _plain(layer.down).T
    return _norm(hidden, _plain(decoder.final_norm), shape.norm_eps) @ _plain(decoder.output).T
