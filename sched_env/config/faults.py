"""Turn pydantic's validation errors into one line a person can act on."""

from __future__ import annotations

import re
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pydantic

from sched_env.errors import did_you_mean

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_MAX_FAULTS_SHOWN = 5
_MAX_VALUE_LENGTH = 60
_AT_KEY = "[key]"  # how pydantic ends the place of a mapping's key

# What is allowed, by pydantic's error type; {ge}, {expected} ... come from the error's context.
_ALLOWED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of {ge} or more",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of {le} or less",
    "list_type": "a list",
    "literal_error": "{expected}",
    "model_attributes_type": "a mapping",
    "model_type": "a mapping",
    "string_pattern_mismatch": "a text that matches {pattern}",
    "string_too_long": "a text of at most {max_length} characters",
    "string_too_short": "a text that is not empty",
    "string_type": "a text",
    "too_long": "at most {max_length} entries",
    "too_short": "at least {min_length} entries",
    "tuple_type": "a list",
    "union_tag_invalid": "one of {expected_tags}",
}


def describe_faults(model: type[pydantic.BaseModel], error: pydantic.ValidationError) -> str:
    """Return all faults on one line, each with its dotted key, what was given and what is allowed.

    Args:
        model: the model that was validated, needed to name keys and their neighbours.
        error: what pydantic raised.
    """
    details = _without_echoes(error.errors(include_url=False))
    lines = [_describe(model, detail) for detail in details[:_MAX_FAULTS_SHOWN]]
    hidden = len(details) - len(lines)
    if hidden:
        lines.append(f"and {hidden} more")
    return "; ".join(lines)


def _without_echoes(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Leave out "too short" of a list that is only short because its entries are at fault."""
    inner = {detail["loc"][:length] for detail in details for length in range(len(detail["loc"]))}
    return [one for one in details if one["type"] != "too_short" or one["loc"] not in inner]


def _describe(model: type[pydantic.BaseModel], detail: ErrorDetails) -> str:
    kind = detail["type"]
    path, owner = _walk(model, detail["loc"], ends_at_key=kind == "extra_forbidden")
    key = ".".join(path) or _in_words(model)
    if kind == "extra_forbidden":
        known = sorted(owner.model_fields) if owner else []
        return f"{key}: no such key.{did_you_mean(path[-1], known)} Known: {', '.join(known)}"
    if kind == "missing":
        return f"{key}: a value is required; add it"
    given = _shorten(detail["input"])
    context = {name: _plain(value) for name, value in detail.get("ctx", {}).items()}
    if kind == "value_error":
        return f"{key}: {context['error']}"
    if kind == "union_tag_invalid":
        key, given = f"{key}.kind", repr(context["tag"])
    allowed = _ALLOWED.get(kind)
    if allowed is None:
        return f"{key}: {given} is not allowed: {_lower_first(detail['msg'])}"
    allowed = allowed.format_map(context)
    hint = did_you_mean(str(detail["input"]), _choices(allowed)) if kind == "literal_error" else ""
    return f"{key}: {given} is not allowed; use {allowed}.{hint}".removesuffix(".")


def _in_words(model: type[pydantic.BaseModel]) -> str:
    """Return what a user calls a model: an arena for ``ArenaConfig``."""
    name = model.__name__.removesuffix("Config")
    return re.sub(r"(?<!^)(?=[A-Z])", " ", name).lower()


def _walk(
    model: type[pydantic.BaseModel], location: Sequence[int | str], *, ends_at_key: bool
) -> tuple[list[str], type[pydantic.BaseModel] | None]:
    """Follow an error's location through the models; tags of unions are no part of the key.

    Returns:
        The parts of the dotted key, and the model whose key the last part is (or should be).
    """
    path: list[str] = []
    candidates: list[Any] = [model]
    owner: type[pydantic.BaseModel] | None = model
    for index, part in enumerate(location):
        if part == _AT_KEY:
            continue
        is_last_key = ends_at_key and index == len(location) - 1
        models = [c for c in candidates if isinstance(c, type)]
        tagged = [c for c in models if len(models) > 1 and _tag(c) == part]
        if tagged and not is_last_key:
            candidates = tagged
            continue
        path.append(_legible(str(part)))
        owner = models[0] if models else None
        if isinstance(part, str) and owner is not None and part in owner.model_fields:
            candidates = _models_in(owner.model_fields[part].annotation)
    return path, owner


def _legible(part: str) -> str:
    return (
        part if part and part.isprintable() and len(part) <= _MAX_VALUE_LENGTH else _shorten(part)
    )


def _models_in(annotation: Any) -> list[type[pydantic.BaseModel]]:
    """Return every model that an annotation names, in order."""
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return [annotation]
    return [found for part in typing.get_args(annotation) for found in _models_in(part)]


def _tag(model: type[pydantic.BaseModel]) -> str | None:
    field = model.model_fields.get("kind")
    return None if field is None else field.default


def _choices(allowed: str) -> list[str]:
    return [part.strip(" '") for part in allowed.replace(" or ", ",").split(",")]


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _shorten(value: Any) -> str:
    text = repr(value)
    text = " ".join(text.split())
    return text if len(text) <= _MAX_VALUE_LENGTH else text[: _MAX_VALUE_LENGTH - 3] + "..."


def _lower_first(message: str) -> str:
    return message[:1].lower() + message[1:]
