from __future__ import annotations

import json
import math
import os
import stat

import pytest

from sched_env.evaluation.files import replacing, write_json


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
