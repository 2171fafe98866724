"""The heuristics, one a file. Importing this package registers them by name."""

from __future__ import annotations

from sched_env.baselines.aging import aging
from sched_env.baselines.deadline import deadline
from sched_env.baselines.fcfs import fcfs
from sched_env.baselines.fixed_priority import fixed_priority
from sched_env.baselines.sjf import sjf
from sched_env.baselines.weighted_sjf import weighted_sjf

__all__ = ["aging", "deadline", "fcfs", "fixed_priority", "sjf", "weighted_sjf"]
