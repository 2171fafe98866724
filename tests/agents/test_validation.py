from __future__ import annotations

from pathlib import Path

from sched_env.agents.validation import SplitSimulation
from sched_env.config import ExperimentConfig


def test_a_trace_may_use_the_names_of_the_experiments_own_service_classes(tmp_path: Path) -> None:
    trace = tmp_path / "own.csv"
    rows = [f"{second},100,5,{'gold' if second % 2 else 'tin'}" for second in range(40)]
    header = "arrival_time_s,prompt_tokens,output_tokens,service_class"
    trace.write_text("\n".join([header, *rows]) + "\n")
    classes = [
        {"name": name, "share": 0.5, "weight": 1.0, "ttft_slo_s": 1.0, "tpot_slo_s": 0.1}
        for name in ("gold", "tin")
    ]
    experiment = ExperimentConfig.from_mapping(
        {
            "name": "own",
            "env": {"trace": str(trace), "service": {"classes": classes}},
            "comparison": {"loads": [1.0]},
            "agent": {"validation_seeds": 1},
        }
    )
    (row,) = SplitSimulation(experiment, "all").rows("fcfs")
    assert (row["num_injected_gold"], row["num_injected_tin"]) == (20, 20)
