"""Reading the record of a real server's run."""

from __future__ import annotations

import pytest

from sched_env.errors import TraceError
from sched_env.workload.served_run import COLUMNS, read_served_run

HEADER = "request,arrival_s,prompt_tokens,output_tokens,scheduled_s,first_token_s,last_token_s\n"


def _read(tmp_path, text):
    path = tmp_path / "run.csv"
    path.write_text(text)
    return read_served_run(path)


def test_rows_are_sorted_by_arrival_and_start_at_zero(tmp_path) -> None:
    run = _read(tmp_path, HEADER + "b,12.5,20,3,12.6,12.75,13.5\na,12,10,1,12,12.25,12.25\n")
    assert run.names == ("a", "b")
    assert run.requests.arrival_time_s.tolist() == [0.0, 0.5]
    assert run.requests.prompt_tokens.tolist() == [10, 20]
    assert run.requests.output_tokens.tolist() == [1, 3]
    assert run.first_token_s.tolist() == [0.25, 0.75]
    assert run.makespan_s == 1.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (HEADER, "no data row"),
        (HEADER.replace("arrival_s", "arival_s") + "a,0,1,1,0,0,0\n", "'arrival_s' is missing"),
        (HEADER + "a,0,1,1,0,0\n", "line 2: 6 fields"),
        (HEADER + "a,0,0,1,0,0,0\n", "line 2, column prompt_tokens: '0' is not 1 or more"),
        (HEADER + "a,0,1,x,0,0,0\n", "column output_tokens"),
        (HEADER + "a,0,1,1,0,0,0\nb,-1,1,1,0,0,0\n", "line 3, column arrival_s"),
        (HEADER + "a,0,1,1,0,,\n", "column first_token_s"),
        (HEADER + "a,0,1,1,2,1,3\n", "column first_token_s: '1' is not at or after scheduled_s"),
        (HEADER + "a,0,1,1,0,nan,3\n", "column first_token_s"),
    ],
)
def test_faults_name_line_and_column(tmp_path, text, message) -> None:
    with pytest.raises(TraceError, match=message):
        _read(tmp_path, text)


def test_the_recorded_run_is_read(shared_dir) -> None:
    run = read_served_run(shared_dir / "timings" / "vllm_run_rtxpro6000_llama8b.csv")
    assert len(run.requests) == 300
    assert run.makespan_s == pytest.approx(65.926441)
    assert set(COLUMNS) >= {"request", "arrival_s"}
