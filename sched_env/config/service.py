"""What the clients of the server expect: service classes, deadlines and length predictions."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import pydantic

from sched_env.config.model import (
    ConfigModel,
    Flag,
    Fraction,
    NonNegative,
    Positive,
    SloFactor,
    Text,
)

_SHARE_TOLERANCE = 1e-6

_Slo = Annotated[Positive, pydantic.Field(le=1e9)]
"""A time allowed [s]; the most is 30 years."""


class ServiceClass(ConfigModel):
    """One kind of client, with its weight and its service level objectives (SLO)."""

    name: Text
    """What reports call the class."""

    share: Fraction
    """Part of the requests that belong to the class, where the trace itself does not say."""

    weight: Positive
    """Worth of one met request in goodput_weighted."""

    ttft_slo_s: _Slo
    """Time to first token allowed, before jitter and the lone prefill time come in [s]."""

    tpot_slo_s: _Slo
    """Mean time per output token allowed [s]."""


DEFAULT_SERVICE_CLASSES = (
    ServiceClass(name="interactive", share=0.3, weight=4.0, ttft_slo_s=0.8, tpot_slo_s=0.05),
    ServiceClass(name="standard", share=0.5, weight=2.0, ttft_slo_s=2.5, tpot_slo_s=0.08),
    ServiceClass(name="batch", share=0.2, weight=1.0, ttft_slo_s=10.0, tpot_slo_s=0.15),
)


class LengthPrediction(ConfigModel):
    """What policies are told about a request's output length, which nobody knows beforehand."""

    kind: Literal["none", "noisy", "oracle"] = "noisy"
    """none: the traces' mean; noisy: the true length times a lognormal error; oracle: the truth. A
    prediction in the trace itself comes before all three."""

    sigma: NonNegative = 0.5
    """Standard deviation of the error's logarithm, for noisy."""


class ServiceConfig(ConfigModel):
    """Service classes and what the server does for all policies alike."""

    classes: tuple[ServiceClass, ...] = pydantic.Field(
        default=DEFAULT_SERVICE_CLASSES, min_length=1
    )
    """The service classes; their shares add up to 1."""

    slo_factor: SloFactor = 1.0
    """Every class's SLOs are multiplied by this; below 1 is tighter."""

    shed_hopeless: Flag = True
    """Reject a request that has no token yet and can no longer meet its TTFT deadline."""

    request_timeout_s: Positive | None = None
    """Give up a request this long after its arrival; null: never [s]."""

    length_prediction: LengthPrediction = LengthPrediction()
    """Predicted output lengths, drawn per seed."""

    @pydantic.field_validator("length_prediction", mode="before")
    @classmethod
    def _accept_bare_kind(cls, value: object) -> object:
        return {"kind": value} if isinstance(value, str) else value

    @pydantic.model_validator(mode="after")
    def _check_classes(self) -> Self:
        total = sum(one.share for one in self.classes)
        if abs(total - 1.0) > _SHARE_TOLERANCE:
            raise ValueError(
                f"the shares of the classes add up to {total:g}; make them add up to 1"
            )
        names = [one.name for one in self.classes]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ValueError(f"two classes are called {doubled[0]!r}; give each its own name")
        return self
