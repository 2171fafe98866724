from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from sched_env.config.service import DEFAULT_SERVICE_CLASSES
from sched_env.errors import ConfigError
from sched_env.workload import (
    DEFAULT_SERVICE_CLASS_NAMES,
    SERVICE_CLASS,
    draw_class,
    draw_predicted_tokens,
    draw_slo_jitter,
    service_class_array,
)

DEFAULTS = service_class_array(DEFAULT_SERVICE_CLASSES)


@dataclass(frozen=True)
class _Class:
    share: float = 1.0
    weight: float = 1.0
    ttft_slo_s: float = 1.0
    tpot_slo_s: float = 0.1


def test_the_defaults():
    assert DEFAULT_SERVICE_CLASS_NAMES == ("interactive", "standard", "batch")
    assert DEFAULTS["share"].tolist() == [0.3, 0.5, 0.2]
    assert DEFAULTS["weight"].tolist() == [4, 2, 1]
    assert DEFAULTS["ttft_slo_s"].tolist() == [0.8, 2.5, 10]
    assert DEFAULTS["tpot_slo_s"].tolist() == [0.05, 0.08, 0.15]
    assert SERVICE_CLASS.isalignedstruct


def test_classes_are_drawn_in_proportion_to_their_shares():
    drawn = [draw_class(DEFAULTS, 5, row) for row in range(20000)]
    assert np.bincount(drawn) / 20000 == pytest.approx([0.3, 0.5, 0.2], abs=0.015)


def test_shares_need_not_sum_to_one_and_a_class_of_share_zero_is_never_drawn():
    classes = service_class_array([_Class(share=0), _Class(share=6), _Class(share=2), _Class(0)])
    drawn = [draw_class(classes, 1, row) for row in range(5000)]
    assert set(drawn) == {1, 2}
    assert np.mean(np.array(drawn) == 1) == pytest.approx(0.75, abs=0.03)


def test_jitter_lies_in_its_range_and_fills_it():
    jitters = np.array([draw_slo_jitter(9, row) for row in range(5000)])
    assert jitters.min() >= 0.75
    assert jitters.max() < 1.5
    assert jitters.mean() == pytest.approx(1.125, abs=0.01)


def test_predictions_are_unbiased_lognormal_and_sigma_zero_is_an_oracle():
    predicted = np.array([draw_predicted_tokens(200, 0.5, 3, row) for row in range(20000)])
    assert predicted.mean() == pytest.approx(200, rel=0.02)
    assert np.log(predicted).std() == pytest.approx(0.5, rel=0.03)
    assert draw_predicted_tokens(200, 0.0, 3, 7) == 200
    assert min(draw_predicted_tokens(1, 2.0, 3, row) for row in range(200)) == 1.0


def test_class_jitter_and_prediction_of_a_row_are_independent():
    columns = np.array(
        [
            (
                draw_class(DEFAULTS, 2, row),
                draw_slo_jitter(2, row),
                draw_predicted_tokens(50, 0.5, 2, row),
            )
            for row in range(5000)
        ]
    )
    off_diagonal = np.corrcoef(columns.T)[np.triu_indices(3, 1)]
    assert np.max(np.abs(off_diagonal)) < 0.05


@pytest.mark.parametrize(
    ("classes", "word"),
    [
        ([], "0 service classes"),
        ([_Class()] * 128, "128 service classes"),
        ([_Class(share=-0.1)], "share"),
        ([_Class(share=float("nan"))], "share"),
        ([_Class(share=0)], "all 0"),
        ([_Class(weight=-1)], "weight"),
        ([_Class(ttft_slo_s=0)], "ttft_slo_s"),
        ([_Class(tpot_slo_s=float("nan"))], "tpot_slo_s"),
    ],
)
def test_impossible_classes_are_refused(classes, word):
    with pytest.raises(ConfigError, match=word):
        service_class_array(classes)
