"""Load a configuration from YAML: by name or path, with ``extends`` and dotted overrides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml

from sched_env.config.merge import Override, merge, overlay, parse_override
from sched_env.config.model import ConfigModel
from sched_env.config.places import exists, expanded
from sched_env.config.yaml_text import is_mapping, read_yaml_mapping
from sched_env.errors import ConfigError, UnknownNameError

CONFIG_FOLDER = Path(__file__).resolve().parent.parent / "configs"
"""Where the files that ship with the package are."""

_SUFFIXES = (".yaml", ".yml")
_MAX_EXTENDS = 20
_Model = TypeVar("_Model", bound=ConfigModel)


def load_config(
    model: type[_Model], name_or_path: str | Path, overrides: Iterable[str] = ()
) -> _Model:
    """Read, merge and validate one configuration.

    Args:
        model: what to make of it, such as ``ExperimentConfig``.
        name_or_path: a file, or the name of one that ships with the package, with its kind or
            without it (``experiment/azure_conv``, ``azure_conv``).
        overrides: ``key=value`` texts with dotted keys and YAML values, as in
            ``env.scheduler.num_blocks=77``; later ones win. ``agent.extends=agent/mlp`` lays a
            whole file over a section.

    Returns:
        A validated ``model``.

    Raises:
        UnknownNameError: no file of that name ships with the package.
        ConfigError: the file, a key or a value is wrong.
    """
    path = find_config(name_or_path, model.config_kind)
    _check_kind(path, model.config_kind)
    written = values = _read(path, ())
    for text in overrides:
        override = _fill_in(parse_override(text))
        to_list = _list_to_write_out(values, override)
        if to_list:
            resolved = model.from_mapping(written, source=_display(path)).to_dict()
            found = _value_at(resolved, to_list)
            if isinstance(found, list):
                values = overlay(values, Override(text, to_list, cast("list[Any]", found)))
        values = overlay(values, override)
    return model.from_mapping(values, source=_display(path))


def _list_to_write_out(values: Mapping[str, Any], override: Override) -> tuple[str, ...]:
    """Return the key of a list that an override numbers an entry of, if nothing gives it yet."""
    numbers = (part.removeprefix("-").isdecimal() for part in override.path)
    places = [place for place, is_number in enumerate(numbers) if is_number]
    to_list = override.path[: places[0]] if places else ()
    return () if isinstance(_value_at(values, to_list), list) else to_list


def _value_at(values: Mapping[str, Any], path: Iterable[str]) -> Any:
    found: Any = values
    for part in path:
        found = found.get(part) if is_mapping(found) else None
    return found


def find_config(name_or_path: str | Path, kind: str | None = None) -> Path:
    """Return the file that a name or path stands for.

    Args:
        name_or_path: see ``load_config``.
        kind: the folder that a name without one is looked up in.

    Raises:
        UnknownNameError: nothing that ships with the package has that name.
        ConfigError: a path was given, and no file is there.
    """
    text = str(name_or_path)
    if not text.strip():
        raise ConfigError(f"configuration {text!r} is empty: give a file or a name")
    if (
        isinstance(name_or_path, Path)
        or text.endswith(_SUFFIXES)
        or text.startswith(("/", ".", "~"))
    ):
        path = expanded(text)
        if not exists(path):
            raise ConfigError(f"no configuration file at {path}; give a file or one of the names")
        return path
    known = list_configs()
    name = text if text in known or kind is None or "/" in text else f"{kind}/{text}"
    if name in known:
        return known[name]
    if exists(text):
        return Path(text)
    _check_links()
    shown = {entry for entry in known if kind is None or entry.startswith(f"{kind}/")}
    raise UnknownNameError("configuration", name, shown or known)


def _check_kind(path: Path, kind: str | None) -> None:
    """Refuse a file of the package that describes something else."""
    found = path.parent.name
    if kind is None or path.parent.parent != CONFIG_FOLDER or found == kind:
        return
    examples = ", ".join(name for name in list_configs() if name.startswith(f"{kind}/"))
    raise ConfigError(f"{_display(path)} is of the kind {found!r}, not {kind!r}: give {examples}")


def list_configs() -> dict[str, Path]:
    """Return the files that ship with the package, by ``kind/name``."""
    files = sorted(CONFIG_FOLDER.glob("*/*.yaml"))
    return {f"{path.parent.name}/{path.stem}": path for path in files}


def to_yaml(config: ConfigModel) -> str:
    """Return ``config`` as YAML text with every default written out; ``load_config`` reads it."""
    return yaml.safe_dump(config.to_dict(), sort_keys=False, allow_unicode=True)


def _read(path: Path, chain: tuple[Path, ...]) -> dict[str, Any]:
    """Read a file and everything that it extends."""
    resolved = path.resolve()
    if resolved in chain:
        names = " -> ".join(_display(entry) for entry in (*chain, resolved))
        raise ConfigError(f"extends goes round in a circle: {names}; take one of them out")
    if len(chain) >= _MAX_EXTENDS:
        raise ConfigError(f"{_display(path)}: more than {_MAX_EXTENDS} files extend one another")
    return _resolve(read_yaml_mapping(path), path, (*chain, resolved))


def _resolve(values: Mapping[str, Any], path: Path, chain: tuple[Path, ...]) -> dict[str, Any]:
    """Replace each ``extends`` key, at any depth, by what it names, overlaid by its neighbours."""
    own = {
        key: _resolve(value, path, chain) if is_mapping(value) else value
        for key, value in values.items()
        if key != "extends"
    }
    merged: dict[str, Any] = {}
    for name in _names_extended(values, path):
        near = path.parent / name
        base = near if near.suffix in _SUFFIXES and exists(near) else find_config(name)
        merged = merge(merged, _read(base, chain))
    return merge(merged, own)


def _fill_in(override: Override) -> Override:
    """Turn an override of an ``extends`` key into one of the section itself, by the named file."""
    if override.path[-1] != "extends":
        return override
    source = Path(override.text)
    values = _resolve({"extends": override.value}, source, ())
    return Override(override.text, override.path[:-1], values)


def _names_extended(values: Mapping[str, Any], path: Path) -> list[str]:
    given = values.get("extends", [])
    names = cast("list[Any]", given) if isinstance(given, list) else [given]
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{_display(path)}: extends: {given!r} is no name; use a name or a list")
    return names


def _display(path: Path) -> str:
    try:
        return str(path.relative_to(CONFIG_FOLDER).with_suffix(""))
    except ValueError:
        return str(path)


def _check_links() -> None:
    """Explain a checkout in which a symbolic link came out as a small text file."""
    if not CONFIG_FOLDER.is_dir():
        raise ConfigError(
            f"{CONFIG_FOLDER} is no folder: this clone was made without symbolic links; turn them "
            "on (git config core.symlinks true) and check out again, or install the package"
        )
