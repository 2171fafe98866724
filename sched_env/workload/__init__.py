"""What arrives: the request table, service classes and counter-based randomness."""

from __future__ import annotations

from sched_env.workload.hash_ids import HashIds
from sched_env.workload.service_classes import (
    DEFAULT_SERVICE_CLASS_NAMES,
    SERVICE_CLASS,
    default_service_classes,
    draw_class,
    draw_predicted_tokens,
    draw_slo_jitter,
    service_class_array,
)
from sched_env.workload.source import TraceSource
from sched_env.workload.table import RequestTable

__all__ = [
    "DEFAULT_SERVICE_CLASS_NAMES",
    "SERVICE_CLASS",
    "HashIds",
    "RequestTable",
    "TraceSource",
    "default_service_classes",
    "draw_class",
    "draw_predicted_tokens",
    "draw_slo_jitter",
    "service_class_array",
]
