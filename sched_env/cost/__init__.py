"""How long a step takes: step-time models and their measured constants."""

from __future__ import annotations

from sched_env.cost.models import cost_record
from sched_env.cost.presets import preset_names
from sched_env.cost.step_time import COST, lone_prefill_s, step_time_s

__all__ = ["COST", "cost_record", "lone_prefill_s", "preset_names", "step_time_s"]
