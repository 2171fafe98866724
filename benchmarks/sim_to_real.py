"""How close a simulation comes to the real thing, on this machine and without a GPU.

Profiles the toy model on the CPU, simulates a trace of 200 requests with that profile, runs the
same trace live (every batch on the model, measured times as the clock) under five policies, twice
each, and compares: mean TPOT and mean E2EL of simulation and live run, and the order of the
policies by mean E2EL wherever the live runs of two policies lie further apart than two live runs of
one policy. A pause between steps is not part of either.

    OMP_NUM_THREADS=1 python benchmarks/sim_to_real.py --out runs/sim_to_real

On a machine with other work, ``--clock cpu_time`` counts what this process computed.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Literal

import numpy as np
import tyro

from sched_env import EnvConfig, RequestTable, simulate
from sched_env.config import LiveCost
from sched_env.config.cost import ProfileCost
from sched_env.evaluation.files import make_folder, write_json, write_text
from sched_env.evaluation.machine import describe_machine
from sched_env.evaluation.table import TextTable, print_tables
from sched_env.executor.device_profile import ProfileRequest, profile_device
from sched_env.executor.step_table import step_table
from sched_env.metrics.summary import summarize
from sched_env.simulator.simulate import at_load, fcfs_capacity_rps

POLICIES = ("fcfs", "sjf", "weighted_sjf", "fixed_priority", "aging")
TPOT_TARGET, E2EL_TARGET = 0.10, 0.15
SERVER = {"max_num_seqs": 16, "max_num_batched_tokens": 256, "num_blocks": 160}
"""160 blocks of 16: 2,560 tokens, short enough that requests are preempted now and then."""


@dataclass(frozen=True)
class Arguments:
    """Profile, simulate and run live; print how far apart they are."""

    out: str
    """Folder of the profile and of sim_to_real.json."""

    num_requests: int = 200
    """Requests of the trace."""

    load: float = 1.1
    """Arrival rate over what fcfs drains in the simulation."""

    repeats: int = 2
    """Live runs of each policy; their spread is the noise."""

    seed: int = 1
    """Draws the trace and the service classes."""

    clock: Literal["wall", "cpu_time"] = "wall"
    """The time that passed, or the time that this process computed."""

    reuse_profile: bool = False
    """Take the profile that lies in the folder already."""


def draw_trace(num_requests: int, seed: int) -> RequestTable:
    """Draw lengths that a toy on a CPU can serve: lognormal, medians 80 and 20 tokens."""
    rng = np.random.default_rng(seed)
    prompts = np.clip(rng.lognormal(np.log(80), 0.8, num_requests), 4, 600).astype(int)
    outputs = np.clip(rng.lognormal(np.log(20), 0.9, num_requests), 1, 200).astype(int)
    return RequestTable.from_columns(
        arrival_time_s=np.cumsum(rng.exponential(1.0, num_requests)),
        prompt_tokens=prompts,
        output_tokens=outputs,
    )


def profile_here(arguments: Arguments, folder: Path) -> None:
    """Measure the toy over the sizes that the server can form."""
    request = ProfileRequest(
        max_num_seqs=SERVER["max_num_seqs"],
        max_num_batched_tokens=SERVER["max_num_batched_tokens"],
        max_context_tokens=1024,
        cpu_time=arguments.clock == "cpu_time",
    )
    profile = profile_device(request, "benchmarks/sim_to_real.py", follow_profile)
    write_json(folder / "profile.json", {**profile.provenance, "machine": describe_machine()})
    write_text(folder / "steps.csv", step_table(profile.head, profile.steps))


def follow_profile(done: int, total: int) -> None:
    if done % 20 == 0 or done == total:
        print(f"profile: {done} of {total} steps", file=sys.stderr)


def server_env(cost: ProfileCost | LiveCost) -> EnvConfig:
    """Return the server; nobody is shed, so that every run serves every request."""
    env = EnvConfig()
    return env.replace(
        scheduler=env.scheduler.replace(**SERVER),
        service=env.service.replace(shed_hopeless=False),
        cost=cost,
    )


def measure(table: RequestTable, policy: str, env: EnvConfig, seed: int) -> dict[str, float]:
    """Return the mean TPOT and E2EL of one run, and what it preempted."""
    row = summarize(simulate(table, policy, env, seed=seed), labels={}, class_names=[])
    names = ("mean_tpot_ms", "mean_e2el_ms", "num_preemptions", "num_finished")
    return {name: float(row[name]) for name in names}


def compare(
    simulated: dict[str, dict[str, float]], live: dict[str, list[dict[str, float]]]
) -> list:
    """Return for each policy both means and the errors of the simulation."""
    rows = []
    for policy, runs in live.items():
        row: dict[str, float | str] = {"policy": policy}
        for name in ("mean_tpot_ms", "mean_e2el_ms"):
            real = mean(run[name] for run in runs)
            row[f"live_{name}"] = real
            row[f"simulated_{name}"] = simulated[policy][name]
            row[f"error_{name}"] = simulated[policy][name] / real - 1
            row[f"noise_{name}"] = spread(runs, name)
        rows.append(row)
    return rows


def spread(runs: list[dict[str, float]], name: str) -> float:
    """Return how far apart the live runs of one policy lie."""
    values = [run[name] for run in runs]
    return max(values) - min(values)


def order_of_pairs(rows: list[dict]) -> list[dict]:
    """Tell for each pair of policies whether it can be told apart, and whether the order agrees."""
    pairs = []
    for left, right in combinations(rows, 2):
        real = left["live_mean_e2el_ms"] - right["live_mean_e2el_ms"]
        modelled = left["simulated_mean_e2el_ms"] - right["simulated_mean_e2el_ms"]
        noise = max(left["noise_mean_e2el_ms"], right["noise_mean_e2el_ms"])
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
    if not (arguments.reuse_profile and (folder / "steps.csv").is_file()):
        profile_here(arguments, folder)
    modelled = server_env(ProfileCost(path=str(folder)))
    drawn = draw_trace(arguments.num_requests, arguments.seed)
    table = at_load(drawn, arguments.load, fcfs_capacity_rps(drawn, modelled))
    on_model = server_env(LiveCost(clock=arguments.clock, estimate=modelled.cost))
    simulated = {policy: measure(table, policy, modelled, arguments.seed) for policy in POLICIES}
    live: dict[str, list[dict[str, float]]] = {policy: [] for policy in POLICIES}
    for repeat in range(arguments.repeats):
        for policy in POLICIES:
            print(f"live run {repeat + 1}: {policy}", file=sys.stderr)
            live[policy].append(measure(table, policy, on_model, arguments.seed))
    rows = compare(simulated, live)
    pairs = order_of_pairs(rows)
    report = {
        "arguments": asdict(arguments),
        "load_average": os.getloadavg(),
        "machine": describe_machine(),
        "rows": rows,
        "runs": live,
        "simulated": simulated,
        "pairs": pairs,
    }
    write_json(folder / "sim_to_real.json", json.loads(json.dumps(report)))
    return show(rows, pairs)


def show(rows: list[dict], pairs: list[dict]) -> int:
    """Print the comparison; return 0 if all targets are met."""
    shown = tuple(
        (
            row["policy"],
            *(
                text
                for name in ("mean_tpot_ms", "mean_e2el_ms")
                for text in (
                    f"{row[f'live_{name}']:,.1f}",
                    f"{row[f'noise_{name}']:,.1f}",
                    f"{row[f'simulated_{name}']:,.1f}",
                    f"{row[f'error_{name}']:+.1%}",
                )
            ),
        )
        for row in rows
    )
    heads = ("live", "noise", "simulated", "error")
    columns = ("policy", *(f"{name} {head}" for name in ("TPOT", "E2EL") for head in heads))
    print_tables([TextTable("Simulation against live run, means in ms", columns, shown)])
    tpot = max(abs(row["error_mean_tpot_ms"]) for row in rows)
    e2el = max(abs(row["error_mean_e2el_ms"]) for row in rows)
    clear = [pair for pair in pairs if pair["is_clear"]]
    agreeing = sum(pair["agrees"] for pair in clear)
    print(f"largest error of mean TPOT {tpot:.1%} (target {TPOT_TARGET:.0%})")
    print(f"largest error of mean E2EL {e2el:.1%} (target {E2EL_TARGET:.0%})")
    print(
        f"order of policies by mean E2EL: {agreeing} of {len(clear)} pairs agree that live runs "
        f"can tell apart ({len(pairs)} pairs in all)"
    )
    print(f"load average of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    met = tpot <= TPOT_TARGET and e2el <= E2EL_TARGET and agreeing == len(clear)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Arguments)))
