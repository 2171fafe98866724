"""Measure step times on this device."""

from __future__ import annotations

from sched_env.cli import profile_run

PARTS = {
    "run": ("measure a grid of steps of a real model", profile_run.COMMAND),
}
