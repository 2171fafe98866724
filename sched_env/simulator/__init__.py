"""Run it: the scheduler for scripts, and a whole trace under a policy."""

from __future__ import annotations

from sched_env.simulator.decode_scheduler import DecodeSchedulerSim
from sched_env.simulator.request_state import RequestState
from sched_env.simulator.request_view import RequestView
from sched_env.simulator.result import SimulationResult
from sched_env.simulator.scheduler import Scheduler
from sched_env.simulator.simulate import at_load, fcfs_capacity_rps, simulate

__all__ = [
    "DecodeSchedulerSim",
    "RequestState",
    "RequestView",
    "Scheduler",
    "SimulationResult",
    "at_load",
    "fcfs_capacity_rps",
    "simulate",
]
