"""Make a profile from NVIDIA's aiconfigurator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from sched_env.cli.main import Command


@dataclass(frozen=True)
class ProfileAiconfiguratorArguments:
    """Make a profile from NVIDIA's aiconfigurator, whose database covers many GPUs and models.

    A profile of the same version, GPU and model that is there already is kept.
    """

    gpu: str
    """A system of aiconfigurator, such as h100-sxm."""

    model: str
    """A model of aiconfigurator, such as llama-3.1-8b or meta-llama/Meta-Llama-3.1-8B."""

    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """Folder that gets the profile folder."""

    tp: int = 1
    """GPUs that share the model."""

    precision: Literal["bf16", "fp8"] = "bf16"
    """Number format of the matrix products."""


def run(arguments: ProfileAiconfiguratorArguments) -> None:
    """Query the database unless that was done before, and write the profile."""
    from sched_env import __version__
    from sched_env.config.cost import TableCost
    from sched_env.cost.aiconfigurator import PACKAGE, aiconfigurator_steps, package_version
    from sched_env.cost.profile import STEPS_FILE, Profile, profile_folder, write_profile
    from sched_env.evaluation.folders import check_folder

    asked: dict[str, Any] = {
        "package": f"{PACKAGE} {package_version()}",
        "gpu": arguments.gpu,
        "model": arguments.model,
        "tp": arguments.tp,
        "precision": arguments.precision,
    }
    out = check_folder(Path(arguments.out))
    kept = _made_before(out, asked)
    if kept is not None:
        print(f"made before, and kept: {kept}")
        folder = kept
    else:
        steps = aiconfigurator_steps(
            arguments.gpu, arguments.model, tp=arguments.tp, precision=arguments.precision
        )
        folder = profile_folder(out, steps.group)
        profile = Profile(
            group=steps.group,
            cost=TableCost(path=STEPS_FILE, group=steps.group),
            provenance={
                "asked": asked,
                "made_by": f"sched-env {__version__} profile aiconfigurator",
                "sources": list(steps.sources),
                "num_steps": len(steps),
            },
        )
        write_profile(folder, profile, steps)
        print(f"{len(steps)} steps of {steps.group}")
    print(f"cost: {{kind: profile, path: {folder}}}")


def _made_before(out: Path, asked: dict[str, Any]) -> Path | None:
    """Return the profile folder under ``out`` that answers the same question, if there is one."""
    from sched_env.config.cost import PROFILE_FILE
    from sched_env.cost.profile import read_profile

    for file in sorted(out.glob(f"*/{PROFILE_FILE}")):
        if read_profile(file).provenance.get("asked") == asked:
            return file.parent
    return None


COMMAND = Command(ProfileAiconfiguratorArguments, run)
