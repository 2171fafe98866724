"""What arrives: traces and synthetic workloads as one table of requests, with units.

``read_trace`` reads a file or an embedded workload, ``synthesize`` draws one; ``transforms``
windows, rescales, splits and merges it; ``summarize`` looks at it; ``write_trace`` stores it.
"""

from __future__ import annotations

from sched_env.workload.arrivals import (
    ArrivalProcess,
    GammaArrivals,
    PoissonArrivals,
    WeibullArrivals,
    arrival_process,
)
from sched_env.workload.bursty_arrivals import CoxGammaArrivals, LogAr1, OnOffArrivals
from sched_env.workload.convert import write_trace
from sched_env.workload.env_trace import read_env_trace
from sched_env.workload.hash_ids import HashIds
from sched_env.workload.inspect import TraceSummary, summarize
from sched_env.workload.lengths import LogNormalLengths, QuantileLengths, TokenLengths
from sched_env.workload.readers import ReadOptions, read_trace
from sched_env.workload.service_classes import (
    DEFAULT_SERVICE_CLASS_NAMES,
    SERVICE_CLASS,
    draw_class,
    draw_predicted_tokens,
    draw_slo_jitter,
    service_class_array,
)
from sched_env.workload.source import TraceSource
from sched_env.workload.synthetic import WORKLOADS, Workload, synthesize, workload
from sched_env.workload.table import RequestTable
from sched_env.workload.transforms import (
    limit_model_len,
    scale_rate,
    scale_to_rate,
    split_by_time,
    superpose,
    window,
)

__all__ = [
    "DEFAULT_SERVICE_CLASS_NAMES",
    "SERVICE_CLASS",
    "WORKLOADS",
    "ArrivalProcess",
    "CoxGammaArrivals",
    "GammaArrivals",
    "HashIds",
    "LogAr1",
    "LogNormalLengths",
    "OnOffArrivals",
    "PoissonArrivals",
    "QuantileLengths",
    "ReadOptions",
    "RequestTable",
    "TokenLengths",
    "TraceSource",
    "TraceSummary",
    "WeibullArrivals",
    "Workload",
    "arrival_process",
    "draw_class",
    "draw_predicted_tokens",
    "draw_slo_jitter",
    "limit_model_len",
    "read_env_trace",
    "read_trace",
    "scale_rate",
    "scale_to_rate",
    "service_class_array",
    "split_by_time",
    "summarize",
    "superpose",
    "synthesize",
    "window",
    "workload",
    "write_trace",
]
