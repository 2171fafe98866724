"""Parts of a policy are compared on the same requests, and victims apart from admissions."""

from __future__ import annotations

import pytest

from sched_env.config import EnvConfig
from sched_env.engine.layout import Layout
from sched_env.errors import PolicyError
from sched_env.evaluation.decision_parts import (
    main,
    part_policies,
    parts_table,
    run_parts,
    victim_policies,
)
from sched_env.policy.scores import linear_score

LAYOUT = Layout(num_waiting_slots=4, num_running_slots=4)


@pytest.fixture(scope="module")
def policy():
    return linear_score(
        "eager",
        admit={"wait": 1.0},
        preempt={"weight": -1.0},
        level={"full_step": -1.0},
        layout=LAYOUT,
    )


@pytest.fixture(scope="module")
def rows(policy):
    policies = {**part_policies(policy), **victim_policies(policy)}
    limits = {"num_seeds": 2, "loads": (1.5,), "kv_pools": (400,), "max_requests": 60}
    return run_parts(policies, ["azure_conv"], EnvConfig(), split="all", **limits)


def test_every_policy_meets_the_same_runs(rows):
    assert {len(found) for found in rows.values()} == {2}
    assert {row.num_injected for found in rows.values() for row in found} == {60}


def test_all_parts_together_decide_as_the_policy_where_only_one_kind_is_legal(rows):
    # Who decides between kinds of actions is the base; the rest is the policy's.
    assert rows["+ all three"] != rows["weighted_sjf"]
    assert rows["weighted_sjf"] != rows["+ its admissions"]
    assert rows["the policy, victim of the policy"] == rows["the policy"]


def test_victims_differ_where_blocks_are_short(rows):
    wasted = {
        label: sum(row.num_recomputed_tokens for row in found)
        for label, found in rows.items()
        if label.startswith("weighted_sjf, victim")
    }
    assert min(wasted.values()) > 0
    least, last = "least computed", "last in batch order"
    assert wasted[f"weighted_sjf, victim {least}"] < wasted[f"weighted_sjf, victim {last}"]


def test_the_table_is_paired_with_its_first_row(rows):
    table = parts_table("Parts", rows, "weighted_sjf")
    assert [line[0] for line in table.rows] == list(rows)
    assert table.rows[0][2] == "-"
    assert table.rows[1][2].count("[") == 1


def test_the_command_wants_a_policy_and_a_trace():
    with pytest.raises(PolicyError, match="give a policy folder"):
        main(["pretrained/azure2023"])
