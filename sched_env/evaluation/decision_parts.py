"""What a learned policy gains by each kind of its decisions, one at a time.

::

    python -m sched_env.evaluation.decision_parts POLICY TRACE [TRACE ...]

The first table leaves the levels, the admissions and the victims of weighted shortest job first to
the policy, one at a time and all together. The second has the order of weighted shortest job first
and then that of the policy, and only the victim differs: the request that came last, the one with
the fewest computed tokens, the one with the most blocks per token, and the policy's own choice. All
victims are chosen among the running requests that are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from sched_env.config import EnvConfig, load_config
from sched_env.errors import PolicyError, run_module
from sched_env.evaluation.cell import CellRunner, Setting
from sched_env.evaluation.entries import trace_entries
from sched_env.evaluation.statistics import paired_difference
from sched_env.evaluation.table import TextTable, format_interval, print_tables
from sched_env.metrics.fairness import STARVATION_S
from sched_env.metrics.preemption import num_preemptions, num_recomputed_tokens
from sched_env.metrics.slo import goodput_weighted
from sched_env.policy.parts import MostBlocksVictim, Part, PartsPolicy, Scores
from sched_env.policy.registry import resolve_policy
from sched_env.policy.runtime import ExportedPolicy
from sched_env.policy.scores import linear_score
from sched_env.simulator.simulate import at_load, simulate

SERVER = "h100_8b_small_kv"
KV_POOLS = (4000, 2000)
LOADS = (1.0, 1.3)
NUM_SEEDS = 10
MAX_REQUESTS = 400
"""Requests of each window, from its start."""


@dataclass(frozen=True)
class PartRow:
    """One run of one policy.

    Attributes:
        goodput: Weighted goodput.
        num_preemptions: Preemptions.
        num_recomputed_tokens: Tokens computed again.
        num_injected: Requests.
    """

    goodput: float
    num_preemptions: int
    num_recomputed_tokens: int
    num_injected: int


def victim_choices(policy: ExportedPolicy) -> dict[str, Scores]:
    """Return the rules that a policy's choice of victims is compared with, and the choice itself.

    Args:
        policy: What was learned.
    """
    layout = policy.card.observation

    def by(**weights: float) -> ExportedPolicy:
        return linear_score("victims", admit={}, preempt=weights, layout=layout)

    return {
        "last in batch order": by(rank=-1.0),
        "least computed": by(computed=-1.0),
        "most blocks per token": MostBlocksVictim(layout),
        "of the policy": policy,
    }


def weighted_sjf_like(policy: ExportedPolicy) -> ExportedPolicy:
    """Return weighted shortest job first at the full level, shown what ``policy`` is shown."""
    order = {"density": 5.0}
    return linear_score(
        "weighted_sjf",
        admit=order,
        preempt={"density": -5.0},
        layout=policy.card.observation,
        screen=policy.card.screen,
    )


def part_policies(policy: ExportedPolicy) -> dict[str, PartsPolicy]:
    """Return weighted shortest job first with each part of its decisions left to ``policy``."""
    base = weighted_sjf_like(policy)
    choices: dict[str, dict[Part, Scores]] = {
        "weighted_sjf": {},
        "+ its victims": {"victims": policy},
        "+ its admissions": {"admission": policy},
        "+ its prefill levels": {"level": policy},
        "+ all three": {"victims": policy, "admission": policy, "level": policy},
    }
    made = {label: PartsPolicy(label, base, parts) for label, parts in choices.items()}
    return {**made, "the policy": PartsPolicy("the policy", policy, {})}


def victim_policies(policy: ExportedPolicy) -> dict[str, PartsPolicy]:
    """Return policies that differ in the victims alone, under two orders of admission."""
    orders = {"weighted_sjf": weighted_sjf_like(policy), "the policy": policy}
    return {
        f"{order}, victim {label}": PartsPolicy(label, base, {"victims": victims})
        for order, base in orders.items()
        for label, victims in victim_choices(policy).items()
    }


def run_parts(
    policies: Mapping[str, PartsPolicy],
    traces: Sequence[str],
    env: EnvConfig,
    *,
    split: str = "test",
    num_seeds: int = NUM_SEEDS,
    loads: Sequence[float] = LOADS,
    kv_pools: Sequence[int] = KV_POOLS,
    max_requests: int = MAX_REQUESTS,
) -> dict[str, list[PartRow]]:
    """Run every policy on the same requests; return its rows, paired over policies.

    Raises:
        SchedEnvError: A trace cannot be read.
    """
    rows: dict[str, list[PartRow]] = {label: [] for label in policies}
    for num_blocks in kv_pools:
        server = env.replace(scheduler=env.scheduler.replace(num_blocks=num_blocks))
        runner = CellRunner(Setting(server, split, STARVATION_S, max_requests))
        for trace in trace_entries(traces):
            for load in loads:
                for seed in range(num_seeds):
                    window = runner.window(trace, seed)
                    table = at_load(window.table, load, window.capacity_rps)
                    for label, policy in policies.items():
                        decider = cast("ExportedPolicy", policy)
                        requests = simulate(table, decider, server, seed=seed).requests
                        rows[label].append(_row(requests))
    return rows


def _row(requests: Any) -> PartRow:
    return PartRow(
        goodput_weighted(requests),
        num_preemptions(requests),
        num_recomputed_tokens(requests),
        len(requests),
    )


def parts_table(title: str, rows: Mapping[str, Sequence[PartRow]], first: str) -> TextTable:
    """Return means over runs, and paired differences of goodput to the policy named ``first``."""
    columns = ("policy", "goodput", "to the first [95 %]", "preempted", "recomputed tokens")
    lines: list[tuple[str, ...]] = []
    reference = [row.goodput for row in rows[first]]
    for label, found in rows.items():
        injected = sum(row.num_injected for row in found)
        goodputs = [row.goodput for row in found]
        versus = "-"
        if label != first:
            versus = format_interval(paired_difference(goodputs, reference), signed=True)
        lines.append(
            (
                label,
                f"{np.mean(goodputs):.4f}",
                versus,
                f"{1000 * sum(row.num_preemptions for row in found) / injected:.1f}",
                f"{1000 * sum(row.num_recomputed_tokens for row in found) / injected:,.0f}",
            )
        )
    return TextTable(title, columns, tuple(lines))


def main(arguments: Sequence[str]) -> None:
    """Print both tables for the policy named first, on the traces named after it."""
    if len(arguments) < 2:
        raise PolicyError("give a policy folder or pretrained/NAME, and one or more traces")
    policy = resolve_policy(arguments[0])
    if not isinstance(policy, ExportedPolicy):
        raise PolicyError(f"{arguments[0]} is a heuristic: give a policy folder")
    env = load_config(EnvConfig, f"env/{SERVER}")
    counts = "per 1,000 requests"
    tables = []
    for title, policies in (
        (f"Parts of the policy, one at a time; {counts}", part_policies(policy)),
        (f"Victims alone; {counts}", victim_policies(policy)),
    ):
        rows = run_parts(policies, arguments[1:], env)
        tables.append(parts_table(title, rows, next(iter(policies))))
    print_tables(tables)


if __name__ == "__main__":
    run_module(main)
