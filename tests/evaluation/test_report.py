from __future__ import annotations

import importlib.util
import json

import pytest

from sched_env.errors import ConfigError, SchedEnvError
from sched_env.evaluation import plots as plots_module
from sched_env.evaluation import report as report_module
from sched_env.evaluation.files import write_json
from sched_env.evaluation.report import find_results, report
from tests.evaluation.made_rows import row, three_policies


@pytest.fixture
def folder(tmp_path):
    write_json(tmp_path / "results.json", three_policies())
    return tmp_path


def test_page_says_who_won_and_how_it_was_compared(folder):
    page = report(folder).page.read_text()
    assert "The best heuristic by mean goodput_weighted over these cells is **sjf**." in page
    assert "- **ppo** is better (8 pairs)." in page
    assert "- **fcfs** is worse (8 pairs)." in page
    assert "length prediction: noisy(0.5)" in page
    assert "| ppo | 0.7615 [" in page
    assert "10,000 resamples" in page


def test_one_pair_claims_nothing(tmp_path):
    write_json(tmp_path / "results.json", [row("fcfs", 0.5), row("ppo", 0.9, kind="network")])
    page = report(tmp_path).page.read_text()
    assert "- **ppo** is not told apart from it (1 pair, which gives no interval)." in page


def test_few_pairs_come_with_a_caution(tmp_path):
    write_json(tmp_path / "results.json", three_policies(1))
    page = report(tmp_path).page.read_text()
    assert "- **ppo** is better (2 pairs, too few for the interval to be trusted)." in page


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib")
def test_chart_is_a_png(folder):
    plot = report(folder).plot
    assert plot is not None
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert f"({plot.name})" in (folder / "report.md").read_text()


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib")
def test_a_chart_without_a_heuristic_has_no_differences(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plots_module, "_draw_differences", lambda *one: drawn.append(one))
    write_json(tmp_path / "results.json", [row("ppo", 0.9, kind="network")])
    assert report(tmp_path).plot is not None
    assert not drawn


def test_without_matplotlib_there_is_a_page_and_no_chart(folder, monkeypatch):
    monkeypatch.setattr(report_module, "can_plot", lambda: False)
    files = report(folder)
    assert files.plot is None
    assert "![" not in files.page.read_text()


def test_results_of_a_run_are_found_one_folder_below(folder, tmp_path_factory):
    run = tmp_path_factory.mktemp("run")
    (run / "evaluation").mkdir()
    (run / "evaluation" / "results.json").write_text(json.dumps(three_policies(1)))
    assert find_results(run) == run / "evaluation"


@pytest.mark.parametrize("text", ["{", "{}", '[{"policy": "fcfs"}]'])
def test_a_file_that_is_no_list_of_rows(tmp_path, text):
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(SchedEnvError, match=r"results\.json is no"):
        report(tmp_path)


def test_no_results(tmp_path):
    with pytest.raises(SchedEnvError, match="run sched-env evaluate with --out DIR first"):
        report(tmp_path)


@pytest.mark.parametrize(
    ("file", "content"),
    [("environment.json", "hello"), ("environment.json", "[]"), ("config.yaml", "hello")],
)
def test_a_damaged_file_beside_the_results_is_named(folder, file, content):
    (folder / file).write_text(content)
    with pytest.raises(ConfigError, match=file):
        report(folder)


def test_a_configuration_without_a_server_is_no_fault(folder):
    (folder / "config.yaml").write_text("env: hello\n")
    assert "shed_hopeless: None" in report(folder).page.read_text()
