"""The compiled loop over a batch of decisions: observation and mask in, action out.

One row after the other: normalise, run the network, add the prior, close illegal actions, take the
best legal one. Rows do not influence each other, so a batch of N decides as N batches of one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sched_env.compiled import compiled
from sched_env.policy.layers import MASKED_LOGIT, best_legal
from sched_env.policy.mlp import mlp_logits
from sched_env.policy.normalisation import normalise
from sched_env.policy.pointer import PointerShape, pointer_logits
from sched_env.policy.prior import PriorParameters, add_prior


class MlpShape(NamedTuple):
    """Sizes of a flat network apart from its layers; every one is a Python int or bool."""

    num_waiting_slots: int
    num_running_slots: int
    num_slot_features: int
    num_globals: int
    num_levels: int
    is_tanh: bool


class NormalisationArrays(NamedTuple):
    """Means and inverse standard deviations, float32; arrays of size 0 stand for kind "none"."""

    slot_mean: np.ndarray
    slot_inverse_std: np.ndarray
    global_mean: np.ndarray
    global_inverse_std: np.ndarray
    clip: np.float32


@compiled
def _normalise_row(row: np.ndarray, shape: Any, norm: NormalisationArrays, x: np.ndarray) -> None:
    """Write the normalised observation to ``x``; both are float32 (num_public,)."""
    if norm.slot_mean.size == 0:
        x[:] = row
        return
    num_features = shape.num_slot_features
    num_slots = shape.num_waiting_slots + shape.num_running_slots
    for slot in range(num_slots):
        columns = slice(slot * num_features, (slot + 1) * num_features)
        normalise(row[columns], norm.slot_mean, norm.slot_inverse_std, norm.clip, x[columns])
    columns = slice(num_slots * num_features, row.size)
    normalise(row[columns], norm.global_mean, norm.global_inverse_std, norm.clip, x[columns])


@compiled
def _choose(
    slots: np.ndarray, shape: Any, prior: PriorParameters, mask: np.ndarray, logits: np.ndarray
) -> int:
    """Finish one row of ``logits`` in place and return the action, -1 if none is legal."""
    add_prior(prior, slots, mask, shape.num_levels, shape.num_waiting_slots, logits)
    for action in range(logits.size):
        if mask[action] == 0:
            logits[action] = MASKED_LOGIT
    return best_legal(logits, mask)


@compiled
def decide_pointer(
    flat: np.ndarray,
    shape: PointerShape,
    norm: NormalisationArrays,
    prior: PriorParameters,
    observations: np.ndarray,
    masks: np.ndarray,
    logits: np.ndarray,
    actions: np.ndarray,
) -> None:
    """Decide N times with a pointer network.

    Args:
        flat: float32 (num_parameters,), tensors in the order of `pointer_tensor_shapes`.
        shape: Sizes of the network.
        norm: Normalisation of the observation.
        prior: Soft prior.
        observations: float32 (N, num_public).
        masks: int8 (N, num_actions), 1 = legal.
        logits: float32 (N, num_actions), filled in place.
        actions: int64 (N,), filled in place; -1 where no action is legal.
    """
    num_slots = shape.num_waiting_slots + shape.num_running_slots
    columns = num_slots * shape.num_slot_features
    x = np.empty(observations.shape[1], np.float32)
    present = np.empty(num_slots, np.int8)
    for index in range(observations.shape[0]):
        row = observations[index]
        slots = row[:columns].reshape(num_slots, shape.num_slot_features)
        for slot in range(num_slots):
            present[slot] = slots[slot, 0] > 0.5
        _normalise_row(row, shape, norm, x)
        inputs = x[:columns].reshape(num_slots, shape.num_slot_features)
        pointer_logits(flat, shape, inputs, present, x[columns:], logits[index])
        actions[index] = _choose(slots, shape, prior, masks[index], logits[index])


@compiled
def decide_mlp(
    flat: np.ndarray,
    sizes: np.ndarray,
    shape: MlpShape,
    norm: NormalisationArrays,
    prior: PriorParameters,
    observations: np.ndarray,
    masks: np.ndarray,
    logits: np.ndarray,
    actions: np.ndarray,
) -> None:
    """Decide N times with a flat network.

    Args:
        flat: float32 (num_parameters,), tensors in the order of `mlp_tensor_shapes`.
        sizes: int64 (num_layers + 1,), widths from the input to the actions.
        shape: Sizes of the observation and the activation.
        norm: Normalisation of the observation.
        prior: Soft prior.
        observations: float32 (N, num_public).
        masks: int8 (N, num_actions), 1 = legal.
        logits: float32 (N, num_actions), filled in place.
        actions: int64 (N,), filled in place; -1 where no action is legal.
    """
    num_slots = shape.num_waiting_slots + shape.num_running_slots
    columns = num_slots * shape.num_slot_features
    x = np.empty(observations.shape[1], np.float32)
    for index in range(observations.shape[0]):
        row = observations[index]
        slots = row[:columns].reshape(num_slots, shape.num_slot_features)
        _normalise_row(row, shape, norm, x)
        mlp_logits(flat, sizes, shape.is_tanh, x, logits[index])
        actions[index] = _choose(slots, shape, prior, masks[index], logits[index])
