"""Fit a step-time model of any kind to measured steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Literal, cast, get_args

import numpy as np

from sched_env.config.cost import (
    AffineCost,
    EngineOverhead,
    RooflineCost,
    TableCost,
    TwoRegimeCost,
    TwoRegimeParameters,
)
from sched_env.config.hardware import Precision
from sched_env.cost.hardware import gpu_names, model_names
from sched_env.cost.measured import PHASES, MeasuredSteps, group_parts
from sched_env.cost.models import cost_record, measured_step_overhead, table_cost
from sched_env.cost.predict import kernel_ms
from sched_env.cost.profile import STEPS_FILE, PlainCost
from sched_env.cost.two_regime_fit import fit_non_negative, fit_two_regime
from sched_env.errors import ConfigError, did_you_mean

FitName = Literal["table", "two_regime", "roofline", "affine"]
"""Models that can be fitted."""

_MS = 1e-3
_EFFICIENCIES = np.arange(0.2, 1.001, 0.05)
_HALF_STEPS = np.arange(-0.04, 0.041, 0.01)


def fit_cost(steps: MeasuredSteps, model: FitName) -> PlainCost:
    """Return the configuration of a model fitted to all steps of a group.

    A table's path is that of ``steps.csv`` in the profile folder.

    Raises:
        ConfigError: There are too few or too many steps, or the roofline lacks a spec sheet.
    """
    overhead = measured_step_overhead(steps, on_table=model == "table")
    fits: dict[FitName, Callable[[MeasuredSteps, EngineOverhead], PlainCost]] = {
        "table": _table,
        "two_regime": _two_regime,
        "roofline": _roofline,
        "affine": _affine,
    }
    return fits[model](steps, overhead)


def fitted_ms(steps: MeasuredSteps, model: FitName, wanted: MeasuredSteps) -> np.ndarray:
    """Fit a model to ``steps`` and return what it says about ``wanted`` in ms, float64 (n,).

    Raises:
        ConfigError: As for `fit_cost`.
    """
    if model == "table":
        return kernel_ms(table_cost(steps, margin=0.0), wanted)
    return kernel_ms(cost_record(fit_cost(steps, model)), wanted)


def _table(steps: MeasuredSteps, overhead: EngineOverhead) -> TableCost:
    return TableCost(path=STEPS_FILE, group=steps.group, engine_overhead=overhead)


def _two_regime(steps: MeasuredSteps, overhead: EngineOverhead) -> TwoRegimeCost:
    parameters = TwoRegimeParameters.from_mapping(fit_two_regime(steps))
    return TwoRegimeCost(parameters=parameters, engine_overhead=overhead)


def _affine(steps: MeasuredSteps, overhead: EngineOverhead) -> AffineCost:
    columns = np.stack([np.ones(len(steps)), steps.n_decode, steps.prefill_tokens], axis=1)
    base, decode, prefill = fit_non_negative(columns, steps.ms * _MS, 1e3 / steps.ms).constants
    return AffineCost(
        base_s=float(base),
        per_decode_s=float(decode),
        per_prefill_token_s=float(prefill),
        engine_overhead=overhead,
    )


def _roofline(steps: MeasuredSteps, overhead: EngineOverhead) -> RooflineCost:
    """Search the two efficiencies that leave the least squared relative error."""
    start = spec_sheet_roofline(steps.group).replace(engine_overhead=overhead)

    def loss(config: RooflineCost) -> float:
        errors = (kernel_ms(cost_record(config), steps) / steps.ms - 1.0) ** 2
        present = [steps.phases == phase for phase in PHASES]
        return sum(float(errors[rows].mean()) for rows in present if rows.any())

    def best(bandwidths: np.ndarray, computes: np.ndarray) -> RooflineCost:
        tried = [
            start.replace(bandwidth_efficiency=float(b), compute_efficiency=float(c))
            for b, c in itertools.product(bandwidths, computes)
            if b <= 1.0 and c <= 1.0
        ]
        return min(tried, key=loss)

    coarse = best(_EFFICIENCIES, _EFFICIENCIES)
    return best(
        np.round(coarse.bandwidth_efficiency + _HALF_STEPS, 4),
        np.round(coarse.compute_efficiency + _HALF_STEPS, 4),
    )


def spec_sheet_roofline(group: str) -> RooflineCost:
    """Return the roofline of a group's GPU and model with the usual efficiencies.

    Raises:
        ConfigError: The GPU or the model has no spec sheet here, or the precision no FLOP/s.
    """
    gpu, model, tp, precision = group_parts(group)
    for kind, name, known in (("GPU", gpu, gpu_names()), ("model", model, model_names())):
        if name not in known:
            raise ConfigError(
                f"{group}: no spec sheet of {kind} {name!r}.{did_you_mean(name, known)} Known: "
                f"{', '.join(known)}; fit table or two_regime, or write a roofline by hand"
            )
    if precision not in get_args(Precision):
        raise ConfigError(
            f"{group}: a roofline takes {', '.join(get_args(Precision))}, not {precision!r}"
        )
    return RooflineCost(gpu=gpu, model=model, tp=tp, precision=cast("Precision", precision))
