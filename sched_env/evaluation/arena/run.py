"""Run an arena: one evaluation for each KV pool and SLO tightness, and the ceilings of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sched_env.baselines.clairvoyant_wsrpt import clairvoyant_wsrpt
from sched_env.config import EnvConfig
from sched_env.config.arena import ArenaConfig, condition_name
from sched_env.evaluation.arena.ceiling_rows import CeilingRow, ceiling_rows, check_ceilings
from sched_env.evaluation.ceilings.fluid_bound import refuse_shared_prefixes
from sched_env.evaluation.cell import CellRunner, Setting
from sched_env.evaluation.compare import Comparison, compare
from sched_env.evaluation.entries import TraceLike
from sched_env.evaluation.folders import ARENA, check_folder
from sched_env.evaluation.grid import Grid
from sched_env.evaluation.runner import check_workers, evaluate
from sched_env.metrics.fairness import STARVATION_S
from sched_env.metrics.summary import Row
from sched_env.simulator.live import with_estimate
from sched_env.workload.synthetic import synthesize

KV_POOL = "kv_pool"
SLO = "slo"
"""Columns of a row that say under which condition it was run."""


@dataclass(frozen=True)
class Condition:
    """One KV pool and one SLO tightness."""

    kv_pool: str
    slo: str
    env: EnvConfig

    @property
    def name(self) -> str:
        """Return what its folder is called."""
        return condition_name(self.kv_pool, self.slo)


@dataclass(frozen=True)
class ArenaResult:
    """Everything that came out of an arena.

    Attributes:
        config: What was run.
        rows: One flat row for each policy, trace, load, seed and condition.
        policies: The policies as an evaluation describes them.
        ceilings: Bounds and searches in hindsight; empty if they were not asked for.
    """

    config: ArenaConfig
    rows: tuple[Row, ...]
    policies: tuple[dict[str, Any], ...]
    ceilings: tuple[CeilingRow, ...]

    def comparison(self, metric: str = "goodput_weighted") -> Comparison:
        """Compare the policies over all conditions, paired by condition, trace, load and seed."""
        return compare([paired_row(row) for row in self.rows], metric=metric)


def paired_row(row: Row) -> Row:
    """Return a row whose trace tells its condition too, so that pairs are of one condition."""
    return {**row, "trace": f"{row['trace']}, {row[KV_POOL]} KV, {row[SLO]} SLO"}


def conditions_of(config: ArenaConfig) -> list[Condition]:
    """Return every KV pool with every SLO tightness."""
    env = config.env
    return [
        Condition(
            pool,
            slo,
            env.replace(
                scheduler=env.scheduler.replace(num_blocks=num_blocks),
                service=env.service.replace(slo_factor=slo_factor),
            ),
        )
        for pool, num_blocks in config.kv_pools.items()
        for slo, slo_factor in config.slo_factors.items()
    ]


def traces_of(config: ArenaConfig) -> dict[str, TraceLike]:
    """Return the traces by label; those with bursts are drawn here.

    Raises:
        UnknownNameError: No such workload.
        ConfigError: A burst's numbers are not possible for it.
    """
    traces: dict[str, TraceLike] = dict(config.traces)
    for label, bursts in config.bursts.items():
        traces[label] = synthesize(
            bursts.workload,
            num_requests=bursts.num_requests,
            burst_cv=bursts.burst_cv,
            seed=bursts.seed,
        )
    return traces


def run_arena(
    config: ArenaConfig,
    folder: Path,
    *,
    workers: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> ArenaResult:
    """Run every policy under every condition.

    Args:
        config: What to run.
        folder: Takes a folder of results for each condition.
        workers: Processes of an evaluation; None decides by the size of the work.
        progress: Called with the name of what begins, and with what is less than was asked for.

    Raises:
        SchedEnvError: A policy, trace or folder is wrong; the message says which.
        MissingExtraError: Ceilings are asked for without the extra ``ceilings``.
    """
    check_workers(workers)
    traces = traces_of(config)
    policies: list[Any] = list(config.policies)
    if config.clairvoyant:
        policies.append(clairvoyant_wsrpt)
    conditions = conditions_of(config)
    _refuse_faults(config, policies, traces, conditions)
    check_folder(folder, ARENA, config.to_dict())
    chosen = config.ceilings
    if progress is not None and chosen.enabled and chosen.num_seeds > config.num_seeds:
        progress(f"ceilings.num_seeds {chosen.num_seeds} is more than num_seeds {config.num_seeds}")
    rows: list[Row] = []
    described: list[dict[str, Any]] = []
    ceilings: list[CeilingRow] = []
    for condition in conditions:
        if progress is not None:
            progress(condition.name)
        result = evaluate(
            policies,
            traces,
            config.loads,
            config.num_seeds,
            condition.env,
            split=config.split,
            out_dir=folder / condition.name,
            workers=workers,
            progress=progress is not None,
            allow_privileged=config.clairvoyant,
            max_requests=config.max_requests or None,
        )
        described = result.config["policies"]
        labels = {KV_POOL: condition.kv_pool, SLO: condition.slo}
        labelled = [{**row, **labels} for row in result.rows]
        rows += labelled
        if config.ceilings.enabled:
            if progress is not None:
                progress(f"{condition.name}: ceilings")
            ceilings += ceiling_rows(config, condition.env, labels, traces, labelled)
    return ArenaResult(config, tuple(rows), tuple(described), tuple(ceilings))


def _refuse_faults(
    config: ArenaConfig,
    policies: Sequence[Any],
    traces: Mapping[str, TraceLike],
    conditions: Sequence[Condition],
) -> None:
    """Find what is wrong with policies, traces and loads before any work is done."""
    if config.ceilings.enabled:
        refuse_shared_prefixes(config.env)
    privileged = config.clairvoyant
    grid = Grid.checked(
        policies, traces, config.loads, config.num_seeds, allow_privileged=privileged
    )
    scarcest = min(conditions, key=lambda one: one.env.scheduler.num_blocks)
    setting = Setting(
        with_estimate(scarcest.env), config.split, STARVATION_S, config.max_requests or None
    )
    CellRunner(setting).tables(grid.traces, grid.loads, grid.seeds[0])
    if config.ceilings.enabled:
        for condition in conditions:
            check_ceilings(config, condition.env, traces)
