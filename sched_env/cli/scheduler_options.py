"""Command-line options for the fields of ``SchedulerConfig``, made from the fields themselves."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Annotated, Any

import tyro

from sched_env.config.meanings import meanings
from sched_env.config.scheduler import SchedulerConfig

_LIMITS = ("num_blocks", "max_num_seqs", "max_num_batched_tokens")
"""What has to be given: a server's limits are never guessed."""

_NAMES = tuple(name for name in SchedulerConfig.model_fields if name != "policy")
"""What is offered: the order is that of the command's own policy."""


def scheduler_fields() -> list[tuple[str, Any, Any]]:
    """Return (name, type, default) of each option, as ``dataclasses.make_dataclass`` takes them.

    A switch becomes ``--name`` and ``--no-name``; its default is the configuration's own.
    """
    needed: list[tuple[str, Any, Any]] = []
    optional: list[tuple[str, Any, Any]] = []
    defaults = SchedulerConfig()
    meaning_of = meanings(SchedulerConfig)
    for name in _NAMES:
        kind = _plain(SchedulerConfig.model_fields[name].annotation)
        described = Annotated[kind, tyro.conf.arg(help=meaning_of.get(name, ""))]
        if name in _LIMITS:
            needed.append((name, described, dataclasses.field()))
        else:
            default = getattr(defaults, name)
            optional.append((name, described, dataclasses.field(default=default)))
    return [*needed, *optional]


def _plain(annotation: Any) -> Any:
    """Return an annotation without pydantic's constraints; a switch may not be null."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _plain(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        kinds = [_plain(one) for one in typing.get_args(annotation)]
        if bool in kinds:
            return bool
        return typing.Union[tuple(kinds)]  # noqa: UP007 (its members are only known at run time)
    return annotation


def scheduler_of(arguments: Any) -> SchedulerConfig:
    """Return the scheduler that parsed options describe; what was left out follows ``rules``.

    Raises:
        ConfigError: A value is not allowed.
    """
    defaults = SchedulerConfig()
    given = {name: getattr(arguments, name) for name in _NAMES}
    return SchedulerConfig(
        **{
            name: value
            for name, value in given.items()
            if name in _LIMITS or value != getattr(defaults, name)
        }
    )
