"""Readers of trace files, one module per format."""

from __future__ import annotations

from sched_env.workload.readers.raw_requests import ReadOptions
from sched_env.workload.readers.read_trace import read_trace

__all__ = ["ReadOptions", "read_trace"]
