from __future__ import annotations

import pytest

from sched_env.evaluation import progress
from sched_env.evaluation.progress import ProgressBar, announce_compilation


def test_one_line_for_each_tenth_without_a_terminal(capsys):
    with ProgressBar("train", 1000) as bar:
        for done in range(10, 1001, 10):
            bar.update(done, "fast")
    lines = capsys.readouterr().err.splitlines()
    assert 9 <= len(lines) <= 11
    assert lines[0] == "train 1 %, fast"
    assert lines[-1].startswith("train 100 %") or lines[-1].startswith("train 9")


def test_nothing_is_shown_unless_asked_for(capsys):
    with ProgressBar("evaluate", 2, shown=False) as bar:
        bar.update(2, "")
    assert capsys.readouterr() == ("", "")


def test_the_first_command_says_that_it_compiles(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress.numba.config, "DISABLE_JIT", 0)
    monkeypatch.setattr(progress, "cache_folder", lambda: tmp_path)
    announce_compilation()
    assert capsys.readouterr().err.startswith("compiling the engine, once on this machine")
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "kernels.run-150.py311.nbi").touch()
    announce_compilation()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("is_plain", "words"), [(0, "SCHED_ENV_CACHE_DIR"), (1, "")])
def test_a_machine_without_a_folder_compiles_each_time(is_plain, words, monkeypatch, capsys):
    monkeypatch.setattr(progress.numba.config, "DISABLE_JIT", is_plain)
    monkeypatch.setattr(progress, "cache_folder", lambda: None)
    announce_compilation()
    shown = capsys.readouterr().err
    assert (words in shown) if words else (shown == "")
