"""Sizes of the models that can be run, from a toy to 8 billion parameters."""

from __future__ import annotations

from dataclasses import dataclass

from sched_env.errors import UnknownNameError


@dataclass(frozen=True)
class ModelShape:
    """A decoder of the Llama family: RMSNorm, rotary positions, grouped queries, SwiGLU.

    Attributes:
        name: The name on the command line and in results.
        num_layers: Decoder layers.
        hidden_size: Width of the residual stream.
        intermediate_size: Width inside the SwiGLU block.
        num_heads: Query heads.
        num_kv_heads: Key and value heads; each serves ``num_heads / num_kv_heads`` query heads.
        head_dim: Width of a head.
        vocab_size: Tokens of the vocabulary.
        tied: The output projection is the embedding.
        rope_theta: Base of the rotary frequencies.
        norm_eps: Added to the mean square in RMSNorm.
    """

    name: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    tied: bool = False
    rope_theta: float = 500_000.0
    norm_eps: float = 1e-5

    @property
    def layer_parameters(self) -> int:
        """Return the number of weights of one layer's projections, norms included."""
        heads = self.num_heads + 2 * self.num_kv_heads
        attention = self.hidden_size * self.head_dim * (heads + self.num_heads)
        return attention + 3 * self.hidden_size * self.intermediate_size + 2 * self.hidden_size

    @property
    def step_parameters(self) -> int:
        """Return the number of weights that every step reads: all but the embedding table."""
        head = self.vocab_size * self.hidden_size
        return self.num_layers * self.layer_parameters + self.hidden_size + head

    @property
    def num_parameters(self) -> int:
        """Return the number of weights."""
        embedding = 0 if self.tied else self.vocab_size * self.hidden_size
        return self.step_parameters + embedding

    @property
    def kv_elements_per_token(self) -> int:
        """Return the numbers that the KV cache holds for one token, over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim


_ALL = (
    ModelShape("toy", 4, 384, 1024, 6, 2, 64, 4096),
    ModelShape("llama-1b", 16, 2048, 8192, 32, 8, 64, 128_256, tied=True),
    ModelShape("llama-3b", 28, 3072, 8192, 24, 8, 128, 128_256, tied=True),
    ModelShape("llama-8b", 32, 4096, 14_336, 32, 8, 128, 128_256),
)

SHAPES = {shape.name: shape for shape in _ALL}
"""By name: a toy of 9 M parameters, and the shapes of Llama 3.2 1B and 3B and Llama 3.1 8B."""


def shape_of(name: str) -> ModelShape:
    """Return the shape of a model.

    Raises:
        UnknownNameError: No model has that name.
    """
    if name not in SHAPES:
        raise UnknownNameError("model", name, SHAPES)
    return SHAPES[name]
