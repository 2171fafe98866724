"""A step-time model from the options of a command."""

from __future__ import annotations

from sched_env.config.cost import CostConfig, EngineOverhead, ProfileCost, TableCost
from sched_env.config.model import ConfigModel
from sched_env.cost.models import cost_record, engine_overhead
from sched_env.cost.profile import read_profile
from sched_env.errors import ConfigError


class _Choice(ConfigModel):
    cost: CostConfig
    """The step-time model."""


def chosen_cost(
    text: str,
    *,
    group: str | None = None,
    per_step_ms: float | None = None,
    per_seq_ms: float | None = None,
) -> CostConfig:
    """Return the configuration that a text names, with parts of its engine overhead replaced.

    Args:
        text: A preset, a CSV file of measured steps, or a profile folder.
        group: Which group of a table.
        per_step_ms: Engine overhead per step; ``None`` keeps the measured value.
        per_seq_ms: Engine overhead per sequence; ``None`` keeps the measured value.

    Raises:
        ConfigError: The text names nothing readable, or a group of what is no table.
        UnknownNameError: No preset or group has that name.
    """
    cost = _Choice.from_mapping({"cost": text}).cost
    if group is not None:
        if not isinstance(cost, TableCost):
            raise ConfigError(f"{text} is no table of measured steps, so it has no group {group!r}")
        cost = cost.replace(group=group)
    cost_record(cost)  # names what is wrong before any work
    measured = engine_overhead(cost)
    if per_step_ms is None and per_seq_ms is None:
        return cost
    overhead = EngineOverhead(
        per_step_ms=measured.per_step_ms if per_step_ms is None else per_step_ms,
        per_seq_ms=measured.per_seq_ms if per_seq_ms is None else per_seq_ms,
    )
    return cost.replace(engine_overhead=overhead)


def counting_beyond(cost: CostConfig) -> CostConfig:
    """Return a step-time model that counts steps beyond a measured table instead of refusing.

    A real server has been wherever its limits allow.

    Raises:
        ConfigError: A profile cannot be read.
    """
    if isinstance(cost, ProfileCost):
        inner = read_profile(cost.path).cost
        cost = inner.replace(engine_overhead=engine_overhead(cost))
    return cost.replace(beyond="count") if isinstance(cost, TableCost) else cost
