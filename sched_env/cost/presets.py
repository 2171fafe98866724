"""From a cost configuration to the constants of the compiled step-time model.

Presets are named ``gpu/model[/tpN][/fp8]``; their figures and sources are in ``presets.json``.
"""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.config.cost import AffineCost, CostConfig, EngineOverhead, TwoRegimeCost
from sched_env.cost.step_time import COST, SHARP
from sched_env.errors import UnknownNameError

_MS = 1e-3


@functools.cache
def _data() -> dict[str, Any]:
    text = resources.files("sched_env.cost").joinpath("presets.json").read_text("utf8")
    return json.loads(text)


def preset_names() -> tuple[str, ...]:
    """Return the names of the fitted step-time presets."""
    return tuple(sorted(_data()["presets"]))


def cost_record(config: CostConfig) -> NDArray[Any]:
    """Return the COST array (1,) of a step-time configuration, in seconds.

    Raises:
        UnknownNameError: No preset has that name.
    """
    if isinstance(config, AffineCost):
        return _affine(config)
    return _two_regime(config)


def _affine(config: AffineCost) -> NDArray[Any]:
    cost = np.zeros(1, COST)
    cost["decode_base_s"] = cost["mixed_base_s"] = config.base_s
    cost["decode_per_sequence_s"] = config.per_decode_s
    cost["mixed_per_sequence_s"] = config.per_decode_s - config.per_prefill_token_s
    cost["mixed_per_token_s"] = config.per_prefill_token_s
    cost["mixed_smoothness"] = SHARP
    cost["mixed_tile_tokens"] = 1.0
    return cost


def _two_regime(config: TwoRegimeCost) -> NDArray[Any]:
    decode, mixed = _constants(config)
    cost = np.zeros(1, COST)
    cost["decode_base_s"] = decode["a"] * _MS
    cost["decode_per_sequence_s"] = decode["b"] * _MS
    cost["decode_per_context_token_s"] = decode["d"] * _MS
    cost["decode_free_context_tokens"] = decode["S0"]
    cost["mixed_base_s"] = mixed["o"] * _MS
    cost["mixed_per_token_s"] = mixed["g"] * _MS
    cost["mixed_knee_tokens"] = mixed["Tk"]
    cost["mixed_smoothness"] = mixed["p"]
    cost["mixed_tile_tokens"] = mixed["tile"]
    cost["mixed_per_sequence_s"] = mixed["b"] * _MS
    cost["mixed_per_context_token_s"] = mixed["d"] * _MS
    cost["mixed_per_attention_s"] = mixed["e"] * _MS
    cost["mixed_min_chunk_tokens"] = mixed["p0"]
    overhead = config.engine_overhead or _overhead(config.preset)
    cost["overhead_per_step_s"] = overhead.per_step_ms * _MS
    cost["overhead_per_sequence_s"] = overhead.per_seq_ms * _MS
    return cost


def _constants(config: TwoRegimeCost) -> tuple[dict[str, float], dict[str, float]]:
    if config.parameters is not None:
        return config.parameters.dec.model_dump(), config.parameters.mix.model_dump()
    presets = _data()["presets"]
    if config.preset not in presets:
        raise UnknownNameError("step-time preset", str(config.preset), presets)
    chosen = presets[config.preset]
    return chosen["dec"], chosen["mix"]


def _overhead(preset: str | None) -> EngineOverhead:
    """Return the measured overhead of the preset's GPU, or the pooled one."""
    overheads = _data()["engine_overhead_ms"]
    gpu = (preset or "").split("/")[0]
    figures = overheads.get(gpu, overheads["default"])
    return EngineOverhead(per_step_ms=figures["per_step"], per_seq_ms=figures["per_seq"])
