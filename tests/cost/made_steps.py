"""Measured steps made from known constants."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import numpy as np

from sched_env.cost.measured import COLUMNS, MeasuredSteps

GROUP = "toy-gpu/toy-model"


def made_ms(n, ctx, chunk, past):
    """A two-regime model with round constants, in ms."""
    if chunk == 0:
        return 5.0 + 0.02 * n + 4e-5 * n * ctx
    knee = float(np.hypot(256.0, n + chunk))
    attention = chunk * (past + chunk / 2)
    return 1.0 + 0.02 * knee + 0.01 * n + 4e-5 * n * ctx + 1e-6 * attention


def made_steps(bump=0.0):
    """A grid of steps; ``bump`` moves every second row off the formula by that share."""
    rows = [(n, c, 0, 0) for n in (1, 4, 16, 64, 128) for c in (64, 512, 4096)]
    rows += [(0, 0, c, p) for c in (16, 128, 512, 2048) for p in (0, 1024, 4096)]
    rows += list(itertools.product((1, 16, 64), (64, 1024), (16, 256, 2048), (0, 2048)))
    values = np.array(rows, float)
    ms = np.array([made_ms(*row) for row in rows])
    ms *= 1.0 + bump * np.where(np.arange(len(rows)) % 2, 1.0, -1.0)
    return MeasuredSteps(GROUP, *values.T, ms)


def write_steps(path: Path, *groups: MeasuredSteps, kind="composed") -> Path:
    """Write groups as a CSV file."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, "kind", "source"])
        for steps in groups:
            gpu, model, *rest = steps.group.split("/")
            tp = next((one[2:] for one in rest if one.startswith("tp")), "1")
            precision = next((one for one in rest if not one.startswith("tp")), "bf16")
            for row in zip(
                steps.n_decode,
                steps.ctx,
                steps.prefill_tokens,
                steps.prefill_past,
                steps.ms,
                strict=True,
            ):
                writer.writerow([gpu, model, tp, precision, *row, kind, "made"])
    return path
