"""A small arena, from its configuration to its page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sched_env.cli.main import main
from sched_env.config import ArenaConfig, load_config
from sched_env.errors import ConfigError, UnknownNameError
from sched_env.evaluation.arena.opponents import opponents_markdown
from sched_env.evaluation.arena.run import conditions_of, run_arena
from sched_env.policy.names import known_policies

pytest.importorskip("scipy")

ROOT = Path(__file__).resolve().parents[3]
SMALL = ArenaConfig(
    name="small",
    policies=("fcfs", "weighted_sjf", "dynamic_budget"),
    traces={"code": "azure_code"},
    bursts={"bursts": {"num_requests": 300}},
    loads=(0.3, 1.5),
    kv_pools={"ample": 4000, "scarce": 600},
    num_seeds=2,
    max_requests=40,
    ceilings={"num_seeds": 1, "hindsight_runs": 3},
)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return run_arena(SMALL, tmp_path_factory.mktemp("arena"), workers=1)


def test_every_policy_meets_every_condition(result):
    cells = {
        (row["policy"], row["trace"], row["load"], row["seed"], row["kv_pool"], row["slo"])
        for row in result.rows
    }
    assert len(cells) == len(result.rows) == 4 * 2 * 2 * 2 * 2 * 2
    assert {row["num_injected"] for row in result.rows} == {40}
    kinds = {row["policy"]: row["policy_kind"] for row in result.rows}
    assert kinds["clairvoyant_wsrpt"] == "clairvoyant"
    assert set(kinds.values()) == {"heuristic", "clairvoyant"}


def test_a_misspelt_policy_leaves_no_folder(tmp_path):
    arena = SMALL.replace(policies=("fcfs", "agin"))
    with pytest.raises(UnknownNameError, match="aging"):
        run_arena(arena, tmp_path / "arena", workers=1)
    assert not (tmp_path / "arena").exists()


def test_ceilings_of_fewer_seeds_than_asked_for_are_told(tmp_path):
    one = {"num_seeds": 1, "kv_pools": {"ample": 4000}, "slo_factors": {"normal": 1.0}}
    less = SMALL.replace(bursts={}, loads=(1.0,), max_requests=5, policies=("fcfs",), **one)
    told = []
    ceilings = {"num_seeds": 3, "hindsight_runs": 1}
    less = less.replace(ceilings=ceilings)
    assert len(run_arena(less, tmp_path, workers=1, progress=told.append).ceilings) == 1
    assert told[0] == "ceilings.num_seeds 3 is more than num_seeds 1"


def test_conditions_set_the_pool_and_the_tightness_and_nothing_else(result):
    conditions = conditions_of(SMALL)
    assert [one.name for one in conditions][:2] == ["ample_kv_normal_slo", "ample_kv_tight_slo"]
    seen = {(one.env.scheduler.num_blocks, one.env.service.slo_factor) for one in conditions}
    assert seen == {(4000, 1.0), (4000, 0.7), (600, 1.0), (600, 0.7)}
    assert len({one.env.scheduler.max_num_seqs for one in conditions}) == 1


def test_pairs_are_of_one_condition(result):
    comparison = result.comparison()
    fcfs = next(one for one in comparison.policies if one.policy == "fcfs")
    assert fcfs.mean.num_values == 32
    assert fcfs.versus_best.difference.num_values == 32
    assert comparison.best_heuristic != "clairvoyant_wsrpt"


def test_ceilings_lie_above_what_was_achieved(result):
    assert len(result.ceilings) == 2 * 2 * 2 * 2
    for one in result.ceilings:
        assert one.opponent in SMALL.policies
        assert one.achieved <= one.fluid_bound + 1e-9
        assert one.hindsight_start <= one.hindsight <= one.fluid_bound + 1e-9
    rows = {
        (row["policy"], row["trace"], row["load"], row["seed"], row["kv_pool"], row["slo"]): row
        for row in result.rows
    }
    one = result.ceilings[-1]
    cell = (one.opponent, one.trace, one.load, one.seed, one.kv_pool, one.slo)
    assert one.achieved == rows[cell]["goodput_weighted"]


def test_the_command_writes_everything_and_repeats_itself(tmp_path, capsys, result):
    config = tmp_path / "small.yaml"
    config.write_text(json.dumps(SMALL.to_dict()))
    out = tmp_path / "out"
    assert main(["arena", str(config), "--policies", "mine=edf", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    for text in ("Who wins, over all traces", "Ceilings", "mine", "clairvoyant"):
        assert text in printed
    rows = json.loads((out / "results.json").read_text())
    same = [row for row in rows if row["policy"] != "mine"]
    for here, there in zip(same, result.rows, strict=True):
        assert here["goodput_weighted"] == there["goodput_weighted"]
    page = (out / "arena.md").read_text()
    assert "| mine |" in page
    assert (out / "scarce_kv_tight_slo" / "results.json").exists()
    assert len(json.loads((out / "regimes.json").read_text())) == 2 * 2 * 2
    assert json.loads((out / "ceilings.json").read_text())[0]["fluid_bound"] <= 1.0
    assert np.isfinite([row["jain_fairness"] for row in rows]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("traces={}", "no traces"),
        ("kv_pools={a/b: 100}", "kv_pools"),
        ("polices=[fcfs]", "Did you mean 'policies'"),
        ("policies=[fcsf]", "Did you mean 'fcfs'"),
        ("bursts.more.workload=nothing", "nothing"),
        ("env.scheduler.enable_prefix_caching=true", "or ceilings.enabled to false"),
    ],
)
def test_faults_are_one_line(tmp_path, capsys, change, message):
    config = tmp_path / "small.yaml"
    bare = {**SMALL.to_dict(), "bursts": {}}
    config.write_text(json.dumps(bare))
    overrides = ["traces=null"] if change == "traces={}" else [change]
    if change == "traces={}":
        bare["traces"] = {}
        config.write_text(json.dumps(bare))
        overrides = []
    assert main(["arena", str(config), *overrides, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error


def test_one_label_is_one_trace():
    with pytest.raises(ConfigError, match="'code' is under traces and under bursts"):
        SMALL.replace(bursts={"code": {}})


def test_the_documented_opponents_are_those_of_the_registry():
    page = (ROOT / "docs" / "arena.md").read_text(encoding="utf-8")
    shown = page.partition("<!-- opponents -->\n")[2].partition("<!-- end -->")[0]
    assert shown.strip() == opponents_markdown().strip()


def test_the_standard_arena_has_every_opponent():
    config = load_config(ArenaConfig, "standard")
    others = {"cache_aware"}  # without prefix caching it is fcfs
    assert set(config.policies) == set(known_policies()) - others
