"""How long one iteration takes: which step-time model, and its constants."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, cast

import pydantic

from sched_env.config.hardware import GpuSpec, ModelSpec, Precision
from sched_env.config.model import ConfigModel, Count, NonNegative, Positive, Seed, Share, Text


def _check_takes_time(parts: Iterable[float], what: str) -> None:
    if not any(parts):
        raise ValueError(f"a step that takes no time never ends; make one of {what} above 0")


class EngineOverhead(ConfigModel):
    """Time per iteration that the engine spends beside the kernels."""

    per_step_ms: NonNegative
    """Once per iteration [ms]."""

    per_seq_ms: NonNegative
    """For each sequence of the batch [ms]."""


class DecodeRegime(ConfigModel):
    """Step time without any prefill: a + b n + d max(S - S0, 0)."""

    a: NonNegative
    """Constant part [ms]."""

    b: NonNegative
    """For each decoding sequence n [ms]."""

    d: NonNegative
    """For each token of context S beyond S0 [ms]."""

    S0: NonNegative = 0.0
    """Context tokens that cost nothing [tokens]."""


class MixedRegime(ConfigModel):
    """Step time with prefill, in ms, for T new tokens in chunks c on past cached ones.

    o + g (Tk^p + T^p)^(1/p) + b n + d S + e sum max(c, p0) (past + c/2)
    """

    o: NonNegative
    """Constant part [ms]."""

    g: NonNegative
    """For each new token [ms]."""

    Tk: NonNegative
    """New tokens below which the step does not get shorter [tokens]."""

    p: Positive
    """Sharpness of that corner; 99 or more means the larger of the two."""

    tile: Positive = 1.0
    """New tokens are rounded up to a multiple of this [tokens]."""

    p0: NonNegative = 1.0
    """A prefill chunk counts as at least this long in attention [tokens]."""

    b: NonNegative
    """For each decoding sequence [ms]."""

    d: NonNegative
    """For each token of decoding context [ms]."""

    e: NonNegative
    """For each pair of a new token and a token it attends to [ms]."""


class TwoRegimeParameters(ConfigModel):
    """Constants of the two-regime model, written as in the presets."""

    dec: DecodeRegime
    """Iterations that only decode."""

    mix: MixedRegime
    """Iterations with prefill in them."""

    @pydantic.model_validator(mode="after")
    def _check_positive(self) -> Self:
        decode, mixed = self.dec, self.mix
        parts = (decode.a, decode.b, decode.d, mixed.o, mixed.g, mixed.b, mixed.d, mixed.e)
        _check_takes_time(parts, "dec.a, dec.b, dec.d, mix.o, mix.g, mix.b, mix.d and mix.e")
        return self


class TwoRegimeCost(ConfigModel):
    """One formula for iterations that only decode, another for those with prefill."""

    config_kind: ClassVar[str | None] = "cost"

    kind: Literal["two_regime"] = "two_regime"
    """The two-regime model."""

    preset: Text | None = None
    """Fitted constants by gpu/model[/tpN][/fp8], such as h100-sxm/llama-3.1-8b."""

    parameters: TwoRegimeParameters | None = None
    """Constants of one's own, instead of a preset."""

    engine_overhead: EngineOverhead | None = None
    """Engine's own time per iteration; null: the measured value that goes with the preset."""

    @pydantic.model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.preset is None) == (self.parameters is None):
            raise ValueError("give either preset or parameters, and not both")
        return self


class AffineCost(ConfigModel):
    """A straight line: easy to reason about by hand, and not close to a real GPU."""

    config_kind: ClassVar[str | None] = "cost"

    kind: Literal["affine"] = "affine"
    """The affine model."""

    base_s: NonNegative
    """Once per iteration [s]."""

    per_decode_s: NonNegative
    """For each decoding sequence [s]."""

    per_prefill_token_s: NonNegative
    """For each prefill token [s]."""

    engine_overhead: EngineOverhead | None = None
    """Engine's own time per iteration; null: none beside the three above."""

    @pydantic.model_validator(mode="after")
    def _check_positive(self) -> Self:
        parts = (self.base_s, self.per_decode_s, self.per_prefill_token_s)
        _check_takes_time(parts, "the three")
        return self


class TableCost(ConfigModel):
    """Measured steps, interpolated: exact at each of them."""

    config_kind: ClassVar[str | None] = "cost"

    kind: Literal["table"] = "table"
    """The measured table."""

    path: Text
    """CSV file of measured steps; docs/step_times.md lists its columns."""

    group: Text | None = None
    """Which gpu/model[/tpN][/precision] of the file; null where it holds a single one."""

    margin: NonNegative = 0.25
    """How far beyond the largest measured value of an axis a step may lie, as a share of it."""

    beyond: Literal["refuse", "count"] = "refuse"
    """Where the server's limits allow steps beyond that: refuse to start, or count such steps."""

    engine_overhead: EngineOverhead | None = None
    """Engine's own time per iteration; null: the GPU's measured one, 0 where ms holds it."""


class RooflineCost(ConfigModel):
    """Bytes over bandwidth or operations over FLOP/s, whichever takes longer.

    Within about 21 % in bf16, 45 % in FP8.
    """

    config_kind: ClassVar[str | None] = "cost"

    kind: Literal["roofline"] = "roofline"
    """The roofline of a spec sheet."""

    gpu: Text | GpuSpec
    """A GPU by name, such as h100-sxm, or its spec sheet."""

    model: Text | ModelSpec
    """A model by name, such as llama-3.1-8b, or its shape."""

    tp: Count = 1
    """GPUs that share the model (tensor parallel); their communication is not counted."""

    precision: Precision = "bf16"
    """Weights and matrix products."""

    kv_cache_precision: Precision = "bf16"
    """Keys and values in the cache."""

    bandwidth_efficiency: Share = 0.65
    """Part of the memory bandwidth that kernels reach."""

    compute_efficiency: Share = 0.6
    """Part of the FLOP/s that kernels reach."""

    engine_overhead: EngineOverhead | None = None
    """Engine's own time per iteration; null: the measured value of the GPU, or the pooled one."""


class ProfileCost(ConfigModel):
    """A profile: step times of one device, measured or fitted, and where they come from."""

    config_kind: ClassVar[str | None] = "cost"

    kind: Literal["profile"] = "profile"
    """A profile that `sched-env profile` wrote."""

    path: Text
    """Folder of the profile, or its profile.json."""

    engine_overhead: EngineOverhead | None = None
    """Engine's own time per iteration; null: what the profile says."""


def _name_the_kind(value: Any) -> Any:
    """Read a bare text as a preset or a path, and a mapping without a kind as the default kind."""
    if isinstance(value, str):
        if value.endswith(".csv"):
            return {"kind": "table", "path": value}
        if value.endswith(".json") or os.path.isfile(os.path.join(value, PROFILE_FILE)):
            return {"kind": "profile", "path": value}
        return {"kind": "two_regime", "preset": value}
    if not isinstance(value, Mapping):
        return value
    return {"kind": "two_regime", **cast("Mapping[str, Any]", value)}


CostConfig = Annotated[
    TwoRegimeCost | AffineCost | TableCost | RooflineCost | ProfileCost,
    pydantic.Field(discriminator="kind"),
    pydantic.BeforeValidator(_name_the_kind),
]
"""Any step-time model, told apart by ``kind``."""


class LiveCost(ConfigModel):
    """No model: batches run on a real decoder, and the time that each takes is measured."""

    config_kind: ClassVar[str | None] = "cost"

    kind: Literal["live"] = "live"
    """The measured clock."""

    model: Text = "toy"
    """Shape of the decoder: toy, llama-1b, llama-3b or llama-8b."""

    device: Text = "cpu"
    """cpu, cuda or cuda:N."""

    seed: Seed = 0
    """Seed of the weights and of the prompts' tokens."""

    clock: Literal["wall", "cpu_time"] = "wall"
    """On a CPU: the time that passed, or what this process computed (busy machine, one thread)."""

    estimate: CostConfig | None = None
    """Step times where they must be known beforehand: SLOs, observation, load; null: measured."""


ServerCost = Annotated[
    TwoRegimeCost | AffineCost | TableCost | RooflineCost | ProfileCost | LiveCost,
    pydantic.Field(discriminator="kind"),
    pydantic.BeforeValidator(_name_the_kind),
]
"""What moves a server's clock: a step-time model or a measured clock, told apart by ``kind``."""

PROFILE_FILE = "profile.json"
"""The file in a profile folder that says what the profile is."""

DEFAULT_PRESET = "h100-sxm/llama-3.1-8b"
