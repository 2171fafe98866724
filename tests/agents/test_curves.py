from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from sched_env.agents.logs import ProgressTable, level_line_names
from sched_env.agents.model import linear_schedule, planned_decisions, rollout_size
from sched_env.agents.run_folder import RunFolder, default_run_path
from sched_env.agents.tags import tag_means, with_rates
from sched_env.config import AgentConfig, ExperimentConfig
from sched_env.errors import ConfigError
from sched_env.policy.format import write_policy
from sched_env.policy.scores import linear_score


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_table_grows_columns_and_keeps_rows(tmp_path: Path) -> None:
    table = ProgressTable(tmp_path / "progress.csv")
    table.write({"a": 1.5}, {"a": ()}, step=10)
    table.write({"a": 2.5, "b": 3.0}, {"a": (), "b": ()}, step=20)
    table.write({"b": 4.0, "c": 9.0}, {"b": (), "c": ("csv",)}, step=30)
    table.write({"a": 5.0}, {"a": ()}, step=30)
    table.write({"c": 9.0}, {"c": ("csv",)}, step=40)
    assert _rows(tmp_path / "progress.csv") == [
        {"time/total_timesteps": "10", "a": "1.5", "b": ""},
        {"time/total_timesteps": "20", "a": "2.5", "b": "3.0"},
        {"time/total_timesteps": "30", "a": "5.0", "b": "4.0"},
    ]


def test_a_continued_table_drops_rows_past_the_checkpoint(tmp_path: Path) -> None:
    table = ProgressTable(tmp_path / "progress.csv")
    for step in (10, 20, 30):
        table.write({"a": float(step)}, {"a": ()}, step=step)
    ProgressTable(tmp_path / "progress.csv", continue_from=20)
    assert [row["a"] for row in _rows(tmp_path / "progress.csv")] == ["10.0", "20.0"]


def test_tags_are_in_seconds_shares_and_counts_per_request() -> None:
    row = {
        "p99_ttft_ms": 2500.0,
        "num_preemptions": 5,
        "num_injected": 10,
        "makespan_s": 100.0,
        "mean_queue_wait_ms": 2000.0,
        "jain_fairness": math.nan,
    }
    means = tag_means([row, {**row, "p99_ttft_ms": 3500.0}], "validation/")
    assert means["validation/latency/ttft_p99_s"] == 3.0
    assert means["validation/engine/preemptions_per_request"] == 0.5
    # Little's law: 0.1 requests/s that wait 2 s each.
    assert means["validation/queue/depth"] == pytest.approx(0.2)
    assert "validation/fairness/jain" not in means
    assert with_rates({"a": 1}) == {"a": 1}


def test_a_run_takes_whole_updates_and_never_more_than_asked() -> None:
    agent = AgentConfig(num_envs=256, num_steps=128)
    assert rollout_size(agent, 500_000) == (256, 128)
    assert planned_decisions(agent, 500_000) == 15 * 256 * 128
    assert rollout_size(agent, 20_000) == (256, 78)
    assert planned_decisions(agent, 20_000) == 256 * 78
    assert rollout_size(agent, 100) == (100, 1)


def test_a_linear_schedule_ends_at_its_fraction() -> None:
    rate = linear_schedule(2.0, 0.1)
    assert rate(1.0) == 2.0
    assert rate(0.0) == pytest.approx(0.2)
    assert rate(0.5) == pytest.approx(1.1)


def test_run_paths_name_agent_seed_and_time() -> None:
    path = default_run_path(ExperimentConfig(name="azure", seed=7), Path("runs"))
    assert path.parent == Path("runs/azure")
    assert path.name.startswith("maskable_ppo_pointer__seed7__")
    assert path.name.endswith("Z")


def test_a_folder_without_a_run_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run folder"):
        RunFolder(tmp_path).read_config()


def _exported(folder: Path, name: str) -> str:
    score = linear_score(name, admit={}, preempt={})
    return str(write_policy(folder, score.weights, score.card))


def test_level_lines_stay_in_folders_of_their_own(tmp_path: Path) -> None:
    given = [
        "fcfs",
        _exported(tmp_path / "a", "mine"),
        _exported(tmp_path / "b", "mine"),
        _exported(tmp_path / "c", "../../elsewhere"),
        _exported(tmp_path / "d", "policy_2"),
    ]
    assert level_line_names(given) == ["fcfs", "mine", "policy_2", "policy_3", "policy_4"]
