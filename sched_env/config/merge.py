"""Lay one nested mapping over another, and set single values in it by dotted key."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sched_env.config.yaml_text import is_mapping, parse_yaml
from sched_env.errors import ConfigError


def merge(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``overlay`` laid over it, mapping by mapping.

    Lists and single values are replaced as a whole. So is a mapping whose ``kind`` differs: the
    keys of one kind mean nothing to another.
    """
    if "kind" in overlay and overlay["kind"] != base.get("kind", overlay["kind"]):
        return copy.deepcopy(dict(overlay))
    merged = copy.deepcopy(dict(base))
    for key, value in overlay.items():
        below = merged.get(key)
        if is_mapping(below) and is_mapping(value):
            merged[key] = merge(below, value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


@dataclass(frozen=True)
class Override:
    """One value for one dotted key, from the command line."""

    text: str
    """What was written."""

    path: tuple[str, ...]
    """The parts of the key."""

    value: Any
    """The value, parsed as YAML."""


def parse_override(text: str) -> Override:
    """Parse ``key=value``, with a dotted key and a YAML value.

    Raises:
        ConfigError: ``text`` has another form.
    """
    key, equals, value = text.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not all(path):
        raise ConfigError(f"override {text!r}: use key=value, as in env.scheduler.num_blocks=77")
    return Override(text, path, parse_yaml(value, source=f"override {text!r}"))


def overlay(values: Mapping[str, Any], override: Override) -> dict[str, Any]:
    """Return ``values`` with an override laid over them.

    A part of the key that is an integer counts entries of a list from 0. An empty mapping takes the
    place of what is there.

    Raises:
        ConfigError: the key leads through something that is neither a mapping nor a list.
    """
    return _overlaid(dict(values), override.path, override)


def _overlaid(below: Any, path: Sequence[str], override: Override) -> Any:
    """Return ``below`` with the override's value at what is left of its path."""
    if not path:
        if is_mapping(below) and is_mapping(override.value) and override.value:
            return merge(below, override.value)
        return override.value
    name, rest = path[0], path[1:]
    if isinstance(below, list):
        entries: list[Any] = [*below]
        if not name.isdecimal() or int(name) >= len(entries):
            raise _no_way(override, f"{name!r} is no entry of a list of {len(entries)}")
        entries[int(name)] = _overlaid(entries[int(name)], rest, override)
        return entries
    if below is not None and not is_mapping(below):
        raise _no_way(override, f"{name!r} leads into {below!r}, which has no keys")
    mapping: dict[str, Any] = below or {}
    laid = _overlaid(mapping.get(name), rest, override)
    if laid == {}:
        return {**mapping, name: laid}
    return merge(mapping, {name: laid})


def _no_way(override: Override, problem: str) -> ConfigError:
    return ConfigError(f"override {override.text!r}: {problem}; look at the keys with --help")
