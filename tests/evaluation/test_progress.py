from __future__ import annotations

from sched_env.evaluation.progress import ProgressBar


def test_one_line_for_each_tenth_without_a_terminal(capsys):
    with ProgressBar("train", 1000) as bar:
        for done in range(10, 1001, 10):
            bar.update(done, "fast")
    lines = capsys.readouterr().err.splitlines()
    assert 9 <= len(lines) <= 11
    assert lines[0] == "train 1 %, fast"
    assert lines[-1].startswith("train 100 %") or lines[-1].startswith("train 9")


def test_a_new_total_is_taken_over(capsys):
    with ProgressBar("train", 1000) as bar:
        bar.update(10, "fast", 20)
    assert capsys.readouterr().err == "train 50 %, fast\n"


def test_nothing_is_shown_unless_asked_for(capsys):
    with ProgressBar("evaluate", 2, shown=False) as bar:
        bar.update(2, "")
    assert capsys.readouterr() == ("", "")
