"""The regime map names a winner only where there is one."""

from __future__ import annotations

from sched_env.evaluation.arena.regime_plot import plot_regimes
from sched_env.evaluation.arena.regimes import regime_table, regimes
from tests.evaluation.made_rows import row


def rows_of(values, *, load=1.0, kv_pool="scarce", slo="tight", kind="heuristic"):
    return [
        row(policy, base + 0.001 * seed, load=load, seed=seed, kind=kind, kv_pool=kv_pool, slo=slo)
        for policy, base in values.items()
        for seed in range(6)
    ]


ROWS = [
    *rows_of({"fcfs": 0.990, "sjf": 0.995}, load=0.3),
    *rows_of({"fcfs": 0.6, "sjf": 0.8, "edf": 0.7}),
    *rows_of({"oracle": 0.99}, kind="clairvoyant"),
]


def test_the_best_mean_wins_and_clairvoyance_does_not():
    alike, heavy = regimes(ROWS)
    assert (heavy.load, heavy.best, heavy.runner_up) == (1.0, "sjf", "edf")
    assert heavy.equals == ()
    assert abs(heavy.spread - 0.2) < 1e-9
    assert abs(heavy.lead.mean - 0.1) < 1e-9
    assert alike.spread < 0.01


def test_policies_within_their_intervals_count_as_equals():
    noisy = [*rows_of({"fcfs": 0.7, "sjf": 0.7})]
    noisy[0]["goodput_weighted"] += 0.01
    (one,) = regimes(noisy)
    assert one.best == "fcfs"
    assert one.equals == ("sjf",)


def test_the_table_names_nobody_where_all_are_alike():
    table = regime_table(regimes(ROWS), tie_within=0.01, title="map")
    assert table.columns == ("condition", "load 0.3", "load 1")
    assert table.rows == (("scarce KV, tight SLO", "all alike 0.997", "sjf 0.802"),)


def test_the_map_is_drawn(tmp_path):
    plot_regimes(regimes(ROWS), tmp_path / "map.png", tie_within=0.01)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
