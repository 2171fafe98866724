"""Replay the run of a real server: its arrivals and lengths on the simulated server, side by side.

The simulator is given what the real server was given, not what it did: when each request arrived,
its lengths, and the server's settings. What comes out is compared request by request.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sched_env.config import EnvConfig, ServiceConfig
from sched_env.config.cost import CostConfig
from sched_env.config.scheduler import SchedulerConfig
from sched_env.errors import ConfigError
from sched_env.evaluation.files import replacing, write_json
from sched_env.evaluation.folders import REPLAY, make_folder
from sched_env.evaluation.table import MISSING, TextTable, format_amount
from sched_env.metrics import latency
from sched_env.metrics.outcome import Floats
from sched_env.simulator import SimulationResult, simulate
from sched_env.workload.served_run import ServedRun

LATENCIES = ("ttft", "tpot", "e2el", "queue_wait")
"""Latencies that are compared, as `sched_env.metrics.latency` defines them."""

PERCENTILES = (50, 90, 99)

PATIENCE_FACTOR = 10.0
"""A simulation that lasts this many times as long as the real run is cut off."""

RESULT_FILE = "replay.json"
REQUESTS_FILE = "requests.csv"
SETTINGS_FILE = "settings.json"


@dataclass(frozen=True, eq=False)
class Replay:
    """A real run and its simulation.

    Attributes:
        run: What the real server did.
        result: What the simulated one did.
        env: The simulated server.
        real: Each latency of `LATENCIES` in seconds, float64 (num_requests,).
        simulated: The same of the simulation; NaN where a request did not get that far.
    """

    run: ServedRun
    result: SimulationResult
    env: EnvConfig
    real: dict[str, Floats]
    simulated: dict[str, Floats]

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Return ``{metric: {real, simulated, error_pct}}``; the error is NaN where real is 0."""
        pairs: dict[str, tuple[float, float]] = {}
        for name in LATENCIES:
            real, simulated = _statistics(self.real[name]), _statistics(self.simulated[name])
            for statistic, value in real.items():
                pairs[f"{statistic}_{name}_ms"] = 1e3 * value, 1e3 * simulated[statistic]
        pairs["makespan_s"] = self.run.makespan_s, _makespan_s(self.result)
        return {
            name: {"real": real, "simulated": simulated, "error_pct": _error_pct(real, simulated)}
            for name, (real, simulated) in pairs.items()
        }

    @property
    def notes(self) -> list[str]:
        """Return what a reader of the comparison should know."""
        notes: list[str] = []
        preemptions = int(self.result.requests["num_preemptions"].sum())
        notes.append(f"{preemptions} preemptions in the simulation")
        if self.num_unfinished:
            notes.append(
                f"{self.num_unfinished} requests did not finish in the simulation and are left "
                "out of its figures: compare the limits with those of the real server"
            )
        beyond = self.result.num_steps_beyond_table
        if beyond:
            notes.append(
                f"{beyond} of {self.result.num_iterations} steps lie beyond the measured ones by "
                "more than the margin: their times are extrapolated"
            )
        return notes

    @property
    def num_unfinished(self) -> int:
        """Return how many requests the simulation did not finish."""
        return int(np.count_nonzero(np.isnan(self.simulated["e2el"])))


def replay_run(run: ServedRun, scheduler: SchedulerConfig, cost: CostConfig) -> Replay:
    """Simulate the requests of a real run, served first come, first served.

    Nothing is shed, as in vLLM.

    Raises:
        UnknownNameError: The step-time model names something unknown.
        ConfigError: The step-time model cannot be read, or the scheduler has another policy.
    """
    if scheduler.policy != "fcfs":
        raise ConfigError(
            f"policy is {scheduler.policy!r}: a replay serves in order of arrival, so give fcfs"
        )
    if scheduler.victim is None:
        scheduler = scheduler.replace(victim="tail")
    env = EnvConfig(scheduler=scheduler, cost=cost, service=ServiceConfig(shed_hopeless=False))
    result = simulate(run.requests, "fcfs", env, until_s=PATIENCE_FACTOR * run.makespan_s)
    rows = result.requests
    arrival_s = run.requests.arrival_time_s
    num_gaps = run.requests.output_tokens.astype(np.float64) - 1
    decode_s = run.last_token_s - run.first_token_s
    with np.errstate(invalid="ignore", divide="ignore"):
        tpot_s = np.where(num_gaps > 0, decode_s / num_gaps, np.nan)
    real = {
        "ttft": run.first_token_s - arrival_s,
        "tpot": tpot_s,
        "e2el": run.last_token_s - arrival_s,
        "queue_wait": run.first_scheduled_s - arrival_s,
    }
    simulated = {
        "ttft": latency.ttft_s(rows),
        "tpot": latency.tpot_s(rows),
        "e2el": latency.e2el_s(rows),
        "queue_wait": latency.queue_wait_s(rows),
    }
    return Replay(run, result, env, real, simulated)


def _statistics(values_s: Floats) -> dict[str, float]:
    found = {"mean": latency.mean(values_s)}
    return found | {f"p{q:g}": v for q, v in latency.percentiles(values_s, PERCENTILES).items()}


def _makespan_s(result: SimulationResult) -> float:
    finish_s = result.requests["finish_s"]
    finished = finish_s[~np.isnan(finish_s)]
    return float(finished.max()) if len(finished) else math.nan


def _error_pct(real: float, simulated: float) -> float:
    return 100.0 * (simulated / real - 1.0) if real else math.nan


def replay_table(replay: Replay) -> TextTable:
    """Return the comparison as a table of texts."""
    rows = [
        (name, format_amount(one["real"]), format_amount(one["simulated"]), _percent(one))
        for name, one in replay.metrics.items()
    ]
    title = f"{len(replay.run.requests)} requests of a real server, and their simulation"
    return TextTable(title, ("metric", "real", "simulated", "error %"), tuple(rows))


def _percent(metric: Mapping[str, float]) -> str:
    error = metric["error_pct"]
    return MISSING if math.isnan(error) else f"{error:+.2f}"


def write_replay(replay: Replay, folder: Path) -> list[Path]:
    """Write the comparison, the settings and one row per request; return the paths."""
    make_folder(folder, REPLAY)
    write_json(folder / RESULT_FILE, replay.metrics)
    write_json(folder / SETTINGS_FILE, _settings(replay))
    with replacing(folder / REQUESTS_FILE) as temporary:
        temporary.write_text(_request_rows(replay), encoding="utf8", newline="\n")
    return [folder / name for name in (RESULT_FILE, SETTINGS_FILE, REQUESTS_FILE)]


def _settings(replay: Replay) -> dict[str, Any]:
    return {
        "run": replay.run.requests.source.name,
        "num_requests": len(replay.run.requests),
        "simulation": {
            "num_unfinished": replay.num_unfinished,
            "num_preemptions": int(replay.result.requests["num_preemptions"].sum()),
            "num_recomputed_tokens": int(replay.result.requests["num_recomputed_tokens"].sum()),
            "num_iterations": replay.result.num_iterations,
            "num_steps_beyond_table": replay.result.num_steps_beyond_table,
        },
        "scheduler": replay.env.scheduler.to_dict(),
        "cost": json.loads(replay.env.model_dump_json(include={"cost"}))["cost"],
    }


def _request_rows(replay: Replay) -> str:
    table = replay.run.requests
    columns: dict[str, Any] = {
        "request": replay.run.names,
        "arrival_s": table.arrival_time_s,
        "prompt_tokens": table.prompt_tokens,
        "output_tokens": table.output_tokens,
    }
    for name in LATENCIES:
        columns[f"real_{name}_ms"] = 1e3 * replay.real[name]
        columns[f"simulated_{name}_ms"] = 1e3 * replay.simulated[name]
    columns["simulated_num_preemptions"] = replay.result.requests["num_preemptions"]
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(_cell(value) for value in row) for row in rows)]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6f}"
    return str(value)
