from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numba
import numpy as np
import pytest

from sched_env import compiled as compiling
from sched_env.compiled import cache_folder, compiled, compiled_part

_PACKAGE = Path(compiling.__file__).parent
_DRAW = "from sched_env.workload.counter_rng import uniform; print(repr(float(uniform(0, 1, 1))))"
_FIRST_DRAW = "0.5155028568372059"

needs_compiler = pytest.mark.skipif(
    bool(numba.config.DISABLE_JIT), reason="nothing is compiled with NUMBA_DISABLE_JIT=1"
)


@pytest.fixture
def name_of(tmp_path, monkeypatch):
    """Return the name of the cache folder, worked out anew, for a package that may be changed."""
    package = tmp_path / "sched_env"
    package.mkdir()
    for name in ("compiled.py", "code_parts.py"):
        shutil.copy(_PACKAGE / name, package)
    for folder in ("engine", "cost", "workload", "policy", "simulator"):
        shutil.copytree(_PACKAGE / folder, package / folder)
    monkeypatch.setattr(compiling, "_PACKAGE", package)
    monkeypatch.setattr(compiling, "__file__", str(package / "compiled.py"))

    def name(folder="engine"):
        compiling._folder_hash.cache_clear()
        return compiling._source_hash.__wrapped__(folder)

    name.package = package
    return name


def _append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


@pytest.mark.parametrize(
    ("changed", "folder"),
    [
        ("engine/records.py", "engine"),
        ("engine/layout.py", "engine"),
        ("cost/step_time.py", "engine"),
        ("workload/counter_rng.py", "cost"),
        ("policy/decisions.py", "simulator"),
        ("compiled.py", "engine"),
        ("code_parts.py", "engine"),
    ],
)
def test_a_changed_source_names_another_cache_folder(name_of, changed, folder):
    before = name_of(folder)
    assert name_of(folder) == before
    _append(name_of.package / changed, "\nANOTHER_CONSTANT = 1\n")
    assert name_of(folder) != before


def test_another_numba_names_another_cache_folder(name_of, monkeypatch):
    before = name_of()
    monkeypatch.setattr(numba, "__version__", "0.0.1")
    assert name_of() != before


def test_a_source_that_no_kernel_depends_on_keeps_the_cache_folder(name_of):
    before = name_of()
    _append(name_of.package / "simulator" / "result.py", "\nANOTHER_CONSTANT = 1\n")
    assert name_of() == before


@needs_compiler
def test_without_a_writable_folder_functions_compile_without_a_cache(monkeypatch):
    monkeypatch.setattr(compiling, "cache_folder", lambda folder="engine": None)

    @compiled
    def double(number):
        return 2 * number

    assert double(21) == 42
    assert type(double._cache).__name__ == "NullCache"


def test_no_folder_is_given_where_none_can_be_written(monkeypatch):
    monkeypatch.setattr(compiling, "_is_writable", lambda folder: False)
    assert cache_folder.__wrapped__() is None


def test_a_file_in_the_way_is_not_writable(tmp_path):
    (tmp_path / "file").write_text("")
    assert not compiling._is_writable(tmp_path / "file" / "cache")
    assert compiling._is_writable(tmp_path / "folder" / "cache")


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_a_shared_temporary_folder_that_others_may_write_to_is_not_used(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SCHED_ENV_CACHE_DIR", "")
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(shared))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert cache_folder.__wrapped__() is not None
    assert not list(shared.iterdir())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    place = cache_folder.__wrapped__()
    assert place is not None
    ours = place.parent
    assert ours.parent == shared
    assert ours.stat().st_mode & 0o777 == 0o700
    ours.chmod(0o770)
    assert cache_folder.__wrapped__() is None
    ours.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: -1)
    ours.rename(shared / "sched-env--1")
    assert cache_folder.__wrapped__() is None


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_a_link_in_the_shared_temporary_folder_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert compiling._is_private(tmp_path / "elsewhere")
    assert not compiling._is_private(tmp_path / "link")


def _start(code: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@needs_compiler
def test_two_processes_compile_at_once_into_one_folder(tmp_path):
    place = {"SCHED_ENV_CACHE_DIR": str(tmp_path / "cache")}
    both = [_start(_DRAW, place) for _ in range(2)]
    assert [one.communicate() for one in both] == [(f"{_FIRST_DRAW}\n", "")] * 2
    assert list((tmp_path / "cache").rglob("*.nbi"))
    assert _start(_DRAW, place).communicate() == (f"{_FIRST_DRAW}\n", "")


@needs_compiler
def test_a_read_only_install_folder_compiles_into_the_users_cache(tmp_path):
    shutil.copytree(_PACKAGE.parent / "sched_env", tmp_path / "site" / "sched_env", symlinks=False)
    site = tmp_path / "site"
    for path in [*site.rglob("*"), site]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    place = {"XDG_CACHE_HOME": str(tmp_path / "home"), "PYTHONPATH": str(site)}
    place |= {"SCHED_ENV_CACHE_DIR": "", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        out, err = _start(_DRAW, place).communicate()
    finally:
        for path in [site, *site.rglob("*")]:
            path.chmod(0o755)
    assert (out, err) == (f"{_FIRST_DRAW}\n", "")
    assert list((tmp_path / "home" / "sched-env").rglob("*.nbi"))
    assert not list(site.rglob("*.nbi"))


_DRAW_IN_A_CALLER = """
import numba
from sched_env.workload.counter_rng import uniform

draw = numba.njit(lambda: uniform(0, 1, 1))
print(repr(float(uniform(0, 1, 1))), repr(draw()), sum(uniform.stats.cache_hits.values()))
"""


@needs_compiler
def test_an_entry_that_the_cache_holds_is_called_from_compiled_code_too(tmp_path):
    place = {"SCHED_ENV_CACHE_DIR": str(tmp_path)}
    for hits in (0, 1):
        out, err = _start(_DRAW_IN_A_CALLER, place).communicate()
        assert (out, err) == (f"{_FIRST_DRAW} {_FIRST_DRAW} {hits}\n", "")


@compiled_part
def _plus(left, right):
    return left + right


@compiled
def _plus_one(number):
    return _plus(number, 1)


@compiled
def _sum_up(numbers):
    total = 0
    for number in numbers:
        total = _plus(total, _plus_one(number))
    return total


@needs_compiler
def test_a_part_has_one_version_for_integers_of_all_sizes():
    assert _plus_one(2) == 3
    assert _sum_up(np.arange(4, dtype=np.int64)) == 10
    assert _sum_up(np.arange(4, dtype=np.int32)) == 10
    assert _sum_up(np.arange(4, dtype=np.int8)) == 10
    assert len(_plus.dispatcher.overloads) == 1
    assert _sum_up(np.arange(4.0)) == 10.0


@needs_compiler
@pytest.mark.parametrize(("folder", "is_vector"), [("engine", False), ("policy", True)])
def test_loops_of_the_engine_stay_loops(monkeypatch, folder, is_vector):
    def total(numbers):
        count = 0
        for i in range(len(numbers)):
            count += numbers[i]
        return count

    total.__module__ = f"sched_env.{folder}.made"
    monkeypatch.setattr(compiling, "cache_folder", lambda _: None)
    entry = compiled(total)
    assert entry(np.arange(100)) == 4950
    (code,) = entry.inspect_llvm().values()
    assert (" x i64> " in code) is is_vector
