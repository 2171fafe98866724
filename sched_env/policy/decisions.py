"""The compiled loop over a batch of decisions: observation and mask in, action out.

For each row: normalise, run the network, add the prior, close illegal actions, take the best legal
one. A few rows go together, but do not influence each other: a batch of N decides as N of one.
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

ROWS_TOGETHER = 8
"""Rows that go through the network side by side: what they need stays in the first cache."""


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
    row: np.ndarray,
    seen: ObservationSizes,
    prior: PriorParameters,
    mask: np.ndarray,
    logits: np.ndarray,
) -> int:
    """Finish one row of ``logits`` in place and return the action, -1 if none is legal."""
    num_slots = seen.num_waiting_slots + seen.num_running_slots
    slots = row[: num_slots * seen.num_slot_features].reshape(num_slots, seen.num_slot_features)
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
    rows: np.ndarray,
    x: np.ndarray,
    masks: np.ndarray,
    logits: np.ndarray,
) -> None:
    num_slots = seen.num_waiting_slots + seen.num_running_slots
    present = np.empty((rows.shape[0], num_slots), np.int8)
    for row in range(rows.shape[0]):
        for slot in range(num_slots):
            present[row, slot] = rows[row, slot * seen.num_slot_features] > 0.5
    shape = PointerShape(
        seen.num_waiting_slots,
        seen.num_running_slots,
        seen.num_slot_features,
        seen.num_globals,
        seen.num_levels,
        network.sizes[7],
    )
    pointer_logits(network.flat, shape, x, present, masks, logits)


@compiled_part
def _linear_score(
    flat: np.ndarray,
    features: np.ndarray,
    seen: ObservationSizes,
    row: np.ndarray,
    x: np.ndarray,
    mask: np.ndarray,
    logits: np.ndarray,
) -> None:
    """Fill ``logits`` with a linear score of ``x``; its watermark reads ``row``, as observed.

    Args:
        flat: float32, the tensors of the score.
        features: int64 (2,), the features that its watermark reads.
        seen: Sizes of the observation.
        row: float32 (num_public,), as observed.
        x: float32 (num_public,), normalised.
        mask: int8 (L + K + J,), 1 = legal.
        logits: float32 (L + K + J,), filled but for slots that may not be chosen.
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
    linear_logits(flat, shape, inputs, x[edge:], slots, free, mask, logits)


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
    x = np.empty((min(masks.shape[0], ROWS_TOGETHER), observations.shape[1]), np.float32)
    scores = np.empty(masks.shape[1], np.float32)
    for first in range(0, masks.shape[0], ROWS_TOGETHER):
        end = min(first + ROWS_TOGETHER, masks.shape[0])
        rows, legal, out = observations[first:end], masks[first:end], logits[first:end]
        for row in range(end - first):
            _normalise_row(rows[row], seen, network.norm, network.numbers[0], x[row])
        _forward(network, seen, rows, x[: end - first], legal, out)
        for row in range(end - first):
            if network.score.size > 0:
                one, mask = rows[row], legal[row]
                _linear_score(network.score, network.score_sizes, seen, one, one, mask, scores)
                add_softened(prior.strength, prior.floor, scores, mask, out[row])
            actions[first + row] = _choose(rows[row], seen, prior, legal[row], out[row])


@compiled_part
def _forward(
    network: Network,
    seen: ObservationSizes,
    rows: np.ndarray,
    x: np.ndarray,
    masks: np.ndarray,
    logits: np.ndarray,
) -> None:
    """Run the network on some rows; ``x`` are the normalised ones."""
    sizes, kind = network.sizes, network.sizes[6]
    if kind == POINTER:
        _pointer(network, seen, rows, x, masks, logits)
        return
    for row in range(rows.shape[0]):
        if kind == FLAT:
            mlp_logits(network.flat, sizes[8:], sizes[7] != 0, x[row], logits[row])
        else:
            _linear_score(
                network.flat, sizes[7:9], seen, rows[row], x[row], masks[row], logits[row]
            )
