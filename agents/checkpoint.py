"""Checkpoints: everything that the rest of a training run depends on, written all or nothing.

A checkpoint is a folder with ``state.npz`` (arrays: weights, optimizer moments, torch's random
state, environments) and ``state.json`` (numbers, NumPy's random state). It is written beside its
place and renamed, so a run that is killed meanwhile finds the one before. The numbers go on from
a checkpoint bit by bit as if the run had never stopped.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from sched_env.errors import ConfigError

_PREFIX = "decisions_"
_PARTIAL = ".partial-"
_NUM_KEPT = 2

_ARRAYS = ("last_obs", "last_episode_starts", "rng.torch", "rng.numpy")
_VALUES = {
    "num_timesteps": int,
    "num_updates": int,
    "progress_remaining": float,
    "rng.numpy": list,
    "episodes": list,
    "successes": list,
    "pending_logs": dict,
    "history": list,
}
"""What every checkpoint holds beside weights and environments, and of which type."""

JUDGED = "judged"
"""What the run last told of validation; older checkpoints have none."""


@dataclass(frozen=True)
class Checkpoint:
    """Arrays and JSON-able values, by name."""

    arrays: dict[str, np.ndarray]
    values: dict[str, Any]

    def part(self, prefix: str) -> dict[str, np.ndarray]:
        """Return the arrays whose names start with ``prefix``, without it."""
        return {
            name.removeprefix(prefix): array
            for name, array in self.arrays.items()
            if name.startswith(prefix)
        }


def save_checkpoint(folder: Path, num_decisions: int, checkpoint: Checkpoint) -> Path:
    """Write ``checkpoint`` under ``folder``, then remove all but the newest two.

    Returns:
        The checkpoint's own folder, named by ``num_decisions``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{_PREFIX}{num_decisions:012d}"
    partial = folder / f"{_PARTIAL}{place.name}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    with (partial / "state.npz").open("wb") as file:
        np.savez(file, allow_pickle=False, **checkpoint.arrays)
        _sync(file.fileno())
    with (partial / "state.json").open("w", encoding="utf-8") as file:
        json.dump(checkpoint.values, file)
        file.flush()
        _sync(file.fileno())
    shutil.rmtree(place, ignore_errors=True)
    partial.rename(place)
    for old in _checkpoints(folder)[:-_NUM_KEPT]:
        shutil.rmtree(old)
    return place


def _sync(descriptor: int) -> None:
    os.fsync(descriptor)


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob(f"{_PREFIX}*") if path.is_dir())


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint under ``folder``, or None; remove unfinished ones."""
    for partial in folder.glob(f"{_PARTIAL}*"):
        shutil.rmtree(partial, ignore_errors=True)
    found = _checkpoints(folder)
    return found[-1] if found else None


def load_checkpoint(place: Path) -> Checkpoint:
    """Read the checkpoint in ``place``.

    Raises:
        ConfigError: It is damaged.
    """
    try:
        with (place / "state.npz").open("rb") as file, np.load(file, allow_pickle=False) as saved:
            arrays = {name: saved[name] for name in saved.files}
        values = json.loads((place / "state.json").read_text(encoding="utf-8"))
        _check_parts(arrays, values)
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(
            f"checkpoint {place} is damaged ({error}); remove that folder to go on from the one "
            "before it"
        ) from None
    return Checkpoint(arrays, values)


def _check_parts(arrays: Mapping[str, np.ndarray], values: object) -> None:
    if not isinstance(values, dict):
        raise ValueError("state.json holds no object of JSON")
    for name in _ARRAYS:
        if name not in arrays:
            raise ValueError(f"state.npz lacks {name}")
    for name, kind in _VALUES.items():
        if not isinstance(values.get(name), kind):
            raise ValueError(f"state.json lacks {name}, or it is no {kind.__name__}")
    if not isinstance(values.get(JUDGED, {}), dict):
        raise ValueError(f"state.json has a {JUDGED} that is no dict")


def model_checkpoint(model: OnPolicyAlgorithm) -> Checkpoint:
    """Take everything from ``model``, its environments and the global random generators."""
    arrays: dict[str, np.ndarray] = {"rng.torch": torch.get_rng_state().numpy()}
    for name, tensor in model.policy.state_dict().items():
        arrays[f"policy.{name}"] = tensor.detach().cpu().numpy().copy()
    for index, entry in model.policy.optimizer.state_dict()["state"].items():
        for name, tensor in entry.items():
            arrays[f"optimizer.{index}.{name}"] = tensor.detach().cpu().numpy().copy()
    env = _state_env(model)
    arrays |= {f"env.{name}": array for name, array in env.get_state().items()}
    arrays["last_obs"] = np.array(model._last_obs)
    arrays["last_episode_starts"] = np.array(model._last_episode_starts)
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002
    arrays["rng.numpy"] = np.asarray(keys)
    values = {
        "num_timesteps": int(model.num_timesteps),
        "num_updates": int(model._n_updates),
        "progress_remaining": float(model._current_progress_remaining),
        "rng.numpy": [str(kind), int(position), int(has_gauss), float(cached)],
        "episodes": list(model.ep_info_buffer or ()),
        "successes": [bool(one) for one in model.ep_success_buffer or ()],
        "pending_logs": {
            key: [_plain(value), model.logger.name_to_excluded[key]]
            for key, value in model.logger.name_to_value.items()
            if isinstance(value, int | float | np.number)
        },
    }
    return Checkpoint(arrays, values)


def _plain(value: float | np.number) -> float:
    return value if isinstance(value, int) else float(value)


def restore_model(model: OnPolicyAlgorithm, checkpoint: Checkpoint) -> None:
    """Put ``model`` into the state that `model_checkpoint` took; its logger must be set."""
    values = checkpoint.values
    weights = {key: torch.from_numpy(one) for key, one in checkpoint.part("policy.").items()}
    model.policy.load_state_dict(weights)
    _restore_optimizer(model.policy.optimizer, checkpoint.part("optimizer."))
    _state_env(model).set_state(checkpoint.part("env."))
    model._last_obs = checkpoint.arrays["last_obs"]
    model._last_episode_starts = checkpoint.arrays["last_episode_starts"]
    model.num_timesteps = values["num_timesteps"]
    model._n_updates = values["num_updates"]
    model._current_progress_remaining = values["progress_remaining"]
    model.ep_info_buffer = deque(values["episodes"], maxlen=model._stats_window_size)
    model.ep_success_buffer = deque(values["successes"], maxlen=model._stats_window_size)
    for key, (value, excluded) in values["pending_logs"].items():
        model.logger.record(key, value, exclude=tuple(excluded or ()))
    torch.set_rng_state(torch.from_numpy(checkpoint.arrays["rng.torch"]))
    kind, *rest = values["rng.numpy"]
    np.random.set_state((kind, checkpoint.arrays["rng.numpy"], *rest))  # noqa: NPY002


def _restore_optimizer(optimizer: torch.optim.Optimizer, arrays: Mapping[str, np.ndarray]) -> None:
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, array in arrays.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = torch.from_numpy(array)
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _state_env(model: OnPolicyAlgorithm) -> Any:
    env = model.get_env()
    if env is None:
        raise ValueError("the model has no environment: give it one before a checkpoint")
    return env.unwrapped
