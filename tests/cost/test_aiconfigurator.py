"""Tables from aiconfigurator: composed as the package composes its steps."""

from __future__ import annotations

import pytest

from sched_env.cost import aiconfigurator
from sched_env.cost.errors_by_phase import errors_by_phase
from sched_env.cost.measured import read_measured_steps
from sched_env.cost.models import table_cost
from sched_env.cost.predict import kernel_ms
from sched_env.errors import ConfigError


class FakeEngine:
    """The calls of ``EngineHandle`` that are used, with round answers in ms."""

    def decode_step_latency(self, n, context, outputs):
        return 5.0 + 0.01 * n + 1e-5 * n * context

    def predict_prefill_latency(self, batch, length, past):
        return 1.0 + 0.02 * (length - past) + 1e-6 * length * (length - past)

    def mixed_step_breakdown(self, chunk, n, length, outputs):
        return (-1.0, 1.0 + 0.02 * (chunk + n), -1.0, -1.0)

    def run_static_per_op(self, *, batch_size, isl, osl, prefix, mode):
        ops = [("context_gemm", 9.0, 0.0, ""), ("context_attention", 1e-6 * isl, 0.0, "")]
        return ops, []

    def decode_step_per_op(self, n, context, outputs):
        return [("generation_gemm", 9.0, 0.0, ""), ("generation_attention", 1e-5 * n, 0.0, "")]


def test_steps_are_composed_of_the_packages_parts(monkeypatch) -> None:
    monkeypatch.setattr(aiconfigurator, "_known_system", lambda gpu: "h100_sxm")
    monkeypatch.setattr(aiconfigurator, "_known_model", lambda model: "org/Meta-Llama-3.1-8B")
    monkeypatch.setattr(aiconfigurator, "package_version", lambda: "0.0")
    monkeypatch.setattr(aiconfigurator, "_engine", lambda *_: FakeEngine())
    steps = aiconfigurator.aiconfigurator_steps("h100-sxm", "llama-3.1-8b", tp=2, precision="fp8")
    assert steps.group == "h100-sxm/llama-3.1-8b/tp2/fp8"
    assert steps.sources == ("aiconfigurator-core 0.0 h100_sxm org/Meta-Llama-3.1-8B",)
    mixed = (steps.n_decode == 32) & (steps.prefill_tokens == 256) & (steps.prefill_past == 1024)
    assert mixed.any()
    wanted = 1.0 + 0.02 * 288 + 1e-6 * 1280 + 1e-5 * 32
    assert steps.ms[mixed] == pytest.approx(wanted)
    assert (steps.n_decode * steps.ctx).max() <= 2**20
    assert not steps.has_engine_time


def test_other_kinds_of_attention_are_refused() -> None:
    with pytest.raises(ConfigError, match="other kinds of attention"):
        aiconfigurator._attention_ms([("context_mla", 1.0, 0.0, "")])


def test_the_package_gives_the_shared_table(shared_dir) -> None:
    pytest.importorskip("aiconfigurator_core", reason="needs the extra profiles")
    made = aiconfigurator.aiconfigurator_steps("h100-sxm", "llama-3.1-8b")
    shared = read_measured_steps(shared_dir / "timings" / "steps_aic.csv")[made.group]
    errors = errors_by_phase(shared, kernel_ms(table_cost(made, 0.25), shared))
    assert all(error.mape_pct < 0.5 for error in errors.values())


@pytest.mark.parametrize(
    ("gpu", "model", "message"),
    [
        ("h100-sx", "llama-3.1-8b", "Did you mean 'h100_sxm'"),
        ("h100-sxm", "llama-3.1-9b", r"nearest of its \d+: meta-llama/Meta-Llama-3\.1-8B"),
        ("l4", "llama-3.1-8b", "no vllm data of .* on l4"),
    ],
)
def test_an_unknown_pair_is_told_the_nearest(gpu, model, message) -> None:
    pytest.importorskip("aiconfigurator_core", reason="needs the extra profiles")
    with pytest.raises(ConfigError, match=message):
        aiconfigurator.aiconfigurator_steps(gpu, model)
