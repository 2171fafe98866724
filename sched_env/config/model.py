"""The base of every configuration model, and the number types its fields use."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NoReturn, Self

import pydantic

from sched_env.config.faults import describe_faults
from sched_env.errors import ConfigError

LARGEST_SIZE = 2**31 - 1
"""Sizes are 32-bit integers in the compiled core."""


def _to_plain_number(value: Any) -> Any:
    """Turn a NumPy number into Python's own, and leave the rest for the strict check."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Rational):
        return float(value)
    return value


_PLAIN = pydantic.BeforeValidator(_to_plain_number)

Count = Annotated[int, pydantic.Field(strict=True, ge=1, le=LARGEST_SIZE), _PLAIN]
"""A size or a number of things, at least one."""

CountOrZero = Annotated[int, pydantic.Field(strict=True, ge=0, le=LARGEST_SIZE), _PLAIN]
"""A size or a number of things, zero allowed."""

MOST_HIDDEN = 1024
"""Hidden units that a layer of a pointer network may have."""

HiddenSize = Annotated[int, pydantic.Field(strict=True, ge=1, le=MOST_HIDDEN), _PLAIN]
"""A number of hidden units."""

MOST_SLOTS = 4096
"""Waiting or running requests that a policy may be shown."""

SlotCount = Annotated[int, pydantic.Field(strict=True, ge=1, le=MOST_SLOTS), _PLAIN]
"""A number of requests to show."""

Whole = Annotated[int, pydantic.Field(strict=True, ge=-LARGEST_SIZE, le=LARGEST_SIZE), _PLAIN]
"""A whole number of any sign."""

Seed = Annotated[int, pydantic.Field(strict=True, ge=0, le=2**63 - 1), _PLAIN]
"""A seed of all randomness."""

Number = Annotated[float, pydantic.Field(strict=True, allow_inf_nan=False), _PLAIN]
"""Any finite number."""

NonNegative = Annotated[float, pydantic.Field(strict=True, ge=0, allow_inf_nan=False), _PLAIN]
"""A finite number, zero or more."""

Positive = Annotated[float, pydantic.Field(strict=True, gt=0, allow_inf_nan=False), _PLAIN]
"""A finite number above zero."""

SloFactor = Annotated[float, pydantic.Field(strict=True, gt=0, le=1e6), _PLAIN]
"""A multiple of SLOs; beyond this no request could miss one."""

Fraction = Annotated[float, pydantic.Field(strict=True, ge=0, le=1, allow_inf_nan=False), _PLAIN]
"""A number from 0 to 1."""

Share = Annotated[float, pydantic.Field(strict=True, gt=0, le=1, allow_inf_nan=False), _PLAIN]
"""A number above 0, and up to 1."""

Flag = Annotated[bool, pydantic.Field(strict=True)]
"""True or false, and nothing that only looks like it."""

Text = Annotated[str, pydantic.Field(strict=True, min_length=1)]
"""A string that is not empty."""


def _to_range(value: Any) -> Any:
    return (value, value) if isinstance(value, numbers.Real) else value


def _check_rising(value: tuple[Any, Any]) -> tuple[Any, Any]:
    low, high = value
    if low > high:
        raise ValueError(f"goes from {low} down to {high}; put the lower number first")
    return value


ONE_OR_BOTH = pydantic.BeforeValidator(_to_range)
"""Lets one number stand for the lowest and the highest of a range."""

RISING = pydantic.AfterValidator(_check_rising)
"""Refuses a range whose highest number is below its lowest."""


class ConfigModel(pydantic.BaseModel):
    """A frozen, validated set of values; any fault in them raises ``ConfigError``.

    Unknown keys are refused. The message names the dotted key, what was given, what is allowed and
    the nearest known key.
    """

    model_config = pydantic.ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        defer_build=True,
    )

    config_kind: ClassVar[str | None] = None
    """The folder under ``configs/`` that holds files of this model, if there is one."""

    if not TYPE_CHECKING:  # type checkers derive the signature from the fields

        def __init__(self, *places: Any, **values: Any) -> None:
            if places:
                raise ConfigError(
                    f"{type(self).__name__} takes values by name, and {places[0]!r} has none: "
                    f"give name=value. Known: {', '.join(type(self).model_fields)}"
                )
            try:
                super().__init__(**values)
            except pydantic.ValidationError as error:
                raise ConfigError(describe_faults(type(self), error)) from None

        # Nested mappings are then validated by pydantic itself, which keeps the path to a fault.
        __init__.__pydantic_base_init__ = True

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        """Refuse the change: a configuration is a value."""
        raise ConfigError(
            f"{name}: a {type(self).__name__} cannot be changed; make another one with "
            f".replace({name}=...)"
        )

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], *, source: str = "") -> Self:
        """Validate ``values`` (as read from YAML or JSON).

        Args:
            values: nested plain mappings, keyed by field name.
            source: where they come from (a file), put in front of the message.

        Raises:
            ConfigError: a key is unknown or a value is not allowed.
        """
        try:
            return cls.model_validate(dict(values))
        except pydantic.ValidationError as error:
            where = f"{source}: " if source else ""
            raise ConfigError(where + describe_faults(cls, error)) from None

    def replace(self, **changes: Any) -> Self:
        """Return a validated copy with some fields changed; defaults that follow others follow."""
        kept = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**kept, **changes})

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-able values with every default written out."""
        return self.model_dump(mode="json")
