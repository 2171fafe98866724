from __future__ import annotations

import json

import numpy as np
import pytest

from sched_env.engine.layout import Layout
from sched_env.errors import PolicyError
from sched_env.evaluation.runner import evaluate
from sched_env.policy.card import ObservationSchema, PointerArchitecture, PolicyCard
from sched_env.policy.format import write_policy
from sched_env.workload import RequestTable


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(2)
    return RequestTable.from_columns(
        arrival_time_s=np.sort(rng.uniform(0, 10, 150)),
        prompt_tokens=rng.integers(100, 2000, 150),
        output_tokens=rng.integers(1, 100, 150),
    )


@pytest.fixture
def export(tmp_path):
    """Write a policy with random weights as the run folder of that name."""

    def write(run, layout, seed=0):
        card = PolicyCard(
            name="pointer",
            observation=ObservationSchema.from_layout(layout),
            architecture=PointerArchitecture(hidden_size=8),
        )
        rng = np.random.default_rng(seed)
        weights = {
            name: rng.normal(0.0, 0.5, shape).astype(np.float32)
            for name, shape in card.tensor_shapes().items()
        }
        (tmp_path / run).mkdir()
        write_policy(tmp_path / run / "policy", weights, card)
        return tmp_path / run

    return write


def test_policies_of_other_slot_counts_meet_the_same_server(table, export, tmp_path):
    runs = [export("seed0", Layout(24, 8)), export("seed1", Layout(6, 2), seed=1)]
    result = evaluate(
        ["fcfs", *map(str, runs)], [table], 2.0, 2, split="all", out_dir=tmp_path / "out"
    )
    assert [row["policy"] for row in result.rows[::2]] == ["fcfs", "seed0", "seed1"]
    assert [row["policy_kind"] for row in result.rows[::2]] == ["heuristic", "network", "network"]
    for row in result.rows[2:]:
        assert row["num_decisions"] > 0
        assert row["num_invalid_actions"] == 0
        assert row["num_injected"] == 150
    assert result.comparison.best_heuristic == "fcfs"
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["policies"][1]["versus_best"]["difference"]["num_values"] == 2


def test_a_changed_weight_is_refused_before_anything_runs(table, export):
    run = export("seed0", Layout(24, 8))
    file = run / "policy" / "policy.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(PolicyError):
        evaluate([str(run)], [table], 1.0, 1, split="all")


def test_a_run_without_weights_is_an_error_not_a_heuristic(table, tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(PolicyError):
        evaluate([str(tmp_path / "run")], [table], 1.0, 1, split="all")
