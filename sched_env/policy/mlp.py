r"""Forward pass of the flat network: a multi-layer perceptron over the whole observation.

With the observation ``x`` (num_public,) = slot features row by row, then globals, normalised, and
layers i = 0 .. D (D hidden ones), all matrices stored (in, out)::

    x_0     = x
    x_{i+1} = activation(x_i @ layer.i.weight + layer.i.bias)      for i < D
    logits  = x_D @ layer.D.weight + layer.D.bias + prior          [proceed, admit, preempt]

``activation`` is "tanh" or "relu". Logits of illegal actions are -1e8. Tensors, float32:
``layer.<i>.weight`` (in, out) and ``layer.<i>.bias`` (out,), i = 0 .. D.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sched_env.compiled import compiled_part
from sched_env.policy.layers import add_product, copy_into, relu


def mlp_tensor_shapes(sizes: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every tensor, in flat order.

    Args:
        sizes: Width of the input, of each hidden layer, and the number of actions.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for index in range(len(sizes) - 1):
        shapes[f"layer.{index}.weight"] = (sizes[index], sizes[index + 1])
        shapes[f"layer.{index}.bias"] = (sizes[index + 1],)
    return shapes


@compiled_part
def mlp_logits(
    flat: np.ndarray, sizes: np.ndarray, is_tanh: bool, x: np.ndarray, logits: np.ndarray
) -> None:
    """Compute the logits of one decision, before the prior and the mask.

    Args:
        flat: float32 (num_parameters,), the tensors in the order of `mlp_tensor_shapes`.
        sizes: int64 (D + 2,), width of the input, of each hidden layer, and number of actions.
        is_tanh: Use tanh between layers, else ReLU.
        x: float32 (sizes[0],), normalised.
        logits: float32 (sizes[-1],), filled in place.
    """
    start = 0
    for layer in range(sizes.size - 1):
        num_in, num_out = sizes[layer], sizes[layer + 1]
        bias = start + num_in * num_out
        weight = flat[start:bias].reshape(num_in, num_out)
        start = bias + num_out
        y = flat[bias:start].copy()
        add_product(y, x, weight)
        if layer == sizes.size - 2:
            copy_into(logits, y)
        elif is_tanh:
            for unit in range(num_out):
                y[unit] = math.tanh(y[unit])
        else:
            relu(y)
        x = y
