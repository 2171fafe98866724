"""How close a simulation comes to the real thing, on this machine's processor or on its GPU.

Profiles a model, runs a trace of 200 requests live (every batch on the model, the measured times as
the clock) under five policies, simulates the same trace with the profile, and compares: mean TTFT,
TPOT and E2EL, and the order of the policies by mean E2EL wherever the live runs of two policies lie
further apart than the live runs of one policy.

    OMP_NUM_THREADS=1 python benchmarks/sim_to_real.py --out runs/sim_to_real
    python benchmarks/sim_to_real.py --device cuda --model llama-8b --out runs/gpu

Profile passes and live runs take turns, so that a machine whose speed drifts does so for both; a
step's time in the profile is its mean over the passes. ``--profile FOLDER`` takes a profile of this
device that is there already. On a machine with other work ``--clock cpu_time`` counts what this
process computed. The exit code is 1 where a target is missed.
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

from sched_env import EnvConfig, RequestTable, simulate
from sched_env.cli.main import Command, run_script
from sched_env.config import LiveCost
from sched_env.config.cost import ProfileCost
from sched_env.env.state import check_number
from sched_env.evaluation.entries import check_loads
from sched_env.evaluation.files import write_json, write_text
from sched_env.evaluation.folders import check_folder, make_folder
from sched_env.evaluation.machine import describe_machine
from sched_env.evaluation.table import TextTable, print_tables
from sched_env.executor.device import device_name
from sched_env.executor.profile import MeasuredStep, measure_steps
from sched_env.executor.shapes import shape_of
from sched_env.executor.step_grid import GridLimits, step_grid
from sched_env.executor.step_table import StepTableHead, step_table
from sched_env.executor.torch_executor import TorchExecutor
from sched_env.metrics.summary import summarize
from sched_env.simulator.simulate import at_load, check_seed, fcfs_capacity_rps

POLICIES = ("fcfs", "sjf", "weighted_sjf", "fixed_priority", "deadline")
TPOT_TARGET, E2EL_TARGET = 0.10, 0.15
METRICS = {"mean_ttft_ms": "TTFT", "mean_tpot_ms": "TPOT", "mean_e2el_ms": "E2EL"}

Run = dict[str, float]


@dataclass(frozen=True)
class Lengths:
    """Lognormal lengths in tokens, cut off at both ends."""

    median: int
    spread: float
    least: int
    most: int

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        drawn = rng.lognormal(np.log(self.median), self.spread, count)
        return np.clip(drawn, self.least, self.most).astype(int)


@dataclass(frozen=True)
class Setting:
    """A server of a size, and requests, that a device can serve in a few minutes.

    The KV pool is short enough that requests are preempted now and then.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    num_blocks: int
    max_context_tokens: int
    prompts: Lengths
    outputs: Lengths

    def limits(self) -> GridLimits:
        """Return how far a profile has to reach."""
        num_kv_tokens = (self.max_num_seqs + 1) * self.max_context_tokens
        sizes = self.max_num_seqs, self.max_num_batched_tokens, self.max_context_tokens
        return GridLimits(*sizes, num_kv_tokens)


SETTINGS = {
    "cpu": Setting(16, 256, 100, 1024, Lengths(60, 0.8, 4, 600), Lengths(14, 0.9, 1, 150)),
    "cuda": Setting(32, 2048, 1400, 8192, Lengths(600, 0.9, 16, 6000), Lengths(120, 0.8, 1, 1000)),
}


@dataclass(frozen=True)
class Arguments:
    """Profile, run live and simulate; print how far apart they are."""

    out: str
    """Folder of the profile and of sim_to_real.json."""

    device: Literal["cpu", "cuda"] = "cpu"
    """Where the model runs."""

    model: str = "toy"
    """Shape of the model: toy, llama-1b, llama-3b or llama-8b."""

    profile: str = ""
    """Folder of a profile of this device and model; by default it is measured."""

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

    def __init__(self, folder: Path, arguments: Arguments) -> None:
        self._folder = folder
        setting = SETTINGS[arguments.device]
        limits = setting.limits()
        self._points = step_grid(limits)
        self._passes: list[list[MeasuredStep]] = []
        self._executor = TorchExecutor(
            shape_of(arguments.model),
            limits.num_kv_tokens // 16 + limits.max_num_seqs + 1,
            device=arguments.device,
            max_num_seqs=setting.max_num_seqs,
            seed=arguments.seed,
            cpu_time=arguments.clock == "cpu_time",
        )

    def measure(self) -> ProfileCost:
        """Measure each step once more, write the profile and return it."""
        print(f"profile pass {len(self._passes) + 1}", file=sys.stderr)
        # The floor is left out: no step comes near it.
        steps = measure_steps(self._executor, self._points, np.inf, repeats=1, warm_ups=1)
        self._passes.append(list(steps))
        merged = [
            MeasuredStep(same[0].point, mean(step.step_time_s for step in same), 0.0, 0.0)
            for same in zip(*self._passes, strict=True)
        ]
        executor = self._executor
        dtype = str(executor.dtype).removeprefix("torch.")
        names = device_name(executor.device), executor.shape.name, dtype
        head = StepTableHead(*names, "sched-env executor", "sim_to_real.py")
        write_text(self._folder / "steps.csv", step_table(head, merged))
        provenance = {"passes": len(self._passes), "machine": describe_machine()}
        write_json(self._folder / "profile.json", provenance)
        return ProfileCost(path=str(self._folder))


class GivenProfile:
    """A profile that is there already and does not change."""

    def __init__(self, path: str) -> None:
        self._cost = ProfileCost(path=path)

    def measure(self) -> ProfileCost:
        """Return the profile."""
        return self._cost


def draw_trace(setting: Setting, num_requests: int, seed: int) -> RequestTable:
    """Draw requests, one a second."""
    rng = np.random.default_rng(seed)
    prompts = setting.prompts.draw(rng, num_requests)
    outputs = setting.outputs.draw(rng, num_requests)
    return RequestTable.from_columns(
        arrival_time_s=np.cumsum(rng.exponential(1.0, num_requests)),
        prompt_tokens=prompts,
        output_tokens=outputs,
    )


def server_env(setting: Setting, cost: ProfileCost | LiveCost) -> EnvConfig:
    """Return the server; nobody is shed, so that every run serves every request."""
    env = EnvConfig()
    return env.replace(
        scheduler=env.scheduler.replace(
            max_num_seqs=setting.max_num_seqs,
            max_num_batched_tokens=setting.max_num_batched_tokens,
            num_blocks=setting.num_blocks,
        ),
        service=env.service.replace(shed_hopeless=False),
        cost=cost,
    )


def run_policy(table: RequestTable, policy: str, env: EnvConfig, seed: int) -> Run:
    """Return the mean latencies of one run, and what it preempted."""
    row = summarize(simulate(table, policy, env, seed=seed), labels={}, class_names=[])
    return {name: float(row[name]) for name in (*METRICS, "num_preemptions", "num_finished")}


def compare(simulated: dict[str, Run], live: dict[str, list[Run]]) -> list[dict[str, Any]]:
    """Return for each policy its means, the noise and the error of the simulation."""
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
    check_number("--num-requests", arguments.num_requests)
    check_number("--repeats", arguments.repeats)
    check_seed(arguments.seed)
    check_loads(arguments.load)
    folder = check_folder(Path(arguments.out))
    setting = SETTINGS[arguments.device]
    turns = GivenProfile(arguments.profile) if arguments.profile else TakingTurns(folder, arguments)
    make_folder(folder)
    turns.measure()
    first = turns.measure()
    drawn = draw_trace(setting, arguments.num_requests, arguments.seed)
    capacity_rps = fcfs_capacity_rps(drawn, server_env(setting, first))
    table = at_load(drawn, arguments.load, capacity_rps)
    # SLOs play no part here; any fixed estimate keeps the live runs alike.
    live_cost = LiveCost(
        model=arguments.model, device=arguments.device, clock=arguments.clock, estimate=first
    )
    on_model = server_env(setting, live_cost)
    live: dict[str, list[Run]] = {policy: [] for policy in POLICIES}
    if arguments.device == "cuda":  # captures most graphs, as an engine does when it starts
        run_policy(table, POLICIES[0], on_model, arguments.seed)
    last = first
    for repeat in range(arguments.repeats):
        for policy in POLICIES:
            print(f"live run {repeat + 1}: {policy}", file=sys.stderr)
            live[policy].append(run_policy(table, policy, on_model, arguments.seed))
            last = turns.measure()
    modelled = server_env(setting, last)
    simulated = {p: run_policy(table, p, modelled, arguments.seed) for p in POLICIES}
    rows = compare(simulated, live)
    report = {
        "arguments": asdict(arguments),
        "setting": asdict(setting),
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
    for name, title in METRICS.items():
        shown = []
        for row in rows:
            one = row[name]
            numbers = (f"{one[key]:,.1f}" for key in ("live", "noise", "simulated"))
            shown.append((row["policy"], *numbers, f"{one['error']:+.1%}"))
        print_tables([TextTable(f"Mean {title} in ms", heads, tuple(shown))])
    largest = {name: max(abs(row[name]["error"]) for row in rows) for name in METRICS}
    tpot, e2el = largest["mean_tpot_ms"], largest["mean_e2el_ms"]
    clear = [pair for pair in pairs if pair["is_clear"]]
    agreeing = sum(pair["agrees"] for pair in clear)
    print(f"\nlargest error of mean TTFT: {largest['mean_ttft_ms']:.1%}")
    print(f"largest error of mean TPOT: {tpot:.1%} (target {TPOT_TARGET:.0%})")
    print(f"largest error of mean E2EL: {e2el:.1%} (target {E2EL_TARGET:.0%})")
    print(
        f"order by mean E2EL: {agreeing} of {len(clear)} pairs agree that live runs tell apart, "
        f"of {len(pairs)} in all"
    )
    print(f"load average of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    met = tpot <= TPOT_TARGET and e2el <= E2EL_TARGET and agreeing == len(clear)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(run_script(Command(Arguments, main), Path(__file__).name))
