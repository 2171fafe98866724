"""The scheduler's limits and rules, in the words of vLLM's ``SchedulerConfig``."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import pydantic

from sched_env.config.model import ConfigModel, Count, CountOrZero, Flag, Fraction, NonNegative
from sched_env.config.vllm_args import read_vllm_args

_LOGGER = logging.getLogger(__name__)

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

    block_size: Annotated[Count, pydantic.Field(le=1_048_576)] = 16
    """Tokens in one KV cache block."""

    rules: Literal["vllm", "p07"] = "vllm"
    """vLLM 0.33.0's rules, or the plainer P07 ones (a preempted request may come back at once)."""

    policy: Literal["fcfs", "priority"] = "fcfs"
    """Order of the waiting queue, and which running request gives way, in the class Scheduler;
    elsewhere the policy that is run, or the agent, decides."""

    max_model_len: Count | None = None
    """Prompt and output tokens after which a request ends; null for no limit."""

    reserve_full_isl: Flag | None = None
    """Admit only if the whole sequence so far fits, not just a first chunk; null: as rules says."""

    readmit_after_preemption: Flag | None = None
    """Go on to the waiting requests in a step that preempted; null: as rules says."""

    watermark: Fraction = 0.0
    """Part of the pool to keep free at an admission, unless nothing runs: vLLM's blocks are
    int(watermark x (num_blocks + 1))."""

    long_prefill_token_threshold: CountOrZero = 0
    """Most tokens of one request in a batch while others are there to be served; 0: no cap."""

    long_prefill_token_threshold_adaptive: Flag = False
    """Raise that cap to an equal share of max_num_batched_tokens among all live requests."""

    enable_chunked_prefill: Flag = True
    """Let a batch take part of a prompt; if not, admission stops at one that does not fit whole."""

    max_num_active_seqs: Count | None = None
    """Requests that may run when one is admitted; null: max_num_seqs."""

    prefill_schedule_interval: Count = 1
    """Hold prefill until this many steps after the last one, while a request decodes and the queue
    is served in full."""

    async_scheduling: Flag = False
    """Form the next batch before the outputs of the last are known (vLLM's default is true)."""

    enable_prefix_caching: Flag = False
    """Let requests share the KV blocks of equal leading tokens (vLLM's default is true)."""

    preemptive_priority: Flag = False
    """Let a waiting request evict running ones of strictly lower priority to be admitted."""

    resume_first: Flag = False
    """Serve preempted requests before those that never ran."""

    victim: (
        Literal["tail", "priority", "least_computed", "most_blocks_per_token", "random"] | None
    ) = None
    """Which running request makes room; null: the one that the policy serves last."""

    victim_tie: Literal["first", "last"] = "first"
    """Which of equal victims, in batch order."""

    preemption: Literal["recompute", "swap"] = "recompute"
    """Drop the blocks of a victim and compute them again, or move them out and back."""

    swap_s_per_block: NonNegative = 0.0
    """Time to move one block out or back in, added to the step in which it moves [s]."""

    no_evict: Literal["off", "predicted", "max"] = "off"
    """Admit only if all running requests and this one can grow to their predicted or longest
    output; off: vLLM's optimistic admission."""

    skip_ahead: CountOrZero = 0
    """Requests that may be admitted past one that does not fit; 0: none (head-of-line blocking)."""

    _not_modelled: tuple[str, ...] = pydantic.PrivateAttr(default=())

    @classmethod
    def from_vllm_args(
        cls, args: str | Sequence[str] | Mapping[str, Any], **overrides: Any
    ) -> Self:
        """Return the configuration of a ``vllm serve`` command line.

        What it leaves out is as in vLLM: ``async_scheduling`` and ``enable_prefix_caching`` are on.
        The size of the KV pool is in the command only as ``--num-gpu-blocks-override``; give
        ``num_blocks=`` otherwise (vLLM logs it at start; see also ``sched_env.cost``).

        Args:
            args: The command line, its words, or a mapping of its flags.
            overrides: Fields to set in any case.

        Raises:
            ConfigError: A value is not allowed, or a flag is misspelt.
        """
        fields, others = read_vllm_args(args)
        config = cls(**{**fields, **overrides})
        pydantic.BaseModel.__setattr__(config, "_not_modelled", others)
        if others:
            _LOGGER.warning("vllm serve flags that are not modelled: %s", ", ".join(others))
        return config

    @property
    def not_modelled(self) -> tuple[str, ...]:
        """Return the ``vllm serve`` flags that ``from_vllm_args`` found and we do not model."""
        return self._not_modelled

    @property
    def watermark_blocks(self) -> int:
        """Return the KV blocks that the watermark keeps free."""
        return int(self.watermark * (self.num_blocks + 1))

    def with_pool_times(self, factor: float) -> Self:
        """Return the same server with so many times its KV blocks, at least one.

        Raises:
            ConfigError: They are more than can be simulated.
        """
        num_blocks = min(self.num_blocks * factor, 2.0**60)  # an infinite number has no digits
        return self.replace(num_blocks=max(round(num_blocks), 1))

    @pydantic.model_validator(mode="after")
    def _follow_rules(self) -> Self:
        for name, value in _RULE_DEFAULTS[self.rules].items():
            if getattr(self, name) is None:
                # Past the frozen model's own setter; the field still counts as not set by the user.
                object.__setattr__(self, name, value)
        return self

    @pydantic.model_validator(mode="after")
    def _check_limits(self) -> Self:
        active = self.max_num_active_seqs
        if active is not None and active > self.max_num_seqs:
            raise ValueError(
                f"max_num_active_seqs is {active}, more than max_num_seqs ({self.max_num_seqs})"
            )
        if self.long_prefill_token_threshold_adaptive and not self.long_prefill_token_threshold:
            raise ValueError(
                "long_prefill_token_threshold_adaptive has nothing to adapt: "
                "give long_prefill_token_threshold a number above 0"
            )
        return self
