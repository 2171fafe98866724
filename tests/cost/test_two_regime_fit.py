"""Fitting the formulas."""

from __future__ import annotations

import numpy as np
import pytest

from sched_env.config.cost import TwoRegimeParameters
from sched_env.cost.models import two_regime_cost
from sched_env.cost.predict import kernel_ms
from sched_env.cost.two_regime_fit import fit_non_negative, fit_two_regime
from sched_env.errors import ConfigError
from tests.cost.made_steps import made_steps


def test_known_constants_are_found_again() -> None:
    fit = fit_two_regime(made_steps())
    assert fit["dec"] == pytest.approx({"a": 5.0, "b": 0.02, "d": 4e-5, "S0": 0.0}, rel=1e-6)
    found = {name: fit["mix"][name] for name in "ogbde"}
    assert found == pytest.approx({"o": 1.0, "g": 0.02, "b": 0.01, "d": 4e-5, "e": 1e-6}, rel=1e-6)
    assert (fit["mix"]["Tk"], fit["mix"]["p"], fit["mix"]["tile"]) == (256.0, 2.0, 1.0)


def test_the_fitted_formula_gives_the_fitted_times() -> None:
    steps = made_steps()
    cost = two_regime_cost(TwoRegimeParameters.from_mapping(fit_two_regime(steps)))
    assert kernel_ms(cost, steps) == pytest.approx(steps.ms, rel=1e-6)


def test_constants_are_never_negative() -> None:
    rng = np.random.default_rng(0)
    columns = rng.uniform(0.1, 1.0, (30, 3))
    values = columns @ np.array([1.0, -2.0, 3.0]) + 3.0
    fit = fit_non_negative(columns, values, np.ones(30))
    assert (fit.constants >= 0).all()
    residual = values - columns @ fit.constants
    assert fit.loss == pytest.approx(residual @ residual)
    # At the least of a convex function over the non-negative constants, no step down is left.
    slope = columns.T @ residual
    assert (slope <= 1e-6).all()
    assert abs(slope @ fit.constants) < 1e-6


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_one_kind_of_step_is_enough(phase) -> None:
    steps = made_steps()
    only = steps.take(steps.phases == phase)
    cost = two_regime_cost(TwoRegimeParameters.from_mapping(fit_two_regime(only)))
    assert kernel_ms(cost, only) == pytest.approx(only.ms, rel=1e-5)
    assert (kernel_ms(cost, steps) > 0).all()


def test_no_step_is_no_fit() -> None:
    with pytest.raises(ConfigError, match="no measured step"):
        fit_two_regime(made_steps().take(made_steps().ms < 0))
