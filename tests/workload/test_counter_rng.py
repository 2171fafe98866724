from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys

import numpy as np
import pytest

from sched_env.workload.counter_rng import mix, normal, uniform

_VALUES = """
from sched_env.workload.counter_rng import mix, normal, uniform
from sched_env.config.service import DEFAULT_SERVICE_CLASSES
from sched_env.workload.service_classes import (
    draw_class, draw_predicted_tokens, draw_slo_jitter, service_class_array)
classes = service_class_array(DEFAULT_SERVICE_CLASSES)
for seed in (0, 1, -5, 2**63 - 1, 12345678901234567):
    for row in (0, 1, 7, 2**40, -3):
        print(repr(float(uniform(seed, row, 1))), repr(float(normal(seed, row, 3))),
              int(mix(seed, row)), int(draw_class(classes, seed, row)),
              repr(float(draw_slo_jitter(seed, row))),
              repr(float(draw_predicted_tokens(100, 0.5, seed, row))))
"""


def test_compiled_and_plain_python_draw_identical_values(repository):
    here = io.StringIO()
    with contextlib.redirect_stdout(here):
        exec(_VALUES, {})
    other_mode = "0" if os.environ.get("NUMBA_DISABLE_JIT") == "1" else "1"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": other_mode, "PYTHONPATH": str(repository)}
    command = [sys.executable, "-W", "error", "-c", _VALUES]
    there = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert there.stdout == here.getvalue()
    assert len(set(there.stdout.splitlines())) == 25


def test_values_never_change():
    # A changed value changes every seeded result of the package.
    assert uniform(0, 1, 1) == pytest.approx(0.5155028568372059, abs=1e-15)
    assert normal(0, 1, 3) == pytest.approx(-2.514038014872402, abs=1e-14)
    assert mix(0, 1) == 7002818818488529334


def test_uniform_is_uniform_over_rows_seeds_and_streams():
    for draws in (
        [uniform(3, row, 1) for row in range(4000)],
        [uniform(seed, 3, 1) for seed in range(4000)],
        [uniform(3, 1, stream) for stream in range(4000)],
    ):
        ranks = np.sort(draws)
        assert np.max(np.abs(ranks - (np.arange(4000) + 0.5) / 4000)) < 1.63 / np.sqrt(4000)
        assert ranks[0] >= 0
        assert ranks[-1] < 1


def test_normal_has_mean_zero_and_unit_variance_and_no_serial_correlation():
    draws = np.array([normal(11, row, 3) for row in range(20000)])
    assert abs(draws.mean()) < 0.03
    assert abs(draws.std() - 1) < 0.02
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.03


@pytest.mark.parametrize("kind", [int, np.int64, np.uint64])
def test_the_integer_type_of_the_seed_does_not_matter(kind):
    assert uniform(kind(7), 5, 1) == uniform(7, 5, 1)
    assert mix(kind(7), 5) == mix(7, 5)


def test_mix_gives_non_negative_int64_and_tells_the_arguments_apart():
    seeds = {int(mix(a, b)) for a in range(30) for b in range(30)}
    assert len(seeds) == 900
    assert all(0 <= seed < 2**63 for seed in seeds)
