"""Measure how long steps of a real model take on this device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from sched_env.cli.main import Command
from sched_env.cli.optional import importing_extra

if TYPE_CHECKING:
    from sched_env.executor.device_profile import DeviceProfile

STEPS = "steps.csv"
PROVENANCE = "profile.json"
_GB = 1e9


@dataclass(frozen=True)
class ProfileRunArguments:
    """Measure how long steps of a real model take on this device.

    Runs decode, prefill and mixed batches on a Llama-shaped model with random weights and a paged
    KV cache, and writes steps.csv (one row per step) and profile.json (how it was measured). Times
    below what the memory's bandwidth allows are left out. Other work on the machine shows in the
    times.
    """

    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """Folder of the two files."""

    model: str = "toy"
    """Shape of the model: toy, llama-1b, llama-3b or llama-8b."""

    device: str = "cpu"
    """cpu, cuda or cuda:N."""

    dtype: str | None = None
    """bfloat16, float32 or float64; by default bfloat16 on CUDA and float32 on a CPU."""

    block_size: int = 16
    """Tokens in a KV block."""

    max_num_seqs: int | None = None
    """Most decoding sequences; by default 32 on a CPU, 256 on CUDA."""

    max_num_batched_tokens: int | None = None
    """Most tokens of a step; by default 512 on a CPU, 8192 on CUDA."""

    max_context: int | None = None
    """Longest context in tokens; by default 1024 on a CPU, 8192 on CUDA."""

    repeats: int = 7
    """Measured runs of each step, of which the median counts."""

    bandwidth: float | None = None
    """Bandwidth of the device's memory in GB/s, for the floor; by default measured."""

    seed: int = 0
    """Seed of the weights."""

    cpu_time: bool = False
    """On a CPU, measure the time that this process computed: for a busy machine, one thread."""

    max_seconds: float | None = None
    """Stop measuring then; the steps that are left out are of all kinds. By default all."""


def run(arguments: ProfileRunArguments) -> None:
    """Measure, write the table and its provenance, and say what was left out."""
    from rich.console import Console
    from rich.progress import Progress

    from sched_env import __version__
    from sched_env.evaluation.files import write_json, write_text
    from sched_env.evaluation.folders import check_folder, make_folder
    from sched_env.evaluation.machine import describe_machine

    with importing_extra("gpu"):
        from sched_env.executor.device_profile import ProfileRequest, profile_device
    from sched_env.executor.step_table import step_table
    from sched_env.simulator.simulate import check_seed

    check_seed(arguments.seed)
    request = ProfileRequest(
        model=arguments.model,
        device=arguments.device,
        dtype=arguments.dtype,
        block_size=arguments.block_size,
        max_num_seqs=arguments.max_num_seqs,
        max_num_batched_tokens=arguments.max_num_batched_tokens,
        max_context_tokens=arguments.max_context,
        repeats=arguments.repeats,
        bandwidth=arguments.bandwidth and arguments.bandwidth * _GB,
        seed=arguments.seed,
        cpu_time=arguments.cpu_time,
        max_seconds=arguments.max_seconds,
    )
    check_folder(Path(arguments.out))
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("profile", total=None, visible=False)
        profile = profile_device(
            request,
            f"sched-env {__version__} profile run",
            lambda done, total: bar.update(task, completed=done, total=total, visible=True),
        )
    folder = make_folder(Path(arguments.out))
    write_json(folder / PROVENANCE, {**profile.provenance, "machine": describe_machine()})
    write_text(folder / STEPS, step_table(profile.head, profile.steps))
    _print(profile)
    print(folder / STEPS)
    print(folder / PROVENANCE)


def _print(profile: DeviceProfile) -> None:
    said = profile.provenance
    print(
        f"{said['model']['name']} ({said['num_parameters'] / 1e6:,.0f} M parameters, "
        f"{said['dtype']}) on {said['device_name']}, {said['num_threads']} threads"
    )
    measured = len(profile.steps) + len(profile.rejected)
    of_all = f" of {said['num_points']}" if measured < said["num_points"] else ""
    print(f"{measured}{of_all} steps measured, median spread {said['median_spread']:.1%}")
    if profile.rejected:
        bandwidth = said["bandwidth_bytes_per_s"] / _GB
        print(f"left out: {len(profile.rejected)} (faster than {bandwidth:.1f} GB/s allows)")


COMMAND = Command(ProfileRunArguments, run)
