"""Step times: measure them on this device, fit a model to them, compare one with them."""

from __future__ import annotations

from sched_env.cli import (
    profile_aiconfigurator,
    profile_check,
    profile_fit,
    profile_kv_pool,
    profile_run,
)

PARTS = {
    "run": ("measure a grid of steps of a real model", profile_run.COMMAND),
    "fit": ("fit a step-time model to measured steps", profile_fit.COMMAND),
    "check": ("compare a step-time model with measured steps", profile_check.COMMAND),
    "aiconfigurator": ("make a profile from NVIDIA's database", profile_aiconfigurator.COMMAND),
    "kv-pool": ("size the KV pool of a server from its hardware", profile_kv_pool.COMMAND),
}
