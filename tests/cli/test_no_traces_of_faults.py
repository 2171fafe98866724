"""A fault of the user's input is told before any folder is made, by every verb that makes one."""

from __future__ import annotations

from pathlib import Path

import pytest

from sched_env.cli.main import main

HEADER = "arrival_time_s,prompt_tokens,output_tokens\n"
FILES = {
    "broken.csv": HEADER + "0,ten,5\n",
    "at_once.csv": HEADER + "0,10,5\n0,10,5\n",
    "too_large.csv": HEADER + "0,9000000,5\n1,9000000,5\n",
    "long.csv": HEADER + "0,10,5\n1,10,2147483637\n",
    "two.csv": HEADER + "0,10,5\n10,10,5\n",
}
FILES["crowd.csv"] = HEADER + "".join(
    f"{arrival_s},10,5\n" for arrival_s in (*range(60), 65, 65, 65, *range(70, 101))
)
SIMULATE = ("simulate", "--split", "all", "--load", "1")
EVALUATE = ("evaluate", "--policies", "fcfs", "--split", "all", "--load", "own,1")
ARENA = ("arena", "standard", "policies=[fcfs]")
TRAIN = ("train", "experiment/demo")
TUNE = ("tune", "experiment/azure_conv")
SIZES = ("--num-blocks", "9", "--max-num-seqs", "9", "--max-num-batched-tokens", "9")
REPLAY = ("replay", "two.csv", *SIZES)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ((*SIMULATE, "--load", "1e9"), "load 1e+09 is not possible"),
        ((*SIMULATE, "--seed", "-1"), "seed -1"),
        ((*SIMULATE, "observation.privileged=true"), "observation.privileged"),
        ((*SIMULATE, "observation.num_waiting_slots=3"), "would change nothing here: a policy is"),
        ((*SIMULATE, "scheduler.policy=priority"), "would change nothing here: the policy that is"),
        ((*EVALUATE, "scheduler={policy: priority}"), "would change nothing here: the policy"),
        ((*ARENA, "env.scheduler.policy=priority"), "would change nothing here: the policy that"),
        ((*ARENA, "env.scheduler.num_blocks=9"), "would change nothing here: give kv_pools.LABEL"),
        ((*SIMULATE, "scheduler.watermark=1.5"), "scheduler.watermark: 1.5"),
        ((*SIMULATE, "--trace", "at_once.csv"), "at_once.csv: all requests arrive at one time"),
        ((*SIMULATE, "--trace", "at_once.csv", "--split", "test"), "there is no test part by time"),
        ((*SIMULATE, "--trace", "too_large.csv"), "no prompt fits this server"),
        ((*SIMULATE, "service.classes.9.weight=2"), "'9' is no entry of a list of 3"),
        ((*SIMULATE, "service.classes.-1.weight=2"), "'-1' is no entry of a list of 3"),
        ((*EVALUATE, "--load", "-1"), "load -1 is not possible"),
        ((*EVALUATE, "episode.load.low=2.0"), "would change nothing here: whole traces are run"),
        ((*EVALUATE, "--trace", "broken.csv"), "broken.csv, line 2"),
        ((*EVALUATE, "--trace", "two.csv,at_once.csv"), "at_once.csv: all requests"),
        ((*EVALUATE, "--trace", "too_large.csv"), "no prompt fits this server"),
        ((*EVALUATE, "--trace", "two.csv", "--split", "test"), "two.csv: all requests"),
        ((*ARENA, "traces.mine=missing.csv"), "no file 'missing.csv'"),
        ((*ARENA, "traces.mine=broken.csv"), "broken.csv, line 2"),
        ((*ARENA, "traces.mine=at_once.csv"), "at_once.csv: all requests"),
        ((*ARENA, "name=../../escaped"), "'../../escaped' is not allowed as a name"),
        ((*ARENA, "kv_pools.tiny=1"), "no prompt fits this server"),
        ((*ARENA, "slo_factors.tight=1e308"), "slo_factors.tight: 1e+308 is not allowed"),
        ((*ARENA, "ceilings.bin_s=1e-6"), "azure_conv: the fluid bound would take"),
        ((*ARENA, "traces.mine=long.csv", "split=all"), "mine: the fluid bound would take"),
        ((*ARENA, "--workers", "-2"), "-2 workers are not possible"),
        ((*TRAIN, "--trace", "two.csv"), "no request arrives in the validation part"),
        (
            (*TRAIN, "--trace", "crowd.csv"),
            "crowd.csv: 3 requests, all at one time, in the validat",
        ),
        ((*TRAIN, "--trace", "too_large.csv"), "no prompt fits this server"),
        ((*TRAIN, "agent.num_envs=100000000"), "GiB of memory"),
        ((*TRAIN, "total_decisions=1"), "total_decisions: 1"),
        ((*TRAIN, "cloning.hidden_size=64"), "would change nothing here: cloning.pieces is 0"),
        (
            (*TRAIN, "cloning={pieces: 0, hidden_size: 64}"),
            "would change nothing here: cloning.pieces is",
        ),
        ((*TRAIN, "tuning.population=9"), "would change nothing here: no search and no cloning"),
        ((*TRAIN, "polish_step_size=0.1"), "would change nothing here: nothing is polished"),
        ((*TUNE, "seed=3"), "would change nothing here: give --seed"),
        (
            (*TUNE, "env.observation.num_waiting_slots=4", "--start", "pretrained/tuned_linear"),
            "would change nothing here: the policy of --start is shown what it was",
        ),
        (
            (
                "tune",
                "h100_8b_small_kv",
                "observation.screen=fcfs",
                "--start",
                "pretrained/azure2023",
            ),
            "would change nothing here: the policy of --start is shown what it was",
        ),
        ((*TUNE, "--trace", "missing.csv"), "no file 'missing.csv'"),
        ((*TUNE, "--trace", "broken.csv"), "broken.csv, line 2"),
        ((*TUNE, "--trace", "two.csv"), "two.csv: one request in the train part"),
        ((*TUNE, "--trace", "crowd.csv"), "crowd.csv: 3 requests, all at one time, in the validat"),
        (("profile", "fit", "two.csv"), "two.csv"),
        ((*REPLAY, "--cost", "h100-sxm/llama-3.1-8b"), "column 'request' is missing"),
    ],
)
def test_nothing_is_left(
    command: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if command[0] == "train":
        pytest.importorskip("sb3_contrib")
    if command[0] == "tune":
        pytest.importorskip("cmaes")
    if command[0] == "arena":
        pytest.importorskip("scipy")
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)
    option = "--run-dir" if command[0] == "train" else "--out"
    assert main([*command, option, "deep/out"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)
