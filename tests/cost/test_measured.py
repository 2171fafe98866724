"""Reading tables of measured steps."""

from __future__ import annotations

import numpy as np
import pytest

from sched_env.cost.measured import (
    COLUMNS,
    choose_group,
    group_name,
    group_parts,
    read_measured_steps,
)
from sched_env.errors import ConfigError, UnknownNameError
from tests.cost.made_steps import GROUP, made_steps, write_steps

HEADER = ",".join(COLUMNS)


def test_a_table_is_read_back(tmp_path) -> None:
    steps = made_steps()
    read = read_measured_steps(write_steps(tmp_path / "t.csv", steps))[GROUP]
    for name in ("n_decode", "ctx", "prefill_tokens", "prefill_past", "ms"):
        assert np.array_equal(getattr(read, name), getattr(steps, name))
    assert read.sources == ("made",)
    assert not read.has_engine_time
    assert set(read.phases) == {"decode", "prefill", "mixed"}


def test_measured_rows_hold_the_engines_time(tmp_path) -> None:
    path = write_steps(tmp_path / "t.csv", made_steps(), kind="measured_step")
    assert read_measured_steps(path)[GROUP].has_engine_time


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("H100-SXM", "Llama-3.1-8B", 1, "bf16"), "h100-sxm/llama-3.1-8b"),
        (("RTX PRO_6000", "M", 4, "fp8"), "rtx-pro-6000/m/tp4/fp8"),
    ],
)
def test_groups_are_named_like_presets(parts, name) -> None:
    assert group_name(*parts) == name
    assert group_parts(name)[2:] == parts[2:]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 'gpu' is missing"),
        ("gpu,model,tp,precision,n_decod,ctx,prefill_tokens,prefill_past,ms\n", "'n_decod'"),
        (HEADER + ",ms\n", "'ms' occurs twice"),
        (HEADER + "\n", "no row of measured times"),
        (HEADER + "\ng,m,1,bf16,1,2\n", "line 2: 6 fields where 9"),
        (HEADER + "\ng,m,1,bf16,x,2,0,0,1\n", "line 2, column n_decode: 'x'"),
        (HEADER + "\ng,m,1,bf16,1,nan,0,0,1\n", "column ctx: 'nan'"),
        (HEADER + "\ng,m,1,bf16,1,2,0,0,0\n", "column ms: 0"),
        (HEADER + "\ng,m,1,bf16,0,2,0,0,1\n", "neither n_decode nor prefill_tokens"),
        (HEADER + "\ng,m,1.5,bf16,1,2,0,0,1\n", "column tp: '1.5'"),
        (HEADER + "\ng,,1,bf16,1,2,0,0,1\n", "column model: empty"),
        (HEADER + '\ng,"m,1,bf16,1,2,0,0,1\n', "not a CSV file"),
    ],
)
def test_faults_name_the_place(tmp_path, text, message) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        read_measured_steps(path)
    assert "t.csv" in str(caught.value)


def test_a_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"none\.csv cannot be read"):
        read_measured_steps(tmp_path / "none.csv")


def test_a_group_has_to_be_chosen_among_several(tmp_path) -> None:
    groups = {"a/b": made_steps(), "c/d": made_steps()}
    with pytest.raises(ConfigError, match=r"2 groups.*a/b, c/d"):
        choose_group(groups, None, "t.csv")
    with pytest.raises(UnknownNameError, match="Did you mean 'c/d'"):
        choose_group(groups, "c/e", "t.csv")
    assert choose_group({"a/b": groups["a/b"]}, None, "t.csv") is groups["a/b"]
