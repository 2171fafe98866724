"""Show a configuration's keys, values and meanings under a command's ``--help``."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from sched_env.config import ConfigModel
from sched_env.config.meanings import meanings

_WIDTH_OF_NO_TERMINAL = 80
_WIDEST_TEXT = 100
_INDENT = " " * 6


def print_values(config: ConfigModel) -> None:
    """Print each dotted key with its value and meaning, as ``key=value`` sets it."""
    columns = shutil.get_terminal_size((_WIDTH_OF_NO_TERMINAL, 24)).columns
    width = min(columns, _WIDEST_TEXT)
    print("\nValues of this configuration; change any of them with KEY=VALUE:\n")
    for key, value, meaning in leaves(config):
        print(f"  {key}={value}")
        if meaning:
            print(textwrap.fill(meaning, width, initial_indent=_INDENT, subsequent_indent=_INDENT))


def leaves(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield (dotted key, value, meaning) for every single value."""
    meaning_of = meanings(type(model))
    for name in type(model).model_fields:
        yield from _leaves_of_value(
            f"{prefix}{name}", getattr(model, name), meaning_of.get(name, "")
        )


def _leaves_of_value(key: str, value: Any, meaning: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(value, BaseModel):
        yield from leaves(value, f"{key}.")
    elif isinstance(value, tuple) and any(isinstance(entry, BaseModel) for entry in value):
        for index, entry in enumerate(value):
            yield from _leaves_of_value(f"{key}.{index}", entry, meaning)
    else:
        yield key, _as_yaml(value), meaning


def _as_yaml(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(_as_yaml(entry) for entry in value)}]"
    return f"{value}"
