from __future__ import annotations

import pytest

from sched_env.errors import TraceError
from sched_env.workload import PoissonArrivals, read_trace
from tests.workload.readers.trace_texts import VIDUR, VIDUR_LENGTHS


def test_seconds_from_the_first_row(tmp_path):
    (tmp_path / "v.csv").write_text(VIDUR)
    table = read_trace(tmp_path / "v.csv")
    assert table.source.format == "vidur"
    assert table.arrival_time_s.tolist() == [0.0, 4.314579]
    assert table.prompt_tokens.tolist() == [374, 396]


def test_lengths_alone_fail_without_an_arrival_process(tmp_path):
    (tmp_path / "v.csv").write_text(VIDUR_LENGTHS)
    with pytest.raises(TraceError, match=r"v\.csv: vidur rows without arrival times"):
        read_trace(tmp_path / "v.csv")
    table = read_trace(tmp_path / "v.csv", arrival=PoissonArrivals(2.0), seed=7)
    assert table.prompt_tokens.tolist() == [3772, 2015, 40]
    assert table.arrival_time_s[0] == 0
    assert table.equals(read_trace(tmp_path / "v.csv", arrival=PoissonArrivals(2.0), seed=7))
    assert "PoissonArrivals" in table.source.notes[0]


def test_clipping_never_leaves_a_prompt_below_one(tmp_path):
    (tmp_path / "v.csv").write_text(VIDUR)
    table = read_trace(tmp_path / "v.csv", max_model_len=50, too_long="clip")
    assert table.prompt_tokens.tolist() == [49, 49]
    assert table.output_tokens.tolist() == [1, 1]
    with pytest.raises(TraceError, match=r"no row is left \(2 with prompt \+ output > "):
        read_trace(tmp_path / "v.csv", max_model_len=50)
