r"""Forward pass of the linear score: the smallest policy that decides everything.

K waiting and J running slots of F features, G globals, L proceed levels. With slots x_i and
globals g, normalised (see normalisation.py)::

    admit_k   = x_k . admit.weight + admit.bias            waiting slot k
    preempt_j = x_j . preempt.weight + preempt.bias        running slot j
    proceed   = g @ proceed.weight + proceed.bias          (L,)
    logits    = [proceed (L), admit (K), preempt (J)] + prior (see prior.py)

An admission that would leave less of the KV pool than the watermark loses 10,000: it happens only
where there is no other choice. What it would leave is the global ``free_feature`` minus the slot's
``size_feature``, both as observed, in parts of the pool.

Tensors, float32: ``admit.weight`` (F,), ``admit.bias`` (1,), ``preempt.weight`` (F,),
``preempt.bias`` (1,), ``proceed.weight`` (G, L), ``proceed.bias`` (L,), ``watermark`` (1,).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sched_env.compiled import compiled_part
from sched_env.policy.layers import add_product, copy_into

BELOW_WATERMARK = np.float32(-1e4)
"""Added to the logit of an admission that leaves too few blocks."""


class LinearShape(NamedTuple):
    """Sizes of a linear score, and where it reads the blocks."""

    num_waiting_slots: int
    num_slot_features: int
    num_globals: int
    num_levels: int
    size_feature: int
    free_feature: int


def linear_tensor_shapes(
    num_slot_features: int, num_globals: int, num_levels: int
) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every tensor, in flat order."""
    return {
        "admit.weight": (num_slot_features,),
        "admit.bias": (1,),
        "preempt.weight": (num_slot_features,),
        "preempt.bias": (1,),
        "proceed.weight": (num_globals, num_levels),
        "proceed.bias": (num_levels,),
        "watermark": (1,),
    }


@compiled_part
def _dot(x: np.ndarray, weight: np.ndarray) -> np.float32:
    """Return x . weight, both float32 (n,), summed in order."""
    total = np.float32(0)
    for index in range(x.size):
        total += x[index] * weight[index]
    return total


@compiled_part
def linear_logits(
    flat: np.ndarray,
    shape: LinearShape,
    slots: np.ndarray,
    global_features: np.ndarray,
    seen_slots: np.ndarray,
    free_part: np.float32,
    mask: np.ndarray,
    logits: np.ndarray,
) -> None:
    """Compute the logits of one decision, before the prior and the mask.

    Args:
        flat: float32 (num_parameters,), the tensors in the order of `linear_tensor_shapes`.
        shape: Sizes of the policy.
        slots: float32 (K + J, F), normalised.
        global_features: float32 (G,), normalised.
        seen_slots: float32 (K + J, F), as observed.
        free_part: Free blocks over the pool, as observed.
        mask: int8 (L + K + J,), 1 = legal.
        logits: float32 (L + K + J,), filled in place but for slots that may not be chosen.
    """
    size, levels = shape.num_slot_features, shape.num_levels
    preempt = size + 1
    proceed = 2 * preempt
    bias = proceed + shape.num_globals * levels
    watermark = flat[bias + levels]
    copy_into(logits[:levels], flat[bias : bias + levels])
    weight = flat[proceed:bias].reshape(shape.num_globals, levels)
    add_product(logits[:levels], global_features, weight)
    for slot in range(slots.shape[0]):
        if mask[levels + slot] == 0:
            continue
        if slot < shape.num_waiting_slots:
            score = _dot(slots[slot], flat[:size]) + flat[size]
            if free_part - seen_slots[slot, shape.size_feature] < watermark:
                score += BELOW_WATERMARK
        else:
            score = _dot(slots[slot], flat[preempt : preempt + size]) + flat[preempt + size]
        logits[levels + slot] = score
