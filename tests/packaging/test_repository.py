"""The checkout: links, documents, pinned versions, checks that can fail."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest


def load_script(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["agents", "baselines", "configs"])
def test_links_are_relative_and_lead_to_the_top_folders(name: str, repository: Path) -> None:
    link = repository / "sched_env" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / name
    assert (link / "__init__.py").is_file()


def test_nothing_is_importable_by_its_bare_name_once_installed(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["packages"]["find"]["include"] == ["sched_env*"]


def test_every_dependency_is_pinned(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["agents"], *extras["dev"]]
    pins = (repository / "constraints.txt").read_text().lower().replace("_", "-")
    pinned = set(re.findall(r"^([a-z0-9.-]+)==", pins, re.MULTILINE))
    names = {re.split(r"[<>=~ \[]", one)[0].lower().replace("_", "-") for one in needed}
    assert names <= pinned
    assert "torch==2.13.0\n" in pins


def test_extras_that_messages_name_exist(repository: Path) -> None:
    from sched_env.cli.doctor import BASE_PACKAGES, EXTRAS

    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    offered = {
        extra: {re.split(r"[<>=~ ]", one)[0] for one in needed}
        for extra, needed in project["optional-dependencies"].items()
    }
    sources = [*repository.glob("sched_env/**/*.py"), *repository.glob("agents/**/*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    named = set(re.findall(r'(?:MissingExtraError|importing_extra)\("(\w+)"', text))
    assert "agents" in named
    assert named <= set(offered)
    assert {extra: set(packages) for extra, packages in EXTRAS.items()} == {
        extra: packages for extra, packages in offered.items() if extra != "dev"
    }
    needed = {re.split(r"[<>=~ ]", one)[0] for one in project["dependencies"]}
    assert set(BASE_PACKAGES) == needed


def test_version_is_the_same_everywhere(repository: Path) -> None:
    from sched_env import __version__

    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
    assert f"version: {__version__}\n" in (repository / "CITATION.cff").read_text()


def test_readme_starts_with_the_two_commands(repository: Path) -> None:
    first = (repository / "README.md").read_text().split("```")[1]
    commands = [line.split("#")[0].strip() for line in first.splitlines()[1:]]
    assert commands == ["make demo", "make test"]
    rules = (repository / "Makefile").read_text()
    for target in ("demo", "test", "check"):
        assert re.search(rf"^{target}:", rules, re.MULTILINE)


def test_changelog_says_what_alters_trajectories(repository: Path) -> None:
    assert "### Trajectories" in (repository / "CHANGELOG.md").read_text()


def test_broken_links_are_found(repository: Path, tmp_path: Path) -> None:
    checker = load_script(repository / ".ci" / "check_links.py")
    checker.ROOT = tmp_path
    (tmp_path / "other.md").write_text("# One Heading, or two\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md) [b](other.md#one-heading-or-two) [c](https://example.org)\n"
        "```\n[in code](nowhere.md)\n```\n[d](missing.md) [e](other.md#no-heading)\n"
    )
    faults = checker.faults_in(page)
    assert len(faults) == 2
    assert "missing.md leads nowhere" in faults[0]
    assert "#no-heading names no heading" in faults[1]


def test_links_of_the_documentation_lead_somewhere(repository: Path) -> None:
    checker = load_script(repository / ".ci" / "check_links.py")
    assert checker.main() == 0


def test_strangers_and_gaps_in_a_wheel_are_found(repository: Path) -> None:
    checker = load_script(repository / ".ci" / "check_wheel.py")
    faults = checker._faults(["agents/__init__.py", "sched_env-0.1.0.dist-info/METADATA"])
    assert "agents would land in site-packages" in faults
    assert "configs/env/h100_8b_small_kv.yaml is missing" in faults
    assert "sched_env/py.typed is missing" in faults
    assert not any("dist-info" in fault for fault in faults)
