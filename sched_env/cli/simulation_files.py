"""What ``simulate`` leaves behind: one row per request, the events, and a summary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import yaml

from sched_env.engine.records import EVENT_NAMES, FINISH_REASON_NAMES, STATUS_NAMES
from sched_env.evaluation.files import finite, replacing, write_json, write_text
from sched_env.evaluation.folders import CONFIG, SIMULATION, make_folder
from sched_env.metrics import latency, slo
from sched_env.metrics.summary import Row
from sched_env.simulator import SimulationResult

REQUESTS = "requests"
EVENTS = "events"
SUMMARY = "summary.json"


def write_simulation(
    result: SimulationResult,
    summary: Row,
    folder: Path,
    class_names: list[str],
    question: Mapping[str, Any],
) -> list[Path]:
    """Write a simulation's files and return their paths.

    Args:
        result: the simulation.
        summary: its flat row of metrics.
        folder: made if it does not exist.
        class_names: names of the service classes by index.
        question: everything that decided it.
    """
    make_folder(folder, SIMULATION)
    written = [*_write_table(request_table(result, class_names), folder / REQUESTS)]
    if result.events is not None:
        written += _write_table(event_table(result.events), folder / EVENTS)
    write_text(folder / CONFIG, yaml.safe_dump(finite(question), sort_keys=False))
    write_json(folder / SUMMARY, summary)
    return [*written, folder / CONFIG, folder / SUMMARY]


def request_table(result: SimulationResult, class_names: list[str]) -> pa.Table:
    """Return one row per injected request in trace order; a time that never came is null."""
    rows = result.requests
    columns: dict[str, Any] = {
        "row": rows["row"],
        "arrival_time_s": rows["arrival_time_s"],
        "prompt_tokens": rows["prompt_tokens"],
        "output_tokens": rows["output_tokens"],
        "num_output_tokens": rows["num_output_tokens"],
        "priority": rows["priority"],
        "service_class": np.array(class_names, dtype=object)[rows["service_class"]],
        "weight": rows["weight"],
        "ttft_slo_s": rows["ttft_slo_s"],
        "tpot_slo_s": rows["tpot_slo_s"],
        "first_scheduled_s": rows["first_scheduled_s"],
        "first_token_s": rows["first_token_s"],
        "finish_s": rows["finish_s"],
        "queue_wait_ms": 1e3 * latency.queue_wait_s(rows),
        "ttft_ms": 1e3 * latency.ttft_s(rows),
        "tpot_ms": 1e3 * latency.tpot_s(rows),
        "e2el_ms": 1e3 * latency.e2el_s(rows),
        "is_slo_met": slo.is_slo_met(rows),
        "outcome": _named(STATUS_NAMES, rows["status"]),
        "finish_reason": _named(FINISH_REASON_NAMES, rows["finish_reason"]),
        "num_preemptions": rows["num_preemptions"],
        "num_recomputed_tokens": rows["num_recomputed_tokens"],
    }
    return _arrow_table(columns)


def event_table(events: Any) -> pa.Table:
    """Return the events in the order they happened, kinds by name."""
    columns = {name: events[name] for name in events.dtype.names}
    columns["kind"] = _named(EVENT_NAMES, events["kind"])
    return _arrow_table(columns)


def _named(names: tuple[str, ...], indices: Any) -> Any:
    return np.array(names, dtype=object)[indices]


def _arrow_table(columns: dict[str, Any]) -> pa.Table:
    """Make a table in which NaN is null."""
    arrays = {name: pa.array(values, from_pandas=True) for name, values in columns.items()}
    return pa.table(arrays)


def _write_table(table: pa.Table, stem: Path) -> list[Path]:
    as_csv, as_parquet = stem.with_suffix(".csv"), stem.with_suffix(".parquet")
    with replacing(as_csv) as temporary:
        pyarrow.csv.write_csv(table, str(temporary))
    with replacing(as_parquet) as temporary:
        pyarrow.parquet.write_table(table, str(temporary))
    return [as_csv, as_parquet]
