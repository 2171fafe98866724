"""Waits of learned policies against those of tuned ones at the same goodput."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sched_env.errors import ConfigError, SchedEnvError
from sched_env.evaluation.equal_goodput import (
    compare_at_equal_goodput,
    equal_goodput_table,
    main,
)

TUNED = {"quick": (0.90, 1000.0), "middle": (0.94, 3000.0), "patient": (0.96, 5000.0)}


def rows(learned: tuple[float, float], tuned=TUNED, noise: float = 0.0, num_cells: int = 40):
    """Return rows in which all policies share the noise of a cell."""
    rng = np.random.default_rng(0)
    shifts = rng.normal(0.0, noise, num_cells) if noise else np.zeros(num_cells)
    policies = {name: ("tuned", point) for name, point in tuned.items()}
    policies["net"] = ("network", learned)
    policies["fcfs"] = ("heuristic", (0.1, 9.0))
    return [
        {
            "policy": name,
            "policy_kind": kind,
            "trace": "t",
            "load": 1.0,
            "seed": seed,
            "goodput_weighted": goodput + shift,
            "p95_ttft_ms": wait_ms * (1.0 + shift),
        }
        for name, (kind, (goodput, wait_ms)) in policies.items()
        for seed, shift in enumerate(shifts.tolist())
    ]


@pytest.mark.parametrize(
    ("learned", "tuned_wait_ms"),
    [
        ((0.94, 1500.0), 3000.0),
        ((0.95, 1500.0), 4000.0),  # half way between two of them
        ((0.92, 1500.0), 2000.0),
        ((0.99, 1500.0), 5000.0),  # none of them gets there
    ],
)
def test_the_tuned_wait_is_that_at_the_goodput_of_the_policy(learned, tuned_wait_ms):
    (found,) = compare_at_equal_goodput(rows(learned))
    assert found.policy == "net"
    assert found.tuned_wait_ms == pytest.approx(tuned_wait_ms)
    assert found.shorter.mean == pytest.approx(1.0 - 1500.0 / tuned_wait_ms)
    assert found.shorter.low == pytest.approx(found.shorter.mean)


def test_whom_another_beats_in_both_is_left_out():
    tuned = {**TUNED, "bad": (0.92, 9000.0)}
    (found,) = compare_at_equal_goodput(rows((0.92, 1500.0), tuned))
    assert found.tuned_wait_ms == pytest.approx(2000.0)


def test_a_policy_below_all_tuned_ones_is_not_compared():
    (found,) = compare_at_equal_goodput(rows((0.80, 100.0)))
    assert math.isnan(found.tuned_wait_ms)
    assert math.isnan(found.shorter.mean)
    assert equal_goodput_table([found]).rows[0][3:] == ("all have more", "-")


def test_an_interval_needs_a_tuned_policy_with_less_goodput():
    near_the_edge = rows((0.9, 1500.0))
    for one in near_the_edge:
        if one["policy"] == "quick" and one["seed"] < 20:
            one["goodput_weighted"] -= 0.02 * (one["seed"] % 2)
        elif one["policy"] == "quick":
            one["goodput_weighted"] += 0.01 * (one["seed"] % 2)
    (found,) = compare_at_equal_goodput(near_the_edge)
    assert found.tuned_wait_ms > 1000.0
    assert math.isnan(found.shorter.low)
    assert "no interval" in equal_goodput_table([found]).rows[0][4]


def test_what_all_share_does_not_widen_the_interval():
    (found,) = compare_at_equal_goodput(rows((0.95, 3600.0), noise=0.05))
    assert [found.shorter.low, found.shorter.high] == pytest.approx([0.1, 0.1])
    assert compare_at_equal_goodput(rows((0.95, 3600.0), noise=0.05)) == [found]


def test_several_learned_policies_have_a_mean():
    more = rows((0.95, 2000.0))
    other = [one for one in rows((0.94, 2400.0)) if one["policy"] == "net"]
    found = compare_at_equal_goodput(more + [{**one, "policy": "other"} for one in other])
    assert [one.policy for one in found] == ["net", "other", "mean of 2 learned"]
    assert found[2].shorter.mean == pytest.approx((0.5 + 0.2) / 2)
    assert found[2].shorter.low == pytest.approx(found[2].shorter.mean)
    assert found[2].tuned_wait_ms == pytest.approx(3500.0)


def test_the_conditions_of_an_arena_are_cells_of_their_own():
    scarce = [{**one, "kv_pool": "scarce", "slo": "tight"} for one in rows((0.95, 2000.0))]
    ample = [{**one, "kv_pool": "ample", "slo": "tight"} for one in rows((0.95, 4000.0))]
    (found,) = compare_at_equal_goodput(scarce + ample)
    assert found.wait_ms == pytest.approx(3000.0)
    assert found.shorter.num_values == 80


def test_a_cell_without_tokens_is_left_out_for_all():
    some = rows((0.94, 1500.0))
    some[0] = {**some[0], "p95_ttft_ms": math.nan}
    some[1] = {**some[1], "p95_ttft_ms": None}
    some[2] = {**some[2], "goodput_weighted": None}
    (found,) = compare_at_equal_goodput(some)
    assert found.shorter.num_values == 37
    assert "1,500" in equal_goodput_table([found]).rows[0]


def test_it_says_what_is_missing():
    with pytest.raises(SchedEnvError, match="two tuned ones"):
        compare_at_equal_goodput(rows((0.9, 1.0), {"one": (0.9, 1.0)}))
    with pytest.raises(SchedEnvError, match="no cell in common"):
        compare_at_equal_goodput(
            [one for one in rows((0.9, 1.0)) if (one["policy"] == "net") == (one["seed"] < 9)]
        )
    text = [{**one, "goodput_weighted": "x"} for one in rows((0.9, 1.0))]
    with pytest.raises(SchedEnvError, match="is 'x', no number"):
        compare_at_equal_goodput(text)
    bare = [{k: v for k, v in one.items() if k != "p95_ttft_ms"} for one in rows((0.9, 1.0))]
    with pytest.raises(SchedEnvError, match="p95_ttft_ms"):
        compare_at_equal_goodput(bare)
    plain = [{k: v for k, v in one.items() if k != "policy_kind"} for one in rows((0.9, 1.0))]
    with pytest.raises(SchedEnvError, match="two tuned ones"):
        compare_at_equal_goodput(plain)
    some = rows((0.9, 1.0))
    with pytest.raises(SchedEnvError, match=r"has two rows for .*seed 0"):
        compare_at_equal_goodput([*some, {**some[0], "goodput_weighted": 0.1}])
    with pytest.raises(SchedEnvError, match=r"a row for .*seed \[1\]"):
        compare_at_equal_goodput([{**some[0], "seed": [1]}, *some[1:]])
    (found,) = compare_at_equal_goodput([{**some[0], "goodput_weighted": 10**400}, *some[1:]])
    assert found.shorter.num_values == 39
    with pytest.raises(ConfigError, match="give one folder"):
        main([])
