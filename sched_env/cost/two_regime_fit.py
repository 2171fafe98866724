"""Fit the constants of the step-time formulas to measured steps.

The constants that a step's time is linear in come from least squares of the relative error, none of
them negative; the others (knee, sharpness, tile, shortest chunk, free context) are searched over a
small grid. Chunks of prefill and mixed steps weigh the same as a whole, however many rows each has.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from sched_env.cost.measured import DECODE, MIXED, PREFILL, Floats, MeasuredSteps
from sched_env.cost.step_time import SHARP
from sched_env.errors import ConfigError

_FREE_CONTEXTS = (0.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)
_KNEES = (0.0, 32.0, 64.0, 96.0, 128.0, 160.0, 192.0, 224.0, 256.0, 320.0, 384.0, 512.0)
_SHARPNESSES = (2.0, 4.0, SHARP)
_TILES = (1.0, 64.0, 128.0)
_MIN_CHUNKS = (1.0, 64.0, 128.0, 256.0)
_RIDGE = 1e-12


@dataclass(frozen=True)
class NonNegativeFit:
    """Constants of a linear model, and what it leaves over.

    Attributes:
        constants: float64 (k,), none below 0.
        loss: Sum of squared weighted errors.
    """

    constants: Floats
    loss: float


def fit_non_negative(columns: Floats, values: Floats, weights: Floats) -> NonNegativeFit:
    """Return the least-squares constants of ``columns @ constants = values``, none below 0.

    With few columns the best set of constants that are not 0 is found by trying every set.

    Args:
        columns: float64 (n, k).
        values: float64 (n,).
        weights: float64 (n,), of each row's error.
    """
    weighted = columns * weights[:, None]
    scale = np.sqrt((weighted**2).sum(axis=0))
    scale[scale == 0] = 1.0
    weighted = weighted / scale
    target = values * weights
    gram, moment, total = weighted.T @ weighted, weighted.T @ target, float(target @ target)
    num_columns = columns.shape[1]
    best = NonNegativeFit(np.zeros(num_columns), total)
    for size in range(1, num_columns + 1):
        chosen = np.array(list(itertools.combinations(range(num_columns), size)))
        blocks = gram[chosen[:, :, None], chosen[:, None, :]] + _RIDGE * np.eye(size)
        moments = moment[chosen]
        found = np.linalg.solve(blocks, moments[..., None])[..., 0]
        losses = np.where((found >= 0).all(axis=1), total - (found * moments).sum(axis=1), np.inf)
        least = int(np.argmin(losses))
        if losses[least] < best.loss:
            constants = np.zeros(num_columns)
            constants[chosen[least]] = found[least] / scale[chosen[least]]
            best = NonNegativeFit(constants, float(losses[least]))
    return best


def fit_two_regime(steps: MeasuredSteps) -> dict[str, dict[str, float]]:
    """Return the constants of the two-regime model in ms: ``{"dec": ..., "mix": ...}``.

    Where only one of the two kinds of step was measured, the other takes over what they share.

    Raises:
        ConfigError: Nothing was measured.
    """
    if len(steps) == 0:
        raise ConfigError(f"{steps.group}: no measured step to fit; give a table with some")
    decode = steps.take(steps.phases == DECODE)
    prefill = steps.take(steps.phases != DECODE)
    dec = _fit_decode(decode) if len(decode) else None
    mix = _fit_mixed(prefill) if len(prefill) else None
    if mix is None:
        assert dec is not None
        mix = {"o": dec["a"], "g": 0.0, "Tk": 0.0, "p": SHARP, "tile": 1.0, "p0": 1.0, "e": 0.0}
        mix |= {"b": dec["b"], "d": dec["d"]}
    elif dec is None:
        least = mix["o"] + mix["g"] * mix["Tk"]
        dec = {"a": least, "b": mix["b"], "d": mix["d"], "S0": 0.0}
    elif not np.any(steps.phases == MIXED):
        mix |= {"b": dec["b"], "d": dec["d"]}
    return {"dec": dec, "mix": mix}


def _fit_decode(steps: MeasuredSteps) -> dict[str, float]:
    best: tuple[float, dict[str, float]] | None = None
    for free in _FREE_CONTEXTS:
        paid = np.maximum(steps.context_tokens - free, 0.0)
        columns = np.stack([np.ones(len(steps)), steps.n_decode, paid], axis=1)
        fit = fit_non_negative(columns, steps.ms, 1.0 / steps.ms)
        if best is None or fit.loss < best[0]:
            a, b, d = (float(one) for one in fit.constants)
            best = fit.loss, {"a": a, "b": b, "d": d, "S0": free}
    assert best is not None
    return best[1]


def _fit_mixed(steps: MeasuredSteps) -> dict[str, float]:
    weights = 1.0 / steps.ms
    for phase in (PREFILL, MIXED):
        rows = steps.phases == phase
        weights[rows] /= np.sqrt(max(np.count_nonzero(rows), 1))
    best: tuple[float, dict[str, float]] | None = None
    for knee, sharpness, tile, min_chunk in itertools.product(
        _KNEES, _SHARPNESSES, _TILES, _MIN_CHUNKS
    ):
        columns = _mixed_columns(steps, knee, sharpness, tile, min_chunk)
        fit = fit_non_negative(columns, steps.ms, weights)
        if best is None or fit.loss < best[0]:
            o, g, b, d, e = (float(one) for one in fit.constants)
            shape = {"Tk": knee, "p": sharpness, "tile": tile, "p0": min_chunk}
            best = fit.loss, {**shape, "o": o, "g": g, "b": b, "d": d, "e": e}
    assert best is not None
    return best[1]


def _mixed_columns(
    steps: MeasuredSteps, knee: float, sharpness: float, tile: float, min_chunk: float
) -> Floats:
    """Return what o, g, b, d and e multiply, float64 (n, 5)."""
    new_tokens = np.ceil((steps.n_decode + steps.prefill_tokens) / tile) * tile
    if sharpness >= SHARP:
        paid_tokens = np.maximum(knee, new_tokens)
    else:
        paid_tokens = (knee**sharpness + new_tokens**sharpness) ** (1.0 / sharpness)
    chunk = np.maximum(steps.prefill_tokens, min_chunk)
    attention = chunk * (steps.prefill_past + 0.5 * steps.prefill_tokens)
    ones = np.ones(len(steps))
    return np.stack([ones, paid_tokens, steps.n_decode, steps.context_tokens, attention], axis=1)
