"""Nested values as dotted keys, and in which of them two differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_MAX_SHOWN = 3
_LONGEST_VALUE = 80
_ABSENT = "absent"


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and plain values of nested mappings, and of lists of mappings."""
    for key, value in values.items():
        yield from _flat_value(f"{prefix}{key}", value)


def _flat_value(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from flatten(value, f"{key}.")
    elif isinstance(value, list | tuple) and any(isinstance(entry, Mapping) for entry in value):
        for index, entry in enumerate(value):
            yield from _flat_value(f"{key}.{index}", entry)
    else:
        yield key, value


def describe_differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Return the first few keys in which two nestings differ, with both values; "" if in none."""
    old, new = dict(flatten(there)), dict(flatten(here))
    differing = [
        key
        for key in sorted({*old, *new})
        if key not in old or key not in new or old[key] != new[key]
    ]
    shown = [
        f"{key} is {_short(old, key)} there and {_short(new, key)} here"
        for key in differing[:_MAX_SHOWN]
    ]
    if len(differing) > _MAX_SHOWN:
        shown.append(f"and {len(differing) - _MAX_SHOWN} more")
    return "; ".join(shown)


def _short(values: Mapping[str, Any], key: str) -> str:
    text = repr(values[key]) if key in values else _ABSENT
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
