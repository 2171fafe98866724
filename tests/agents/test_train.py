from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sched_env.agents.export import env_layout, export_run, observation_shape
from sched_env.agents.inputs import input_hashes
from sched_env.agents.judges import Judges
from sched_env.agents.run_folder import open_run_folder, refuse_changed_inputs
from sched_env.agents.sb3 import SchedVecEnv
from sched_env.agents.train import TrainingRun, TrainProgress, TrainResult, train
from sched_env.agents.validation import EpisodeEvaluation
from sched_env.config import AgentConfig, EnvConfig, ExperimentConfig
from sched_env.config.agent import PriorConfig
from sched_env.errors import ConfigError, SchedEnvError, TraceError, UnknownNameError
from sched_env.policy.format import write_policy
from sched_env.policy.scores import linear_score
from sched_env.workload import synthesize
from sched_env.workload.convert import write_trace
from tests.agents.fake_env import FakeVectorEnv

UPDATE = 16 * 8
STEPS = """gpu,model,tp,precision,n_decode,ctx,prefill_tokens,prefill_past,ms,kind,source
toy,toy,1,bf16,4,512,0,0,5.0,composed,made
toy,toy,1,bf16,0,0,128,0,9.0,composed,made
toy,toy,1,bf16,4,512,128,0,11.0,composed,made
"""


class FakeJudge:
    """Scores a policy by what it is paid in the fake environment; heuristics all get 0.5."""

    def __init__(self, env: EnvConfig) -> None:
        self.shape = observation_shape(env_layout(env))

    def rows(self, policy: Any) -> list[dict[str, Any]]:
        if isinstance(policy, str):
            return [{"goodput_weighted": 0.5, "slo_attainment": 0.25, "num_injected": 10}]
        env = SchedVecEnv(FakeVectorEnv(32, self.shape), seed=5)
        observations, paid = env.reset(), 0.0
        for _ in range(5):
            actions = policy.act(observations[:, : self.shape.num_public], env.action_masks())
            observations, rewards, _, _ = env.step(actions)
            paid += float(rewards.mean())
        return [{"goodput_weighted": paid / 5, "p95_ttft_ms": 1200.0, "p99_ttft_ms": 1500.0}]


def _experiment(**changes: Any) -> ExperimentConfig:
    values: dict[str, Any] = {
        "name": "unit",
        "env": EnvConfig(observation={"num_waiting_slots": 4, "num_running_slots": 2}),
        "agent": AgentConfig(
            num_envs=16, num_steps=8, minibatch_size=64, hidden_size=8, weight_average=0.5
        ),
        "seed": 3,
        "total_decisions": 6 * UPDATE,
        "checkpoint_every_decisions": 2 * UPDATE,
        "evaluate_every_decisions": 2 * UPDATE,
    }
    return ExperimentConfig(**{**values, **changes})


class Killed(BaseException):
    """Stands for a process that is killed."""


def _run(
    path: Path,
    experiment: ExperimentConfig | None = None,
    *,
    kill_at: int | None = None,
    seen: list[TrainProgress] | None = None,
    baselines: tuple[str, ...] = ("fcfs", "sjf"),
) -> TrainResult:
    experiment = experiment or _experiment()
    shape = observation_shape(env_layout(experiment.env))
    env = SchedVecEnv(FakeVectorEnv(16, shape), seed=experiment.seed, normalise_returns=True)

    def progress(state: TrainProgress) -> None:
        if seen is not None:
            seen.append(state)
        if state.num_decisions == kill_at:
            raise Killed

    judge = FakeJudge(experiment.env)
    episodes = EpisodeEvaluation(SchedVecEnv(FakeVectorEnv(4, shape)))
    judges = Judges(judge, judge, baselines, episodes)
    folder = open_run_folder(path, experiment)
    return TrainingRun(experiment, folder, env, judges, progress).run()


def _weights(path: Path) -> bytes:
    return (path / "policy" / "policy.safetensors").read_bytes()


def _scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def _rows_without_timing(folder: Path) -> list[dict[str, str]]:
    with (folder / "progress.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


def test_what_is_called_goodput_is_without_the_price_of_waits(tmp_path: Path) -> None:
    seen: list[TrainProgress] = []
    priced = _experiment(objective={"p95_ttft_weight": 0.5}, total_decisions=2 * UPDATE)
    result = _run(tmp_path / "run", priced, seen=seen)
    worth = result.summary["validation"][-1]["score"]
    assert seen[-1].metrics["eval/goodput_weighted"] == pytest.approx(worth + 0.5 * 1.2)


def test_a_run_leaves_its_folder_complete(tmp_path: Path) -> None:
    seen: list[TrainProgress] = []
    result = _run(tmp_path / "run", seen=seen)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {
        "config.yaml",
        "environment.json",
        "progress.csv",
        "checkpoints",
        "baselines",
        "policy",
        "summary.json",
    } <= names
    assert any(name.startswith("events.out.tfevents") for name in names)
    assert yaml.safe_load((tmp_path / "run/config.yaml").read_text())["seed"] == 3
    assert "torch" in json.loads((tmp_path / "run/environment.json").read_text())["packages"]
    assert result.summary["parity_equal"] == result.summary["parity_states"] == 10_000
    assert [state.num_decisions for state in seen] == [UPDATE * n for n in range(1, 7)]
    assert {state.total_decisions for state in seen} == {6 * UPDATE}
    assert {"rollout/ep_rew_mean", "eval/goodput_weighted"} <= set(seen[-1].metrics)
    assert len(list((tmp_path / "run/checkpoints").iterdir())) == 2


def test_equal_seeds_give_the_same_bytes_and_other_seeds_do_not(tmp_path: Path) -> None:
    _run(tmp_path / "a")
    _run(tmp_path / "b")
    _run(tmp_path / "c", _experiment(seed=4))
    assert _weights(tmp_path / "a") == _weights(tmp_path / "b")
    assert _weights(tmp_path / "a") != _weights(tmp_path / "c")


@pytest.mark.parametrize("kill_at", [1, 2, 3, 5])
def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path: Path, kill_at: int) -> None:
    whole = _run(tmp_path / "whole")
    with pytest.raises(Killed):
        _run(tmp_path / "cut", kill_at=kill_at * UPDATE)
    seen: list[TrainProgress] = []
    resumed = _run(tmp_path / "cut", seen=seen)
    lost = kill_at * UPDATE - (seen[0].num_decisions - UPDATE)
    assert 0 <= lost < 2 * UPDATE
    assert _weights(tmp_path / "whole") == _weights(tmp_path / "cut")
    assert resumed.summary == whole.summary
    whole_scalars, cut_scalars = _scalars(tmp_path / "whole"), _scalars(tmp_path / "cut")
    timing = {"time/fps"}
    assert {tag: v for tag, v in cut_scalars.items() if tag not in timing} == {
        tag: v for tag, v in whole_scalars.items() if tag not in timing
    }
    assert _rows_without_timing(tmp_path / "whole") == _rows_without_timing(tmp_path / "cut")


def test_curves_of_stable_baselines3_and_ours_and_level_lines(tmp_path: Path) -> None:
    _run(tmp_path)
    scalars = _scalars(tmp_path)
    assert {
        "rollout/ep_rew_mean",
        "rollout/ep_len_mean",
        "rollout/success_rate",
        "time/fps",
        "train/approx_kl",
        "train/clip_fraction",
        "train/entropy_loss",
        "train/explained_variance",
        "train/learning_rate",
        "train/loss",
        "train/policy_gradient_loss",
        "train/value_loss",
        "slo/goodput_weighted",
        "policy/invalid_action_rate",
        "policy/preempt_rate",
        "eval/goodput_weighted",
        "validation/slo/goodput_weighted",
        "validation/latency/ttft_p99_s",
    } <= set(scalars)
    assert scalars["validation/latency/ttft_p99_s"][0][1] == 1.5
    assert [step for step, _ in scalars["eval/goodput_weighted"]] == [
        0,
        2 * UPDATE,
        4 * UPDATE,
        6 * UPDATE,
    ]
    for tag in ("eval/mean_reward", "eval/mean_ep_length", "eval/success_rate"):
        assert [step for step, _ in scalars[tag]] == [0, 2 * UPDATE, 4 * UPDATE, 6 * UPDATE]
    assert {value for _, value in scalars["eval/mean_ep_length"]} == {7.0}  # of the fake episodes
    assert {value for _, value in scalars["eval/success_rate"]} == {1.0}
    assert [step for step, _ in scalars["train/value_loss"]] == [UPDATE * n for n in range(1, 7)]
    line = _scalars(tmp_path / "baselines" / "fcfs")
    assert line["validation/slo/goodput_weighted"] == [(0, 0.5), (6 * UPDATE, 0.5)]
    assert line["eval/goodput_weighted"] == [(0, 0.5), (6 * UPDATE, 0.5)]
    assert line["slo/attainment"] == [(0, 0.25), (6 * UPDATE, 0.25)]
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    tags = events.Tags()
    assert "config/text_summary" in tags["tensors"]
    assert "_hparams_/session_start_info" in events.summary_metadata


def test_curves_of_a_run_to_compare_with_stay(tmp_path: Path) -> None:
    other = tmp_path / "other"
    score = linear_score("other", admit={}, preempt={})
    write_policy(other / "policy", score.weights, score.card)
    curves = other / "events.out.tfevents.1"
    curves.write_bytes(b"its own")
    _run(tmp_path / "run", baselines=(str(other),))
    assert curves.read_bytes() == b"its own"
    assert "slo/attainment" in _scalars(tmp_path / "run" / "baselines" / "other")


def test_the_best_weights_on_validation_are_kept(tmp_path: Path) -> None:
    result = _run(tmp_path)
    scores = {entry["decisions"]: entry["score"] for entry in result.summary["validation"]}
    assert sorted(scores) == [0, 2 * UPDATE, 4 * UPDATE, 6 * UPDATE]
    best = result.summary["kept_at_decisions"]
    assert scores[best] == max(scores.values())
    judge = FakeJudge(_experiment().env)
    from sched_env.policy.runtime import load_policy

    score = judge.rows(load_policy(tmp_path / "policy"))[0]["goodput_weighted"]
    assert score == pytest.approx(scores[best], rel=1e-9)


@pytest.mark.parametrize("keep", ["best", "last"])
def test_progress_tells_the_goodput_of_what_would_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str
) -> None:
    goodputs = iter([0.5, 0.7, 0.6, 0.4])

    def rows(_judge: FakeJudge, policy: Any) -> list[dict[str, Any]]:
        goodput = 0.5 if isinstance(policy, str) else next(goodputs)
        return [{"goodput_weighted": goodput, "slo_attainment": 0.5, "num_injected": 1}]

    monkeypatch.setattr(FakeJudge, "rows", rows)
    experiment = _experiment()
    experiment = experiment.replace(agent=experiment.agent.replace(keep=keep))
    seen: list[TrainProgress] = []
    with pytest.raises(Killed):
        _run(tmp_path, experiment, kill_at=4 * UPDATE, seen=seen)
    shown = [0.5, 0.7, 0.7, 0.7 if keep == "best" else 0.6]
    assert [one.metrics["eval/goodput_weighted"] for one in seen] == shown
    seen.clear()
    _run(tmp_path, experiment, seen=seen)
    assert seen[0].metrics["eval/goodput_weighted"] == shown[-1]


def test_a_folder_of_another_configuration_is_refused_by_key(tmp_path: Path) -> None:
    open_run_folder(tmp_path, _experiment())
    other = _experiment(agent=AgentConfig(learning_rate=0.1))
    with pytest.raises(ConfigError, match=r"agent\.hidden_size is 8 there and 32 here"):
        open_run_folder(tmp_path, other)


def test_a_damaged_checkpoint_names_the_folder_to_remove(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        _run(tmp_path, kill_at=3 * UPDATE)
    (place,) = (tmp_path / "checkpoints").iterdir()
    data = (place / "state.npz").read_bytes()
    (place / "state.npz").write_bytes(data[: len(data) // 2])
    with pytest.raises(ConfigError, match=place.name):
        _run(tmp_path)


def test_what_would_stop_a_run_later_is_looked_for_again_where_it_goes_on(tmp_path: Path) -> None:
    trace = tmp_path / "gone.csv"
    write_trace(synthesize("chatbot", num_requests=20, seed=0), trace)
    experiment = _experiment(env=EnvConfig(trace=str(trace)))
    open_run_folder(tmp_path / "run", experiment)
    trace.unlink()
    with pytest.raises(TraceError, match=r"gone\.csv"):
        train(experiment, tmp_path / "run")


def test_a_checkpoint_of_another_network_names_the_folder_to_remove(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        _run(tmp_path, kill_at=3 * UPDATE)
    (place,) = (tmp_path / "checkpoints").iterdir()
    with np.load(place / "state.npz") as saved:
        arrays = {name: saved[name] for name in saved.files}
    name = next(name for name in arrays if name.startswith("policy.actor."))
    del arrays[name]
    np.savez(place / "state.npz", **arrays)
    with pytest.raises(ConfigError, match=f"{place.name} does not fit this run .*Missing key"):
        _run(tmp_path)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("policy/notes.txt", "no policy folder: the run's own policy goes there, so move it away"),
        ("policy.safetensors", "is the folder of a policy"),
        ("checkpoints/decisions_000000000128/state.json", "checkpoints but no config.yaml"),
    ],
)
def test_what_is_not_the_runs_own_is_neither_overwritten_nor_gone_on_from(
    tmp_path: Path, file: str, message: str
) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("mine")
    with pytest.raises(SchedEnvError, match=message):
        train(_experiment(), tmp_path)
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == [tmp_path / file]


def test_a_folder_of_something_else_is_no_run_folder(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("iterations: 2")
    with pytest.raises(ConfigError, match="does not hold a training run's configuration"):
        train(_experiment(), tmp_path)


def test_a_checkpoint_cut_while_it_was_written_is_ignored(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        _run(tmp_path, kill_at=3 * UPDATE)
    partial = tmp_path / "checkpoints" / ".partial-decisions_000000000512"
    partial.mkdir()
    (partial / "state.npz").write_bytes(b"cut")
    _run(tmp_path)
    assert not partial.exists()
    assert json.loads((tmp_path / "summary.json").read_text())["num_decisions"] == 6 * UPDATE


def test_a_trace_that_cannot_be_read_leaves_no_run_folder(tmp_path: Path) -> None:
    experiment = _experiment(env=EnvConfig(trace=str(tmp_path / "missing.csv")))
    with pytest.raises(TraceError, match=r"missing\.csv"):
        train(experiment, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_prior_that_cannot_be_read_leaves_no_run_folder(tmp_path: Path) -> None:
    prior = PriorConfig(kind="linear_score", policy="pretrained/nope")
    experiment = _experiment(agent=AgentConfig(prior=prior))
    with pytest.raises(UnknownNameError, match="no pretrained policy 'nope'"):
        train(experiment, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"comparison": {"policies": ("fcfss",)}}, "no policy 'fcfss'. Did you mean 'fcfs'"),
        ({"comparison": {"loads": (0.8, 1e9)}}, "load 1e.09 is not possible"),
        ({"agent": {"network": "mlp", "mlp_hidden_sizes": (8,) * 9}}, "exported.* at most 8"),
        ({"conditions": {"kv_factors": (1e9,)}}, "conditions: num_blocks: 4000000000000"),
        ({"seed": 2**32}, "seed 4294967296 is not allowed"),
        (
            {"env": {"service": {"slo_factor": 1e6}}, "conditions": {"slo_factors": (2.0,)}},
            "conditions: slo_factor: 2000000.0 is not allowed",
        ),
        (
            {
                "env": {"service": {"slo_factor": 1e6}},
                "polish_iterations": 1,
                "tuning": {"slo_factors": (2.0,)},
            },
            "slo_factors: 2 times that of the clients: slo_factor: 2000000.0 is not allowed",
        ),
        (
            {"polish_iterations": 2, "tuning": {"kv_factors": (1e9,)}},
            "kv_factors: 4000 blocks times 1e.09 are more than",
        ),
        ({"polish_iterations": 2, "tuning": {"loads": (1e9,)}}, "load 1e.09 is not possible"),
        (
            {"cloning": {"pieces": 1, "requests_per_piece": 10**6}},
            r"requests_per_piece 1000000 is more than the \d+ requests of the longest train part",
        ),
        (
            {"cloning": {"pieces": 1, "stretches": ({}, {"prompt": 1e9})}},
            r"stretches: \d+ tokens times 1e.09 are more than",
        ),
    ],
)
def test_what_would_stop_a_run_later_leaves_no_run_folder(
    tmp_path: Path, changes: Any, message: str
) -> None:
    with pytest.raises(SchedEnvError, match=message):
        train(_experiment(**changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def _around(folder: Path, density: float) -> ExperimentConfig:
    """Return an experiment around the score in a folder, which is written."""
    score = linear_score("score", admit={"density": density}, preempt={})
    write_policy(folder, score.weights, score.card)
    return _experiment(
        agent=AgentConfig(prior=PriorConfig(kind="linear_score", policy=str(folder)))
    )


def test_a_run_does_not_go_on_around_another_prior(tmp_path: Path) -> None:
    experiment = _around(tmp_path / "score", 5.0)
    folder = open_run_folder(tmp_path / "run", experiment)
    refuse_changed_inputs(folder, input_hashes(experiment))
    _around(tmp_path / "score", 6.0)
    with pytest.raises(ConfigError, match=r"agent\.prior\.policy is not what it was .* restore it"):
        train(experiment, folder.path)
    folder.inputs_file.unlink()  # as in folders of runs that began before there was one
    refuse_changed_inputs(folder, input_hashes(experiment))


def test_a_run_does_not_go_on_with_another_trace_or_other_step_times(tmp_path: Path) -> None:
    trace, steps = tmp_path / "trace.csv", tmp_path / "steps.csv"
    write_trace(synthesize("chatbot", num_requests=200, seed=0), trace)
    steps.write_text(STEPS)
    env = _experiment().env.replace(
        trace=(str(trace),), cost={"kind": "table", "path": str(steps), "beyond": "count"}
    )
    experiment = _experiment(env=env)
    folder = open_run_folder(tmp_path / "run", experiment)
    refuse_changed_inputs(folder, input_hashes(experiment))
    steps.write_text(STEPS.replace("9.0", "9.5"))
    with pytest.raises(ConfigError, match=r"env\.cost is not what it was"):
        train(experiment, folder.path)
    steps.write_text(STEPS)
    write_trace(synthesize("chatbot", num_requests=200, seed=1), trace)
    with pytest.raises(ConfigError, match=r"env\.trace .*trace\.csv is not what it was"):
        train(experiment, folder.path)


def test_an_unfinished_run_is_not_exported_around_another_prior(tmp_path: Path) -> None:
    experiment = _around(tmp_path / "score", 5.0)
    folder = open_run_folder(tmp_path / "run", experiment)
    (folder.checkpoints / "decisions_000000000128").mkdir()
    _around(tmp_path / "score", 6.0)
    with pytest.raises(ConfigError, match=r"agent\.prior\.policy is not what it was"):
        export_run(folder.path)


def test_what_a_killed_run_left_half_written_is_removed(tmp_path: Path) -> None:
    folder = open_run_folder(tmp_path / "run", _experiment())
    kept = {path.name for path in folder.path.iterdir()} | {
        ".mine.tmp",
        ".notes.1.tmp",
        ".policy-2",
    }
    for name in (".summary.json.a_b1c2d3.tmp", ".mine.tmp", ".notes.1.tmp"):
        (folder.path / name).write_text("half")
    for name in (".policy-a_b1c2d3", ".policy-2"):
        (folder.path / name / "new").mkdir(parents=True)
    with folder.held():
        pass
    assert {path.name for path in folder.path.iterdir()} == kept


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path) -> None:
    experiment = _experiment()
    with (
        open_run_folder(tmp_path / "run", experiment).held(),
        pytest.raises(SchedEnvError, match="another training run is writing to"),
    ):
        train(experiment, tmp_path / "run")
