"""The heuristics, one a file. Importing this package registers them by name."""

from __future__ import annotations

from sched_env.baselines.aging import aging
from sched_env.baselines.cache_aware import cache_aware
from sched_env.baselines.deadline import deadline
from sched_env.baselines.dynamic_budget import dynamic_budget
from sched_env.baselines.edf import edf
from sched_env.baselines.fcfs import fcfs
from sched_env.baselines.fixed_priority import fixed_priority
from sched_env.baselines.least_attained import least_attained
from sched_env.baselines.mlfq import mlfq
from sched_env.baselines.random_order import random_order
from sched_env.baselines.server_switches import (
    least_computed_victim,
    most_blocks_victim,
    no_evict,
    skip_ahead,
    watermark,
)
from sched_env.baselines.sjf import sjf
from sched_env.baselines.sjf_aging import sjf_aging
from sched_env.baselines.srpt import srpt
from sched_env.baselines.vtc import vtc
from sched_env.baselines.weighted_sjf import weighted_sjf

__all__ = [
    "aging",
    "cache_aware",
    "deadline",
    "dynamic_budget",
    "edf",
    "fcfs",
    "fixed_priority",
    "least_attained",
    "least_computed_victim",
    "mlfq",
    "most_blocks_victim",
    "no_evict",
    "random_order",
    "sjf",
    "sjf_aging",
    "skip_ahead",
    "srpt",
    "vtc",
    "watermark",
    "weighted_sjf",
]
