r"""Soft prior: a heuristic written as logits that are added to those of the network.

A network whose output is zero then acts as the heuristic, and training starts from there.

Kind "linear_score" softens a linear score (see linear_score.py), such as a search has tuned. With
``z`` its logits, watermark included, over the legal actions of this decision::

    action_a = max(floor, strength * (z_a - largest z of the legal actions))

It reads the observation as it is, not normalised. Its tensors, those of the linear score, stand in
the weights file under names that begin with ``prior.``.

Kind "weighted_sjf" needs no tensors. With
``score_i = score_scale * y`` of one named slot feature ``y``, larger = served first, and over the
legal actions of this decision::

    admit_k   = max(floor, strength * (score_k - largest score of the legal admits))
    preempt_j = max(floor, strength * (smallest score of the legal preempts - score_j))
                + preempt_bias
    proceed_l = (proceed_stop if no admit is legal else proceed_go)
                + (lower_level if l < L - 1 else 0) + (hold_prefill if l = 0 else 0)

It takes for ``y`` the feature "density", which is log(weight / work) / 5, so the score is
log(weight / work) with ``score_scale`` 5. Kind "none" adds nothing. Illegal actions get
nothing: their logits are replaced by -1e8 afterwards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sched_env.compiled import compiled_part

SCORE_PREFIX = "prior."
"""Begins the names of a linear score's tensors where it is the prior of a network."""


class PriorParameters(NamedTuple):
    """Numbers of the soft prior; ``score_feature`` is -1 where there is no prior."""

    score_feature: int
    strength: np.float32
    floor: np.float32
    proceed_stop: np.float32
    proceed_go: np.float32
    lower_level: np.float32
    preempt_bias: np.float32
    score_scale: np.float32 = np.float32(5)
    hold_prefill: np.float32 = np.float32(0)


@compiled_part
def add_prior(
    prior: PriorParameters,
    slots: np.ndarray,
    mask: np.ndarray,
    num_levels: int,
    num_waiting_slots: int,
    logits: np.ndarray,
) -> None:
    """Add the prior to the logits of one decision.

    Args:
        prior: Numbers of the prior.
        slots: float32 (K + J, F), as observed.
        mask: int8 (L + K + J,), 1 = legal.
        num_levels: L.
        num_waiting_slots: K.
        logits: float32 (L + K + J,), changed in place where an action is legal.
    """
    if prior.score_feature < 0:
        return
    best = np.float32(-np.inf)
    worst = np.float32(np.inf)
    for slot in range(slots.shape[0]):
        if mask[num_levels + slot] != 0:
            score = prior.score_scale * slots[slot, prior.score_feature]
            if slot < num_waiting_slots:
                best = max(best, score)
            else:
                worst = min(worst, score)
    proceed = prior.proceed_go if best > np.float32(-np.inf) else prior.proceed_stop
    for level in range(num_levels):
        logits[level] += proceed
        if level < num_levels - 1:
            logits[level] += prior.lower_level
    logits[0] += prior.hold_prefill
    for slot in range(slots.shape[0]):
        if mask[num_levels + slot] == 0:
            continue
        score = prior.score_scale * slots[slot, prior.score_feature]
        if slot < num_waiting_slots:
            logits[num_levels + slot] += max(prior.floor, prior.strength * (score - best))
        else:
            gap = max(prior.floor, prior.strength * (worst - score))
            logits[num_levels + slot] += gap + prior.preempt_bias


@compiled_part
def add_softened(
    strength: np.float32,
    floor: np.float32,
    scores: np.ndarray,
    mask: np.ndarray,
    logits: np.ndarray,
) -> None:
    """Add a linear score, softened, to the logits of one decision.

    Args:
        strength: Logits per unit of score below the best action.
        floor: No action falls further than this behind the best.
        scores: float32 (L + K + J,), logits of the linear score.
        mask: int8 (L + K + J,), 1 = legal.
        logits: float32 (L + K + J,), changed in place where an action is legal.
    """
    best = np.float32(-np.inf)
    for action in range(scores.size):
        if mask[action] != 0:
            best = max(best, scores[action])
    for action in range(scores.size):
        if mask[action] != 0:
            logits[action] += max(floor, strength * (scores[action] - best))
