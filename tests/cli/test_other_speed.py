from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sched_env.cli import bench, other_speed
from sched_env.cli.trace_speed import light_chatbot
from sched_env.errors import SchedEnvError


def test_the_median_of_what_it_prints_counts(tmp_path: Path) -> None:
    python, seen = tmp_path / "python", tmp_path / "seen"
    python.write_text(f"#!/bin/sh\ncat > {seen}\nprintf 'x' >> {seen}.runs\necho 125.0\n")
    python.chmod(0o755)
    table = light_chatbot(5)
    speed = other_speed.sched_sim(table, str(python), repeats=3)
    assert speed.per_s == speed.best_per_s == 125.0
    assert len(speed.rounds_per_s) == 3
    assert Path(f"{seen}.runs").read_text() == "xxx"
    rows = [line.split() for line in seen.read_text().splitlines()]
    assert [float(row[0]) for row in rows] == table.arrival_time_s.tolist()
    assert [int(row[2]) for row in rows] == table.output_tokens.tolist()


def test_a_python_that_cannot_run_it_is_told() -> None:
    table = light_chatbot(2)
    with pytest.raises(SchedEnvError, match="--sched-sim-python /no/python"):
        other_speed.sched_sim(table, "/no/python", repeats=1)
    if not other_speed.has_sched_sim():
        with pytest.raises(SchedEnvError, match="No module named 'sched_sim'"):
            other_speed.sched_sim(table, sys.executable, repeats=1)


def test_a_python_that_cannot_run_it_is_told_before_anything_is_measured() -> None:
    with pytest.raises(SchedEnvError, match="--sched-sim-python /no/python"):
        bench.run(bench.BenchArguments(sched_sim_python="/no/python"))
