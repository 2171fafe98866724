from __future__ import annotations

import numpy as np
import pytest

from sched_env.errors import ConfigError, UnknownNameError
from sched_env.workload import (
    CoxGammaArrivals,
    GammaArrivals,
    LogAr1,
    OnOffArrivals,
    PoissonArrivals,
    WeibullArrivals,
    arrival_process,
)
from sched_env.workload.inspect import dispersion

_COX = CoxGammaArrivals(5.0, 0.8, (LogAr1(0.3, 50.0), LogAr1(0.1, 5.0)))
_ON_OFF = OnOffArrivals(9.0, 2.0, 0.6, 12.0, 10.0, 0.4, LogAr1(0.6, 2.0), 0.45)
_PROCESSES = [
    PoissonArrivals(4.0),
    GammaArrivals(4.0, 2.0),
    GammaArrivals(4.0, 0.5),
    WeibullArrivals(4.0, 0.7),
    _COX,
    _ON_OFF,
]


@pytest.mark.parametrize("process", _PROCESSES, ids=lambda p: type(p).__name__)
def test_number_order_seed_and_mean_rate(process):
    times = process.sample(np.random.default_rng(1), num_requests=40000)
    assert len(times) == 40000
    assert times[0] >= 0
    assert np.all(np.diff(times) >= 0)
    assert len(times) / times[-1] == pytest.approx(process.mean_rate_rps, rel=0.15)
    again = process.sample(np.random.default_rng(1), num_requests=40000)
    assert times.tobytes() == again.tobytes()
    assert times.tobytes() != process.sample(np.random.default_rng(2), num_requests=40000).tobytes()


@pytest.mark.parametrize("process", _PROCESSES, ids=lambda p: type(p).__name__)
def test_a_duration_bounds_the_times_and_gives_the_rate(process):
    times = process.sample(np.random.default_rng(5), duration_s=6000.0)
    assert times[-1] < 6000.0
    assert len(times) / 6000.0 == pytest.approx(process.mean_rate_rps, rel=0.15)


@pytest.mark.parametrize(
    ("process", "cv"),
    [
        (PoissonArrivals(3.0), 1.0),
        (GammaArrivals(3.0, 2.5), 2.5),
        (GammaArrivals(3.0, 0.3), 0.3),
        (WeibullArrivals.with_cv(3.0, 2.0), 2.0),
        (WeibullArrivals.with_cv(3.0, 0.5), 0.5),
    ],
)
def test_gaps_have_the_wanted_variation(process, cv):
    gaps = np.diff(process.sample(np.random.default_rng(3), num_requests=60000))
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(cv, rel=0.06)
    assert np.mean(gaps) == pytest.approx(1 / 3, rel=0.05)


def test_slow_factors_raise_the_dispersion_of_long_bins_only():
    times = _COX.sample(np.random.default_rng(7), duration_s=20000.0)
    assert dispersion(times, 1.0) == pytest.approx(1.6, abs=0.3)
    assert dispersion(times, 10.0) > 4.0


def test_on_off_arrivals_fall_silent():
    times = _ON_OFF.sample(np.random.default_rng(7), duration_s=5000.0)
    counts = np.histogram(times, bins=500, range=(0, 5000))[0]
    assert np.mean(counts == 0) > 0.3
    assert np.std(np.diff(times)) / np.mean(np.diff(times)) > 5


def test_log_ar1_is_stationary_with_mean_one():
    paths = np.array(
        [LogAr1(0.4, 10.0).sample(np.random.default_rng(s), 400, 1.0) for s in range(300)]
    )
    assert paths.mean() == pytest.approx(1.0, abs=0.03)
    logs = np.log(paths)
    assert logs.std(axis=0) == pytest.approx(np.full(400, 0.4), abs=0.09)
    lag_10 = np.corrcoef(logs[:, 100:300].ravel(), logs[:, 110:310].ravel())[0, 1]
    assert lag_10 == pytest.approx(np.exp(-1), abs=0.06)


def test_processes_by_name():
    assert arrival_process("poisson", 2.0) == PoissonArrivals(2.0)
    assert arrival_process("poisson", 2.0, 1.0) == PoissonArrivals(2.0)
    assert arrival_process("gamma", 2.0, 3.0) == GammaArrivals(2.0, 3.0)
    assert isinstance(arrival_process("weibull", 2.0, 3.0), WeibullArrivals)
    with pytest.raises(UnknownNameError, match="Did you mean 'poisson'"):
        arrival_process("poison", 1.0)
    with pytest.raises(ConfigError, match="cv"):
        arrival_process("gamma", 1.0)
    with pytest.raises(ConfigError, match="cv 1"):
        arrival_process("poisson", 1.0, 2.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PoissonArrivals(0.0),
        lambda: PoissonArrivals(float("nan")),
        lambda: GammaArrivals(1.0, 0.0),
        lambda: GammaArrivals(1.0, 1e9),
        lambda: WeibullArrivals(1.0, 0.0),
        lambda: CoxGammaArrivals(1.0, -1.0, ()),
        lambda: PoissonArrivals(1.0).sample(np.random.default_rng(0)),
        lambda: PoissonArrivals(1.0).sample(np.random.default_rng(0), num_requests=0),
        lambda: PoissonArrivals(1.0).sample(np.random.default_rng(0), num_requests=10**9),
        lambda: PoissonArrivals(1e-300).sample(np.random.default_rng(0), num_requests=3),
        lambda: PoissonArrivals(1e-300).sample(np.random.default_rng(0), duration_s=1e300),
        lambda: PoissonArrivals(1.0).sample(np.random.default_rng(0), duration_s=0.0),
        lambda: PoissonArrivals(1e9).sample(np.random.default_rng(0), duration_s=1e9),
        lambda: PoissonArrivals(1.0).sample(
            np.random.default_rng(0), num_requests=1, duration_s=1.0
        ),
    ],
)
def test_impossible_figures_are_refused(make):
    with pytest.raises(ConfigError):
        make()
