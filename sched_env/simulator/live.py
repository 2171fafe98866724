"""Live runs: the batches of a policy on a real model, whose measured times move the clock.

Everything but the times is as in a simulation: arrivals, lengths, service classes, SLOs and the KV
budget do not depend on the machine. Where a time has to be known beforehand (the lone prefill in an
SLO, what an agent sees of the next step, load 1.0), it is that of ``cost.estimate``.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from sched_env.config.cost import AffineCost, LiveCost
from sched_env.config.env import EnvConfig
from sched_env.config.scheduler import SchedulerConfig
from sched_env.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from sched_env.executor.torch_executor import TorchExecutor


_kept: dict[tuple[str | int, ...], TorchExecutor] = {}
"""The executor of this process for runs that follow each other, by what it was made of."""


def make_executor(cost: LiveCost, scheduler: SchedulerConfig) -> TorchExecutor:
    """Return a model with the KV pool of a server.

    Raises:
        ConfigError: The device is not there or too small.
        UnknownNameError: No such model.
        MissingExtraError: torch is not installed.
    """
    from sched_env.executor.shapes import shape_of

    shape = shape_of(cost.model)
    try:
        from sched_env.executor.torch_executor import TorchExecutor
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError("gpu", "torch") from None
    return TorchExecutor(
        shape,
        scheduler.num_blocks,
        scheduler.block_size,
        device=cost.device,
        max_num_seqs=scheduler.max_num_seqs,
        seed=cost.seed,
        cpu_time=cost.clock == "cpu_time",
    )


def shared_executor(cost: LiveCost, scheduler: SchedulerConfig) -> TorchExecutor:
    """Return the executor that runs in this process share, one after the other.

    Raises:
        ConfigError: The device is not there or too small.
        UnknownNameError: No such model.
        MissingExtraError: torch is not installed.
    """
    sizes = scheduler.num_blocks, scheduler.block_size, scheduler.max_num_seqs
    made_of = (cost.model, cost.device, cost.seed, cost.clock, *sizes)
    if made_of not in _kept:
        _kept.clear()
        _kept[made_of] = make_executor(cost, scheduler)
    return _kept[made_of]


def check_live(env: EnvConfig, num_servers: int = 1) -> None:
    """Refuse what a live server cannot do; other environments pass.

    Raises:
        ConfigError: There are several servers, a warm-up, or rules by which blocks outlive their
            request or a batch is formed while another runs.
    """
    if not isinstance(env.cost, LiveCost):
        return
    if num_servers != 1:
        raise ConfigError(
            f"a live cost runs one server, not {num_servers}: use gymnasium.make, or "
            'gymnasium.make_vec(..., vectorization_mode="sync")'
        )
    scheduler = env.scheduler
    for name, value in (
        ("async_scheduling", False),
        ("enable_prefix_caching", False),
        ("preemption", "recompute"),
    ):
        if getattr(scheduler, name) != value:
            raise ConfigError(
                f"scheduler.{name} {getattr(scheduler, name)!r} is not offered with a live cost: "
                f"set it to {value!r}"
            )
    if env.episode.warmup_s > 0:
        raise ConfigError("a live server starts empty: leave warmup_s at 0")


def with_estimate(env: EnvConfig, executor: TorchExecutor | None = None) -> EnvConfig:
    """Return the environment with an estimate of step times: measured now if none is given.

    Environments that are not live stay as they are.

    Args:
        env: The environment.
        executor: What to measure; by default the shared one.

    Raises:
        ConfigError: The device is not there or too small.
        UnknownNameError: No such model.
        MissingExtraError: torch is not installed.
    """
    if not isinstance(env.cost, LiveCost) or env.cost.estimate is not None:
        return env
    executor = executor or shared_executor(env.cost, env.scheduler)
    from sched_env.executor.calibration import calibrate

    scheduler = env.scheduler
    line = calibrate(executor, scheduler.max_num_seqs, scheduler.max_num_batched_tokens)
    return env.replace(cost=env.cost.replace(estimate=AffineCost(**asdict(line))))
