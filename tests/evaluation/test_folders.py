from __future__ import annotations

from pathlib import Path

import pytest

from sched_env.errors import SchedEnvError
from sched_env.evaluation.folders import check_folder, make_folder


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "out").write_text("")
    for make in (make_folder, check_folder):
        with pytest.raises(SchedEnvError, match="out is a file: name a folder"):
            make(tmp_path / "out")
        with pytest.raises(SchedEnvError, match="cannot write results to"):
            make(tmp_path / "out" / "below")


def test_a_link_to_nothing_in_the_way(tmp_path):
    (tmp_path / "out").symlink_to(tmp_path / "missing")
    for make in (make_folder, check_folder):
        with pytest.raises(SchedEnvError, match="out is a link to nothing: name a folder"):
            make(tmp_path / "out")


def test_missing_folders_are_made(tmp_path):
    assert make_folder(tmp_path / "a" / "b").is_dir()
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_folder_is_checked_without_being_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert check_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert check_folder(Path("a")) == Path("a")
    assert list(tmp_path.iterdir()) == []


def test_a_training_run_is_never_overwritten(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(SchedEnvError, match=r"holds a training run .* such as .*evaluation"):
        make_folder(tmp_path)
    assert make_folder(tmp_path / "evaluation").is_dir()
