from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from sched_env.baselines.clairvoyant_wsrpt import clairvoyant_wsrpt
from sched_env.errors import PolicyError, SchedEnvError, UnknownNameError
from sched_env.evaluation import entries
from sched_env.evaluation.entries import (
    Cell,
    check_loads,
    check_seeds,
    policy_entries,
    trace_entries,
)
from sched_env.policy.registry import resolve_policy
from sched_env.workload import RequestTable, TraceSource


class Network:
    """Stands for an exported policy of some folder."""

    privileged = False
    kind = "network"
    reference = ""
    parameters = ()
    weights_sha256 = "ab"

    def __init__(self, name="pointer"):
        self.name = name


@pytest.fixture
def exported(monkeypatch):
    def resolve(target, *, allow_privileged):
        if "/" in str(target):
            return Network()
        return resolve_policy(target, allow_privileged=allow_privileged)

    monkeypatch.setattr(entries, "resolve_policy", resolve)


def labels(policies):
    return [entry.label for entry in policy_entries(policies)]


def test_heuristics_go_by_their_name():
    (entry,) = policy_entries(["sjf"])
    assert (entry.label, entry.target, entry.kind) == ("sjf", "sjf", "heuristic")
    assert labels("sjf") == ["sjf"]
    assert labels([resolve_policy("fcfs")]) == ["fcfs"]


def test_labels_can_be_chosen():
    assert labels(["mine=sjf", "fcfs"]) == ["mine", "fcfs"]
    assert labels({"a": "sjf", "b": "sjf"}) == ["a", "b"]


@pytest.mark.usefixtures("exported")
def test_exported_policies_of_one_name_go_by_their_run():
    assert labels(["runs/a/policy"]) == ["pointer"]
    assert labels(["runs/x/seed0/policy", Path("runs/x/seed1"), "fcfs"]) == [
        "seed0",
        "seed1",
        "fcfs",
    ]
    (entry,) = policy_entries([Path("runs/a")])
    assert entry.target == str(Path("runs/a"))
    assert entry.description["weights_sha256"] == "ab"


@pytest.mark.usefixtures("exported")
@pytest.mark.parametrize(
    "doubled", [["sjf", "sjf"], ["runs/a", "runs/a/policy"], ["fcfs=sjf", "fcfs"]]
)
def test_two_policies_of_one_label(doubled):
    with pytest.raises(SchedEnvError, match="is given twice"):
        policy_entries(doubled)


def test_unknown_policy_offers_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean 'aging'"):
        policy_entries(["fcfs", "agng"])


def test_a_policy_that_reads_the_true_length_is_refused(tmp_path, monkeypatch):
    source = "def cheat(request, now):\n    return float(request.output_tokens)\n"
    (tmp_path / "clairvoyant_module.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SchedEnvError, match="reads the true output length"):
        policy_entries(["clairvoyant_module:cheat"])


def test_traces_go_by_file_or_source():
    table = RequestTable.from_columns(
        arrival_time_s=[0.0], prompt_tokens=[1], output_tokens=[1], source=TraceSource(name="t")
    )
    found = trace_entries(["azure_conv", "data/Azure_2023.csv.gz", Path("b.jsonl"), table])
    assert [entry.label for entry in found] == ["azure_conv", "Azure_2023", "b", "t"]
    assert trace_entries({"mine": "a/b.csv"})[0].label == "mine"


@pytest.mark.parametrize(
    ("call", "argument", "message"),
    [
        (policy_entries, [], "no policies"),
        (trace_entries, [], "no traces"),
        (trace_entries, ["a/x.csv", "b/x.csv"], "trace 'x' is given twice"),
        (check_loads, [], "no loads"),
        (check_loads, [0.0], "load 0 is not possible: give a number from 1e-06 to"),
        (check_loads, [-1], "load -1 is not possible"),
        (check_loads, [math.nan], "load nan is not possible"),
        (check_loads, [math.inf], "load inf is not possible"),
        (check_loads, [1, 1.0], r"load '1\.0' is given twice"),
        (check_loads, [None, None], "load 'own' is given twice"),
        (check_loads, [1e300], "is not possible"),
        (check_seeds, 10**9, "1000000000 seeds are too many"),
        (check_seeds, [2**70], "is not allowed"),
        (check_seeds, 0, "0 seeds are not enough"),
        (check_seeds, -2, "-2 seeds are not enough"),
        (check_seeds, [], "no seeds"),
        (check_seeds, [3, -1], "seed -1 is not allowed"),
        (check_seeds, [3, 3], "seed '3' is given twice"),
        (check_loads, "0.8", r"loads is '0\.8': give numbers, such as \[0\.8, 1\]"),
        (check_loads, ["0.8"], r"load '0\.8' is not possible"),
        (check_loads, [True], "load True is not possible"),
        (check_seeds, ["a"], "seed 'a' is not allowed"),
        (check_seeds, "ab", "seeds is 'ab': give numbers"),
        (check_seeds, 2.5, r"seeds is 2\.5: give numbers, such as 5 or"),
        (check_seeds, [1.5], r"seed 1\.5 is not allowed"),
        (check_seeds, True, "seeds is True"),
        (check_seeds, np.array(3), r"seeds is array\(3\): give numbers"),
    ],
)
def test_what_cannot_be_evaluated(call, argument, message):
    with pytest.raises(SchedEnvError, match=message):
        call(argument)


def test_loads_and_seeds():
    assert check_loads(1) == (1.0,)
    assert check_loads([0.8, None]) == (0.8, None)
    assert check_seeds(3) == (0, 1, 2)
    assert check_seeds([7, 5]) == (7, 5)
    assert check_seeds(np.int64(2)) == (0, 1)
    assert check_seeds(np.array([4, 2])) == (4, 2)
    assert check_loads(np.float32(0.5)) == (0.5,)
    assert check_loads(np.array([0.5, 1.0])) == (0.5, 1.0)


def test_a_cell_says_where_it_is():
    (policy,), (trace,) = policy_entries(["sjf"]), trace_entries(["azure_conv"])
    assert str(Cell(policy, trace, 0.8, 4)) == (
        "policy 'sjf', trace 'azure_conv', load 0.8, seed 4"
    )
    assert "own rate" in str(Cell(policy, trace, None, 0))


def test_a_clairvoyant_policy_is_taken_only_where_told_to():
    with pytest.raises(PolicyError, match="true output length"):
        policy_entries([clairvoyant_wsrpt])
    (entry,) = policy_entries([clairvoyant_wsrpt], allow_privileged=True)
    assert (entry.label, entry.kind) == ("clairvoyant_wsrpt", "clairvoyant")
