from __future__ import annotations

import numpy as np
import pytest

from sched_env.errors import ConfigError
from sched_env.workload import LogNormalLengths, QuantileLengths
from sched_env.workload.lengths import correlated_normals, correlated_uniforms, normal_cdf


def test_quantile_table_is_inverted_linearly():
    table = QuantileLengths([0, 50, 100], [1, 101, 301])
    z = np.array([-40.0, 0.0, 40.0, 0.6744897501960817])
    assert table.at_normal(z) == pytest.approx([1, 101, 301, 201])
    drawn = table.sample_at(np.random.default_rng(0).standard_normal(20000))
    assert drawn.dtype == np.int32
    assert np.percentile(drawn, [25, 50, 75]) == pytest.approx([51, 101, 201], abs=4)


def test_lognormal_has_its_mean_and_spread_and_keeps_its_bounds():
    z = np.random.default_rng(0).standard_normal(200000)
    drawn = LogNormalLengths(500.0, 1.5).sample_at(z)
    assert drawn.mean() == pytest.approx(500, rel=0.03)
    assert drawn.std() / drawn.mean() == pytest.approx(1.5, rel=0.12)
    cut = LogNormalLengths(500.0, 1.5, max_tokens=1000).sample_at(z)
    assert cut.max() == 1000
    assert cut.min() >= 1
    assert set(LogNormalLengths(7.0, 0.0).sample_at(z[:9]).tolist()) == {7}


@pytest.mark.parametrize("rho", [-0.9, 0.0, 0.4, 1.0])
def test_copula_correlates_the_normal_scores_and_keeps_uniforms_uniform(rho):
    first, second = correlated_normals(np.random.default_rng(1), rho, 40000)
    assert np.corrcoef(first, second)[0, 1] == pytest.approx(rho, abs=0.02)
    for column in correlated_uniforms(np.random.default_rng(1), rho, 40000):
        assert np.percentile(column, [10, 50, 90]) == pytest.approx([0.1, 0.5, 0.9], abs=0.01)
        assert column.min() >= 0


def test_normal_cdf():
    assert normal_cdf(np.array([0.0, 1.959963984540054])) == pytest.approx([0.5, 0.975])


@pytest.mark.parametrize(
    "make",
    [
        lambda: QuantileLengths([0, 100], [1]),
        lambda: QuantileLengths([0], [1]),
        lambda: QuantileLengths([0, 99], [1, 2]),
        lambda: QuantileLengths([0, 50, 50, 100], [1, 2, 3, 4]),
        lambda: QuantileLengths([0, 50, 100], [1, 3, 2]),
        lambda: QuantileLengths([0, 100], [0, 2]),
        lambda: LogNormalLengths(0.5, 1.0),
        lambda: LogNormalLengths(5.0, -1.0),
        lambda: LogNormalLengths(5.0, 1.0, 0),
        lambda: LogNormalLengths(float("nan"), 1.0),
    ],
)
def test_impossible_figures_are_refused(make):
    with pytest.raises(ConfigError):
        make()
