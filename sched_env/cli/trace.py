"""Inspect, convert or make request traces."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from sched_env.cli.main import Command
from sched_env.errors import ConfigError

if TYPE_CHECKING:
    from sched_env.workload import ArrivalProcess, RequestTable

DEFAULT_OUT = Path("trace.csv")

Source = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="FILE|NAME")]


@dataclass(frozen=True)
class ReadArguments:
    """How a trace is read."""

    source: Source
    """A trace file, a folder of ServeGen clients, or the name of an embedded workload."""

    format: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Format of the file; by default recognised by its columns."""

    window: Annotated[str | None, tyro.conf.arg(metavar="START,END")] = None
    """Keep only arrivals in this part, in seconds from the first arrival."""

    zero_tokens: Literal["drop", "keep_failed", "refuse"] = "drop"
    """Rows without prompt or output tokens: drop them, keep them marked as failed, or refuse."""

    max_model_len: int | None = None
    """Longest prompt and output together, in tokens."""

    too_long: Literal["reject", "clip"] = "reject"
    """Longer rows: leave them out, or clip them."""

    spread_resolution: bool = False
    """Spread arrivals of one clock tick evenly at random inside it."""

    resolution_s: float | None = None
    """Tick of the trace's clock in seconds; by default that of the format, or as measured."""

    time_unit: Literal["s", "ms", "us", "ns"] | None = None
    """Unit of the arrival times, instead of the format's own; never guessed."""

    block_tokens: int | None = None
    """Tokens in one prefix block of hash_ids, instead of the format's own."""

    arrivals: Annotated[str | None, tyro.conf.arg(metavar="KIND:RATE[:CV]")] = None
    """Draw the arrivals, in place of those of the file: poisson:8 are 8 requests/s, gamma:8:2 and
    weibull:8:2 have gaps of coefficient of variation 2. For files of lengths alone, too."""

    seed: int = 0
    """Seed of everything that is drawn."""


@dataclass(frozen=True)
class InspectArguments(ReadArguments):
    """Show what is in a trace: span, rate, lengths, burstiness, prefix sharing, dropped rows."""

    json: bool = False
    """Print JSON instead of tables."""


@dataclass(frozen=True)
class ConvertArguments(ReadArguments):
    """Write a trace in the plain format, whose columns are described in docs/traces.md."""

    out: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """File to write, replaced if it exists; its ending chooses CSV, JSON lines (.jsonl) or Parquet.
    Without it: trace.csv, if there is none yet."""


@dataclass(frozen=True)
class SynthArguments:
    """Draw a trace from an embedded workload and write it in the plain format."""

    workload: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """An embedded workload, such as azure_conv."""

    out: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """File to write, replaced if it exists; its ending chooses CSV, JSON lines (.jsonl) or Parquet.
    Without it: trace.csv, if there is none yet."""

    num_requests: int | None = None
    """Draw this many requests."""

    duration_s: float | None = None
    """Draw all requests that arrive within this time, in seconds; 3600 if neither is given."""

    rate_rps: float | None = None
    """Mean arrival rate in requests per second; by default the workload's own."""

    burst_cv: float | None = None
    """Gamma gaps with this coefficient of variation, instead of the workload's own arrivals."""

    seed: int = 0
    """Seed of lengths and arrivals."""


def inspect(arguments: InspectArguments) -> None:
    """Print the figures of a trace."""
    table = _read(arguments)
    from sched_env.workload import summarize

    summary = summarize(table)
    if arguments.json:
        from sched_env.evaluation.files import finite

        print(json.dumps(finite(summary.to_dict()), indent=2))
        return
    from sched_env.cli.trace_tables import trace_tables
    from sched_env.evaluation.table import print_tables

    print_tables(trace_tables(summary))
    for note in summary.source.notes:
        print(f"note: {note}")


def convert(arguments: ConvertArguments) -> None:
    """Read a trace and write it in the plain format."""
    source, out = Path(arguments.source), _place(arguments.out)
    if source.exists() and out.exists() and source.samefile(out):
        raise ConfigError(f"--out {out} is the trace itself: name another file")
    _write(_read(arguments), out)


def synth(arguments: SynthArguments) -> None:
    """Draw a trace and write it."""
    out = _place(arguments.out)
    from sched_env.workload import synthesize

    duration_s = arguments.duration_s
    if duration_s is None and arguments.num_requests is None:
        duration_s = 3600.0
    table = synthesize(
        arguments.workload,
        num_requests=arguments.num_requests,
        duration_s=duration_s,
        rate_rps=arguments.rate_rps,
        burst_cv=arguments.burst_cv,
        seed=arguments.seed,
    )
    _write(table, out)


def _read(arguments: ReadArguments) -> RequestTable:
    from sched_env.workload import read_trace

    return read_trace(
        arguments.source,
        format=arguments.format,
        seed=arguments.seed,
        zero_tokens=arguments.zero_tokens,
        max_model_len=arguments.max_model_len,
        too_long=arguments.too_long,
        spread_resolution=arguments.spread_resolution,
        resolution_s=arguments.resolution_s,
        time_unit=arguments.time_unit,
        block_tokens=arguments.block_tokens,
        window_s=parse_window(arguments.window),
        arrival=parse_arrivals(arguments.arrivals),
    )


def _place(out: str | None) -> Path:
    """Return the file to write; one that was not asked for by name is never replaced.

    Raises:
        ConfigError: no file was named, and the one of the default name exists.
        TraceError: no trace can be written there.
    """
    if out is not None:
        from sched_env.workload.convert import check_trace_path

        check_trace_path(Path(out))
        return Path(out)
    if DEFAULT_OUT.exists():
        raise ConfigError(
            f"{DEFAULT_OUT} exists: name another file with --out, or that one to replace it"
        )
    return DEFAULT_OUT


def _write(table: RequestTable, out: Path) -> None:
    from sched_env.workload import write_trace

    path = write_trace(table, out)
    print(f"{path}: {len(table)} requests over {table.span_s:.1f} s")
    for reason, count in table.source.drops.items():
        print(f"left out: {count} ({reason})")


def parse_window(text: str | None) -> tuple[float, float] | None:
    """Return ``START,END`` in seconds.

    Raises:
        ConfigError: the text is no pair of finite numbers with START below END.
    """
    if text is None:
        return None
    try:
        start, end = (float(part) for part in text.split(","))
    except ValueError:
        start, end = math.nan, math.nan
    if not 0 <= start < end < math.inf:
        raise ConfigError(f"--window {text!r}: give START,END in seconds, as in 0,600")
    return start, end


def parse_arrivals(text: str | None) -> ArrivalProcess | None:
    """Return the arrival process ``KIND:RATE`` or ``KIND:RATE:CV``, rates in requests per second.

    Raises:
        ConfigError: the text has another form, or a figure is out of range.
        UnknownNameError: there is no process of this kind.
    """
    if text is None:
        return None
    from sched_env.workload import arrival_process

    kind, *figures = text.split(":")
    try:
        numbers = [float(figure) for figure in figures]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise ConfigError(
            f"--arrivals {text!r}: give KIND:RATE or KIND:RATE:CV with numbers, as in poisson:8 "
            "or gamma:8:2"
        )
    return arrival_process(kind, *numbers)


PARTS = {
    "inspect": ("show what is in a trace", Command(InspectArguments, inspect)),
    "convert": ("write a trace in the plain format", Command(ConvertArguments, convert)),
    "synth": ("draw a trace from an embedded workload", Command(SynthArguments, synth)),
}
