"""A strict, safe YAML reader: one meaning per text, and no text that grows when it is read.

It follows YAML 1.2's core schema, where ``1e-3`` is a number and ``on`` a text. It refuses
duplicate keys, keys that are no text, and aliases that contain themselves or multiply the content.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, TypeGuard

import yaml

from sched_env.errors import ConfigError

_MAX_BYTES = 1_000_000
_MAX_NODES = 20_000
_MAX_DEPTH = 50


class _StrictLoader(yaml.SafeLoader):
    """PyYAML's safe loader with the core schema and checked mappings."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML's own attribute, replaced as a whole

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:str":
                raise _fault(key, f"the key {getattr(key, 'value', '?')!r} is no text; quote it")
            if key.value in seen:
                raise _fault(key, f"the key {key.value!r} stands twice; keep one of them")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_CORE_SCHEMA = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
}
for _name, (_pattern, _first) in _CORE_SCHEMA.items():
    _StrictLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), _first
    )


def _construct_int(loader: _StrictLoader, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node)
    try:
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    except ValueError:  # more digits than Python converts
        raise _fault(node, "the number has too many digits") from None


_StrictLoader.add_constructor("tag:yaml.org,2002:int", _construct_int)


def is_mapping(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether a value that this module read is a mapping (their keys are always texts)."""
    return isinstance(value, dict)


def read_yaml_mapping(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds one mapping.

    Raises:
        ConfigError: the file cannot be read, is no YAML, or holds something else than a mapping.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(
                f"{path}: larger than {_MAX_BYTES:,} bytes; give a configuration file"
            )
        text = path.read_text(encoding="utf-8")
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; give a YAML file in it") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{path}: {reason}; give a YAML file that can be read") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: no UTF-8 text; give a YAML file") from None
    values = parse_yaml(text, source=str(path))
    if not is_mapping(values):
        found = "nothing" if values is None else f"a {type(values).__name__}"
        raise ConfigError(f"{path}: holds {found}; write a mapping of keys to values")
    return values


def parse_yaml(text: str, *, source: str) -> Any:
    """Parse one YAML document.

    Args:
        text: the document.
        source: its name in messages.

    Raises:
        ConfigError: it is no valid YAML, or one of the things this reader refuses.
    """
    try:
        loader = _StrictLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check_size(node, source)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        where = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        problem = " ".join(str(error.problem or error.context).split())
        raise ConfigError(f"{source}{where}: {problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{source}: no valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"{source}: nested too deeply; at most {_MAX_DEPTH} levels") from None


def _check_size(root: yaml.Node, source: str) -> None:
    """Refuse a document that is cyclic, too deep, or too large once its aliases are written out."""
    sizes: dict[int, int] = {}
    active: set[int] = set()

    def count(node: yaml.Node, depth: int) -> int:
        if id(node) in active:
            raise ConfigError(f"{source}: an alias contains itself; write the values out")
        if depth > _MAX_DEPTH:
            raise ConfigError(f"{source}: nested too deeply; at most {_MAX_DEPTH} levels")
        if id(node) not in sizes:
            active.add(id(node))
            sizes[id(node)] = 1 + sum(count(child, depth + 1) for child in _children(node))
            active.discard(id(node))
        if sizes[id(node)] > _MAX_NODES:
            raise ConfigError(f"{source}: more than {_MAX_NODES:,} values; write a smaller file")
        return sizes[id(node)]

    count(root, 0)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _fault(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)
