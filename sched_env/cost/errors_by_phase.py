"""How far step-time models are off measured steps, by phase."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sched_env.cost.measured import PHASES, Floats, MeasuredSteps

HELD_OUT_SHARE = 0.25
"""Part of the measured steps that a model is tested on and not fitted to."""


@dataclass(frozen=True)
class PhaseError:
    """Relative errors of one phase.

    Attributes:
        num_steps: Steps compared.
        mape_pct: Mean absolute relative error in percent.
        p95_pct: Its 95th percentile.
        median_ratio: Median of what the model says over what was measured.
    """

    num_steps: int
    mape_pct: float
    p95_pct: float
    median_ratio: float


@dataclass(frozen=True, eq=False)
class HeldOutFit:
    """A model fitted to a part of the steps, and tested on the rest.

    Attributes:
        errors: By phase, of the held-out steps; a phase without one is left out.
        held_out: The held-out steps.
        predicted_ms: What the model says about them, float64 (n,).
    """

    errors: dict[str, PhaseError]
    held_out: MeasuredSteps
    predicted_ms: Floats


def errors_by_phase(steps: MeasuredSteps, predicted_ms: Floats) -> dict[str, PhaseError]:
    """Return the errors of each phase that has steps."""
    ratios = predicted_ms / steps.ms
    found: dict[str, PhaseError] = {}
    for phase in PHASES:
        own = ratios[steps.phases == phase]
        if len(own):
            errors_pct = 100.0 * np.abs(own - 1.0)
            p95 = float(np.percentile(errors_pct, 95))
            median = float(np.median(own))
            found[phase] = PhaseError(len(own), float(errors_pct.mean()), p95, median)
    return found


def held_out_rows(steps: MeasuredSteps, seed: int) -> NDArray[np.bool_]:
    """Return which steps to hold out: a quarter of each phase, at random, bool (n,).

    A phase with fewer than four steps keeps them all.
    """
    rng = np.random.default_rng(seed)
    chosen = np.zeros(len(steps), np.bool_)
    for phase in PHASES:
        rows = np.flatnonzero(steps.phases == phase)
        num_held = int(len(rows) * HELD_OUT_SHARE)
        chosen[rng.permutation(rows)[:num_held]] = True
    return chosen


def hold_out(
    steps: MeasuredSteps, fitted: Callable[[MeasuredSteps, MeasuredSteps], Floats], seed: int
) -> HeldOutFit:
    """Fit to three quarters of the steps and compare with the others.

    Args:
        steps: Of one group.
        fitted: Given the steps to fit to and others, returns the times of the others in ms.
        seed: Draws which steps are held out.
    """
    held = held_out_rows(steps, seed)
    test = steps.take(held)
    predicted = fitted(steps.take(~held), test)
    return HeldOutFit(errors_by_phase(test, predicted), test, predicted)
