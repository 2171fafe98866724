from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sched_env.errors import ConfigError
from sched_env.evaluation.curve_plot import main, plot_curves
from sched_env.policy.format import write_policy
from sched_env.policy.scores import linear_score

pytest.importorskip("matplotlib")

_PNG = b"\x89PNG\r\n\x1a\n"


def _run(folder: Path, scores: list[float], polish: str = "") -> Path:
    folder.mkdir()
    looks = [{"decisions": 100 * i, "score": score} for i, score in enumerate(scores)]
    (folder / "summary.json").write_text(json.dumps({"validation": looks}))
    if polish:
        (folder / "polish.csv").write_text(polish)
    return folder


def test_runs_with_and_without_a_search_are_drawn(tmp_path: Path) -> None:
    polish = "iteration,validation_goodput,num_requests\n0,0.91,100\n5,0.92,600\n"
    runs = [_run(tmp_path / "a", [0.8, 0.9]), _run(tmp_path / "b", [0.8, 0.91], polish)]
    plot_curves(runs, tmp_path / "both.png")
    plot_curves(runs[:1], tmp_path / "one.png")
    both, one = ((tmp_path / f"{name}.png").read_bytes() for name in ("both", "one"))
    assert both[:8] == one[:8] == _PNG
    width = [int.from_bytes(data[16:20], "big") for data in (both, one)]
    assert width == [1200, 720]


def test_what_the_cloning_changed_is_drawn_after_the_search(tmp_path: Path) -> None:
    polish = "iteration,validation_goodput,num_requests\n0,0.91,100\n5,0.92,600\n"
    run = _run(tmp_path / "a", [0.8, 0.9], polish)
    plot_curves([run], tmp_path / "before.png")
    training = {
        "clone_requests": 300,
        "validation_goodput_before_cloning": 0.92,
        "validation_goodput": 0.95,
    }
    score = linear_score("cloned", admit={"density": 5.0}, preempt={}, training=training)
    write_policy(run / "policy", score.weights, score.card)
    plot_curves([run], tmp_path / "after.png")
    assert (tmp_path / "before.png").read_bytes() != (tmp_path / "after.png").read_bytes()


def test_the_second_search_is_drawn_after_the_first_and_not_joined_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    polish = "iteration,validation_goodput,num_requests\n0,0.91,100\n5,0.92,600\n"
    run = _run(tmp_path / "a", [0.8, 0.9], polish)
    (run / "second_polish.csv").write_text(polish)
    plot_curves([run], tmp_path / "out.png")
    line = figures[0].axes[1].get_lines()[0]
    np.testing.assert_array_equal(line.get_xdata(), [100, 600, 600, 700, 1200])
    np.testing.assert_array_equal(line.get_ydata(), [0.91, 0.92, np.nan, 0.91, 0.92])


def test_a_folder_without_a_finished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no finished training run"):
        main([str(tmp_path), str(tmp_path / "out.png")])
    with pytest.raises(ConfigError, match="PNG file"):
        main([str(tmp_path)])


def test_a_fault_of_its_user_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sched_env.evaluation.curve_plot", str(tmp_path), "out.png"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 2
    assert ended.stderr.endswith("no finished training run; give folders that train wrote\n")
    assert ended.stderr.count("\n") == 1


def test_rows_without_numbers_are_named(tmp_path: Path) -> None:
    run = _run(tmp_path / "a", [0.8], "iteration,validation_goodput,num_requests\n0,much,100\n")
    with pytest.raises(ConfigError, match=r"polish\.csv is damaged"):
        plot_curves([run], tmp_path / "out.png")
    (run / "summary.json").write_text('{"validation": 5}')
    with pytest.raises(ConfigError, match=r"summary\.json is damaged"):
        plot_curves([run], tmp_path / "out.png")
