"""Show a configuration's keys, values and meanings under a command's ``--help``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import rich.box
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sched_env.config import ConfigModel

_WIDTH_OF_NO_TERMINAL = 80


def print_values(config: ConfigModel) -> None:
    """Print each dotted key with its value; those are the keys that ``key=value`` may set."""
    console = Console()
    if not console.is_terminal:
        columns = shutil.get_terminal_size((_WIDTH_OF_NO_TERMINAL, 24)).columns
        console = Console(width=columns)
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("key", overflow="fold")
    table.add_column("value", overflow="fold")
    table.add_column("meaning", overflow="fold")
    for key, value, meaning in leaves(config):
        table.add_row(Text(key), Text(value), Text(meaning))
    console.print(Text("\nValues of this configuration; set any of them with key=value:\n"))
    console.print(table)


def leaves(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield (dotted key, value, meaning) for every single value."""
    for name, field in type(model).model_fields.items():
        key = f"{prefix}{name}"
        yield from _leaves_of_value(key, getattr(model, name), field.description or "")


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
