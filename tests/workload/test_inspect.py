from __future__ import annotations

import hashlib
import json
import math

import numpy as np
import pytest

from sched_env.errors import TraceError
from sched_env.workload import HashIds, RequestTable, TraceSource, read_trace, summarize
from sched_env.workload.inspect import dispersion, leading_hits, prefix_summary, spearman
from tests.workload.made_tables import five_requests


def test_figures_of_a_small_table():
    summary = summarize(five_requests())
    assert summary.num_requests == 5
    assert summary.span_s == 10.0
    assert summary.mean_rate_rps == pytest.approx(0.4)
    assert summary.prompt_tokens.minimum == 1
    assert summary.prompt_tokens.maximum == 1025
    assert summary.prompt_tokens.percentiles[50] == 512
    assert summary.output_tokens.mean == 66
    assert summary.zero_gap_share == 0.25
    gaps = np.array([1.0, 0.0, 2.5, 6.5])
    assert summary.gap_cv == pytest.approx(gaps.std() / gaps.mean())
    assert json.loads(json.dumps(summary.to_dict()))["prefix"]["block_tokens"] == 512


def test_dispersion_by_hand():
    # Full bins of 1 s up to the last arrival at 4.0: counts 2, 0, 1, 1 (the arrival at 4.0 is out).
    times = np.array([0.0, 0.5, 2.0, 3.9, 4.0])
    counts = np.array([2, 0, 1, 1])
    assert dispersion(times, 1.0) == pytest.approx(counts.var() / counts.mean())
    assert math.isnan(dispersion(times, 3.0))
    assert math.isnan(dispersion(np.array([0.0, 1e12]), 1.0))


def test_rank_correlation_with_ties():
    assert spearman(np.array([1, 2, 3]), np.array([10, 20, 30])) == pytest.approx(1.0)
    assert spearman(np.array([1, 2, 3]), np.array([3, 2, 1])) == pytest.approx(-1.0)
    assert spearman(np.array([1, 1, 2, 3]), np.array([1, 2, 2, 3])) == pytest.approx(5 / 6)
    assert math.isnan(spearman(np.array([1, 1]), np.array([1, 2])))


def test_prefix_hits_count_leading_blocks_only_and_never_the_whole_prompt():
    rows = [[1, 2, 3], [1, 2, 9], [8, 2, 3], [1, 2], [], [4, 4]]
    hash_ids = HashIds.from_lists(rows, 4)
    # Row 5 repeats an id inside itself: no earlier request had it.
    assert leading_hits(hash_ids).tolist() == [0, 2, 0, 2, 0, 0]
    table = RequestTable.from_columns(
        arrival_time_s=np.arange(6.0),
        prompt_tokens=[12, 12, 12, 8, 1, 8],
        output_tokens=[1] * 6,
        hash_ids=hash_ids,
    )
    prefix = prefix_summary(table)
    assert summarize(table).prefix == prefix
    assert prefix.num_blocks == 13
    assert prefix.block_hit_rate == pytest.approx(4 / 13)
    assert prefix.token_hit_rate == pytest.approx((8 + 7) / 53)
    assert prefix.num_full_hits == 1


def test_a_single_request_and_an_empty_table():
    single = summarize(five_requests().take([0]))
    assert math.isnan(single.gap_cv)
    assert math.isnan(single.mean_rate_rps)
    empty = RequestTable.from_columns(
        arrival_time_s=[], prompt_tokens=[], output_tokens=[], source=TraceSource(name="none")
    )
    with pytest.raises(TraceError, match="none has no request"):
        summarize(empty)


def test_a_file_is_told_by_its_hash(tmp_path):
    file = tmp_path / "two.csv"
    file.write_bytes(b"arrival_time_s,prompt_tokens,output_tokens\n0,1,1\n1,2,2\n")
    wanted = hashlib.sha256(file.read_bytes()).hexdigest()
    assert summarize(read_trace(str(file))).file_sha256 == wanted
    assert summarize(five_requests()).file_sha256 is None
