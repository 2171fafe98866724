"""From a cost configuration, of any kind, to the constants of the compiled step-time model."""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.config.cost import (
    AffineCost,
    CostConfig,
    EngineOverhead,
    LiveCost,
    ProfileCost,
    RooflineCost,
    ServerCost,
    TableCost,
    TwoRegimeParameters,
)
from sched_env.cost.measured import MeasuredSteps, choose_group, read_measured_steps
from sched_env.cost.presets import measured_overhead, preset_parameters
from sched_env.cost.profile import read_profile
from sched_env.cost.roofline import roofline_cost
from sched_env.cost.step_time import COST, SHARP
from sched_env.cost.table import fill_table
from sched_env.cost.two_regime_fit import fit_two_regime
from sched_env.errors import ConfigError

_MS = 1e-3
_NO_OVERHEAD = EngineOverhead(per_step_ms=0.0, per_seq_ms=0.0)


def cost_record(config: CostConfig) -> NDArray[Any]:
    """Return the COST array (1,) of a step-time configuration, in seconds.

    Raises:
        UnknownNameError: No preset, GPU, model or group has that name.
        ConfigError: A table or a profile cannot be read.
    """
    if isinstance(config, ProfileCost):
        kernels = cost_record(read_profile(config.path).cost)
    elif isinstance(config, AffineCost):
        kernels = _affine(config)
    elif isinstance(config, TableCost):
        kernels = _table(config)[0].copy()
        kernels["refuses_beyond"] = config.beyond == "refuse"
    elif isinstance(config, RooflineCost):
        kernels = roofline_cost(config)
    else:
        kernels = two_regime_cost(config.parameters or preset_parameters(config.preset or ""))
    overhead = engine_overhead(config)
    kernels["overhead_per_step_s"] = overhead.per_step_ms * _MS
    kernels["overhead_per_sequence_s"] = overhead.per_seq_ms * _MS
    return kernels


def modelled(cost: ServerCost) -> CostConfig:
    """Return the step-time model of a server; for one with a measured clock that is its estimate.

    Raises:
        ConfigError: There is no estimate.
    """
    if not isinstance(cost, LiveCost):
        return cost
    if cost.estimate is None:
        raise ConfigError("cost.estimate is null: give step times to reckon with beforehand")
    return cost.estimate


def engine_overhead(config: CostConfig) -> EngineOverhead:
    """Return the engine's own time per iteration that a step-time configuration counts.

    Raises:
        UnknownNameError: A table has no such group.
        ConfigError: A table or a profile cannot be read.
    """
    if config.engine_overhead is not None:
        return config.engine_overhead
    if isinstance(config, ProfileCost):
        return engine_overhead(read_profile(config.path).cost)
    if isinstance(config, AffineCost):
        return _NO_OVERHEAD
    if isinstance(config, TableCost):
        return _table(config)[1]
    if isinstance(config, RooflineCost):
        return measured_overhead(config.gpu if isinstance(config.gpu, str) else "")
    return measured_overhead((config.preset or "").split("/")[0])


def two_regime_cost(parameters: TwoRegimeParameters) -> NDArray[Any]:
    """Return the COST array (1,) of two-regime constants, without engine overhead."""
    decode, mixed = parameters.dec, parameters.mix
    cost = np.zeros(1, COST)
    cost["decode_base_s"] = decode.a * _MS
    cost["decode_per_sequence_s"] = decode.b * _MS
    cost["decode_per_context_token_s"] = decode.d * _MS
    cost["decode_free_context_tokens"] = decode.S0
    cost["mixed_base_s"] = mixed.o * _MS
    cost["mixed_per_token_s"] = mixed.g * _MS
    cost["mixed_knee_tokens"] = mixed.Tk
    cost["mixed_smoothness"] = mixed.p
    cost["mixed_tile_tokens"] = mixed.tile
    cost["mixed_per_sequence_s"] = mixed.b * _MS
    cost["mixed_per_context_token_s"] = mixed.d * _MS
    cost["mixed_per_attention_s"] = mixed.e * _MS
    cost["mixed_min_chunk_tokens"] = mixed.p0
    return cost


def table_cost(steps: MeasuredSteps, margin: float) -> NDArray[Any]:
    """Return the COST array (1,) of measured steps, without engine overhead.

    Raises:
        ConfigError: There are too many steps, or none.
    """
    cost = two_regime_cost(TwoRegimeParameters.from_mapping(fit_two_regime(steps)))
    fill_table(cost, steps, margin)
    return cost


def measured_step_overhead(steps: MeasuredSteps, *, on_table: bool) -> EngineOverhead:
    """Return the overhead that comes on top of measured steps: none where they hold it.

    Args:
        steps: Of one group.
        on_table: The steps are taken as a table; if not, a formula is fitted to them.
    """
    if steps.has_engine_time:
        return _NO_OVERHEAD
    return measured_overhead(steps.gpu, on_table=on_table)


def _affine(config: AffineCost) -> NDArray[Any]:
    cost = np.zeros(1, COST)
    cost["decode_base_s"] = cost["mixed_base_s"] = config.base_s
    cost["decode_per_sequence_s"] = config.per_decode_s
    cost["mixed_per_sequence_s"] = config.per_decode_s - config.per_prefill_token_s
    cost["mixed_per_token_s"] = config.per_prefill_token_s
    cost["mixed_smoothness"] = SHARP
    cost["mixed_tile_tokens"] = 1.0
    return cost


def _table(config: TableCost) -> tuple[NDArray[Any], EngineOverhead]:
    """Return a table's COST array (1,), to be copied before it is changed, and its overhead."""
    try:
        stamp = os.stat(config.path).st_mtime_ns
    except OSError:
        stamp = 0  # reading the file tells what is wrong
    return _table_of_file(config.path, stamp, config.group, config.margin)


@functools.lru_cache(maxsize=16)
def _table_of_file(
    path: str, _stamp: int, group: str | None, margin: float
) -> tuple[NDArray[Any], EngineOverhead]:
    steps = choose_group(read_measured_steps(path), group, path)
    return table_cost(steps, margin), measured_step_overhead(steps, on_table=True)
