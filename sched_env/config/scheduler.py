"""The scheduler's limits and rules, in the words of vLLM's ``SchedulerConfig``."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import pydantic

from sched_env.config.model import ConfigModel, Count, Flag

_RULE_DEFAULTS: dict[str, dict[str, bool]] = {
    "vllm": {"reserve_full_isl": True, "readmit_after_preemption": False},
    "p07": {"reserve_full_isl": False, "readmit_after_preemption": True},
}


class SchedulerConfig(ConfigModel):
    """Budgets of one server and the rules it schedules by.

    ``SchedulerConfig(max_num_batched_tokens=8, max_num_seqs=8, num_blocks=100)`` works as it
    stands; a wrong value raises ``ConfigError``, which is a ``ValueError``.
    """

    config_kind: ClassVar[str | None] = "scheduler"

    max_num_batched_tokens: Count = 2048
    """Tokens of one iteration, prefill and decode together. May be below max_num_seqs."""

    max_num_seqs: Count = 64
    """Requests that may run at the same time."""

    num_blocks: Count = 4000
    """KV cache blocks that requests can use (vLLM's num_gpu_blocks - 1: it keeps block 0)."""

    block_size: Count = 16
    """Tokens in one KV cache block."""

    rules: Literal["vllm", "p07"] = "vllm"
    """vLLM 0.33.0's rules, or the plainer P07 ones (a preempted request may come back at once)."""

    policy: Literal["fcfs", "priority"] = "fcfs"
    """Order of the waiting queue, and which running request gives way."""

    max_model_len: Count | None = None
    """Prompt and output tokens after which a request ends; null for no limit."""

    reserve_full_isl: Flag | None = None
    """Admit only if the whole sequence so far fits, not just a first chunk; null: as rules says."""

    readmit_after_preemption: Flag | None = None
    """Go on to the waiting requests in a step that preempted; null: as rules says."""

    @pydantic.model_validator(mode="after")
    def _follow_rules(self) -> Self:
        for name, value in _RULE_DEFAULTS[self.rules].items():
            if getattr(self, name) is None:
                # Past the frozen model's own setter; the field still counts as not set by the user.
                object.__setattr__(self, name, value)
        return self
