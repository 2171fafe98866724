"""A profile folder: step times of one device with their provenance.

``profile.json`` holds

- ``format``: 1;
- ``group``: what was measured, ``gpu/model[/tpN][/precision]``;
- ``cost``: a step-time configuration of kind two_regime, table, roofline or affine, the path of a
  table being relative to the folder;
- ``errors``: held-out errors of the fit by phase, if there are any;
- ``provenance``: how, where and when the times came about, in free form.

``steps.csv`` beside it holds the measured steps, in the columns that ``measured.py`` lists. Where
``profile.json`` has no ``cost``, all of it is provenance, and the steps are the table.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic

from sched_env.config.cost import (
    PROFILE_FILE,
    AffineCost,
    RooflineCost,
    TableCost,
    TwoRegimeCost,
)
from sched_env.config.model import ConfigModel, Text
from sched_env.cost.measured import MeasuredSteps, choose_group, read_measured_steps, step_columns
from sched_env.errors import ConfigError

STEPS_FILE = "steps.csv"
_TABLE = {"kind": "table", "path": STEPS_FILE}

PlainCost = Annotated[
    TwoRegimeCost | AffineCost | TableCost | RooflineCost, pydantic.Field(discriminator="kind")
]
"""Any step-time model but a profile."""


class Profile(ConfigModel):
    """What ``profile.json`` holds."""

    format: Literal[1] = 1
    """Number of the file format."""

    group: Text
    """What was measured: gpu/model[/tpN][/precision]."""

    cost: PlainCost
    """The step-time model."""

    errors: dict[str, Any] = pydantic.Field(default={})
    """Held-out errors by phase."""

    provenance: dict[str, Any] = pydantic.Field(default={})
    """How, where and when the times came about."""


def read_profile(path: str | Path) -> Profile:
    """Read a profile folder; the path of its table becomes absolute or relative to this process.

    Raises:
        ConfigError: There is no such profile, or it is damaged.
    """
    file = Path(path)
    if file.is_dir():
        file = file / PROFILE_FILE
    try:
        values = json.loads(file.read_text("utf8"))
    except OSError as error:
        raise ConfigError(
            f"{file}: no profile there ({error.strerror}); give a folder that `sched-env profile` "
            "wrote"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{file}: not JSON ({error}); write the profile again") from None
    if not isinstance(values, Mapping):
        raise ConfigError(f"{file}: not a JSON object; write the profile again")
    if "cost" not in values:
        steps = file.parent / STEPS_FILE
        group = choose_group(read_measured_steps(steps), None, str(steps)).group
        values = {"group": group, "cost": _TABLE, "provenance": values}
    profile = Profile.from_mapping(values, source=str(file))
    if isinstance(profile.cost, TableCost):
        place = file.parent / profile.cost.path
        return profile.replace(cost=profile.cost.replace(path=str(place)))
    return profile


def write_profile(folder: Path, profile: Profile, steps: MeasuredSteps) -> None:
    """Write ``profile.json`` and ``steps.csv`` into a folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = step_columns(steps)
    with (folder / STEPS_FILE).open("w", encoding="utf8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    text = json.dumps(profile.to_dict(), indent=1) + "\n"
    (folder / PROFILE_FILE).write_text(text, encoding="utf8")


def profile_folder(out: Path, group: str) -> Path:
    """Return the folder of a group's profile under ``out``."""
    return out / group.replace("/", "_")
