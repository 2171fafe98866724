from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path

import pytest

from sched_env.errors import SchedEnvError
from sched_env.evaluation.files import check_folder, make_folder, replacing, write_json


def test_undefined_numbers_are_null(tmp_path):
    write_json(tmp_path / "a.json", [{"x": math.nan, "y": [math.inf, 1.5]}])
    assert json.loads((tmp_path / "a.json").read_text()) == [{"x": None, "y": [None, 1.5]}]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")

    def fail_midway():
        with replacing(path) as temporary:
            temporary.write_text("half of the new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_midway()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_written_files_have_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    write_json(tmp_path / "a.json", 1)
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "a.json")}
    assert len(modes) == 1


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "out").write_text("")
    for make in (make_folder, check_folder):
        with pytest.raises(SchedEnvError, match="out is a file: name a folder"):
            make(tmp_path / "out")
        with pytest.raises(SchedEnvError, match="cannot write results to"):
            make(tmp_path / "out" / "below")


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
