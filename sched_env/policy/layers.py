"""The float32 operations every exported network is made of.

Sums run over the rows of a weight matrix in order, one output per lane, so a result does not
depend on the machine, on the compiler or on a BLAS library. No operation allocates.
"""

from __future__ import annotations

import numpy as np

from sched_env.compiled import compiled, compiled_part

MASKED_LOGIT = np.float32(-1e8)
"""Logit of an illegal action; sb3-contrib's ``MaskableCategorical`` uses the same number."""


@compiled_part
def copy_into(out: np.ndarray, x: np.ndarray) -> None:
    """Copy ``x`` to ``out``, both (n,); ``out[:] = x`` takes numba seconds to compile."""
    for index in range(out.size):
        out[index] = x[index]


@compiled_part
def add_product(out: np.ndarray, x: np.ndarray, weight: np.ndarray) -> None:
    """Add ``x @ weight`` to ``out``, row after row of ``weight`` (four rows a pass over ``out``).

    Args:
        out: float32 (num_out,), changed in place.
        x: float32 (num_in,).
        weight: float32 (num_in, num_out).
    """
    whole = x.size // 4 * 4
    for row in range(0, whole, 4):
        a, b, c, d = x[row], x[row + 1], x[row + 2], x[row + 3]
        for column in range(out.size):
            total = out[column] + a * weight[row, column]
            total = total + b * weight[row + 1, column]
            total = total + c * weight[row + 2, column]
            out[column] = total + d * weight[row + 3, column]
    for row in range(whole, x.size):
        for column in range(out.size):
            out[column] += x[row] * weight[row, column]


@compiled_part
def add_products(out: np.ndarray, x: np.ndarray, weight: np.ndarray) -> None:
    """Do what `add_product` does in the columns of ``x`` and ``out``, side by side.

    Args:
        out: float32 (num_out, n), changed in place.
        x: float32 (num_in, n).
        weight: float32 (num_in, num_out).
    """
    whole = x.shape[0] // 4 * 4
    for unit in range(out.shape[0]):
        sums = out[unit]
        for row in range(0, whole, 4):
            a, b, c, d = x[row], x[row + 1], x[row + 2], x[row + 3]
            by_a, by_b = weight[row, unit], weight[row + 1, unit]
            by_c, by_d = weight[row + 2, unit], weight[row + 3, unit]
            for column in range(sums.size):
                total = sums[column] + a[column] * by_a
                total = total + b[column] * by_b
                total = total + c[column] * by_c
                sums[column] = total + d[column] * by_d
        for row in range(whole, x.shape[0]):
            a, by_a = x[row], weight[row, unit]
            for column in range(sums.size):
                sums[column] += a[column] * by_a


@compiled_part
def relu(x: np.ndarray) -> None:
    """Replace the negative entries of ``x``, float32 (n,), by zero."""
    for index in range(x.size):
        x[index] = max(x[index], np.float32(0))


@compiled
def best_legal(logits: np.ndarray, mask: np.ndarray) -> int:
    """Return the legal action with the largest logit, the lowest index on ties.

    Args:
        logits: float32 (num_actions,).
        mask: int8 (num_actions,), 1 = legal.

    Returns:
        The index of the action, or -1 if none is legal.
    """
    best = -1
    for action in range(logits.size):
        if mask[action] != 0 and (best < 0 or logits[action] > logits[best]):
            best = action
    return best
