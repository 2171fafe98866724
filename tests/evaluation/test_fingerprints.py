from __future__ import annotations

import csv

import pytest

import sched_env
from sched_env.config.cost import LiveCost, TableCost, TwoRegimeCost
from sched_env.evaluation.fingerprints import cost_sha256, package_sha256, table_sha256
from sched_env.workload import HashIds, RequestTable

STEPS = [(4, 512, 0, 0, 5.0), (0, 0, 128, 0, 9.0), (4, 512, 128, 0, 11.0)]


def write_table(path, ms_factor):
    """Write a table of measured steps whose times are multiplied."""
    header = "gpu,model,tp,precision,n_decode,ctx,prefill_tokens,prefill_past,ms,kind,source"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header.split(","))
        for *figures, ms in STEPS:
            row = [*figures, ms * ms_factor, "composed", "made"]
            writer.writerow(["toy-gpu", "toy-model", 1, "bf16", *row])


def requests(ids, block_tokens=16):
    return RequestTable.from_columns(
        arrival_time_s=[0.0, 1.0],
        prompt_tokens=[32, 32],
        output_tokens=[2, 2],
        hash_ids=ids and HashIds.from_lists(ids, block_tokens),
    )


def test_the_hash_of_a_trace_knows_its_prefix_ids():
    shared = table_sha256(requests([[1, 2], [1, 2]]))
    assert table_sha256(requests([[1, 2], [1, 2]])) == shared
    others = [
        requests(None),
        requests([[1, 2], [3, 4]]),
        requests([[1, 2, 1], [2]]),
        requests([[1, 2], [1, 2]], block_tokens=32),
    ]
    assert len({shared, *map(table_sha256, others)}) == 5


def test_the_hash_of_step_times_is_that_of_the_times_and_not_of_their_place(tmp_path):
    for name, factor in (("one", 1.0), ("same", 1.0), ("slower", 2.0)):
        write_table(tmp_path / f"{name}.csv", factor)
    one, same, slower = (
        cost_sha256(TableCost(path=str(tmp_path / f"{name}.csv")))
        for name in ("one", "same", "slower")
    )
    assert one == same != slower


def test_the_hash_of_step_times_reads_presets_and_estimates():
    preset = TwoRegimeCost(preset="h100-sxm/llama-3.1-8b")
    assert cost_sha256(LiveCost(estimate=preset)) == cost_sha256(preset)
    assert cost_sha256(LiveCost()) is None


@pytest.mark.parametrize("file", ["engine.py", "cost/presets.json"])
def test_the_hash_of_the_package_knows_code_and_constants(tmp_path, monkeypatch, file):
    (tmp_path / "cost").mkdir()
    for name in ("__init__.py", "engine.py", "cost/presets.json"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setattr(sched_env, "__file__", str(tmp_path / "__init__.py"))
    before = package_sha256.__wrapped__()
    (tmp_path / file).write_text("{1}")
    assert package_sha256.__wrapped__() != before
