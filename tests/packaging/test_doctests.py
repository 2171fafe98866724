"""Every example in a docstring runs and gives what it shows."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import sched_env


def test_examples_in_docstrings() -> None:
    found = pkgutil.walk_packages(sched_env.__path__, "sched_env.")
    names = [one.name for one in found if not one.name.endswith("__main__")]
    assert len(names) > 50
    failures = {
        name: result.failed
        for name in names
        if (result := doctest.testmod(importlib.import_module(name))).failed
    }
    assert failures == {}
