"""Let options and positional arguments come in any order."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ArrangedArguments:
    """The texts of a command line, sorted by what they are."""

    texts: list[str]
    """Positional arguments, then options: what the parser is given."""

    positionals: list[str]
    """Positional arguments."""

    options: dict[str, str]
    """Values of the options, by name without dashes and with underscores."""

    option_names: tuple[str, ...] = ()
    """Names of the options given, those without a value too."""


def arrange(texts: Sequence[str], arguments: type) -> ArrangedArguments:
    """Put positional arguments first, so that ``key=value`` may stand anywhere.

    Args:
        texts: the command line.
        arguments: the dataclass of the command's arguments; every option takes one value, except
            fields of type ``bool``, which take none.
    """
    fields = dataclasses.fields(arguments)
    switches = {field.name for field in fields if _is_switch(field.type)}
    positionals: list[str] = []
    options: dict[str, str] = {}
    option_texts: list[str] = []
    names: list[str] = []
    remaining = list(texts)
    while remaining:
        text = remaining.pop(0)
        if not text.startswith("-") or text == "-":
            positionals.append(text)
            continue
        option_texts.append(text)
        name, equals, value = text.lstrip("-").partition("=")
        name = name.replace("-", "_")
        names.append(name)
        if equals:
            options[name] = value
        elif text in ("-h", "--help") or name.removeprefix("no_") in switches:
            options[name] = "true"
        elif remaining:
            value = remaining.pop(0)
            option_texts.append(value)
            options[name] = value
    return ArrangedArguments([*positionals, *option_texts], positionals, options, tuple(names))


def _is_switch(annotation: Any) -> bool:
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    return annotation in (bool, "bool")
