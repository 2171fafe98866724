"""A policy of another size: with more hidden units, or other numbers of requests to see.

A wider pointer network decides as the narrower one does (Chen et al., Net2Net, 2016).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sched_env.errors import PolicyError
from sched_env.policy.runtime import ExportedPolicy

_POOLS = 4


def widened(policy: ExportedPolicy, hidden_size: int, seed: int) -> ExportedPolicy:
    """Return the same policy with more hidden units in each layer, whose say is 0 so far.

    Args:
        policy: A pointer network.
        hidden_size: Units of each layer, no fewer than it has.
        seed: Draws what the new units read.

    Raises:
        PolicyError: It is no pointer network, or is wider already.
    """
    architecture = policy.card.architecture
    if architecture.kind != "pointer" or architecture.hidden_size > hidden_size:
        raise PolicyError(f"{policy.name!r} cannot be widened to {hidden_size} hidden units")
    if architecture.hidden_size == hidden_size:
        return policy
    rng, old = np.random.default_rng(seed), architecture.hidden_size
    wider = architecture.model_copy(update={"hidden_size": hidden_size})
    card = policy.card.model_copy(update={"architecture": wider})
    weights = dict(policy.weights)
    for name, shape in card.tensor_shapes().items():
        if weights[name].shape == shape:
            continue
        if name == "context.weight":
            weights[name] = _context(weights[name], shape, old, rng)
        else:
            weights[name] = _grown(weights[name], shape, rng)
    return ExportedPolicy(card, weights)


def shown(
    policy: ExportedPolicy, num_waiting_slots: int | None, num_running_slots: int | None = None
) -> ExportedPolicy:
    """Return a policy that is shown other numbers of waiting and running requests; None: as many.

    What scores a slot scores any number of them; where all requests were shown before, only their
    rank and what is told of all slots together are other numbers now.
    """
    seen = policy.card.observation
    slots = {
        "num_waiting_slots": num_waiting_slots or seen.num_waiting_slots,
        "num_running_slots": num_running_slots or seen.num_running_slots,
    }
    seen = seen.model_copy(update=slots)
    return ExportedPolicy(policy.card.model_copy(update={"observation": seen}), policy.weights)


def _grown(
    tensor: NDArray[np.float32], shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.float32]:
    """Return a tensor (in, out) or (out,) in the corner of a larger one.

    What new units read is drawn; what old units read of new ones is 0.
    """
    grown = np.zeros(shape, np.float32)
    if len(shape) == 2:
        grown[:, tensor.shape[1] :] = rng.normal(
            0.0, (2.0 / shape[0]) ** 0.5, (shape[0], shape[1] - tensor.shape[1])
        )
    grown[tuple(slice(size) for size in tensor.shape)] = tensor
    return grown


def _context(
    tensor: NDArray[np.float32], shape: tuple[int, ...], old: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Return the context's weights (4H + G, H): each pool grows by itself."""
    hidden_size = shape[1]
    pools = tensor[: _POOLS * old].reshape(_POOLS, old, old)
    grown = [_grown(pool, (hidden_size, hidden_size), rng) for pool in pools]
    rest = tensor[_POOLS * old :]
    grown.append(_grown(rest, (len(rest), hidden_size), rng))
    return np.concatenate(grown)
