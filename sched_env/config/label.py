"""Names that become a folder's name, or a part of one."""

from __future__ import annotations

import re
from typing import Annotated

import pydantic

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")


def is_label(name: str) -> bool:
    """Return whether ``name`` may be a folder's name anywhere."""
    return _LABEL.fullmatch(name) is not None


def _check_label(name: str) -> str:
    if not is_label(name):
        raise ValueError(
            f"{name!r} is not allowed as a name; use up to 40 letters, digits, '_', '.' and '-', a "
            "letter or digit first"
        )
    return name


Label = Annotated[str, pydantic.Field(strict=True), pydantic.AfterValidator(_check_label)]
"""A short name: up to 40 letters, digits, ``_``, ``.`` and ``-``; a letter or digit first."""
