"""Changes of single values that would change nothing are refused, not taken in silence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sched_env.config.merge import Override, parse_override
from sched_env.config.yaml_text import is_mapping
from sched_env.errors import ConfigError

Key = tuple[str, ...]
"""The parts of a dotted key."""


def refuse_idle(overrides: Sequence[str], idle: Mapping[Key, str]) -> None:
    """Refuse overrides of what has no say.

    Args:
        overrides: ``key=value`` texts.
        idle: Keys without a say, each with the reason.

    Raises:
        ConfigError: There is one; the message gives the reason.
    """
    for text in overrides:
        override = parse_override(text)
        for key, why in idle.items():
            if _touches(override, key):
                raise ConfigError(f"override {text!r} would change nothing here: {why}")


def _touches(override: Override, key: Key) -> bool:
    """Tell whether an override changes a key, something below it, or a mapping that holds it."""
    above = len(override.path)
    if override.path[: len(key)] == key:
        return True
    if key[:above] != override.path:
        return False
    found = override.value
    for part in key[above:]:
        if not is_mapping(found) or part not in found:
            return False
        found = found[part]
    return True
