"""What follows PPO in a training run: searches around the network, and cloning of teachers.

::

    PPO -> polish -> [second polish -> cloning]

The polish moves the network's weights on pieces of the training split, shown what the environment
shows. The second one and the cloning show it as many requests as `CloningConfig` says.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sched_env.agents.cloning import clone, pieces_of
from sched_env.agents.run_folder import RunFolder
from sched_env.agents.score_search.files import looks_csv
from sched_env.agents.score_search.search import Look, polish
from sched_env.agents.teachers import teachers_csv
from sched_env.config import ExperimentConfig
from sched_env.config.tuning import TuningConfig
from sched_env.evaluation.files import write_text
from sched_env.policy.runtime import ExportedPolicy

POLISH = "polish"
SECOND_POLISH = "second polish"
CLONING = "cloning"

Show = Callable[[str, float, float | None], None]
"""Is told what is being done, which share of it is done, and what validation goodput is kept."""


class Refinement:
    """The searches and the cloning that one experiment asks for."""

    def __init__(self, experiment: ExperimentConfig, folder: RunFolder, show: Show) -> None:
        """Keep where the tables go, and who is told how far it is."""
        self._experiment, self._folder, self._show = experiment, folder, show

    def of(self, policy: ExportedPolicy) -> ExportedPolicy:
        """Return the policy after all of it; the same one where nothing is asked for."""
        experiment = self._experiment
        if experiment.polish_iterations:
            tuning = experiment.tuning.replace(iterations=experiment.polish_iterations)
            policy = self._polished(policy, tuning, self._folder.polish_file, POLISH)
        if experiment.cloning.pieces:
            policy = self._cloned(policy)
        return policy

    def _cloned(self, policy: ExportedPolicy) -> ExportedPolicy:
        """Return the policy after it has learned from a teacher for each condition."""
        experiment, cloning = self._experiment, self._experiment.cloning
        if cloning.polish_iterations:
            tuning = pieces_of(cloning, experiment.tuning)
            tuning = tuning.replace(iterations=cloning.polish_iterations)
            policy = self._polished(policy, tuning, self._folder.second_polish_file, SECOND_POLISH)
        taught = experiment.tuning.replace(
            slo_factors=experiment.conditions.slo_factors,
            kv_factors=experiment.conditions.kv_factors,
        )
        result = clone(
            policy,
            experiment.env,
            taught,
            experiment.seed,
            cloning,
            experiment.objective,
            lambda share: self._show(CLONING, share, None),
        )
        write_text(self._folder.teachers_file, teachers_csv(result.teachers))
        return result.policy

    def _polished(
        self, policy: ExportedPolicy, tuning: TuningConfig, file: Path, stage: str
    ) -> ExportedPolicy:
        """Return the policy after a search; write how that went."""
        experiment = self._experiment
        looks: list[Look] = []

        def show(generation: int, look: Look) -> None:
            if looks[-1:] != [look]:
                looks.append(look)
                write_text(file, looks_csv(looks))
            kept = [one for one in looks if one.is_best][-1]
            self._show(stage, generation / tuning.iterations, kept.validation_goodput)

        tuning = tuning.replace(step_size=experiment.polish_step_size)
        result = polish(policy, experiment.env, tuning, experiment.seed, show, experiment.objective)
        write_text(file, looks_csv(result.looks))
        return result.policy
