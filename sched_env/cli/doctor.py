"""Show versions and extras, and check that the package works."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from importlib import metadata

from sched_env.cli.main import Command

EXIT_UNWELL = 1

BASE_PACKAGES = (
    "gymnasium",
    "numba",
    "numpy",
    "pyarrow",
    "pydantic",
    "pyyaml",
    "rich",
    "safetensors",
    "tyro",
)
EXTRAS = {
    "agents": ("torch", "stable-baselines3", "sb3-contrib", "tensorboard", "matplotlib"),
    "ceilings": ("scipy",),
    "gpu": ("torch",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "profiles": ("aiconfigurator-core", "matplotlib"),
    "tune": ("cmaes",),
}


@dataclass(frozen=True)
class DoctorArguments:
    """Show versions and extras, and check that the package works.

    The self-check schedules two requests and simulates a minute of traffic. The exit code is 1 if
    something is amiss.
    """


def run(_arguments: DoctorArguments) -> int:
    """Print versions, extras, the folder of compiled kernels, and the self-check."""
    from sched_env import __version__
    from sched_env.compiled import cache_folder

    print(f"sched-env {__version__}, Python {platform.python_version()}, {platform.platform()}")
    missing = _print_versions("needed", BASE_PACKAGES)
    for extra, packages in EXTRAS.items():
        absent = _print_versions(f"extra {extra}", packages)
        if absent:
            print(f'    to add them: pip install "sched-env[{extra}]"')
    folder = cache_folder()
    print(f"compiled kernels: {folder or 'not kept, because no folder can be written'}")
    fault = "packages are missing" if missing else self_check()
    print(f"self-check: {fault or 'passed'}", file=sys.stderr if fault else sys.stdout)
    return EXIT_UNWELL if fault else 0


def self_check() -> str | None:
    """Return what does not work, or None."""
    try:
        _check_scheduler()
        _check_simulation()
    except Exception as error:
        return f"failed: {type(error).__name__}: {error}"
    return None


def _check_scheduler() -> None:
    """Two requests under a budget of 8 tokens: the second prompt is cut in two."""
    from sched_env import Scheduler, SchedulerConfig

    config = SchedulerConfig(max_num_batched_tokens=8, max_num_seqs=8, num_blocks=100, block_size=4)
    scheduler = Scheduler(config)
    scheduler.add_request("a", 5, 2)
    scheduler.add_request("b", 5, 2)
    batch = scheduler.schedule()
    if batch != {"a": 5, "b": 3}:
        raise RuntimeError(f"the first batch is {batch}, expected a: 5 and b: 3")


def _check_simulation() -> None:
    from sched_env.config import EnvConfig
    from sched_env.simulator import simulate
    from sched_env.workload import read_trace

    table = read_trace("azure_conv").window(0.0, 60.0)
    result = simulate(table, "fcfs", EnvConfig())
    if len(result.requests) != len(table):
        raise RuntimeError(f"{len(table)} requests came in and {len(result.requests)} came out")


def _print_versions(title: str, packages: tuple[str, ...]) -> list[str]:
    """Print the versions of ``packages`` and return those that are not installed."""
    found: list[str] = []
    missing: list[str] = []
    for package in packages:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            missing.append(package)
    print(f"{title}: {', '.join(found) or 'none'}")
    if missing:
        print(f"    not installed: {', '.join(missing)}")
    return missing


COMMAND = Command(DoctorArguments, run)
