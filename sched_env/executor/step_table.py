"""The table of measured steps, a CSV file that a step-time model can be fitted to."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass

from sched_env.executor.profile import MeasuredStep

COLUMNS = (
    "gpu",
    "model",
    "tp",
    "precision",
    "engine",
    "phase",
    "n_decode",
    "ctx",
    "prefill_tokens",
    "prefill_past",
    "new_tokens",
    "ms",
    "kind",
    "source",
)
"""``ctx``: tokens that each decoding sequence attends to; ``ms``: one step, in milliseconds."""

_PRECISIONS = {"bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}


@dataclass(frozen=True)
class StepTableHead:
    """What is the same in all rows: device, model, number format, and who measured."""

    gpu: str
    model: str
    dtype: str
    engine: str
    source: str


def step_table(head: StepTableHead, steps: Iterable[MeasuredStep]) -> str:
    """Return the table as CSV text with a heading."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    precision = _PRECISIONS.get(head.dtype, head.dtype)
    for step in steps:
        point = step.point
        sizes = (point.num_decodes, point.context_tokens, point.prefill_tokens, point.prefill_past)
        writer.writerow(
            [
                *(head.gpu, head.model, 1, precision, head.engine, point.phase),
                *(*sizes, point.new_tokens, f"{step.step_time_s * 1e3:.6g}"),
                *("measured_step", head.source),
            ]
        )
    return text.getvalue()
