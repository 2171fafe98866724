from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from sched_env.errors import ConfigError, UnknownNameError
from sched_env.workload import (
    WORKLOADS,
    LogNormalLengths,
    PoissonArrivals,
    Workload,
    read_trace,
    summarize,
    synthesize,
    workload,
)


@pytest.mark.parametrize("name", WORKLOADS)
def test_one_seed_gives_one_table(name):
    table = synthesize(name, num_requests=300, seed=4)
    assert len(table) == 300
    assert table.arrival_time_s[0] == 0
    assert table.equals(synthesize(name, num_requests=300, seed=4))
    assert not table.equals(synthesize(name, num_requests=300, seed=5))
    assert table.source.name == name
    assert table.source.format == "synthetic"


@pytest.mark.parametrize("name", WORKLOADS)
def test_mean_rate_follows_the_wish(name):
    table = synthesize(name, duration_s=2000.0, rate_rps=20.0, seed=1)
    assert len(table) / 2000.0 == pytest.approx(20.0, rel=0.25)
    assert table.arrival_time_s[-1] < 2000.0


def test_rate_scales_intervals_and_leaves_lengths():
    natural = synthesize("azure_code", num_requests=500, seed=2)
    faster = synthesize(
        "azure_code",
        num_requests=500,
        seed=2,
        rate_rps=2 * workload("azure_code").arrival.mean_rate_rps,
    )
    assert faster.arrival_time_s == pytest.approx(natural.arrival_time_s / 2)
    assert faster.prompt_tokens.tolist() == natural.prompt_tokens.tolist()


def test_azure_conv_figures_match_the_trace_they_were_fitted_to():
    # Measured on the trace: rate 5.87, means 1246 and 204, gap CV 1.08, dispersion 1.35 and 3.5.
    summaries = [summarize(synthesize("azure_conv", duration_s=2100.0, seed=s)) for s in range(8)]
    assert np.mean([s.mean_rate_rps for s in summaries]) == pytest.approx(5.87, rel=0.15)
    assert np.mean([s.prompt_tokens.mean for s in summaries]) == pytest.approx(1246, rel=0.02)
    assert np.mean([s.output_tokens.mean for s in summaries]) == pytest.approx(204, rel=0.02)
    assert np.mean([s.gap_cv for s in summaries]) == pytest.approx(1.10, abs=0.05)
    assert np.mean([s.dispersion_1s for s in summaries]) == pytest.approx(1.37, abs=0.1)
    assert np.mean([s.dispersion_10s for s in summaries]) == pytest.approx(3.5, abs=0.7)


def test_azure_code_is_as_bursty_as_the_trace_it_was_fitted_to():
    # Measured on the trace: rate 3.15, means 2033 and 27.5, gap CV 12.8, dispersion 13 and 70.
    summaries = [summarize(synthesize("azure_code", duration_s=2100.0, seed=s)) for s in range(8)]
    assert np.mean([s.mean_rate_rps for s in summaries]) == pytest.approx(3.1, rel=0.15)
    assert np.mean([s.prompt_tokens.mean for s in summaries]) == pytest.approx(2033, rel=0.03)
    assert np.mean([s.output_tokens.mean for s in summaries]) == pytest.approx(27.5, rel=0.08)
    assert np.mean([s.gap_cv for s in summaries]) == pytest.approx(12.4, abs=2.5)
    assert np.mean([s.dispersion_1s for s in summaries]) == pytest.approx(13.5, abs=2.5)
    assert np.mean([s.dispersion_10s for s in summaries]) == pytest.approx(69, abs=12)


def test_lengths_follow_the_quantiles_of_the_shared_window(shared_dir):
    real = read_trace(shared_dir / "traces/azure2023/AzureLLMInferenceTrace_conv.csv")
    drawn = synthesize("azure_conv", num_requests=20000, seed=0)
    for column, allowed in (("prompt_tokens", 0.05), ("output_tokens", 0.03)):
        tokens = np.arange(0, 5000)
        ours = np.searchsorted(np.sort(getattr(drawn, column)), tokens, "right") / len(drawn)
        theirs = np.searchsorted(np.sort(getattr(real, column)), tokens, "right") / len(real)
        assert np.max(np.abs(ours - theirs)) < allowed


def test_burst_cv_and_arrival_replace_the_arrivals():
    gaps = np.diff(synthesize("chatbot", num_requests=40000, burst_cv=3.0).arrival_time_s)
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(3.0, rel=0.08)
    table = synthesize("azure_code", num_requests=20000, arrival=PoissonArrivals(9.0))
    assert table.mean_rate_rps == pytest.approx(9.0, rel=0.05)
    with pytest.raises(ConfigError, match="not both"):
        synthesize("chatbot", num_requests=5, burst_cv=2.0, arrival=PoissonArrivals(1.0))


def test_a_workload_of_ones_own():
    own = Workload(
        "own", LogNormalLengths(100, 0.0), LogNormalLengths(10, 0.5), PoissonArrivals(1.0), rho=0.3
    )
    table = synthesize(own, num_requests=50, seed=1)
    assert set(table.prompt_tokens.tolist()) == {100}
    correlated = dataclasses.replace(own, prompt=LogNormalLengths(100, 0.5), rho=1.0)
    assert summarize(synthesize(correlated, num_requests=500)).length_spearman > 0.99
    with pytest.raises(ConfigError, match="rho"):
        dataclasses.replace(own, rho=1.5)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"num_requests": 0},
        {"num_requests": 5, "duration_s": 5.0},
        {"duration_s": -1.0},
        {"num_requests": 5, "rate_rps": 0.0},
        {"num_requests": 5, "seed": -1},
        {"num_requests": 5, "burst_cv": 0.0},
        {"duration_s": 1e-9},
    ],
)
def test_impossible_arguments_are_refused(arguments):
    with pytest.raises(ConfigError):
        synthesize("chatbot", **arguments)


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean 'azure_conv'"):
        synthesize("azure_cnv", num_requests=5)


def test_arrivals_beyond_all_clocks_are_refused():
    with pytest.raises(ConfigError, match="higher rate_rps"):
        synthesize("azure_conv", duration_s=1e200, rate_rps=1e-199)
