"""Measured tables: exact at what was measured, sensible between and beyond."""

from __future__ import annotations

import os

import numpy as np
import pytest

from sched_env.config.env import EnvConfig
from sched_env.cost.measured import MeasuredSteps
from sched_env.cost.models import cost_record, table_cost
from sched_env.cost.predict import formula_ms, kernel_ms
from sched_env.cost.reach import check_reach
from sched_env.cost.step_time import is_beyond_reach, step_time_s
from sched_env.errors import ConfigError
from sched_env.simulator import simulate
from sched_env.workload.table import RequestTable
from tests.cost.made_steps import GROUP, made_ms, made_steps, write_steps


def _steps(*rows) -> MeasuredSteps:
    return MeasuredSteps(GROUP, *np.array(rows, float).T, np.ones(len(rows)))


def _record(steps, margin=0.25):
    return table_cost(steps, margin).view(np.recarray)[0]


def test_a_measured_step_takes_its_measured_time() -> None:
    steps = made_steps(bump=0.2)
    assert kernel_ms(table_cost(steps, 0.25), steps) == pytest.approx(steps.ms, rel=1e-12)


def test_between_measured_steps_the_ratio_is_linear() -> None:
    steps = made_steps(bump=0.2)
    cost = table_cost(steps, 0.25)
    ends = _steps((64, 512, 0, 0), (128, 512, 0, 0))
    middle = _steps((96, 512, 0, 0))
    ratios = kernel_ms(cost, ends) / formula_ms(cost, ends)
    wanted = formula_ms(cost, middle) * ratios.mean()
    assert kernel_ms(cost, middle) == pytest.approx(wanted, rel=1e-9)


def test_in_a_corner_all_four_axes_are_interpolated() -> None:
    steps = made_steps(bump=0.2)
    cost = table_cost(steps, 0.25)
    corners = [
        (n, c, chunk, past) for n in (16, 64) for c in (64, 1024) for chunk in (256, 2048)
        for past in (0, 2048)
    ]  # fmt: skip
    at = _steps(*corners)
    ratio = (kernel_ms(cost, at) / formula_ms(cost, at)).mean()
    middle = _steps((40, 544, 1152, 1024))
    assert kernel_ms(cost, middle) == pytest.approx(formula_ms(cost, middle) * ratio, rel=1e-9)


def test_missing_grid_points_follow_their_neighbours() -> None:
    steps = made_steps()
    rng = np.random.default_rng(3)
    kept = rng.random(len(steps)) < 0.7
    ridge = 1.0 + 0.1 * np.log2(steps.prefill_tokens + 16.0)
    bent = MeasuredSteps(
        GROUP, steps.n_decode, steps.ctx, steps.prefill_tokens, steps.prefill_past, steps.ms * ridge
    )
    cost = table_cost(bent.take(kept), 0.25)
    missing = bent.take(~kept)
    errors = np.abs(kernel_ms(cost, missing) / missing.ms - 1.0)
    assert errors.mean() < 0.02


def test_repeated_measurements_count_as_their_mean() -> None:
    rows = _steps((1, 64, 0, 0), (1, 64, 0, 0), (2, 64, 0, 0))
    steps = MeasuredSteps(
        GROUP, rows.n_decode, rows.ctx, rows.prefill_tokens, rows.prefill_past,
        np.array([4.0, 6.0, 5.0]),
    )  # fmt: skip
    assert kernel_ms(table_cost(steps, 0.25), _steps((1, 64, 0, 0))) == pytest.approx([5.0])


def test_scattered_steps_fit_a_thinned_grid() -> None:
    rng = np.random.default_rng(0)
    rows = np.stack(
        [rng.integers(1, high, 500) for high in (128, 4096, 2048, 4096)], axis=1
    ).astype(float)
    steps = MeasuredSteps(GROUP, *rows.T, np.array([made_ms(*row) for row in rows]))
    errors = np.abs(kernel_ms(table_cost(steps, 0.25), steps) / steps.ms - 1.0)
    assert errors.mean() < 0.02


def test_too_many_steps_are_refused() -> None:
    many = _steps(*[(n, 64, 0, 0) for n in range(1, 4002)])
    with pytest.raises(ConfigError, match=r"4001 decode steps are more than the 4000"):
        table_cost(many, 0.25)


def test_beyond_the_last_step_the_formula_goes_on_and_the_margin_ends() -> None:
    steps = made_steps(bump=0.2)
    cost = table_cost(steps, 0.25)
    last, beyond = _steps((128, 512, 0, 0)), _steps((1000, 512, 0, 0))
    ratio = kernel_ms(cost, last) / formula_ms(cost, last)
    assert kernel_ms(cost, beyond) == pytest.approx(formula_ms(cost, beyond) * ratio)
    record = _record(steps)
    assert not is_beyond_reach(record, 160, 160 * 512, 0, 0.0)
    assert is_beyond_reach(record, 161, 161 * 512, 0, 0.0)
    assert is_beyond_reach(record, 1, 5121, 0, 0.0)
    assert not is_beyond_reach(record, 0, 0, 2560, 2560 * 1280.0)
    assert is_beyond_reach(record, 0, 0, 2561, 2561 * 1280.5)
    assert is_beyond_reach(record, 0, 0, 16, 16 * (5121 + 8.0))


def test_a_phase_that_was_not_measured_takes_over_its_kin() -> None:
    steps = made_steps(bump=0.2)
    no_mixed = table_cost(steps.take(steps.phases != "mixed"), 0.25)
    mixed, prefill = _steps((8, 64, 512, 1024)), _steps((0, 0, 512, 1024))
    ratio = kernel_ms(no_mixed, prefill) / formula_ms(no_mixed, prefill)
    assert kernel_ms(no_mixed, mixed) == pytest.approx(formula_ms(no_mixed, mixed) * ratio)
    decode_only = table_cost(steps.take(steps.phases == "decode"), 0.25)
    assert kernel_ms(decode_only, mixed) == pytest.approx(formula_ms(decode_only, mixed))
    assert is_beyond_reach(decode_only.view(np.recarray)[0], 0, 0, 16, 128.0)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ((161, 2048, 4000), "160 sequences.*161"),
        ((128, 2561, 4000), "2560 prefill tokens.*2561"),
        ((128, 2048, 5121), "5120 tokens of context.*5121"),
    ],
)
def test_a_server_that_could_go_further_is_refused(limits, message) -> None:
    cost = table_cost(made_steps(), 0.25)
    cost["refuses_beyond"] = 1
    sizes = dict(
        zip(("max_num_seqs", "max_num_batched_tokens", "longest_tokens"), limits, strict=True)
    )
    with pytest.raises(ConfigError, match=message):
        check_reach(cost, **sizes)
    cost["refuses_beyond"] = 0
    check_reach(cost, **sizes)
    cost["refuses_beyond"] = 1
    check_reach(cost, max_num_seqs=160, max_num_batched_tokens=2048, longest_tokens=4000)


def _env(path, **cost) -> EnvConfig:
    return EnvConfig(
        scheduler={"max_num_seqs": 64},
        cost={"kind": "table", "path": str(path), **cost},
        service={"shed_hopeless": False},
    )


def _requests(output_tokens: int) -> RequestTable:
    return RequestTable.from_columns(
        arrival_time_s=[0.0, 0.1], prompt_tokens=[300, 300], output_tokens=[output_tokens, 20]
    )


def test_a_simulation_counts_steps_beyond_the_table(tmp_path) -> None:
    path = write_steps(tmp_path / "t.csv", made_steps())
    assert simulate(_requests(50), "fcfs", _env(path)).num_steps_beyond_table == 0
    with pytest.raises(ConfigError, match="5120 tokens of context"):
        simulate(_requests(5000), "fcfs", _env(path))
    counting = _env(path, beyond="count")
    ahead = simulate(_requests(5000), "fcfs", counting)
    assert ahead.num_steps_beyond_table == 300 + 5000 - 1 - 5120
    slow = counting.replace(episode={"jump_ahead": False})
    assert simulate(_requests(5000), "fcfs", slow).num_steps_beyond_table == 300 + 5000 - 1 - 5120


def test_a_run_takes_the_times_of_the_table(tmp_path) -> None:
    path = write_steps(tmp_path / "t.csv", made_steps(bump=0.2), kind="measured_step")
    table = RequestTable.from_columns(arrival_time_s=[0.0], prompt_tokens=[128], output_tokens=[1])
    finished = simulate(table, "fcfs", _env(path)).requests["finish_s"]
    steps = made_steps(bump=0.2)
    row = (steps.prefill_tokens == 128) & (steps.prefill_past == 0) & (steps.n_decode == 0)
    assert finished[0] == pytest.approx(steps.ms[row][0] / 1e3)


def test_a_changed_file_is_read_again(tmp_path) -> None:
    path = write_steps(tmp_path / "t.csv", made_steps())
    env = _env(path)
    first = step_time_s(cost_record(env.cost).view(np.recarray)[0], 1, 64, 0, 0.0, 1)
    doubled = made_steps()
    write_steps(path, MeasuredSteps(
        GROUP, doubled.n_decode, doubled.ctx, doubled.prefill_tokens, doubled.prefill_past,
        2 * doubled.ms,
    ))  # fmt: skip
    os.utime(path, ns=(0, 1))
    second = step_time_s(cost_record(env.cost).view(np.recarray)[0], 1, 64, 0, 0.0, 1)
    assert second > 1.5 * first
