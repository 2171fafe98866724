"""Train a scheduler: one call, one run folder, continued where it was interrupted."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from stable_baselines3.common.callbacks import CallbackList

from sched_env.agents.callbacks import (
    AfterUpdate,
    EpisodeMetrics,
    RunDescription,
    UpdateHook,
    WeightAverage,
    with_weights,
)
from sched_env.agents.checkpoint import (
    Checkpoint,
    latest_checkpoint,
    load_checkpoint,
    model_checkpoint,
    restore_model,
    save_checkpoint,
)
from sched_env.agents.cloning import clone, pieces_of
from sched_env.agents.conditions import condition_envs
from sched_env.agents.export import (
    MaskedActor,
    env_layout,
    exported_weights,
    policy_card,
    torch_actor,
)
from sched_env.agents.logs import make_logger, write_level_line
from sched_env.agents.model import make_model, planned_decisions, rollout_size
from sched_env.agents.parity import Parity, visited_parity
from sched_env.agents.policies import policy_parts
from sched_env.agents.prior_sources import prior_parameters, prior_score
from sched_env.agents.run_folder import RunFolder, open_run_folder
from sched_env.agents.sb3 import SchedVecEnv, make_sb3_vec_env
from sched_env.agents.score_search.files import looks_csv
from sched_env.agents.score_search.search import Look, polish
from sched_env.agents.tags import (
    POLISH_TAG,
    SCORE_TAG,
    TTFT_TAIL_TAG,
    VALIDATION,
    tag_means,
    validation_curves,
)
from sched_env.agents.teachers import teachers_csv
from sched_env.agents.validation import EpisodeEvaluation, SplitSimulation, validation_episodes
from sched_env.config import ExperimentConfig
from sched_env.config.tuning import TuningConfig
from sched_env.env.build import read_tables
from sched_env.errors import ConfigError, MissingExtraError
from sched_env.evaluation.entries import check_loads
from sched_env.evaluation.files import write_json, write_text
from sched_env.evaluation.folders import TRAINING, refuse_other_kinds
from sched_env.evaluation.progress import announce_compilation
from sched_env.policy.format import write_policy
from sched_env.policy.registry import resolve_policy
from sched_env.policy.runtime import ExportedPolicy
from sched_env.simulator.simulate import seen_by


@dataclass(frozen=True)
class TrainProgress:
    """Where a run stands, told after every update.

    Attributes:
        num_decisions: Decisions taken so far.
        total_decisions: Decisions of the whole run.
        decisions_per_s: Speed since the run was started or continued.
        metrics: The newest curves, by TensorBoard tag.
    """

    num_decisions: int
    total_decisions: int
    decisions_per_s: float
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class TrainResult:
    """What a training run left behind.

    Attributes:
        run_dir: The run folder.
        policy_dir: The exported policy in it.
        num_decisions: Decisions the policy was trained for.
        summary: What summary.json holds.
    """

    run_dir: Path
    policy_dir: Path
    num_decisions: int
    summary: Mapping[str, Any]


class Judge(Protocol):
    """Runs a policy on a fixed set of traffic."""

    def rows(self, policy: Any) -> list[dict[str, Any]]:
        """Return one row of metrics for each piece of traffic."""
        ...


@dataclass
class Judges:
    """The traffic that policies are compared on during training."""

    validation: Judge | None = None
    training: Judge | None = None
    baselines: tuple[str, ...] = field(default_factory=tuple)
    episodes: EpisodeEvaluation | None = None


def train(
    experiment: ExperimentConfig,
    run_dir: str | Path,
    *,
    resume: bool | Literal["auto"] = "auto",
    opened: Callable[[Path], None] | None = None,
    progress: Callable[[TrainProgress], None] | None = None,
) -> TrainResult:
    """Train the agent of ``experiment`` in ``run_dir``, or go on with the run found there.

    Equal configuration and seed give byte-identical policies, interrupted or not.

    Args:
        experiment: What to train, on what, for how long.
        run_dir: The run folder; see `sched_env.agents.run_folder`.
        resume: "auto" goes on where a run of the same configuration was interrupted, True demands
            one, False refuses one.
        opened: Called with the run folder, once nothing stands in the way.
        progress: Called after every update.

    Raises:
        ConfigError: The folder belongs to another configuration, or contradicts ``resume``.
        TraceError: A trace cannot be read; nothing is written then.
        SchedEnvError: The prior, a policy to compare with, a load or a condition is not there or
            not possible, or another run writes to the folder; nothing is written then.
        MissingExtraError: The run ends with a search, and the extra ``tune`` is not installed.
    """
    is_polished = experiment.polish_iterations or experiment.cloning.polish_iterations
    if is_polished and find_spec("cmaes") is None:
        raise MissingExtraError("tune", "cmaes")
    path = Path(run_dir)
    is_started = RunFolder(path).config_file.exists()
    _check_resume(path, is_started, resume)
    refuse_other_kinds(path, TRAINING)
    if is_started:
        done = open_run_folder(path, experiment).read_summary()
        if done is not None:
            return TrainResult(path, RunFolder(path).policy, done["num_decisions"], done)
    else:
        _check_parts(experiment)
    return _train_in(path, experiment, opened or (lambda _: None), progress)


def _train_in(
    path: Path,
    experiment: ExperimentConfig,
    opened: Callable[[Path], None],
    progress: Callable[[TrainProgress], None] | None,
) -> TrainResult:
    """Build all that learns and judges, and only then the folder: what cannot be leaves none."""
    if progress is not None:
        announce_compilation()
    num_envs, _ = rollout_size(experiment.agent, experiment.total_decisions)
    env = make_sb3_vec_env(
        experiment.env,
        num_envs,
        experiment.seed,
        normalise_returns=experiment.agent.normalise_returns,
        conditions=experiment.conditions,
    )
    try:
        judges = _make_judges(experiment)
        folder = open_run_folder(path, experiment)
        with folder.held():
            opened(path)
            return TrainingRun(experiment, folder, env, judges, progress).run()
    finally:
        env.close()


def _check_parts(experiment: ExperimentConfig) -> None:
    """Refuse what would stop the run after its folder has been written.

    Raises:
        SchedEnvError: A trace, the prior, a policy to compare with, a load or a condition.
    """
    read_tables(experiment.env)
    prior_parameters(experiment.agent.prior, env_layout(experiment.env))
    if experiment.cloning.prior is not None:
        prior_score(experiment.cloning.prior)
    for policy in experiment.comparison.policies:
        resolve_policy(policy)
    check_loads(experiment.comparison.loads)
    try:
        condition_envs(experiment.env, experiment.conditions)
    except ConfigError as error:
        raise ConfigError(f"conditions: {error}") from None


def _check_resume(path: Path, is_started: bool, resume: bool | str) -> None:
    if resume is True and not is_started:
        raise ConfigError(f"no run to go on with in {path}; start it without resume")
    if resume is False and is_started:
        raise ConfigError(f"{path} holds a run already; give another folder, or resume it")


def _make_judges(experiment: ExperimentConfig) -> Judges:
    if experiment.evaluate_every_decisions == 0 and experiment.agent.keep == "last":
        return Judges()
    return Judges(
        SplitSimulation(experiment, "validation"),
        SplitSimulation(experiment, "train"),
        experiment.comparison.policies,
        validation_episodes(experiment),
    )


class TrainingRun:
    """One training run from its folder's newest checkpoint to its summary."""

    def __init__(
        self,
        experiment: ExperimentConfig,
        folder: RunFolder,
        env: SchedVecEnv,
        judges: Judges,
        progress: Callable[[TrainProgress], None] | None = None,
    ) -> None:
        """Build the model and put it where the newest checkpoint left it."""
        self.experiment, self.folder, self.env, self.judges = experiment, folder, env, judges
        self.progress = progress
        self.total = planned_decisions(experiment.agent, experiment.total_decisions)
        self.model = make_model(experiment, env)
        self.average = WeightAverage(self.model.policy, experiment.agent.weight_average)
        self.episodes = EpisodeMetrics(policy_parts(self.model.policy)[2].shape, env)
        self.best: dict[str, torch.Tensor] = {}
        self.history: list[dict[str, float]] = []
        place = latest_checkpoint(folder.checkpoints)
        checkpoint = load_checkpoint(place) if place is not None else None
        self.start = 0 if checkpoint is None else int(checkpoint.values["num_timesteps"])
        self.model.set_logger(make_logger(folder, continue_from=self.start))
        if checkpoint is not None:
            self._restore(checkpoint)
        self.started_s = time.monotonic()

    def run(self) -> TrainResult:
        """Learn what is left to learn, export the kept weights, and write the summary."""
        if self.start == 0:
            self._write_level_lines()
            if self.judges.validation is not None:
                self._validate(0)
        after = AfterUpdate(self._hooks(), self.start)
        if self.start < self.total:
            callbacks = [self.episodes, after]
            if self.start == 0:
                callbacks.insert(0, RunDescription(self.experiment))
            self.model.learn(
                self.total - self.start,
                callback=CallbackList(callbacks),
                reset_num_timesteps=self.start == 0,
            )
            after.flush()
        if self.judges.validation is not None and not self._is_judged():
            self._validate(self.model.num_timesteps)
        self.model.logger.dump(self.model.num_timesteps)
        self._checkpoint(self.model.num_timesteps)
        self.model.logger.close()
        return self._finish()

    def _hooks(self) -> list[UpdateHook]:
        experiment = self.experiment
        hooks = [UpdateHook(lambda _: self.average.update(self.model.policy))]
        if self.judges.validation is not None and experiment.evaluate_every_decisions > 0:
            hooks.append(UpdateHook(self._validate, experiment.evaluate_every_decisions))
        hooks.append(UpdateHook(self.model.logger.dump))
        hooks.append(UpdateHook(self._checkpoint, experiment.checkpoint_every_decisions))
        hooks.append(UpdateHook(self._report))
        return hooks

    def _is_judged(self) -> bool:
        return bool(self.history) and self.history[-1]["decisions"] == self.model.num_timesteps

    def _exported(self, weights: Mapping[str, torch.Tensor], num_decisions: int) -> ExportedPolicy:
        actor = with_weights(self.model.policy, weights)
        card = policy_card(self.experiment, num_decisions=num_decisions)
        return ExportedPolicy(card, exported_weights(actor, policy_parts(self.model.policy)[1]))

    def _validate(self, num_decisions: int) -> None:
        """Judge the averaged weights on the validation split, and keep them if they are best.

        The first entry, at 0 decisions, is the untrained network: with a prior, the prior alone.
        """
        assert self.judges.validation is not None
        policy = self._exported(self.average.weights, num_decisions)
        curves = validation_curves(self.judges.validation.rows(policy))
        if self.judges.episodes is not None:
            curves |= self.judges.episodes.curves(policy)
        for tag, value in curves.items():
            self.model.logger.record(tag, value)
        tail_s = curves.get(VALIDATION + TTFT_TAIL_TAG, math.nan)
        score = self.experiment.objective.worth(curves[SCORE_TAG], tail_s)
        if all(score > entry["score"] for entry in self.history):
            self.best = {name: one.clone() for name, one in self.average.weights.items()}
        self.history.append({"decisions": num_decisions, "score": score})

    def _write_level_lines(self) -> None:
        """Draw each heuristic as level lines, as a TensorBoard run of its own."""
        for name in self.judges.baselines:
            metrics: dict[str, float] = {}
            if self.judges.validation is not None:
                metrics |= validation_curves(self.judges.validation.rows(name))
            if self.judges.training is not None:
                metrics |= tag_means(self.judges.training.rows(name))
            write_level_line(self.folder.baselines / name, metrics, self.total)

    def _report(self, num_decisions: int) -> None:
        if self.progress is None:
            return
        elapsed_s = max(time.monotonic() - self.started_s, 1e-9)
        metrics = dict(self.episodes.latest)
        if self.history:
            metrics[SCORE_TAG] = self.history[-1]["score"]
        speed = (num_decisions - self.start) / elapsed_s
        self.progress(TrainProgress(num_decisions, self.total, speed, metrics))

    def _checkpoint(self, num_decisions: int) -> None:
        taken = model_checkpoint(self.model)
        arrays = dict(taken.arrays)
        for prefix, weights in (("average.", self.average.weights), ("best.", self.best)):
            arrays |= {prefix + name: one.numpy().copy() for name, one in weights.items()}
        values = {**taken.values, "history": self.history}
        save_checkpoint(self.folder.checkpoints, num_decisions, Checkpoint(arrays, values))

    def _restore(self, checkpoint: Checkpoint) -> None:
        restore_model(self.model, checkpoint)
        for prefix, weights in (("average.", self.average.weights), ("best.", self.best)):
            weights |= {
                name: torch.from_numpy(array) for name, array in checkpoint.part(prefix).items()
            }
        self.history = list(checkpoint.values["history"])

    def _finish(self) -> TrainResult:
        """Export the kept weights, check the export, and write summary.json last."""
        keep_best = self.experiment.agent.keep == "best" and bool(self.best)
        weights = self.best if keep_best else self.average.weights
        num_decisions = self.model.num_timesteps
        kept_at = num_decisions
        if keep_best:
            kept_at = int(max(self.history, key=lambda entry: entry["score"])["decisions"])
        card = policy_card(self.experiment, num_decisions=kept_at, metrics=self.history)
        actor = with_weights(self.model.policy, weights)
        prior = policy_parts(self.model.policy)[1]
        policy = ExportedPolicy(card, exported_weights(actor, prior))
        trained = MaskedActor(actor, prior)
        if self.experiment.polish_iterations:
            policy = self._polished(
                policy,
                self.experiment.tuning.replace(iterations=self.experiment.polish_iterations),
                self.folder.polish_file,
            )
        if self.experiment.cloning.pieces:
            policy = self._cloned(policy)
        if self.experiment.polish_iterations or self.experiment.cloning.pieces:
            trained = torch_actor(policy)
        write_policy(self.folder.policy, policy.weights, policy.card)
        parity = self._parity(policy, trained)
        summary = {
            "experiment": self.experiment.name,
            "seed": self.experiment.seed,
            "num_decisions": num_decisions,
            "kept_at_decisions": kept_at,
            "validation": self.history,
            "parity_states": parity.num_states,
            "parity_equal": parity.num_equal,
            "max_logit_difference": parity.max_logit_difference,
        }
        write_json(self.folder.summary_file, summary)
        return TrainResult(self.folder.path, self.folder.policy, num_decisions, summary)

    def _parity(self, policy: ExportedPolicy, trained: MaskedActor) -> Parity:
        """Compare the export with the trained network, in an environment that shows as much."""
        seen = seen_by(policy, self.experiment.env)
        if seen.observation == self.experiment.env.observation:
            return visited_parity(self.env, trained, self.folder.policy)
        env = make_sb3_vec_env(
            seen,
            self.env.num_envs,
            self.experiment.seed,
            conditions=self.experiment.conditions,
        )
        try:
            return visited_parity(env, trained, self.folder.policy)
        finally:
            env.close()

    def _cloned(self, policy: ExportedPolicy) -> ExportedPolicy:
        """Return the policy after it has learned from a teacher for each condition."""
        experiment, cloning = self.experiment, self.experiment.cloning
        tuning, conditions = experiment.tuning, experiment.conditions
        if cloning.polish_iterations:
            longer = pieces_of(cloning, tuning).replace(iterations=cloning.polish_iterations)
            policy = self._polished(policy, longer, self.folder.second_polish_file)
        tuning = tuning.replace(
            slo_factors=conditions.slo_factors, kv_factors=conditions.kv_factors
        )
        result = clone(policy, experiment.env, tuning, experiment.seed, cloning)
        write_text(self.folder.teachers_file, teachers_csv(result.teachers))
        return result.policy

    def _polished(self, policy: ExportedPolicy, tuning: TuningConfig, file: Path) -> ExportedPolicy:
        """Return the policy after a search; write how that went."""
        experiment = self.experiment
        looks: list[Look] = []

        def show(_: int, look: Look) -> None:
            if looks[-1:] != [look]:
                looks.append(look)
                write_text(file, looks_csv(looks))
            self.episodes.latest[POLISH_TAG] = look.validation_goodput
            self._report(self.model.num_timesteps)

        tuning = tuning.replace(step_size=experiment.polish_step_size)
        result = polish(policy, experiment.env, tuning, experiment.seed, show, experiment.objective)
        write_text(file, looks_csv(result.looks))
        return result.policy
