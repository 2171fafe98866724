"""The compiled loop over a batch of decisions: observation and mask in, action out.

One row after the other: normalise, run the network, add the prior, close illegal actions, take the
best legal one. Rows do not influence each other, so a batch of N decides as N batches of one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sched_env.compiled import compiled, compiled_part
from sched_env.policy.layers import MASKED_LOGIT, best_legal, copy_into
from sched_env.policy.linear_score import LinearShape, linear_logits
from sched_env.policy.mlp import mlp_logits
from sched_env.policy.normalisation import normalise
from sched_env.policy.pointer import PointerShape, pointer_logits
from sched_env.policy.prior import PriorParameters, add_prior, add_softened

POINTER, FLAT, LINEAR_SCORE = range(3)
"""Kinds of network."""


class Network(NamedTuple):
    """A network as it crosses from Python into compiled code: plain arrays.

    Attributes:
        flat: float32 (num_parameters,), the tensors in the order of their ``tensor_shapes``.
        sizes: int64 (8,) or more: K, J, F, G, L, index of the prior's score feature (-1: none);
            then `POINTER` and the hidden size; or `FLAT`, 1 for tanh (0 for ReLU) and the widths
            from the input to the actions; or `LINEAR_SCORE` and the indices of the two features
            that its watermark reads.
        numbers: float32 (9,): clip of the normalisation, then the numbers of the prior.
        norm: float32 (2F + 2G,): mean and inverse standard deviation of slot features, then of
            globals; size 0 for no normalisation.
        score: float32, the tensors of a linear score that is the prior; size 0 for none.
        score_sizes: int64 (2,), the features that the watermark of that score reads.
    """

    flat: np.ndarray
    sizes: np.ndarray
    numbers: np.ndarray
    norm: np.ndarray
    score: np.ndarray
    score_sizes: np.ndarray


class ObservationSizes(NamedTuple):
    """Sizes of an observation."""

    num_waiting_slots: int
    num_running_slots: int
    num_slot_features: int
    num_globals: int
    num_levels: int


@compiled_part
def _normalise_row(
    row: np.ndarray, seen: ObservationSizes, norm: np.ndarray, clip: np.float32, x: np.ndarray
) -> None:
    """Write the normalised observation to ``x``; both are float32 (num_public,)."""
    if norm.size == 0:
        copy_into(x, row)
        return
    size, num_globals = seen.num_slot_features, seen.num_globals
    num_slots = seen.num_waiting_slots + seen.num_running_slots
    for slot in range(num_slots):
        first, end = slot * size, (slot + 1) * size
        normalise(row[first:end], norm[:size], norm[size : 2 * size], clip, x[first:end])
    mean, inverse_std = norm[2 * size : 2 * size + num_globals], norm[2 * size + num_globals :]
    first = num_slots * size
    normalise(row[first:], mean, inverse_std, clip, x[first:])


@compiled_part
def _choose(
    slots: np.ndarray,
    seen: ObservationSizes,
    prior: PriorParameters,
    mask: np.ndarray,
    logits: np.ndarray,
) -> int:
    """Finish one row of ``logits`` in place and return the action, -1 if none is legal."""
    add_prior(prior, slots, mask, seen.num_levels, seen.num_waiting_slots, logits)
    for action in range(logits.size):
        if mask[action] == 0:
            logits[action] = MASKED_LOGIT
    return best_legal(logits, mask)


@compiled_part
def _unpack(network: Network) -> tuple[ObservationSizes, PriorParameters]:
    s, n = network.sizes, network.numbers
    seen = ObservationSizes(s[0], s[1], s[2], s[3], s[4])
    return seen, PriorParameters(s[5], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8])


@compiled_part
def _pointer(
    network: Network,
    seen: ObservationSizes,
    slots: np.ndarray,
    x: np.ndarray,
    present: np.ndarray,
    logits: np.ndarray,
) -> None:
    for slot in range(present.size):
        present[slot] = slots[slot, 0] > 0.5
    shape = PointerShape(
        seen.num_waiting_slots,
        seen.num_running_slots,
        seen.num_slot_features,
        seen.num_globals,
        seen.num_levels,
        network.sizes[7],
    )
    inputs = x[: slots.size].reshape(slots.shape)
    pointer_logits(network.flat, shape, inputs, present, x[slots.size :], logits)


@compiled_part
def _linear_score(
    flat: np.ndarray,
    features: np.ndarray,
    seen: ObservationSizes,
    row: np.ndarray,
    x: np.ndarray,
    logits: np.ndarray,
) -> None:
    """Fill ``logits`` with a linear score of ``x``; its watermark reads ``row``, as observed.

    Args:
        flat: float32, the tensors of the score.
        features: int64 (2,), the features that its watermark reads.
        seen: Sizes of the observation.
        row: float32 (num_public,), as observed.
        x: float32 (num_public,), normalised.
        logits: float32 (L + K + J,).
    """
    num_slots, size = seen.num_waiting_slots + seen.num_running_slots, seen.num_slot_features
    edge = num_slots * size
    shape = LinearShape(
        seen.num_waiting_slots,
        size,
        seen.num_globals,
        seen.num_levels,
        features[0],
        features[1],
    )
    slots, inputs = row[:edge].reshape(num_slots, size), x[:edge].reshape(num_slots, size)
    free = row[edge:][shape.free_feature]
    linear_logits(flat, shape, inputs, x[edge:], slots, free, logits)


@compiled
def decide(
    network: Network,
    observations: np.ndarray,
    masks: np.ndarray,
    logits: np.ndarray,
    actions: np.ndarray,
) -> None:
    """Decide N times.

    Args:
        network: The network.
        observations: float32 (N, num_public).
        masks: int8 (N, num_actions), 1 = legal.
        logits: float32 (N, num_actions), filled in place.
        actions: int64 (N,), filled in place; -1 where no action is legal.
    """
    seen, prior = _unpack(network)
    sizes, kind = network.sizes, network.sizes[6]
    num_slots = seen.num_waiting_slots + seen.num_running_slots
    edge = num_slots * seen.num_slot_features
    x = np.empty(observations.shape[1], np.float32)
    present = np.empty(num_slots, np.int8)
    scores = np.empty(masks.shape[1], np.float32)
    for index in range(observations.shape[0]):
        row = observations[index]
        slots = row[:edge].reshape(num_slots, seen.num_slot_features)
        _normalise_row(row, seen, network.norm, network.numbers[0], x)
        if kind == POINTER:
            _pointer(network, seen, slots, x, present, logits[index])
        elif kind == FLAT:
            mlp_logits(network.flat, sizes[8:], sizes[7] != 0, x, logits[index])
        else:
            _linear_score(network.flat, sizes[7:9], seen, row, x, logits[index])
        if network.score.size > 0:
            _linear_score(network.score, network.score_sizes, seen, row, row, scores)
            add_softened(prior.strength, prior.floor, scores, masks[index], logits[index])
        actions[index] = _choose(slots, seen, prior, masks[index], logits[index])
