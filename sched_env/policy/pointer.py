r"""Forward pass of the pointer network: one scorer shared by all slots.

The network is equivariant: swapping two waiting slots, or two running slots, swaps their logits.
Shapes: K waiting and J running slots of F features, G globals, L proceed levels, H hidden units.
The observation is a float32 vector, (K + J) * F slot features row by row (waiting first), then G
globals. A slot is *present* where its feature 0, as observed, is above 0.5. All matrices are
stored (in, out)::

    x_i, g            slot i (F,) and globals (G,), normalised (see normalisation.py)
    u_i = relu(x_i @ embed.weight + embed.bias_waiting | embed.bias_running)            (H,)
    pool = [mean, max of u_i over present waiting slots,
            mean, max of u_i over present running slots]        zeros where none       (4H,)
    c   = [pool, g] @ context.weight + context.bias                no activation        (H,)
    h_i = relu(u_i @ slot.weight + c + slot.bias_waiting | slot.bias_running)           (H,)
    proceed   = relu(c) @ proceed.weight + proceed.bias                                 (L,)
    admit_k   = h_k . admit.weight + admit.bias             waiting slot k
    preempt_j = h_j . preempt.weight + preempt.bias         running slot j
    logits    = [proceed (L), admit (K), preempt (J)] + prior (see prior.py)

Absent slots never enter a pool. Logits of absent slots and of illegal actions are -1e8.

Tensors, float32: ``embed.weight`` (F, H), ``embed.bias_waiting`` (H,), ``embed.bias_running``
(H,), ``context.weight`` (4H + G, H), ``context.bias`` (H,), ``slot.weight`` (H, H),
``slot.bias_waiting`` (H,), ``slot.bias_running`` (H,), ``proceed.weight`` (H, L),
``proceed.bias`` (L,), ``admit.weight`` (H,), ``admit.bias`` (1,), ``preempt.weight`` (H,),
``preempt.bias`` (1,). With F = 20, G = 24, H = 32, L = 4 that is 6,886 parameters.

References: deep sets (Zaheer et al. 2017) for the pooled context; pointer networks (Vinyals et
al. 2015) for logits that are one score a slot.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sched_env.compiled import compiled_part
from sched_env.policy.layers import MASKED_LOGIT, add_product, add_products, copy_into, relu

COLUMNS_AT_ONCE = 8
"""Float32 numbers in a register of the common processors."""


class PointerShape(NamedTuple):
    """Sizes of a pointer network; every one is a Python int."""

    num_waiting_slots: int
    num_running_slots: int
    num_slot_features: int
    num_globals: int
    num_levels: int
    hidden_size: int


class PointerWeights(NamedTuple):
    """The tensors of a pointer network, in the order in which they lie in the flat vector."""

    embed_weight: np.ndarray
    embed_bias_waiting: np.ndarray
    embed_bias_running: np.ndarray
    context_weight: np.ndarray
    context_bias: np.ndarray
    slot_weight: np.ndarray
    slot_bias_waiting: np.ndarray
    slot_bias_running: np.ndarray
    proceed_weight: np.ndarray
    proceed_bias: np.ndarray
    admit_weight: np.ndarray
    admit_bias: np.ndarray
    preempt_weight: np.ndarray
    preempt_bias: np.ndarray


def pointer_tensor_shapes(shape: PointerShape) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every tensor of a pointer network, in flat order."""
    f, h, levels = shape.num_slot_features, shape.hidden_size, shape.num_levels
    return {
        "embed.weight": (f, h),
        "embed.bias_waiting": (h,),
        "embed.bias_running": (h,),
        "context.weight": (4 * h + shape.num_globals, h),
        "context.bias": (h,),
        "slot.weight": (h, h),
        "slot.bias_waiting": (h,),
        "slot.bias_running": (h,),
        "proceed.weight": (h, levels),
        "proceed.bias": (levels,),
        "admit.weight": (h,),
        "admit.bias": (1,),
        "preempt.weight": (h,),
        "preempt.bias": (1,),
    }


@compiled_part
def unpack_pointer(flat: np.ndarray, shape: PointerShape) -> PointerWeights:
    """View the flat float32 vector of all parameters as named tensors, without a copy."""
    f, h, levels = shape.num_slot_features, shape.hidden_size, shape.num_levels
    wide = 4 * h + shape.num_globals
    context = f * h + 2 * h
    slot = context + wide * h + h
    proceed = slot + h * h + 2 * h
    admit = proceed + h * levels + levels
    preempt = admit + h + 1
    return PointerWeights(
        flat[: f * h].reshape(f, h),
        flat[f * h : f * h + h],
        flat[f * h + h : context],
        flat[context : context + wide * h].reshape(wide, h),
        flat[context + wide * h : slot],
        flat[slot : slot + h * h].reshape(h, h),
        flat[slot + h * h : slot + h * h + h],
        flat[slot + h * h + h : proceed],
        flat[proceed : proceed + h * levels].reshape(h, levels),
        flat[proceed + h * levels : admit],
        flat[admit : admit + h],
        flat[admit + h : preempt],
        flat[preempt : preempt + h],
        flat[preempt + h : preempt + h + 1],
    )


@compiled_part
def _gather(
    rows: np.ndarray, shape: PointerShape, present: np.ndarray, weights: PointerWeights
) -> tuple[np.ndarray, np.ndarray]:
    """Return the present slots of all rows as columns: features (F, n) and biases (H, n).

    Rows come one after the other, waiting slots before running ones. ``n`` is filled up to whole
    registers with zeros.
    """
    size, hidden_size = shape.num_slot_features, shape.hidden_size
    num_present = 0
    for row in range(present.shape[0]):
        for slot in range(present.shape[1]):
            num_present += present[row, slot]
    num_columns = (num_present + COLUMNS_AT_ONCE - 1) // COLUMNS_AT_ONCE * COLUMNS_AT_ONCE
    features = np.zeros((size, num_columns), np.float32)
    embedded = np.zeros((hidden_size, num_columns), np.float32)
    column = 0
    for row in range(present.shape[0]):
        for slot in range(present.shape[1]):
            if present[row, slot] == 0:
                continue
            x = rows[row, slot * size : (slot + 1) * size]
            for feature in range(size):
                features[feature, column] = x[feature]
            is_waiting = slot < shape.num_waiting_slots
            bias = weights.embed_bias_waiting if is_waiting else weights.embed_bias_running
            for unit in range(hidden_size):
                embedded[unit, column] = bias[unit]
            column += 1
    return features, embedded


@compiled_part
def _pool(embedded: np.ndarray, first: int, count: int, pool: np.ndarray) -> None:
    """Fill ``pool`` (2H,) with the mean and the largest of ``count`` columns from ``first``."""
    hidden_size = embedded.shape[0]
    for unit in range(hidden_size):
        total, largest = np.float32(0), np.float32(0)
        for column in range(first, first + count):
            total += embedded[unit, column]
            largest = max(largest, embedded[unit, column])
        pool[unit] = total / np.float32(max(count, 1))
        pool[hidden_size + unit] = largest


@compiled_part
def _score(
    embedded: np.ndarray,
    column: int,
    weights: PointerWeights,
    context: np.ndarray,
    is_waiting: bool,
    hidden: np.ndarray,
) -> np.float32:
    """Return the logit of admitting or preempting the slot in one column of ``embedded``.

    ``hidden`` is float32 (2H,), for what is computed on the way.
    """
    hidden_size = context.size
    u, h = hidden[:hidden_size], hidden[hidden_size:]
    bias = weights.slot_bias_waiting if is_waiting else weights.slot_bias_running
    head = weights.admit_weight if is_waiting else weights.preempt_weight
    for unit in range(hidden_size):
        u[unit] = embedded[unit, column]
        h[unit] = context[unit] + bias[unit]
    add_product(h, u, weights.slot_weight)
    total = weights.admit_bias[0] if is_waiting else weights.preempt_bias[0]
    for unit in range(hidden_size):
        total += max(h[unit], np.float32(0)) * head[unit]
    return total


@compiled_part
def pointer_logits(
    flat: np.ndarray,
    shape: PointerShape,
    rows: np.ndarray,
    present: np.ndarray,
    masks: np.ndarray,
    logits: np.ndarray,
) -> None:
    """Compute the logits of several decisions, before the prior and the mask.

    Slots of all decisions are embedded side by side, which no sum depends on.

    Args:
        flat: float32 (num_parameters,), the tensors in the order of `pointer_tensor_shapes`.
        shape: Sizes of the network.
        rows: float32 (B, num_public), normalised.
        present: int8 (B, K + J), 1 where the slot holds a request.
        masks: int8 (B, L + K + J), 1 = legal.
        logits: float32 (B, L + K + J), filled in place but for slots that may not be chosen.
    """
    weights = unpack_pointer(flat, shape)
    hidden_size, num_levels = shape.hidden_size, shape.num_levels
    num_waiting, num_slots = shape.num_waiting_slots, present.shape[1]
    features, embedded = _gather(rows, shape, present, weights)
    add_products(embedded, features, weights.embed_weight)
    for unit in range(hidden_size):
        relu(embedded[unit])
    pool, hidden = np.empty(4 * hidden_size, np.float32), np.empty(2 * hidden_size, np.float32)
    context = np.empty(hidden_size, np.float32)
    column = 0
    for row in range(rows.shape[0]):
        waiting, running = 0, 0
        for slot in range(num_slots):
            if slot < num_waiting:
                waiting += present[row, slot]
            else:
                running += present[row, slot]
        _pool(embedded, column, waiting, pool[: 2 * hidden_size])
        _pool(embedded, column + waiting, running, pool[2 * hidden_size :])
        copy_into(context, weights.context_bias)
        add_product(context, pool, weights.context_weight[: 4 * hidden_size])
        global_features = rows[row, num_slots * shape.num_slot_features :]
        add_product(context, global_features, weights.context_weight[4 * hidden_size :])
        for slot in range(num_slots):
            if masks[row, num_levels + slot] != 0:
                score = MASKED_LOGIT
                if present[row, slot] != 0:
                    is_waiting = slot < num_waiting
                    score = _score(embedded, column, weights, context, is_waiting, hidden)
                logits[row, num_levels + slot] = score
            column += present[row, slot]
        relu(context)
        proceed = logits[row, :num_levels]
        copy_into(proceed, weights.proceed_bias)
        add_product(proceed, context, weights.proceed_weight)
