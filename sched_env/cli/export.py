"""Write the policy folder of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from sched_env.cli.main import Command
from sched_env.cli.optional import importing_extra


@dataclass(frozen=True)
class ExportArguments:
    """Write the policy folder of a training run: weights, config.json and a model card.

    The folder runs in the simulator without torch: give it to simulate or evaluate.
    """

    run_dir: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Folder of a training run; of an unfinished one the newest checkpoint is taken."""

    format: Literal["safetensors", "onnx"] = "safetensors"
    """safetensors: the policy folder; onnx: policy.onnx in it as well, for other runtimes."""

    out: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """Where to write; by default the folder policy in the run."""


def run(arguments: ExportArguments) -> None:
    """Export and print where the policy is."""
    with importing_extra("agents"):
        from sched_env.agents.export import export_run

    out = Path(arguments.out) if arguments.out else None
    place = export_run(Path(arguments.run_dir), out, arguments.format)
    print(f"policy: {place}")
    if arguments.format == "onnx":
        print(f"graph: {place / 'policy.onnx'}")


COMMAND = Command(ExportArguments, run)
