"""Find what is wrong with the options of a command before the parser does, in one line."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tyro

from sched_env.cli.argument_order import ArrangedArguments
from sched_env.errors import ConfigError, did_you_mean

_POSITIONAL = typing.get_args(tyro.conf.Positional[int])[1]
_HELP = "help"
_NUMBERS = {int: "a whole number", float: "a number"}


@dataclass(frozen=True)
class _Argument:
    """One field of a command's dataclass."""

    name: str
    type: Any  # without markers and without None
    is_positional: bool
    is_optional: bool  # the text None stands for None
    has_default: bool
    shown: str  # what the help calls it

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def takes_many(self) -> bool:
        return typing.get_origin(self.type) is tuple


def check_options(arranged: ArrangedArguments, arguments: type, program: str) -> None:
    """Check names, values and number of the arguments of one command.

    Args:
        arranged: the command line.
        arguments: the dataclass of the command's arguments.
        program: the command, such as ``sched-env simulate``, named in the message.

    Raises:
        ConfigError: an option is unknown, lacks its value or has one that is not allowed, or there
            are too few or too many positional arguments.
    """
    fields = _arguments_of(arguments)
    options = {one.name: one for one in fields if not one.is_positional}
    help_hint = f"see {program} --help"
    for name in arranged.option_names:
        _check_name(name, options, help_hint)
        if name in options:
            _check_value(options[name].option, options[name], arranged.options.get(name))
    places = [one for one in fields if one.is_positional]
    _check_places(places, arranged.positionals, help_hint)
    for one in options.values():
        if not one.has_default and one.name not in arranged.options:
            raise ConfigError(f"{one.option} is missing: give it a value; {help_hint}")


def _check_name(name: str, options: dict[str, _Argument], help_hint: str) -> None:
    known = name in options or name == _HELP
    switch = options.get(name.removeprefix("no_"))
    if known or (name.startswith("no_") and switch is not None and switch.type is bool):
        return
    spelled = "--" + name.replace("_", "-")
    choices = [one.option for one in options.values()]
    hint = did_you_mean(spelled, choices)
    listed = f"Known: {', '.join(choices)}" if choices else "It has none"
    raise ConfigError(f"no option {spelled!r}.{hint} {listed}; {help_hint}")


def _check_value(label: str, argument: _Argument, value: str | None) -> None:
    if value is None:
        raise ConfigError(f"{label} has no value: give one behind it")
    _refuse_empty(label, value)
    if argument.is_optional and value == "None":
        return
    if typing.get_origin(argument.type) is typing.Literal:
        choices = typing.get_args(argument.type)
        if value not in choices:
            hint = did_you_mean(value, choices)
            raise ConfigError(f"{label} {value!r}: give one of {', '.join(choices)}.{hint}")
    elif argument.type in _NUMBERS:
        try:
            argument.type(value)
        except ValueError:
            raise ConfigError(f"{label} {value!r}: give {_NUMBERS[argument.type]}") from None


def _refuse_empty(label: str, text: str) -> None:
    """Refuse a text without a character: a variable of the shell that is not set, as a rule.

    Read as a path it would stand for the current folder.
    """
    if not text.strip():
        raise ConfigError(f"{label} {text!r} is empty: give a value")


def _check_places(places: Sequence[_Argument], given: Sequence[str], help_hint: str) -> None:
    if not any(one.takes_many for one in places) and len(given) > len(places):
        raise ConfigError(f"argument {given[len(places)]!r} is one too many; {help_hint}")
    for index, text in enumerate(given):
        place = places[min(index, len(places) - 1)]
        _check_value(place.shown, place, text)
    needed = [one for one in places if not (one.takes_many or one.has_default)]
    if len(given) < len(needed):
        raise ConfigError(f"{needed[len(given)].shown} is missing; {help_hint}")


def _arguments_of(arguments: type) -> list[_Argument]:
    hints = typing.get_type_hints(arguments, include_extras=True)
    return [_argument(field, hints[field.name]) for field in dataclasses.fields(arguments)]


def _argument(field: dataclasses.Field[Any], hint: Any) -> _Argument:
    markers: tuple[Any, ...] = ()
    while typing.get_origin(hint) is typing.Annotated:
        hint, *more = typing.get_args(hint)
        markers += tuple(more)
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    kinds = [one for one in typing.get_args(hint) if one is not type(None)] if is_union else [hint]
    return _Argument(
        name=field.name,
        type=kinds[0] if len(kinds) == 1 else str,
        is_positional=_POSITIONAL in markers,
        is_optional=is_union and type(None) in typing.get_args(hint),
        shown=next(
            filter(None, (getattr(one, "metavar", "") for one in markers)), field.name.upper()
        ),
        has_default=(field.default, field.default_factory) != (dataclasses.MISSING,) * 2,
    )
