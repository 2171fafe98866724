"""Step times: measure them on this device, fit a model to them, compare one with them."""

from __future__ import annotations

from sched_env.cli import profile_check, profile_fit, profile_run

PARTS = {
    "run": ("measure a grid of steps of a real model", profile_run.COMMAND),
    "fit": ("fit a step-time model to measured steps", profile_fit.COMMAND),
    "check": ("compare a step-time model with measured steps", profile_check.COMMAND),
}
