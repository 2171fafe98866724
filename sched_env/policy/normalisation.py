"""Normalisation of an observation inside an exported policy.

Kind "none" passes the observation on (the environment already squashes its features). Kind
"standard" computes ``min(max((y - mean) * inverse_std, -clip), clip)`` with one mean and one
inverse standard deviation per slot feature, shared by all slots, and per global. Tensors,
float32: ``normalisation.slot_mean`` (F,), ``normalisation.slot_inverse_std`` (F,),
``normalisation.global_mean`` (G,), ``normalisation.global_inverse_std`` (G,).
"""

from __future__ import annotations

import numpy as np

from sched_env.compiled import compiled_part


def normalisation_tensor_shapes(
    num_slot_features: int, num_globals: int
) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every tensor of the "standard" normalisation."""
    return {
        "normalisation.slot_mean": (num_slot_features,),
        "normalisation.slot_inverse_std": (num_slot_features,),
        "normalisation.global_mean": (num_globals,),
        "normalisation.global_inverse_std": (num_globals,),
    }


@compiled_part
def normalise(
    x: np.ndarray, mean: np.ndarray, inverse_std: np.ndarray, clip: np.float32, out: np.ndarray
) -> None:
    """Write the normalised ``x`` to ``out``; all arrays are float32 (n,)."""
    for index in range(x.size):
        value = (x[index] - mean[index]) * inverse_std[index]
        out[index] = min(max(value, -clip), clip)
