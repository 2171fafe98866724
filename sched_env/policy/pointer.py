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
from sched_env.policy.layers import MASKED_LOGIT, add_product, copy_into, relu


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
def _embed(
    slots: np.ndarray,
    present: np.ndarray,
    weights: PointerWeights,
    num_waiting_slots: int,
    embedded: np.ndarray,
    pool: np.ndarray,
) -> None:
    """Fill ``embedded`` (K + J, H) with u_i of the present slots and ``pool`` (4H,)."""
    hidden_size = weights.context_bias.size
    pool[:] = np.float32(0)
    for kind in range(2):
        first = 0 if kind == 0 else num_waiting_slots
        last = num_waiting_slots if kind == 0 else slots.shape[0]
        bias = weights.embed_bias_waiting if kind == 0 else weights.embed_bias_running
        mean = pool[2 * kind * hidden_size : (2 * kind + 1) * hidden_size]
        largest = pool[(2 * kind + 1) * hidden_size : (2 * kind + 2) * hidden_size]
        count = 0
        for slot in range(first, last):
            if present[slot] == 0:
                continue
            count += 1
            u = embedded[slot]
            copy_into(u, bias)
            add_product(u, slots[slot], weights.embed_weight)
            relu(u)
            for unit in range(hidden_size):
                mean[unit] += u[unit]
                largest[unit] = max(largest[unit], u[unit])
        if count > 0:
            for unit in range(hidden_size):
                mean[unit] /= np.float32(count)


@compiled_part
def _score(
    embedded: np.ndarray,
    present: np.ndarray,
    weights: PointerWeights,
    context: np.ndarray,
    num_waiting_slots: int,
    hidden: np.ndarray,
    scores: np.ndarray,
) -> None:
    """Fill ``scores`` (K + J,) with the logit of admitting or preempting each slot."""
    for slot in range(present.size):
        if present[slot] == 0:
            scores[slot] = MASKED_LOGIT
            continue
        is_waiting = slot < num_waiting_slots
        bias = weights.slot_bias_waiting if is_waiting else weights.slot_bias_running
        head = weights.admit_weight if is_waiting else weights.preempt_weight
        for unit in range(hidden.size):
            hidden[unit] = context[unit] + bias[unit]
        add_product(hidden, embedded[slot], weights.slot_weight)
        total = weights.admit_bias[0] if is_waiting else weights.preempt_bias[0]
        for unit in range(hidden.size):
            total += max(hidden[unit], np.float32(0)) * head[unit]
        scores[slot] = total


@compiled_part
def pointer_logits(
    flat: np.ndarray,
    shape: PointerShape,
    slots: np.ndarray,
    present: np.ndarray,
    global_features: np.ndarray,
    logits: np.ndarray,
) -> None:
    """Compute the logits of one decision, before the prior and the mask.

    Args:
        flat: float32 (num_parameters,), the tensors in the order of `pointer_tensor_shapes`.
        shape: Sizes of the network.
        slots: float32 (K + J, F), normalised.
        present: int8 (K + J,), 1 where the slot holds a request.
        global_features: float32 (G,), normalised.
        logits: float32 (L + K + J,), filled in place.
    """
    weights = unpack_pointer(flat, shape)
    hidden_size, num_levels = shape.hidden_size, shape.num_levels
    embedded = np.empty((slots.shape[0], hidden_size), np.float32)
    pool = np.empty(4 * hidden_size, np.float32)
    _embed(slots, present, weights, shape.num_waiting_slots, embedded, pool)
    context = weights.context_bias.copy()
    add_product(context, pool, weights.context_weight[: 4 * hidden_size])
    add_product(context, global_features, weights.context_weight[4 * hidden_size :])
    hidden = np.empty(hidden_size, np.float32)
    _score(
        embedded, present, weights, context, shape.num_waiting_slots, hidden, logits[num_levels:]
    )
    relu(context)
    proceed = logits[:num_levels]
    copy_into(proceed, weights.proceed_bias)
    add_product(proceed, context, weights.proceed_weight)
