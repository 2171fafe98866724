"""Compare a step-time model with measured steps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from sched_env.cli.main import Command

if TYPE_CHECKING:
    from sched_env.config.cost import CostConfig


@dataclass(frozen=True)
class ProfileCheckArguments:
    """Compare step-time models with a table of measured steps, kernels alone.

    Without --cost each group is compared with the preset of the same name.
    """

    table: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TABLE.csv")]
    """Measured steps; docs/step_times.md lists the columns."""

    cost: Annotated[str | None, tyro.conf.arg(metavar="PRESET|TABLE.csv|PROFILE|roofline")] = None
    """The model to compare with; roofline: the spec sheets of each group's GPU and model."""

    group: str | None = None
    """Only this gpu/model[/tpN][/precision] of the measured steps."""


def run(arguments: ProfileCheckArguments) -> None:
    """Print the errors of each group and phase, and their median over the groups."""
    from sched_env.cli.profile_tables import error_rows, error_table, median_table
    from sched_env.cost.errors_by_phase import errors_by_phase
    from sched_env.cost.measured import choose_group, read_measured_steps
    from sched_env.cost.models import cost_record
    from sched_env.cost.predict import kernel_ms
    from sched_env.evaluation.table import print_tables

    groups = read_measured_steps(arguments.table)
    if arguments.group is not None:
        groups = {arguments.group: choose_group(groups, arguments.group, arguments.table)}
    models = {group: _model(group, arguments.cost) for group in groups}
    errors: dict[str, dict[str, Any]] = {}
    for group, model in models.items():
        if model is None:
            print(f"left out: {group} (no preset of that name)")
            continue
        found = errors_by_phase(groups[group], kernel_ms(cost_record(model), groups[group]))
        errors[group] = {phase: asdict(one) for phase, one in found.items()}
    rows = [row for group, own in errors.items() for row in error_rows(group, own)]
    name = arguments.cost or "presets"
    print_tables([error_table(f"{name} against {Path(arguments.table).name}", rows)])
    if len(errors) > 1:
        print_tables([median_table(errors)])


def _model(group: str, cost: str | None) -> CostConfig | None:
    """Return what a group is compared with; ``None`` where there is no preset of its name."""
    from sched_env.config.cost import TwoRegimeCost
    from sched_env.cost.fit import spec_sheet_roofline
    from sched_env.cost.presets import preset_names
    from sched_env.cost.selection import chosen_cost

    if cost == "roofline":
        return spec_sheet_roofline(group)
    if cost is not None:
        return chosen_cost(cost)
    return TwoRegimeCost(preset=group) if group in preset_names() else None


COMMAND = Command(ProfileCheckArguments, run)
