"""Reading and writing the folder of an exported policy.

The folder holds ``policy.safetensors`` (the tensors, float32), ``config.json`` (the card, the
hash of the schema, the hash of the weights, and a hash of the file itself) and ``README.md`` (a
Hugging Face model card). The folder may come from a stranger: nothing in it is executed or
unpickled, no file name is taken from it, and every size is checked before it is used. A changed
byte in either of the first two files is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pydantic
import safetensors
import safetensors.numpy

from sched_env.config.faults import describe_faults
from sched_env.errors import PolicyError, did_you_mean
from sched_env.policy.card import PolicyCard
from sched_env.policy.model_card import render_model_card

FORMAT = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "policy.safetensors"
README_FILE = "README.md"

_MAX_CONFIG_BYTES = 2**20
_MAX_WEIGHTS_BYTES = 2**26
_MAX_HEADER_BYTES = 2**16
_REMEDY = "export the policy again"


@dataclass(frozen=True)
class StoredPolicy:
    """The content of a policy folder.

    Attributes:
        card: What the policy says about itself.
        weights: The tensors, float32, by name, in the order of ``card.tensor_shapes()``.
        weights_sha256: Hash of the weights file.
    """

    card: PolicyCard
    weights: Mapping[str, np.ndarray]
    weights_sha256: str


def write_policy(folder: str | Path, weights: Mapping[str, np.ndarray], card: PolicyCard) -> Path:
    """Write a policy folder; it appears complete or not at all.

    An existing policy folder is replaced with everything in it.

    Args:
        folder: Where to write.
        weights: The tensors that ``card.tensor_shapes()`` asks for, float32.
        card: What the policy says about itself.

    Returns:
        The folder.

    Raises:
        PolicyError: If a tensor is missing, unknown, not finite or of another shape, or if
            ``folder`` exists and holds something else.
    """
    target = Path(folder)
    tensors = _checked_tensors(dict(weights), card, str(target))
    refuse_other_folder(target)
    data = safetensors.numpy.save(tensors)
    if len(data) > _MAX_WEIGHTS_BYTES:
        raise PolicyError(
            f"{target}: {len(data)} bytes of weights; at most {_MAX_WEIGHTS_BYTES} are allowed"
        )
    files = {
        WEIGHTS_FILE: data,
        CONFIG_FILE: _render_config(card, data),
        README_FILE: render_model_card(card).encode(),
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=_staging_prefix(target), dir=target.parent))
    try:
        made = staging / "new"
        made.mkdir()
        for name, content in files.items():
            _write_bytes(made / name, content)
        _replace(target, made, staging / "old")
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return target


def refuse_other_folder(target: Path, remedy: str = "choose another place") -> None:
    """Refuse to write a policy where something else lies, which would be replaced.

    Args:
        target: Where it would be written.
        remedy: What to do where something lies there.

    Raises:
        PolicyError: ``target`` is a file, or a folder that holds something but no policy.
    """
    if target.exists() and (
        not target.is_dir() or (any(target.iterdir()) and not (target / CONFIG_FILE).exists())
    ):
        raise PolicyError(f"{target} exists and is no policy folder: {remedy}")


def remove_staging(target: Path) -> None:
    """Remove what `write_policy` left beside ``target`` when its process was killed."""
    pattern = re.escape(_staging_prefix(target)) + "[a-z0-9_]{8}"  # as mkdtemp ends a name
    for path in target.parent.iterdir():
        if re.fullmatch(pattern, path.name) and path.is_dir():
            shutil.rmtree(path)


def _staging_prefix(target: Path) -> str:
    return f".{target.name}-"


def read_policy(folder: str | Path) -> StoredPolicy:
    """Read and check a policy folder.

    Raises:
        PolicyError: If anything in it is missing, damaged or not allowed; the message names the
            file and what is wrong with it.
    """
    path = Path(folder)
    if not path.is_dir():
        raise PolicyError(f"no policy folder {str(path)!r}: give a folder with {CONFIG_FILE}")
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if not (path / name).exists():
            raise PolicyError(
                f"{path}: {name} is missing; a policy folder holds {CONFIG_FILE} and "
                f"{WEIGHTS_FILE}: {_REMEDY}"
            )
    config, card = _parse_config(path / CONFIG_FILE)
    data = _read_bytes(path / WEIGHTS_FILE, _MAX_WEIGHTS_BYTES)
    digest = hashlib.sha256(data).hexdigest()
    if config["weights_sha256"] != digest:
        raise PolicyError(
            f"{path / WEIGHTS_FILE}: its sha256 is {digest[:12]}…, {CONFIG_FILE} says "
            f"{str(config['weights_sha256'])[:12]}…: the file was changed or cut; {_REMEDY}"
        )
    weights = _parse_weights(path / WEIGHTS_FILE, data, card)
    return StoredPolicy(card, weights, digest)


def _replace(target: Path, made: Path, old: Path) -> None:
    """Move ``made`` to ``target``; a former ``target`` moves to ``old``, and back on failure."""
    if not target.exists():
        made.rename(target)
        return
    target.rename(old)
    try:
        made.rename(target)
    except OSError:
        old.rename(target)
        raise


def _render_config(card: PolicyCard, weights: bytes) -> bytes:
    content: dict[str, Any] = {
        "format": FORMAT,
        "card": card.model_dump(mode="json"),
        "observation_sha256": card.observation.sha256(),
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    return _canonical({**content, "sha256": _content_sha256(content)})


def _canonical(content: Mapping[str, Any]) -> bytes:
    """Return the only spelling of a config that is accepted; keys keep their order."""
    return (json.dumps(content, indent=2) + "\n").encode()


def _content_sha256(content: Mapping[str, Any]) -> str:
    """Return the hash of a config without its own ``sha256``."""
    return hashlib.sha256(
        _canonical({k: v for k, v in content.items() if k != "sha256"})
    ).hexdigest()


def _parse_config(path: Path) -> tuple[dict[str, Any], PolicyCard]:
    data = _read_bytes(path, _MAX_CONFIG_BYTES)
    try:
        config = json.loads(data)
        unchanged = isinstance(config, dict) and _canonical(config) == data
    except (ValueError, RecursionError) as fault:
        raise PolicyError(f"{path}: not valid JSON ({_one_line(fault)}): {_REMEDY}") from None
    if not isinstance(config, dict):
        raise PolicyError(f"{path}: holds no JSON object: {_REMEDY}")
    number = config.get("format")
    if type(number) is int and number > FORMAT:
        raise PolicyError(
            f"{path}: format {number} is newer than this sched-env reads ({FORMAT}): "
            "upgrade sched-env"
        )
    expected = ["card", "format", "observation_sha256", "sha256", "weights_sha256"]
    if sorted(config) != expected or type(number) is not int or number != FORMAT:
        raise PolicyError(
            f"{path}: needs the keys {', '.join(expected)} and format {FORMAT}: {_REMEDY}"
        )
    if not unchanged or config["sha256"] != _content_sha256(config):
        raise PolicyError(f"{path}: was changed after it was written (sha256 differs): {_REMEDY}")
    try:
        card = PolicyCard.model_validate_json(json.dumps(config["card"]), strict=True)
    except pydantic.ValidationError as fault:
        raise PolicyError(f"{path}: {describe_faults(PolicyCard, fault)}: {_REMEDY}") from None
    if config["observation_sha256"] != card.observation.sha256():
        raise PolicyError(f"{path}: observation_sha256 is not that of card.observation: {_REMEDY}")
    return config, card


def _parse_weights(path: Path, data: bytes, card: PolicyCard) -> dict[str, np.ndarray]:
    """Check the header before any tensor is made, then return the tensors."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(_MAX_HEADER_BYTES, len(data) - 8):
        raise PolicyError(f"{path}: its header of {size} bytes is cut or too long: {_REMEDY}")
    shapes = card.tensor_shapes()
    num_bytes = 4 * sum(math.prod(shape) for shape in shapes.values())
    if len(data) != 8 + size + num_bytes:
        raise PolicyError(
            f"{path}: holds {len(data) - 8 - size} bytes of weights, the architecture in "
            f"{CONFIG_FILE} needs {num_bytes}: {_REMEDY}"
        )
    try:
        tensors = safetensors.numpy.load(data)
    except Exception as fault:  # the reader raises errors of several libraries
        raise PolicyError(f"{path}: no safetensors file ({_one_line(fault)}): {_REMEDY}") from None
    return _checked_tensors(tensors, card, str(path))


def _checked_tensors(
    tensors: dict[str, np.ndarray], card: PolicyCard, where: str
) -> dict[str, np.ndarray]:
    """Return the tensors in the order of the architecture, all finite float32."""
    shapes = card.tensor_shapes()
    for name in tensors:
        if name not in shapes:
            hint = did_you_mean(name, shapes)
            raise PolicyError(f"{where}: no tensor {name!r} in this architecture.{hint}")
    checked: dict[str, np.ndarray] = {}
    for name, shape in shapes.items():
        if name not in tensors:
            raise PolicyError(f"{where}: tensor {name!r} of shape {shape} is missing")
        tensor = tensors[name]
        if tensor.dtype != np.float32 or tensor.shape != shape:
            raise PolicyError(
                f"{where}: tensor {name!r} is {tensor.dtype} {tensor.shape}; "
                f"it must be float32 {shape}"
            )
        if not np.isfinite(tensor).all():
            raise PolicyError(f"{where}: tensor {name!r} holds a value that is not finite")
        checked[name] = np.ascontiguousarray(tensor)
    return checked


def _read_bytes(path: Path, limit: int) -> bytes:
    """Read a regular file of at most ``limit`` bytes."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise PolicyError(f"{path}: is no regular file: {_REMEDY}")
        if status.st_size > limit:
            raise PolicyError(f"{path}: {status.st_size} bytes; at most {limit} are allowed")
        with path.open("rb") as file:
            return file.read(limit + 1)
    except OSError as fault:
        raise PolicyError(f"{path}: cannot be read ({fault.strerror})") from fault


def _write_bytes(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _one_line(fault: BaseException) -> str:
    return " ".join(str(fault).split())[:200] or type(fault).__name__
