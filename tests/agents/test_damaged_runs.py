"""Files of a run that were changed by hand or cut: each is named, with what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sched_env.agents.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from sched_env.agents.export import export_run
from sched_env.agents.run_folder import RunFolder, open_run_folder
from sched_env.agents.train import train
from sched_env.cli.main import main
from sched_env.config import ExperimentConfig
from sched_env.errors import ConfigError, PolicyError
from sched_env.policy.format import write_policy
from sched_env.policy.scores import linear_score

EXPERIMENT = ExperimentConfig(name="unit")

ARRAYS = {
    name: np.zeros(2) for name in ("last_obs", "last_episode_starts", "rng.torch", "rng.numpy")
}
VALUES: dict[str, Any] = {
    "num_timesteps": 8,
    "num_updates": 1,
    "progress_remaining": 0.5,
    "rng.numpy": [],
    "episodes": [],
    "successes": [],
    "pending_logs": {},
    "history": [],
}


@pytest.fixture
def finished(tmp_path: Path) -> RunFolder:
    """Return the folder of a complete run."""
    folder = open_run_folder(tmp_path / "run", EXPERIMENT)
    score = linear_score("done", admit={}, preempt={})
    write_policy(folder.policy, score.weights, score.card)
    folder.summary_file.write_text('{"num_decisions": 8}')
    return folder


@pytest.mark.parametrize("content", [b"hello", b"\xff\xfe", b"", b"a: [", b"- 1"])
def test_a_damaged_configuration_is_named(tmp_path: Path, content: bytes) -> None:
    folder = open_run_folder(tmp_path / "run", EXPERIMENT)
    folder.config_file.write_bytes(content)
    for use in (lambda: export_run(folder.path), lambda: train(EXPERIMENT, folder.path)):
        with pytest.raises(ConfigError, match=r"config\.yaml"):
            use()


@pytest.mark.parametrize("content", [b"hello", b"\xff", b"", b"[]", b"{}"])
def test_a_damaged_summary_is_named(finished: RunFolder, content: bytes) -> None:
    finished.summary_file.write_bytes(content)
    remedy = "remove it, and the same command ends the training again"
    with pytest.raises(ConfigError, match=rf"summary\.json.*; {remedy}"):
        train(EXPERIMENT, finished.path)


def test_a_complete_run_is_no_result_where_its_policy_is_damaged(finished: RunFolder) -> None:
    assert train(EXPERIMENT, finished.path).num_decisions == 8
    (finished.policy / "config.json").write_text("hello")
    with pytest.raises(PolicyError, match=r"config\.json: not valid JSON.*remove .*summary\.json"):
        train(EXPERIMENT, finished.path)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("state.npz", b"", ""),
        ("state.npz", b"hello", ""),
        ("state.json", b"[]", "no object"),
        ("state.json", b"{}", "lacks num_timesteps"),
        ("state.json", json.dumps({**VALUES, "num_timesteps": "8"}).encode(), "is no int"),
        ("state.json", json.dumps({**VALUES, "judged": [1]}).encode(), "judged that is no dict"),
        ("state.json", b"\xff", ""),
    ],
)
def test_a_damaged_checkpoint_is_named(
    tmp_path: Path, file: str, content: bytes, words: str
) -> None:
    place = save_checkpoint(tmp_path, 8, Checkpoint(ARRAYS, VALUES))
    assert load_checkpoint(place).values == VALUES
    (place / file).write_bytes(content)
    with pytest.raises(ConfigError, match=f"{place.name} is damaged.*{words}.*remove that folder"):
        load_checkpoint(place)


def test_a_checkpoint_without_one_of_its_arrays_is_named(tmp_path: Path) -> None:
    place = save_checkpoint(tmp_path, 8, Checkpoint({"last_obs": np.zeros(2)}, VALUES))
    with pytest.raises(ConfigError, match="lacks last_episode_starts"):
        load_checkpoint(place)


@pytest.mark.parametrize("content", [b"hello", b"[]", b'{"validation": [{"decisions": 1}]}'])
def test_a_report_of_a_damaged_summary_is_one_line(
    finished: RunFolder, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    finished.summary_file.write_bytes(content)
    assert main(["report", str(finished.path)]) == 2
    error = capsys.readouterr().err
    assert "summary.json" in error
    assert "Traceback" not in error
