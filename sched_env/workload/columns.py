"""Read-only numpy columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sched_env.errors import TraceError

MAX_TOKENS = 2**31 - 1
"""The largest token count that a table holds (int32)."""


def frozen_column(name: str, values: npt.ArrayLike, dtype: Any) -> Any:
    """Return ``values`` as a read-only contiguous 1-D array; refuse what the dtype cannot hold."""
    try:
        array = np.asarray(values)
        if array.ndim != 1:
            raise TraceError(f"{name} has {array.ndim} dimensions; give one value per request")
        if array.dtype == dtype and array.flags.c_contiguous and not array.flags.writeable:
            return array
        if array.dtype.kind not in "biuf":
            raise TraceError(f"{name} holds {array.dtype}; give numbers")
        with np.errstate(invalid="ignore", over="ignore"):
            cast = np.array(array, dtype=dtype, order="C")
            exact = np.array_equal(cast, array, equal_nan=array.dtype.kind == "f")
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"{name} cannot be read as {np.dtype(dtype)}: {error}") from error
    if not exact and np.dtype(dtype).kind != "f":
        raise TraceError(f"{name} holds values that {np.dtype(dtype)} cannot hold exactly")
    cast.setflags(write=False)
    return cast
