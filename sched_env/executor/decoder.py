"""The model: a Llama-shaped decoder with random weights over a paged KV cache.

Architecture of Touvron et al., "LLaMA: Open and Efficient Foundation Language Models" (2023) and
"Llama 2" (2023): RMSNorm before each block, rotary positions (Su et al., 2021), grouped-query
attention (Ainslie et al., 2023), SwiGLU (Shazeer, 2020). Query, key and value projections are one
matrix, and so are the gate and up projections.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from sched_env.executor.attention import AttentionPlan, attend
from sched_env.executor.shapes import ModelShape


@dataclass(frozen=True)
class StepInputs:
    """One batch on the device.

    Attributes:
        tokens: Token ids, int64 (num_tokens,).
        positions: Position of each token in its sequence, int64 (num_tokens,).
        slots: Where its KV goes in the cache, int64 (num_tokens,).
        last_tokens: Which tokens are the last of their sequence, int64 (n,).
        plan: What attends to what.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    last_tokens: Tensor
    plan: AttentionPlan


@dataclass(frozen=True)
class LayerWeights:
    """One layer, each projection stored as (outputs, inputs)."""

    attention_norm: Tensor
    query_key_value: Tensor
    attention_output: Tensor
    feed_forward_norm: Tensor
    gate_up: Tensor
    down: Tensor


class Decoder:
    """A decoder with weights drawn from a seed.

    Args:
        shape: Its sizes.
        device: Where it runs.
        dtype: Of weights and activations.
        seed: Draws the weights; equal seeds give equal weights on one kind of device.
    """

    def __init__(
        self, shape: ModelShape, device: torch.device, dtype: torch.dtype, seed: int = 0
    ) -> None:
        self.shape = shape
        self.device = device
        self.dtype = dtype
        self._generator = torch.Generator(device).manual_seed(seed)
        self.embedding = self._draw(shape.vocab_size, shape.hidden_size, scale=1.0)
        self.layers = [self._draw_layer() for _ in range(shape.num_layers)]
        self.final_norm = self._draw_norm()
        self.output = (
            self.embedding if shape.tied else self._draw(shape.vocab_size, shape.hidden_size)
        )
        exponents = torch.arange(0, shape.head_dim, 2, device=device, dtype=torch.float64)
        self._frequencies = shape.rope_theta ** (-exponents / shape.head_dim)

    def _draw(self, outputs: int, inputs: int, scale: float | None = None) -> Tensor:
        """Draw a matrix that keeps the variance of its input."""
        matrix = torch.empty(outputs, inputs, device=self.device, dtype=self.dtype)
        spread = inputs**-0.5 if scale is None else scale
        return matrix.normal_(0.0, spread, generator=self._generator)

    def _draw_norm(self) -> Tensor:
        weights = torch.empty(self.shape.hidden_size, device=self.device, dtype=self.dtype)
        return weights.normal_(1.0, 0.1, generator=self._generator)

    def _draw_layer(self) -> LayerWeights:
        shape = self.shape
        width = shape.num_heads * shape.head_dim
        kv_width = shape.num_kv_heads * shape.head_dim
        return LayerWeights(
            attention_norm=self._draw_norm(),
            query_key_value=self._draw(width + 2 * kv_width, shape.hidden_size),
            attention_output=self._draw(shape.hidden_size, width),
            feed_forward_norm=self._draw_norm(),
            gate_up=self._draw(2 * shape.intermediate_size, shape.hidden_size),
            down=self._draw(shape.hidden_size, shape.intermediate_size),
        )

    def new_cache(self, num_blocks: int, block_size: int) -> Tensor:
        """Return an empty KV cache, (num_layers, 2, num_blocks, block_size, kv heads, head_dim)."""
        shape = self.shape
        sizes = (shape.num_layers, 2, num_blocks, block_size, shape.num_kv_heads, shape.head_dim)
        return torch.zeros(sizes, device=self.device, dtype=self.dtype)

    @torch.inference_mode()
    def forward(self, inputs: StepInputs, cache: Tensor) -> Tensor:
        """Compute a batch, write its keys and values into the cache, and return logits.

        Returns:
            Logits behind the last token of each sequence, (n, vocab_size).
        """
        hidden = functional.embedding(inputs.tokens, self.embedding)
        turns = self._turns(inputs.positions)
        for layer, layer_cache in zip(self.layers, cache, strict=True):
            hidden = hidden + self._attention(layer, hidden, turns, inputs, layer_cache)
            hidden = hidden + self._feed_forward(layer, hidden)
        last = self._norm(hidden.index_select(0, inputs.last_tokens), self.final_norm)
        return functional.linear(last, self.output)

    def _norm(self, hidden: Tensor, weights: Tensor) -> Tensor:
        return functional.rms_norm(hidden, (self.shape.hidden_size,), weights, self.shape.norm_eps)

    def _attention(
        self,
        layer: LayerWeights,
        hidden: Tensor,
        turns: tuple[Tensor, Tensor],
        inputs: StepInputs,
        cache: Tensor,
    ) -> Tensor:
        shape = self.shape
        normed = self._norm(hidden, layer.attention_norm)
        heads = functional.linear(normed, layer.query_key_value).unflatten(
            -1, (shape.num_heads + 2 * shape.num_kv_heads, shape.head_dim)
        )
        turned, values = heads.split((shape.num_heads + shape.num_kv_heads, shape.num_kv_heads), 1)
        turned = _rotate(turned, turns)
        queries, keys = turned.split((shape.num_heads, shape.num_kv_heads), 1)
        cache[0].flatten(0, 1).index_copy_(0, inputs.slots, keys)
        cache[1].flatten(0, 1).index_copy_(0, inputs.slots, values)
        found = attend(queries, cache[0], cache[1], inputs.plan)
        return functional.linear(found.flatten(1), layer.attention_output)

    def _feed_forward(self, layer: LayerWeights, hidden: Tensor) -> Tensor:
        normed = self._norm(hidden, layer.feed_forward_norm)
        gate, up = functional.linear(normed, layer.gate_up).chunk(2, -1)
        return functional.linear(functional.silu(gate) * up, layer.down)

    def _turns(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosine and sine of each token's angles, (num_tokens, 1, head_dim / 2)."""
        angles = positions.to(torch.float64)[:, None, None] * self._frequencies
        exact = torch.promote_types(self.dtype, torch.float32)
        return angles.cos().to(exact), angles.sin().to(exact)


def _rotate(heads: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Turn the pairs (i, i + head_dim / 2) of each head by the token's angles."""
    cos, sin = turns
    left, right = heads.to(cos.dtype).chunk(2, -1)
    turned = torch.cat((left * cos - right * sin, right * cos + left * sin), -1)
    return turned.to(heads.dtype)
