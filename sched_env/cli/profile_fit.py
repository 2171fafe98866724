"""Fit a step-time model to measured steps, and say how far it is off."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from sched_env.cli.main import Command

if TYPE_CHECKING:
    from sched_env.cost.measured import MeasuredSteps
    from sched_env.cost.profile import Profile

REPORT_FILE = "fit.json"


@dataclass(frozen=True)
class ProfileFitArguments:
    """Fit a step-time model to a table of measured steps, one profile for each group.

    A quarter of the steps is held out to measure the error; the model that is written is fitted to
    all of them. Each profile folder can be given as cost: {kind: profile, path: FOLDER}.
    """

    table: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TABLE.csv")]
    """Measured steps; docs/step_times.md lists the columns."""

    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """Folder that gets a profile folder for each group, and fit.json."""

    model: Literal["table", "two_regime", "roofline", "affine"] = "table"
    """What to fit: table is the closest, two_regime the fastest to evaluate."""

    group: str | None = None
    """Only this gpu/model[/tpN][/precision]."""

    seed: int = 0
    """Draws which steps are held out."""


def run(arguments: ProfileFitArguments) -> None:
    """Fit every group, print the held-out errors and write the profiles."""
    from sched_env.cli.profile_tables import error_rows, error_table, median_table
    from sched_env.cost.measured import choose_group, read_measured_steps
    from sched_env.cost.profile import profile_folder, write_profile
    from sched_env.evaluation.files import write_json
    from sched_env.evaluation.folders import check_folder
    from sched_env.evaluation.table import print_tables
    from sched_env.simulator.simulate import check_seed

    check_seed(arguments.seed)
    groups = read_measured_steps(arguments.table)
    if arguments.group is not None:
        groups = {arguments.group: choose_group(groups, arguments.group, arguments.table)}
    out = check_folder(Path(arguments.out))
    written: dict[Path, Profile] = {}
    rows: list[tuple[str, ...]] = []
    for name, steps in groups.items():
        profile = _profile(arguments, steps, folder := profile_folder(out, name))
        write_profile(folder, profile, steps)
        written[folder] = profile
        rows += error_rows(name, profile.errors)
    write_json(out / REPORT_FILE, {p.group: p.errors for p in written.values()})
    title = f"{arguments.model} fitted to {Path(arguments.table).name}: error on held-out steps"
    print_tables([error_table(title, rows)])
    if len(written) > 1:
        print_tables([median_table({p.group: p.errors for p in written.values()})])
    for folder in written:
        print(f"cost: {{kind: profile, path: {folder}}}")
    print(out / REPORT_FILE)


def _profile(arguments: ProfileFitArguments, steps: MeasuredSteps, folder: Path) -> Profile:
    """Fit one group, draw its residuals and return its profile."""
    from sched_env import __version__
    from sched_env.cost.errors_by_phase import hold_out
    from sched_env.cost.fit import fit_cost, fitted_ms
    from sched_env.cost.profile import Profile
    from sched_env.evaluation.plots import can_plot

    held = hold_out(
        steps, lambda train, test: fitted_ms(train, arguments.model, test), arguments.seed
    )
    if can_plot():
        from sched_env.evaluation.residual_plot import PLOT_FILE, plot_residuals

        folder.mkdir(parents=True, exist_ok=True)
        title = f"{steps.group}: {arguments.model}, held-out steps"
        plot_residuals(held, title, folder / PLOT_FILE)
    else:
        print('no residual plot: matplotlib is not installed; pip install "sched-env[profiles]"')
    return Profile(
        group=steps.group,
        cost=fit_cost(steps, arguments.model),
        errors={phase: asdict(error) for phase, error in held.errors.items()},
        provenance={
            "fitted_by": f"sched-env {__version__} profile fit",
            "table": Path(arguments.table).name,
            "sources": list(steps.sources),
            "num_steps": len(steps),
            "num_held_out": len(held.held_out),
            "seed": arguments.seed,
        },
    )


COMMAND = Command(ProfileFitArguments, run)
