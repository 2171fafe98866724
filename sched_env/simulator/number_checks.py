"""What counts as a number where one is given from Python: flags and spans of time do not."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np


def is_whole(value: object) -> TypeGuard[int]:
    """Tell whether it is a whole number, NumPy's included."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)


def is_number(value: object) -> TypeGuard[float]:
    """Tell whether it is a number that a float can be."""
    if is_whole(value):
        return abs(int(value)) < 2**1023
    return isinstance(value, float | np.floating)
