"""Train a scheduler: one call, one run folder, continued where it was interrupted."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

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
    JUDGED,
    Checkpoint,
    latest_checkpoint,
    load_checkpoint,
    model_checkpoint,
    restore_model,
    save_checkpoint,
)
from sched_env.agents.export import (
    MaskedActor,
    exported_weights,
    policy_card,
    torch_actor,
)
from sched_env.agents.inputs import input_hashes
from sched_env.agents.judges import Judges, make_judges
from sched_env.agents.logs import level_line_names, make_logger, write_level_line
from sched_env.agents.model import make_model, planned_decisions, rollout_size
from sched_env.agents.parity import run_parity
from sched_env.agents.policies import policy_parts
from sched_env.agents.preconditions import (
    check_parts,
    check_pieces,
    check_place,
    check_resume,
)
from sched_env.agents.refinement import Refinement
from sched_env.agents.run_folder import RunFolder, open_run_folder, refuse_changed_inputs
from sched_env.agents.sb3 import SchedVecEnv, make_sb3_vec_env
from sched_env.agents.tags import (
    POLISH_TAG,
    SCORE_TAG,
    TTFT_TAIL_TAG,
    VALIDATION,
    tag_means,
    validation_curves,
)
from sched_env.config import ExperimentConfig
from sched_env.errors import ConfigError, MissingExtraError, PolicyError, SchedEnvError
from sched_env.evaluation.files import write_json
from sched_env.evaluation.folders import TRAINING, refuse_other_kinds
from sched_env.evaluation.progress import announce_compilation
from sched_env.policy.format import read_policy, write_policy
from sched_env.policy.runtime import ExportedPolicy

PPO = "train"
"""Name of the first stage of a training."""


@dataclass(frozen=True)
class TrainProgress:
    """Where a run stands, told after every update and, after PPO, every generation or round.

    Attributes:
        stage: What is being done: `PPO`, or what follows it.
        share_done: Which part of that is done, 0 to 1.
        num_decisions: Decisions taken so far.
        total_decisions: Decisions of the whole run.
        decisions_per_s: Speed since the run was started or continued.
        metrics: The newest curves, by TensorBoard tag; the validation goodput is that of the
            weights that would be kept if the run ended now.
    """

    stage: str
    share_done: float
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
        was_complete: Whether the run was there already, so that nothing was trained.
    """

    run_dir: Path
    policy_dir: Path
    num_decisions: int
    summary: Mapping[str, Any]
    was_complete: bool = False


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
        ConfigError: The folder belongs to another configuration or began with another prior,
            contradicts ``resume``, or holds a damaged file.
        PolicyError: The run is complete, and its policy is damaged.
        TraceError: A trace cannot be read; nothing is written then.
        SchedEnvError: The prior, a policy to compare with, a load or a condition is not there or
            not possible, or another run writes to the folder; nothing is written then.
        MissingExtraError: The run ends with a search, and the extra ``tune`` is not installed.
    """
    if experiment.is_searched and find_spec("cmaes") is None:
        raise MissingExtraError("tune", "cmaes")
    path = Path(run_dir)
    is_started = RunFolder(path).config_file.exists()
    check_resume(path, is_started, resume)
    refuse_other_kinds(path, TRAINING)
    if is_started:
        done = _finished(open_run_folder(path, experiment))
        if done is not None:
            return done
    check_place(RunFolder(path), is_started)
    check_parts(experiment)
    if is_started:
        refuse_changed_inputs(RunFolder(path), input_hashes(experiment))
    else:
        check_pieces(experiment)
    return _train_in(path, experiment, opened or (lambda _: None), progress)


def _finished(folder: RunFolder) -> TrainResult | None:
    """Return what a complete run left behind, or None.

    Raises:
        ConfigError: Its summary is damaged.
        PolicyError: Its policy is.
    """
    summary = folder.read_summary()
    if summary is None:
        return None
    try:
        read_policy(folder.policy)
    except PolicyError as error:
        raise PolicyError(
            f"{error}. Or remove {folder.policy} and {folder.summary_file}, and the same command "
            "ends the training again from its last checkpoint"
        ) from None
    return TrainResult(folder.path, folder.policy, summary["num_decisions"], summary, True)


def _cloning_told(policy: ExportedPolicy) -> dict[str, Any]:
    """Return what a summary says of the cloning: validation goodputs, and which network stayed."""
    training = policy.card.training
    return {
        "is_kept": training["clone_kept"],
        "validation_goodput_before": training["validation_goodput_before_cloning"],
        "validation_goodput_after": training["validation_goodput_of_clone"],
    }


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
        judges = make_judges(experiment)
        folder = open_run_folder(path, experiment)
        with folder.held():
            opened(path)
            return TrainingRun(experiment, folder, env, judges, progress).run()
    finally:
        env.close()


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
        self.judged: dict[str, float] = {}
        place = latest_checkpoint(folder.checkpoints)
        checkpoint = load_checkpoint(place) if place is not None else None
        self.start = 0 if checkpoint is None else int(checkpoint.values["num_timesteps"])
        self.model.set_logger(make_logger(folder, continue_from=self.start))
        if place is not None and checkpoint is not None:
            self._restore(checkpoint, place)
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
        is_best = all(score > entry["score"] for entry in self.history)
        if is_best:
            self.best = {name: one.clone() for name, one in self.average.weights.items()}
        if is_best or self.experiment.agent.keep == "last":
            self.judged[SCORE_TAG] = curves[SCORE_TAG]
        self.history.append({"decisions": num_decisions, "score": score})

    def _write_level_lines(self) -> None:
        """Draw each policy to compare with as level lines, as a TensorBoard run of its own."""
        policies = self.judges.baselines
        for policy, name in zip(policies, level_line_names(policies), strict=True):
            metrics: dict[str, float] = {}
            if self.judges.validation is not None:
                metrics |= validation_curves(self.judges.validation.rows(policy))
            if self.judges.training is not None:
                metrics |= tag_means(self.judges.training.rows(policy))
            write_level_line(self.folder.baselines / name, metrics, self.total)

    def _report(self, num_decisions: int, stage: str = PPO, share: float | None = None) -> None:
        if self.progress is None:
            return
        share = num_decisions / self.total if share is None else share
        elapsed_s = max(time.monotonic() - self.started_s, 1e-9)
        metrics = {**self.episodes.latest, **self.judged}
        speed = (num_decisions - self.start) / elapsed_s
        self.progress(TrainProgress(stage, share, num_decisions, self.total, speed, metrics))

    def _report_refinement(self, stage: str, share: float, goodput: float | None) -> None:
        if goodput is not None:
            self.judged[POLISH_TAG] = goodput
        self._report(self.model.num_timesteps, stage, share)

    def _checkpoint(self, num_decisions: int) -> None:
        taken = model_checkpoint(self.model)
        arrays = dict(taken.arrays)
        for prefix, weights in (("average.", self.average.weights), ("best.", self.best)):
            arrays |= {prefix + name: one.numpy().copy() for name, one in weights.items()}
        values = {**taken.values, "history": self.history, JUDGED: self.judged}
        save_checkpoint(self.folder.checkpoints, num_decisions, Checkpoint(arrays, values))

    def _restore(self, checkpoint: Checkpoint, place: Path) -> None:
        try:
            restore_model(self.model, checkpoint)
        except (RuntimeError, KeyError, ValueError, SchedEnvError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ConfigError(
                f"checkpoint {place} does not fit this run ({reason}); remove it to go on from "
                "the one before it, or give another folder"
            ) from None
        for prefix, weights in (("average.", self.average.weights), ("best.", self.best)):
            weights |= {
                name: torch.from_numpy(array) for name, array in checkpoint.part(prefix).items()
            }
        self.history = list(checkpoint.values["history"])
        self.judged = dict(checkpoint.values.get(JUDGED, {}))

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
        refined = Refinement(self.experiment, self.folder, self._report_refinement).of(policy)
        if refined is not policy:
            policy, trained = refined, torch_actor(refined)
        write_policy(self.folder.policy, policy.weights, policy.card)
        parity = run_parity(self.experiment, trained, policy, self.folder.policy, self.env)
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
        if "clone_kept" in policy.card.training:
            summary["cloning"] = _cloning_told(policy)
        write_json(self.folder.summary_file, summary)
        return TrainResult(self.folder.path, self.folder.policy, num_decisions, summary)
