"""How close a simulation comes to the real thing, on this machine and without a GPU.

Profiles the toy model on the CPU, runs a trace of 200 requests live (every batch on the model, the
measured times as the clock) under five policies, simulates the same trace with the profile, and
compares: mean TPOT and mean E2EL, and the order of the policies by mean E2EL wherever the live runs
of two policies lie further apart than the live runs of one policy.

    OMP_NUM_THREADS=1 python benchmarks/sim_to_real.py --out runs/sim_to_real

Profile passes and live runs take turns, so that a machine whose speed drifts does so for both; a
step's time in the profile is its mean over the passes. On a machine with other work
``--clock cpu_time`` counts what this process computed. The exit code is 1 where a target is missed.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any, Literal

import numpy as np
import torch
import tyro

from sched_env import EnvConfig, RequestTable, simulate
from sched_env.config import LiveCost
from sched_env.config.cost import ProfileCost
from sched_env.evaluation.files import make_folder, write_json, write_text
from sched_env.evaluation.machine import describe_machine
from sched_env.evaluation.table import TextTable, print_tables
from sched_env.executor.device import device_name
from sched_env.executor.profile import MeasuredStep, measure_steps
from sched_env.executor.shapes import shape_of
from sched_env.executor.step_grid import GridLimits, step_grid
from sched_env.executor.step_table import StepTableHead, step_table
from sched_env.executor.torch_executor import TorchExecutor
from sched_env.metrics.summary import summarize
from sched_env.simulator.simulate import at_load, fcfs_capacity_rps

POLICIES = ("fcfs", "sjf", "weighted_sjf", "fixed_priority", "deadline")
TPOT_TARGET, E2EL_TARGET = 0.10, 0.15
SERVER = {"max_num_seqs": 16, "max_num_batched_tokens": 256, "num_blocks": 100}
"""100 blocks of 16: 1,600 tokens, short enough that requests are preempted now and then."""
LIMITS = GridLimits(16, 256, 1024, 17 * 1024)
METRICS = ("mean_tpot_ms", "mean_e2el_ms")

Run = dict[str, float]


@dataclass(frozen=True)
class Arguments:
    """Profile, run live and simulate; print how far apart they are."""

    out: str
    """Folder of the profile and of sim_to_real.json."""

    num_requests: int = 200
    """Requests of the trace."""

    load: float = 0.85
    """Arrival rate over what fcfs drains by the first passes of the profile."""

    repeats: int = 3
    """Live runs of each policy; their spread is the noise."""

    seed: int = 1
    """Draws the trace and the service classes."""

    clock: Literal["wall", "cpu_time"] = "wall"
    """The time that passed, or the time that this process computed."""


class TakingTurns:
    """A profile that grows by one pass over the grid at a time."""

    def __init__(self, folder: Path, clock: str, seed: int) -> None:
        self._folder = folder
        self._points = step_grid(LIMITS)
        self._passes: list[list[MeasuredStep]] = []
        num_blocks = LIMITS.num_kv_tokens // 16 + LIMITS.max_num_seqs + 1
        cpu_time = clock == "cpu_time"
        self._executor = TorchExecutor(
            shape_of("toy"), num_blocks, max_num_seqs=16, seed=seed, cpu_time=cpu_time
        )

    def measure(self) -> ProfileCost:
        """Measure each step once more, write the profile and return it."""
        print(f"profile pass {len(self._passes) + 1}", file=sys.stderr)
        # The floor is left out: no step of the toy on a CPU comes near it.
        steps = measure_steps(self._executor, self._points, np.inf, repeats=1, warm_ups=1)
        self._passes.append(list(steps))
        merged = [
            MeasuredStep(same[0].point, mean(step.step_time_s for step in same), 0.0, 0.0)
            for same in zip(*self._passes, strict=True)
        ]
        gpu = device_name(torch.device("cpu"))
        head = StepTableHead(gpu, "toy", "float32", "sched-env executor", "sim_to_real.py")
        write_text(self._folder / "steps.csv", step_table(head, merged))
        provenance = {"passes": len(self._passes), "machine": describe_machine()}
        write_json(self._folder / "profile.json", provenance)
        return ProfileCost(path=str(self._folder))


def draw_trace(num_requests: int, seed: int) -> RequestTable:
    """Draw lengths that a toy on a CPU can serve: lognormal, medians 60 and 14 tokens."""
    rng = np.random.default_rng(seed)
    prompts = np.clip(rng.lognormal(np.log(60), 0.8, num_requests), 4, 600).astype(int)
    outputs = np.clip(rng.lognormal(np.log(14), 0.9, num_requests), 1, 150).astype(int)
    return RequestTable.from_columns(
        arrival_time_s=np.cumsum(rng.exponential(1.0, num_requests)),
        prompt_tokens=prompts,
        output_tokens=outputs,
    )


def server_env(cost: ProfileCost | LiveCost) -> EnvConfig:
    """Return the server; nobody is shed, so that every run serves every request."""
    env = EnvConfig()
    return env.replace(
        scheduler=env.scheduler.replace(**SERVER),
        service=env.service.replace(shed_hopeless=False),
        cost=cost,
    )


def run_policy(table: RequestTable, policy: str, env: EnvConfig, seed: int) -> Run:
    """Return the mean TPOT and E2EL of one run, and what it preempted."""
    row = summarize(simulate(table, policy, env, seed=seed), labels={}, class_names=[])
    return {name: float(row[name]) for name in (*METRICS, "num_preemptions", "num_finished")}


def compare(simulated: dict[str, Run], live: dict[str, list[Run]]) -> list[dict[str, Any]]:
    """Return for each policy both means, the noise and the error of the simulation."""
    rows = []
    for policy, runs in live.items():
        row: dict[str, Any] = {"policy": policy}
        for name in METRICS:
            values = [run[name] for run in runs]
            row[name] = {
                "live": mean(values),
                "noise": max(values) - min(values),
                "simulated": simulated[policy][name],
                "error": simulated[policy][name] / mean(values) - 1,
            }
        rows.append(row)
    return rows


def order_of_pairs(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tell for each pair of policies whether live runs tell them apart, and if the order agrees."""
    pairs = []
    for left, right in combinations(rows, 2):
        one, other = left["mean_e2el_ms"], right["mean_e2el_ms"]
        real, modelled = one["live"] - other["live"], one["simulated"] - other["simulated"]
        noise = max(one["noise"], other["noise"])
        pairs.append(
            {
                "policies": (left["policy"], right["policy"]),
                "live_difference_ms": real,
                "simulated_difference_ms": modelled,
                "noise_ms": noise,
                "is_clear": abs(real) > noise,
                "agrees": real * modelled > 0,
            }
        )
    return pairs


def main(arguments: Arguments) -> int:
    folder = make_folder(Path(arguments.out))
    turns = TakingTurns(folder, arguments.clock, arguments.seed)
    turns.measure()
    first = turns.measure()
    drawn = draw_trace(arguments.num_requests, arguments.seed)
    table = at_load(drawn, arguments.load, fcfs_capacity_rps(drawn, server_env(first)))
    # SLOs play no part here; any fixed estimate keeps the live runs alike.
    on_model = server_env(LiveCost(clock=arguments.clock, estimate=first))
    live: dict[str, list[Run]] = {policy: [] for policy in POLICIES}
    for repeat in range(arguments.repeats):
        for policy in POLICIES:
            print(f"live run {repeat + 1}: {policy}", file=sys.stderr)
            live[policy].append(run_policy(table, policy, on_model, arguments.seed))
            profile = turns.measure()
    modelled = server_env(profile)
    simulated = {p: run_policy(table, p, modelled, arguments.seed) for p in POLICIES}
    rows = compare(simulated, live)
    report = {
        "arguments": asdict(arguments),
        "load_average": os.getloadavg(),
        "machine": describe_machine(),
        "rows": rows,
        "pairs": order_of_pairs(rows),
        "live": live,
        "simulated": simulated,
    }
    write_json(folder / "sim_to_real.json", json.loads(json.dumps(report)))
    return show(rows, report["pairs"])


def show(rows: list[dict[str, Any]], pairs: list[dict[str, Any]]) -> int:
    """Print the comparison; return 0 if all targets are met."""
    heads = ("policy", "live", "noise", "simulated", "error")
    for name, title in zip(METRICS, ("TPOT", "E2EL"), strict=True):
        shown = []
        for row in rows:
            one = row[name]
            numbers = (f"{one[key]:,.1f}" for key in ("live", "noise", "simulated"))
            shown.append((row["policy"], *numbers, f"{one['error']:+.1%}"))
        print_tables([TextTable(f"Mean {title} in ms", heads, tuple(shown))])
    tpot, e2el = (max(abs(row[name]["error"]) for row in rows) for name in METRICS)
    clear = [pair for pair in pairs if pair["is_clear"]]
    agreeing = sum(pair["agrees"] for pair in clear)
    print(f"\nlargest error of mean TPOT: {tpot:.1%} (target {TPOT_TARGET:.0%})")
    print(f"largest error of mean E2EL: {e2el:.1%} (target {E2EL_TARGET:.0%})")
    print(
        f"order by mean E2EL: {agreeing} of {len(clear)} pairs agree that live runs tell apart, "
        f"of {len(pairs)} in all"
    )
    print(f"load average of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    met = tpot <= TPOT_TARGET and e2el <= E2EL_TARGET and agreeing == len(clear)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Arguments)))
