"""Fitted constants of GPUs and models, and the engine's measured overhead, by name.

Presets are named ``gpu/model[/tpN][/fp8]``; their figures and sources are in ``presets.json``.
"""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any

from sched_env.config.cost import EngineOverhead, TwoRegimeParameters
from sched_env.errors import UnknownNameError


@functools.cache
def _data() -> dict[str, Any]:
    text = resources.files("sched_env.cost").joinpath("presets.json").read_text("utf8")
    return json.loads(text)


def preset_names() -> tuple[str, ...]:
    """Return the names of the fitted step-time presets."""
    return tuple(sorted(_data()["presets"]))


def preset_parameters(name: str) -> TwoRegimeParameters:
    """Return the constants of a preset.

    Raises:
        UnknownNameError: No preset has that name.
    """
    presets = _data()["presets"]
    if name not in presets:
        raise UnknownNameError("step-time preset", name, presets)
    return TwoRegimeParameters(dec=presets[name]["dec"], mix=presets[name]["mix"])


def measured_overhead(gpu: str, *, on_table: bool = False) -> EngineOverhead:
    """Return the measured engine overhead of a GPU, or the pooled one.

    It is what real runs take beyond the kernels' time, so it depends on what tells the latter.

    Args:
        gpu: Name of the GPU.
        on_table: The kernels' time comes from a measured table.
    """
    overheads = _data()["engine_overhead_ms"]
    figures = overheads.get(gpu, overheads["default"])
    per_seq_ms = figures["per_seq"]
    if on_table:
        per_seq_ms = figures.get("per_seq_on_table", per_seq_ms)
    return EngineOverhead(per_step_ms=figures["per_step"], per_seq_ms=per_seq_ms)
