"""What an exported policy says about itself: the validated content of its ``config.json``."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import pydantic

from sched_env.config.env import Screen
from sched_env.config.faults import describe_faults
from sched_env.config.model import MOST_HIDDEN, MOST_SLOTS
from sched_env.errors import PolicyError
from sched_env.policy.linear_score import linear_tensor_shapes
from sched_env.policy.mlp import mlp_tensor_shapes
from sched_env.policy.normalisation import normalisation_tensor_shapes
from sched_env.policy.pointer import PointerShape, pointer_tensor_shapes
from sched_env.policy.prior import SCORE_PREFIX

ENV_ID = "sched_env/ContinuousBatching-v0"

_Size = Annotated[int, pydantic.Field(ge=1, le=MOST_SLOTS)]
_Text = Annotated[str, pydantic.Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$")]
Scalar = bool | int | float | str | None


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True
    )

    if not TYPE_CHECKING:  # type checkers derive the signature from the fields

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except pydantic.ValidationError as error:
                raise PolicyError(describe_faults(type(self), error)) from None

        # Nested parts are then validated by pydantic itself, which keeps the path to a fault.
        __init__.__pydantic_base_init__ = True


class FeatureCard(_Model):
    """One named number of an observation."""

    name: _Text
    unit: _Text
    """Unit of the number before scaling; "1" if it has none."""
    scale: _Text
    """How the number was scaled, as a formula in ``x``."""


class LayoutLike(Protocol):
    """What a policy needs to know of an environment's layout."""

    @property
    def num_waiting_slots(self) -> int:
        """Return K."""
        ...

    @property
    def num_running_slots(self) -> int:
        """Return J."""
        ...

    @property
    def prefill_levels(self) -> Sequence[float]:
        """Return the part of the token budget that prefill may take, by level."""
        ...

    @property
    def slot_features(self) -> Sequence[Any]:
        """Return the features of a slot, each with ``name``, ``unit`` and ``scale``."""
        ...

    @property
    def global_features(self) -> Sequence[Any]:
        """Return the global features, likewise."""
        ...


class ObservationSchema(_Model):
    """Order and meaning of the observation's columns and of the actions."""

    num_waiting_slots: _Size
    """Waiting slots K; one admit action each."""
    num_running_slots: _Size
    """Running slots J; one preempt action each."""
    prefill_levels: Annotated[
        tuple[Annotated[float, pydantic.Field(ge=0, le=1)], ...],
        pydantic.Field(min_length=1, max_length=64),
    ]
    """Part of the token budget that prefill may take; one proceed action each, the full last."""
    slot_features: Annotated[tuple[FeatureCard, ...], pydantic.Field(min_length=1, max_length=512)]
    """Features of a slot; the first is 1 where the slot holds a request, else 0."""
    global_features: Annotated[
        tuple[FeatureCard, ...], pydantic.Field(min_length=1, max_length=512)
    ]
    """Features of the whole server, after all slots."""

    @classmethod
    def from_layout(cls, layout: LayoutLike) -> ObservationSchema:
        """Describe the layout of an environment (``env.unwrapped.layout``)."""

        def cards(features: Sequence[Any]) -> tuple[FeatureCard, ...]:
            return tuple(FeatureCard(name=f.name, unit=f.unit, scale=f.scale) for f in features)

        return cls(
            num_waiting_slots=layout.num_waiting_slots,
            num_running_slots=layout.num_running_slots,
            prefill_levels=tuple(layout.prefill_levels),
            slot_features=cards(layout.slot_features),
            global_features=cards(layout.global_features),
        )

    @property
    def num_levels(self) -> int:
        """Return the number of prefill levels."""
        return len(self.prefill_levels)

    @property
    def num_slots(self) -> int:
        """Return the number of waiting and running slots together."""
        return self.num_waiting_slots + self.num_running_slots

    @property
    def observation_size(self) -> int:
        """Return the number of columns a policy reads; privileged columns are no part of it."""
        return self.num_slots * len(self.slot_features) + len(self.global_features)

    @property
    def num_actions(self) -> int:
        """Return the number of actions: proceed levels, admits, preempts."""
        return self.num_levels + self.num_slots

    def sha256(self) -> str:
        """Return the hash that two equal schemas share; `Layout.schema_hash` computes the same."""
        content = self.model_dump(mode="json")
        for part in ("slot_features", "global_features"):
            content[part] = [[f["name"], f["unit"], f["scale"]] for f in content[part]]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def difference(self, other: ObservationSchema) -> str | None:
        """Return the first way in which ``other`` differs, as "this X, there Y", or ``None``."""
        for size in ("num_waiting_slots", "num_running_slots", "prefill_levels"):
            if getattr(self, size) != getattr(other, size):
                return f"{size} is {getattr(self, size)} here and {getattr(other, size)} there"
        for kind in ("slot", "global"):
            mine, theirs = getattr(self, f"{kind}_features"), getattr(other, f"{kind}_features")
            for index in range(max(len(mine), len(theirs))):
                here = _describe(mine[index]) if index < len(mine) else "missing"
                there = _describe(theirs[index]) if index < len(theirs) else "missing"
                if here != there:
                    return f"{kind} feature {index} is {here} here and {there} there"
        return None


class PointerArchitecture(_Model):
    """The network of `sched_env.policy.pointer`."""

    kind: Literal["pointer"] = "pointer"
    hidden_size: Annotated[int, pydantic.Field(ge=1, le=MOST_HIDDEN)] = 32


class MlpArchitecture(_Model):
    """The network of `sched_env.policy.mlp`."""

    kind: Literal["mlp"] = "mlp"
    hidden_sizes: Annotated[tuple[_Size, ...], pydantic.Field(max_length=8)] = (64, 64)
    activation: Literal["relu", "tanh"] = "tanh"


class LinearScoreArchitecture(_Model):
    """The score of `sched_env.policy.linear_score`."""

    kind: Literal["linear_score"] = "linear_score"
    size_feature: _Text = "blocks_of_pool"
    """Name of the slot feature with a request's blocks over the pool."""
    free_feature: _Text = "ledger_kv"
    """Name of the global feature with the free blocks over the pool."""


class NoNormalisation(_Model):
    """The network reads the observation as it is."""

    kind: Literal["none"] = "none"


class StandardNormalisation(_Model):
    """Mean and standard deviation per feature; the numbers are tensors of the weights file."""

    kind: Literal["standard"] = "standard"
    clip: Annotated[float, pydantic.Field(gt=0, le=1e6)] = 10.0
    """Largest absolute value of a normalised feature."""


class NoPrior(_Model):
    """The logits are the network's alone."""

    kind: Literal["none"] = "none"


_Logit = Annotated[float, pydantic.Field(ge=-1e4, le=1e4)]


class WeightedSjfPrior(_Model):
    """Weighted shortest job first as a soft prior; the formulas are in `sched_env.policy.prior`."""

    kind: Literal["weighted_sjf"] = "weighted_sjf"
    score_feature: _Text = "density"
    """Name of the slot feature that is log(weight / work) / score_scale."""
    score_scale: _Logit = 5.0
    strength: _Logit = 1.5
    floor: _Logit = -8.0
    proceed_stop: _Logit = 2.0
    proceed_go: _Logit = -3.0
    lower_level: _Logit = -3.0
    hold_prefill: _Logit
    preempt_bias: _Logit = -3.0


class LinearScorePrior(_Model):
    """A softened linear score; the formulas are in `sched_env.policy.prior`."""

    kind: Literal["linear_score"] = "linear_score"
    strength: _Logit = 1.5
    floor: _Logit = -8.0
    size_feature: _Text = "blocks_of_pool"
    """Name of the slot feature with a request's blocks over the pool."""
    free_feature: _Text = "ledger_kv"
    """Name of the global feature with the free blocks over the pool."""


LAST_LAYER = frozenset(
    f"{action}.{part}" for action in ("admit", "preempt", "proceed") for part in ("weight", "bias")
)
"""Names of the tensors of a pointer network's last layer."""


def _versions() -> dict[str, str]:
    names = ("sched-env", "numpy", "numba", "safetensors")
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


class PolicyCard(_Model):
    """Everything about an exported policy but its weights."""

    name: _Text
    """Name under which results of this policy are reported."""
    env_id: Annotated[str, pydantic.Field(pattern=r"^[A-Za-z0-9_/]{1,80}-v[0-9]{1,4}$")] = ENV_ID
    """Environment that it was trained in; the number after ``-v`` is the environment's version."""
    observation: ObservationSchema
    screen: Screen = "weighted_sjf"
    """Which waiting requests it was shown first; wherever it runs, it is shown the same ones."""
    architecture: Annotated[
        PointerArchitecture | MlpArchitecture | LinearScoreArchitecture,
        pydantic.Field(discriminator="kind"),
    ]
    normalisation: Annotated[
        NoNormalisation | StandardNormalisation, pydantic.Field(discriminator="kind")
    ] = NoNormalisation()
    prior: Annotated[
        NoPrior | WeightedSjfPrior | LinearScorePrior, pydantic.Field(discriminator="kind")
    ] = NoPrior()
    training: dict[str, Scalar | tuple[Scalar, ...]] = {}
    """The run it comes from: name, seed, decisions, traces, loads."""
    metrics: tuple[dict[str, Scalar], ...] = ()
    """Rows of the results table in the model card, all with the same keys."""
    versions: dict[str, str] = pydantic.Field(default_factory=_versions)
    """Versions of the packages that it was exported with."""

    @pydantic.model_validator(mode="after")
    def _prior_names_a_feature(self) -> PolicyCard:
        names = [feature.name for feature in self.observation.slot_features]
        for kind in ("slot", "global"):
            features = [f.name for f in getattr(self.observation, f"{kind}_features")]
            if len(set(features)) < len(features):
                raise ValueError(f"two {kind} features have the same name; rename one")
        if self.prior.kind == "weighted_sjf" and self.prior.score_feature not in names:
            raise ValueError(
                f"prior.score_feature {self.prior.score_feature!r} is no slot feature; "
                f"use one of {', '.join(names)}"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _watermark_reads_features(self) -> PolicyCard:
        for owner in ("architecture", "prior"):
            score = getattr(self, owner)
            if score.kind != "linear_score":
                continue
            for part, kind in (("size", "slot"), ("free", "global")):
                known = [one.name for one in getattr(self.observation, f"{kind}_features")]
                named = getattr(score, f"{part}_feature")
                if named not in known:
                    raise ValueError(
                        f"{owner}.{part}_feature {named!r} is no {kind} feature; "
                        f"use one of {', '.join(known)}"
                    )
        return self

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of every tensor that the weights file must hold."""
        schema = self.observation
        num_features, num_globals = len(schema.slot_features), len(schema.global_features)
        if self.architecture.kind == "pointer":
            shapes = pointer_tensor_shapes(self.pointer_shape())
        elif self.architecture.kind == "linear_score":
            shapes = linear_tensor_shapes(num_features, num_globals, schema.num_levels)
        else:
            shapes = mlp_tensor_shapes(self.mlp_sizes())
        if self.normalisation.kind == "standard":
            shapes |= normalisation_tensor_shapes(num_features, num_globals)
        if self.prior.kind == "linear_score":
            tensors = linear_tensor_shapes(num_features, num_globals, schema.num_levels)
            shapes |= {SCORE_PREFIX + name: shape for name, shape in tensors.items()}
        return shapes

    def pointer_shape(self) -> PointerShape:
        """Return the sizes of the pointer network.

        Raises:
            PolicyError: If the architecture is another.
        """
        if self.architecture.kind != "pointer":
            raise PolicyError(f"architecture {self.architecture.kind!r} is no pointer network")
        schema = self.observation
        return PointerShape(
            schema.num_waiting_slots,
            schema.num_running_slots,
            len(schema.slot_features),
            len(schema.global_features),
            schema.num_levels,
            self.architecture.hidden_size,
        )

    def watermark_features(
        self, score: LinearScoreArchitecture | LinearScorePrior
    ) -> tuple[int, int]:
        """Return the slot feature and the global that the watermark of a linear score reads."""
        slot_names = [feature.name for feature in self.observation.slot_features]
        global_names = [feature.name for feature in self.observation.global_features]
        return slot_names.index(score.size_feature), global_names.index(score.free_feature)

    def mlp_sizes(self) -> tuple[int, ...]:
        """Return the widths of the flat network, from the observation to the actions.

        Raises:
            PolicyError: If the architecture is another.
        """
        if self.architecture.kind != "mlp":
            raise PolicyError(f"architecture {self.architecture.kind!r} is no flat network")
        schema = self.observation
        return (schema.observation_size, *self.architecture.hidden_sizes, schema.num_actions)


def _describe(feature: FeatureCard) -> str:
    return f"{feature.name!r} [{feature.unit}] scaled {feature.scale!r}"
