"""Arrays without reference counts inside compiled code.

The arrays of a world outlive every call into the core. numba counts references to them all the
same, with atomic instructions that cost a step more than its arithmetic.
"""

from __future__ import annotations

from typing import Any

import numba
from numba.core import cgutils
from numba.extending import intrinsic

if numba.config.DISABLE_JIT:  # pyright: ignore[reportAttributeAccessIssue]

    def borrowed(array: Any) -> Any:
        """Return ``array``."""
        return array

else:

    @intrinsic
    def borrowed(typing_context: Any, array: Any) -> Any:
        """Return the view ``array`` without an owner: it must not outlive the call."""

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            make = context.make_array(signature.return_type)
            owned = make(context, builder, arguments[0])
            view = make(context, builder)
            for field in ("nitems", "itemsize", "data", "shape", "strides"):
                setattr(view, field, getattr(owned, field))
            for field in ("meminfo", "parent"):
                setattr(view, field, cgutils.get_null_value(getattr(view, field).type))
            return view._getvalue()

        return array(array), codegen
