from __future__ import annotations

import numpy as np
import pytest

from sched_env.errors import ConfigError, TraceError
from sched_env.workload import (
    RequestTable,
    assign_service_classes,
    default_service_classes,
    draw_class,
    draw_predicted_tokens,
    draw_slo_jitter,
    limit_model_len,
    predict_lengths,
    request_ttft_slos,
    request_weights,
    scale_rate,
    scale_to_rate,
    split_by_time,
    superpose,
    synthesize,
    window,
)
from tests.workload.made_tables import five_requests, sharing

_CLASSES = default_service_classes()


def test_classes_are_the_core_s_own_draws_and_given_ones_stay():
    table = assign_service_classes(five_requests(), _CLASSES, seed=8)
    drawn = [draw_class(_CLASSES, 8, row) for row in range(5)]
    assert table.service_class.tolist() == [drawn[0], 0, 2, drawn[3], 1]
    other = assign_service_classes(synthesize("chatbot", num_requests=100), _CLASSES, seed=9)
    assert len(set(other.service_class.tolist())) == 3


def test_weights_and_slos_follow_the_classes():
    table = assign_service_classes(five_requests(), _CLASSES, seed=8)
    weights = request_weights(table, _CLASSES)
    assert weights.tolist() == _CLASSES["weight"][table.service_class].tolist()
    slos = request_ttft_slos(table, _CLASSES, seed=8)
    assert slos[1] == 0.8 * draw_slo_jitter(8, 1)
    assert slos[2] == 10.0 * draw_slo_jitter(8, 2)


def test_rows_without_class_or_beyond_the_classes_are_refused():
    with pytest.raises(TraceError, match="assign_service_classes"):
        request_weights(five_requests(), _CLASSES)
    with pytest.raises(TraceError, match="service class 2"):
        assign_service_classes(five_requests(), _CLASSES[:2], seed=0)


def test_predictions():
    table = five_requests()
    noisy = predict_lengths(table, "noisy", sigma=0.5, seed=3).predicted_output_tokens
    assert noisy[0] == draw_predicted_tokens(1, 0.5, 3, 0)
    assert noisy[2] == draw_predicted_tokens(300, 0.5, 3, 2)
    assert noisy[[1, 3, 4]].tolist() == [18.5, 4.0, 9.25]
    oracle = predict_lengths(table, "oracle").predicted_output_tokens
    assert oracle.tolist() == [1.0, 18.5, 300.0, 4.0, 9.25]
    assert np.isnan(predict_lengths(table, "none").predicted_output_tokens).all()
    with pytest.raises(ConfigError, match="none, noisy, oracle"):
        predict_lengths(table, "perfect")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="sigma"):
        predict_lengths(table, "noisy", sigma=-1)


def test_too_long_rows_are_rejected_with_a_count():
    table = limit_model_len(five_requests(), 600)
    assert table.prompt_tokens.tolist() == [512, 100, 1]
    assert table.arrival_time_s.tolist() == [1.0, 1.0, 10.0]
    assert table.source.drops == {"prompt + output > max_model_len 600": 2}
    with pytest.raises(TraceError, match="every row"):
        limit_model_len(five_requests(), 2)


@pytest.mark.parametrize("limit", [2, 50, 513, 600, 1024])
def test_clipping_never_goes_below_one_token_and_keeps_matching_prefix_blocks(limit):
    table = limit_model_len(five_requests(), limit, "clip")
    assert len(table) == 5
    assert np.all(table.prompt_tokens + table.output_tokens <= limit)
    assert np.all(table.prompt_tokens >= 1)
    assert np.all(table.output_tokens >= 1)
    assert sharing(table).num_blocks.tolist() == (-(-table.prompt_tokens // 512)).tolist()
    long = five_requests().prompt_tokens + five_requests().output_tokens > limit
    assert table.source.changes == {f"clipped to max_model_len {limit}": int(long.sum())}


def test_limit_refuses_wrong_choices():
    with pytest.raises(ConfigError, match="max_model_len"):
        limit_model_len(five_requests(), 1)
    with pytest.raises(ConfigError, match="too_long"):
        limit_model_len(five_requests(), 10, "cut")  # pyright: ignore[reportArgumentType]


def test_rate_window_and_split():
    table = five_requests()
    assert scale_rate(table, 4.0).span_s == 2.5
    assert scale_to_rate(table, 8.0).mean_rate_rps == pytest.approx(8.0)
    with pytest.raises(TraceError, match="at once"):
        scale_to_rate(table.take([1, 2]), 1.0)
    assert len(window(table, 0, 2)) == 3
    with pytest.raises(TraceError, match="no request from 4 to 5 s"):
        window(table, 4, 5)
    assert len(split_by_time(table, "train")) == 4


def test_superposing_merges_by_time():
    first = five_requests().with_columns(hash_ids=None)
    second = RequestTable.from_columns(
        arrival_time_s=[0.5, 1.0], prompt_tokens=[7, 8], output_tokens=[1, 1]
    )
    both = superpose([first, second])
    assert both.arrival_time_s.tolist() == [0.0, 0.5, 1.0, 1.0, 1.0, 3.5, 10.0]
    assert both.prompt_tokens.tolist() == [600, 7, 512, 100, 8, 1025, 1]
    assert superpose([first]) is first
    with pytest.raises(TraceError, match="prefix ids"):
        superpose([five_requests(), second])
    with pytest.raises(TraceError, match="no table"):
        superpose([])
