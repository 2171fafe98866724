"""Step-time models of every kind."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sched_env.config.cost import EngineOverhead, ProfileCost, RooflineCost, TableCost
from sched_env.config.env import EnvConfig
from sched_env.config.hardware import GpuSpec, ModelSpec
from sched_env.cost.errors_by_phase import errors_by_phase, held_out_rows, hold_out
from sched_env.cost.fit import fit_cost, fitted_ms, spec_sheet_roofline
from sched_env.cost.measured import DECODE, MIXED, PREFILL, read_measured_steps
from sched_env.cost.models import cost_record, engine_overhead
from sched_env.cost.predict import kernel_ms
from sched_env.cost.presets import preset_names
from sched_env.cost.profile import Profile, read_profile, write_profile
from sched_env.cost.selection import chosen_cost
from sched_env.cost.step_time import step_time_s
from sched_env.errors import ConfigError, UnknownNameError
from tests.cost.made_steps import GROUP, made_steps, write_steps

TINY_GPU = GpuSpec(memory_bytes=10**9, bandwidth_gb_s=100.0, bf16_tflops=1.0)
TINY_MODEL = ModelSpec(
    num_layers=2, hidden_size=64, intermediate_size=128, num_attention_heads=4, num_kv_heads=2,
    head_size=16, vocab_size=1000,
)  # fmt: skip


def _step_s(config, *sizes) -> float:
    return step_time_s(cost_record(config).view(np.recarray)[0], *sizes)


def test_a_roofline_is_bytes_over_bandwidth_or_operations_over_flops() -> None:
    config = RooflineCost(
        gpu=TINY_GPU, model=TINY_MODEL, bandwidth_efficiency=0.5, compute_efficiency=0.25,
        engine_overhead=EngineOverhead(per_step_ms=1.0, per_seq_ms=0.5),
    )  # fmt: skip
    layers = 2 * (64 * 16 * 12 + 3 * 64 * 128)
    weight_bytes = 2 * (layers + 5 * 64 + 1000 * 64)
    weights_s, token_s = weight_bytes / 50e9, 2 * layers / 0.25e12
    kv_s = 2 * 2 * 2 * 16 * 2 / 50e9
    overhead_s = 0.001 + 3 * 0.0005
    decode_s = overhead_s + weights_s + 300 * kv_s
    assert _step_s(config, 3, 300, 0, 0.0, 3) == pytest.approx(decode_s)
    attention_s = 4 * 2 * 4 * 16 * 1e6 / 0.25e12
    new_tokens = 1003
    assert new_tokens * token_s > weights_s
    mixed_s = overhead_s + new_tokens * token_s + 300 * kv_s + attention_s
    assert _step_s(config, 3, 300, 1000, 1e6, 3) == pytest.approx(mixed_s)
    many_s = 0.001 + 500 * 0.0005 + 500 * token_s
    assert _step_s(config, 500, 0, 0, 0.0, 500) == pytest.approx(many_s)


def test_two_gpus_halve_a_roofline() -> None:
    one = RooflineCost(gpu="h100-sxm", model="llama-3.1-8b")
    two = one.replace(tp=2)
    sizes = (8, 4000, 512, 5e5, 9)
    no_overhead = {"engine_overhead": EngineOverhead(per_step_ms=0.0, per_seq_ms=0.0)}
    halved = _step_s(one.replace(**no_overhead), *sizes) / 2
    assert _step_s(two.replace(**no_overhead), *sizes) == pytest.approx(halved)


def test_a_roofline_of_an_unknown_gpu_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'h100-sxm'"):
        cost_record(RooflineCost(gpu="h100", model="llama-3.1-8b"))
    with pytest.raises(ConfigError, match="fp8"):
        cost_record(RooflineCost(gpu="a100-sxm-80g", model="llama-3.1-8b", precision="fp8"))
    with pytest.raises(ConfigError, match="no spec sheet of GPU 'toy-gpu'"):
        fit_cost(made_steps(), "roofline")


@pytest.mark.parametrize("model", ["table", "two_regime", "affine"])
def test_every_fit_is_a_configuration_of_its_own_kind(model, tmp_path) -> None:
    steps = made_steps()
    profile = Profile(group=GROUP, cost=fit_cost(steps, model), provenance={"by": "hand"})
    write_profile(tmp_path / "p", profile, steps)
    config = EnvConfig(cost={"kind": "profile", "path": str(tmp_path / "p")}).cost
    assert kernel_ms(cost_record(config), steps) == pytest.approx(
        fitted_ms(steps, model, steps), rel=1e-9
    )
    assert read_profile(tmp_path / "p").provenance == {"by": "hand"}
    assert EnvConfig(cost=str(tmp_path / "p")).cost == config
    assert EnvConfig(cost=str(tmp_path / "p" / "profile.json")).cost.kind == "profile"


def test_the_overhead_is_that_of_the_gpu_of_the_profile_or_given(tmp_path) -> None:
    path = str(write_steps(tmp_path / "t.csv", made_steps()))
    assert engine_overhead(TableCost(path=path)).per_step_ms == 0.68
    given = EngineOverhead(per_step_ms=2.0, per_seq_ms=0.0)
    assert engine_overhead(TableCost(path=path, engine_overhead=given)) == given
    write_steps(tmp_path / "m.csv", made_steps(), kind="measured_itl")
    assert engine_overhead(TableCost(path=str(tmp_path / "m.csv"))).per_step_ms == 0.0
    profile = Profile(group=GROUP, cost=fit_cost(made_steps(), "two_regime"))
    write_profile(tmp_path / "p", profile.replace(
        cost=profile.cost.replace(engine_overhead=given)), made_steps())  # fmt: skip
    assert engine_overhead(ProfileCost(path=str(tmp_path / "p"))) == given
    other = EngineOverhead(per_step_ms=0.1, per_seq_ms=0.2)
    own = ProfileCost(path=str(tmp_path / "p"), engine_overhead=other)
    assert engine_overhead(own) == other
    assert cost_record(own)["overhead_per_step_s"][0] == 0.1e-3


def test_a_folder_of_measured_steps_alone_is_a_profile(tmp_path) -> None:
    write_steps(tmp_path / "steps.csv", made_steps(), kind="measured_step")
    (tmp_path / "profile.json").write_text(json.dumps({"device": "toy"}))
    profile = read_profile(tmp_path)
    assert (profile.group, profile.provenance) == (GROUP, {"device": "toy"})
    steps = made_steps()
    assert kernel_ms(cost_record(ProfileCost(path=str(tmp_path))), steps) == pytest.approx(steps.ms)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"format": 2, "group": "g", "cost": {"kind": "affine"}}', "format: 2 is not allowed"),
        ('{"group": "g", "cost": {"kind": "profile", "path": "x"}}', "cost.kind: 'profile'"),
        ('{"group": "g", "cost": {"kind": "two_regime"}}', "either preset or parameters"),
    ],
)
def test_a_damaged_profile_is_named(text, message, tmp_path) -> None:
    (tmp_path / "profile.json").write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        read_profile(tmp_path)
    assert "profile.json" in str(caught.value)


def test_a_missing_profile_is_named(tmp_path) -> None:
    with pytest.raises(ConfigError, match="no profile there"):
        read_profile(tmp_path / "none")


def test_a_text_chooses_preset_table_or_profile(tmp_path) -> None:
    path = write_steps(tmp_path / "t.csv", made_steps())
    assert chosen_cost("h100-sxm/llama-3.1-8b").preset == "h100-sxm/llama-3.1-8b"
    chosen = chosen_cost(str(path), group=GROUP, per_step_ms=1.5)
    assert (chosen.kind, chosen.group) == ("table", GROUP)
    assert (chosen.engine_overhead.per_step_ms, chosen.engine_overhead.per_seq_ms) == (1.5, 0.016)
    with pytest.raises(ConfigError, match="no table of measured steps"):
        chosen_cost("h100-sxm/llama-3.1-8b", group="g")
    with pytest.raises(UnknownNameError, match="step-time preset"):
        chosen_cost("h100/llama")


def test_errors_are_counted_by_phase() -> None:
    steps = made_steps()
    off = steps.ms * np.where(steps.phases == DECODE, 1.1, 0.95)
    errors = errors_by_phase(steps, off)
    assert errors[DECODE].mape_pct == pytest.approx(10.0)
    assert errors[MIXED].p95_pct == pytest.approx(5.0)
    assert errors[MIXED].median_ratio == pytest.approx(0.95)
    assert sum(one.num_steps for one in errors.values()) == len(steps)


def test_a_quarter_of_each_phase_is_held_out_by_seed() -> None:
    steps = made_steps()
    held = held_out_rows(steps, 7)
    assert np.array_equal(held, held_out_rows(steps, 7))
    assert not np.array_equal(held, held_out_rows(steps, 8))
    for phase in (DECODE, PREFILL, MIXED):
        rows = steps.phases == phase
        assert np.count_nonzero(held & rows) == np.count_nonzero(rows) // 4
    seen = []
    hold_out(steps, lambda train, test: seen.append((len(train), len(test))) or test.ms, 7)
    assert seen == [(np.count_nonzero(~held), np.count_nonzero(held))]


# What the constants' source says of these tables: worst pair in bf16, decode, prefill, mixed [%].
_STATED = {DECODE: 3.6, PREFILL: 5.9, MIXED: 5.5}
_FILES = ("steps_aic.csv", "steps_llmservingsim.csv")


@pytest.mark.parametrize("name", _FILES)
def test_presets_meet_the_shared_tables(name, shared_dir) -> None:
    groups = read_measured_steps(shared_dir / "timings" / name)
    assert set(groups) <= set(preset_names())
    for group, steps in groups.items():
        config = EnvConfig(cost=group).cost
        for phase, error in errors_by_phase(steps, kernel_ms(cost_record(config), steps)).items():
            limit = 22.0 if group.endswith("fp8") else _STATED[phase]
            assert error.mape_pct < limit, (group, phase)


def test_fits_meet_their_targets_on_held_out_steps(shared_dir) -> None:
    groups = read_measured_steps(shared_dir / "timings" / "steps_aic.csv")
    groups |= read_measured_steps(shared_dir / "timings" / "steps_llmservingsim.csv")
    targets = {DECODE: 3.0, PREFILL: 5.0, MIXED: 5.0}
    for group in ("h100-sxm/llama-3.1-8b", "rtx-pro-6000/qwen3-32b", "h100-sxm/llama-3.1-8b/fp8"):
        table = hold_out(groups[group], lambda a, b: fitted_ms(a, "table", b), 0)
        for phase, error in table.errors.items():
            assert error.mape_pct < targets[phase], (group, phase)
    formula = hold_out(
        groups["h100-sxm/llama-3.1-8b"], lambda a, b: fitted_ms(a, "two_regime", b), 0
    )
    for phase, error in formula.errors.items():
        assert error.mape_pct < targets[phase], phase


def test_rooflines_are_as_far_off_as_they_say(shared_dir) -> None:
    for name in _FILES:
        for group, steps in read_measured_steps(shared_dir / "timings" / name).items():
            if group.endswith("fp8"):
                continue
            predicted = kernel_ms(cost_record(spec_sheet_roofline(group)), steps)
            for phase, error in errors_by_phase(steps, predicted).items():
                assert error.mape_pct < 28.0, (group, phase)


def test_a_fitted_roofline_is_closer_than_the_spec_sheet(shared_dir) -> None:
    path = shared_dir / "timings" / "steps_llmservingsim.csv"
    steps = read_measured_steps(path)["rtx-pro-6000/llama-3.1-8b"]
    fitted = errors_by_phase(steps, fitted_ms(steps, "roofline", steps))
    usual = errors_by_phase(steps, kernel_ms(cost_record(spec_sheet_roofline(steps.group)), steps))
    assert sum(e.mape_pct for e in fitted.values()) < sum(e.mape_pct for e in usual.values())
