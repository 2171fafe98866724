"""Exported policies as ONNX graphs, with prior and mask inside."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from sched_env.agents.export import torch_actor
from sched_env.errors import MissingExtraError, PolicyError
from sched_env.evaluation.files import replacing
from sched_env.policy.runtime import ExportedPolicy

_NUM_CHECKED = 256
_TOLERANCE = 1e-5
_OPSET = 18


def check_onnx_installed() -> None:
    """Raise ``MissingExtraError`` unless ONNX files can be written and run."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError("onnx", package)


def write_onnx(policy: ExportedPolicy, path: Path) -> None:
    """Write ``policy`` as one ONNX file and run it against the policy's own logits.

    Inputs are ``observations``, float32 (batch, num_public), and ``masks``, bool
    (batch, num_actions); the output is ``logits``, float32 (batch, num_actions).

    Raises:
        MissingExtraError: A package of the extra ``onnx`` is missing.
        PolicyError: The graph and the policy disagree.
    """
    check_onnx_installed()
    observations, masks = _random_states(policy)
    batch = torch.export.Dim("batch")
    actor = torch_actor(policy)
    actor.has_fixed_sizes = True
    with _quiet_exporter():
        program = torch.onnx.export(
            actor,
            (torch.from_numpy(observations), torch.from_numpy(masks)),
            dynamo=True,
            opset_version=_OPSET,
            input_names=["observations", "masks"],
            output_names=["logits"],
            dynamic_shapes={"observations": {0: batch}, "masks": {0: batch}},
            verbose=False,
        )
    if program is None:
        raise PolicyError(f"{path}: torch returned no ONNX graph; use the safetensors format")
    with replacing(path) as partial:
        program.save(str(partial), external_data=False)
        _check_graph(partial, policy, observations, masks)


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Silence what torch's exporter says about itself: deprecations within torch, no torchvision.

    What matters, the logits of the graph, is checked afterwards.
    """
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _random_states(policy: ExportedPolicy) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    schema = policy.card.observation
    shape = (_NUM_CHECKED, policy.observation_size)
    observations = rng.uniform(-1.0, 1.0, shape).astype(np.float32)
    num_features = len(schema.slot_features)
    present = rng.random((_NUM_CHECKED, schema.num_slots)) < 0.7
    observations[:, : schema.num_slots * num_features : num_features] = present
    levels = np.ones((_NUM_CHECKED, schema.num_levels), dtype=bool)
    return observations, np.hstack([levels, present])


def _check_graph(
    path: Path, policy: ExportedPolicy, observations: np.ndarray, masks: np.ndarray
) -> None:
    import onnxruntime  # pyright: ignore[reportMissingImports]  (an extra)

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"observations": observations, "masks": masks})
    expected = policy.logits(observations, masks)
    difference = np.abs(logits - expected)[masks].max()
    num_other = int(np.sum(logits.argmax(axis=1) != expected.argmax(axis=1)))
    if not difference <= _TOLERANCE * max(1.0, np.abs(expected[masks]).max()) or num_other:
        raise PolicyError(
            f"the ONNX graph's logits differ by {difference:.2g} from the policy's, and "
            f"{num_other} of {len(logits)} actions; use the safetensors format"
        )
