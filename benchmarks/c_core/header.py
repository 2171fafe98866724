"""The C header of the core: records, limits and numbers, from where Python has them.

No layout and no limit is written twice: a struct is made of the NumPy record that the engine itself
works on, and the compiler checks each offset.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from sched_env.cost import step_time
from sched_env.engine import arrivals, cohort, layout, progress, queue_records, records, view
from sched_env.workload import counter_rng, service_classes

RECORDS: dict[str, np.dtype[Any]] = {
    "Resting": layout.RESTING,
    "Slot": layout.SLOT,
    "Globals": layout.GLOBALS,
    "TraceRow": records.TRACE,
    "Request": records.REQUEST,
    "Seat": records.SEAT,
    "Entry": records.ENTRY,
    "Place": queue_records.PLACE,
    "Waiter": queue_records.WAITER,
    "ServiceClass": service_classes.SERVICE_CLASS,
    "Cost": step_time.COST,
    "Server": records.SERVER,
    "Memory": records.MEMORY,
}
"""The records that the C code works on, by the names of their structs; parts before wholes."""

_TYPES = {
    "f8": "double",
    "f4": "float",
    "i8": "int64_t",
    "i4": "int32_t",
    "u4": "uint32_t",
    "i1": "int8_t",
}
_NUMBERS: tuple[tuple[types.ModuleType, tuple[str, ...]], ...] = (
    (
        records,
        (
            *("WAITING", "RUNNING", "PREEMPTED", "FINISHED", "REJECTED", "TIMED_OUT"),
            *("NOT_ENDED", "STOP", "MAX_MODEL_LEN", "KV_CAPACITY", "SHED", "TOO_LARGE", "TIMEOUT"),
            *("NO_PROGRESS", "NO_LIMIT", "NOT_IN_FLIGHT", "CACHE_LINE"),
        ),
    ),
    (layout, ("NUM_LEVELS", "FULL_LEVEL")),
    (view, ("_URGENT_S",)),
    (arrivals, ("_BY_TIMEOUT", "_BY_DEADLINE")),
    (cohort, ("_MOST_TOKENS",)),
    (progress, ("_PATIENCE",)),
    (step_time, ("SHARP",)),
    (
        counter_rng,
        (
            *("CLASS_STREAM", "SLO_JITTER_STREAM", "LENGTH_PREDICTION_STREAM"),
            *("_SECOND_UNIFORM", "_GOLDEN", "_DRAW_DOMAIN"),
        ),
    ),
)


def header_text() -> str:
    """Return the text of ``records.h``."""
    parts = ["#pragma once", "#include <stddef.h>", "#include <stdint.h>"]
    parts += [
        f"#define {name.lstrip('_')} {_literal(getattr(module, name))}"
        for module, names in _NUMBERS
        for name in names
    ]
    levels = ", ".join(map(_literal, layout.PREFILL_LEVELS))
    parts.append(f"static const double PREFILL_LEVELS[NUM_LEVELS] = {{{levels}}};")
    parts += [_struct(name, record) for name, record in RECORDS.items()]
    return "\n".join(parts) + "\n"


def _literal(number: float) -> str:
    """Return a number as C spells it, to the last bit."""
    if isinstance(number, float):
        return float(number).hex()
    value = int(number)
    return f"UINT64_C({value})" if value >= 2**63 else f"INT64_C({value})"


def _struct(name: str, record: np.dtype[Any]) -> str:
    """Return a struct that lies as a record does, and the checks of that."""
    lines, checks, end = [f"typedef struct {name} {{"], [], 0
    for field in record.names or ():
        dtype, offset, *_ = record.fields[field]  # pyright: ignore[reportOptionalSubscript]
        lines.append(f"    {_member(field, dtype)};")
        checks.append(f'_Static_assert(offsetof({name}, {field}) == {offset}, "{name}.{field}");')
        end = offset + dtype.itemsize
    if record.itemsize > end:
        lines.append(f"    char padding_[{record.itemsize - end}];")
    checks.append(f'_Static_assert(sizeof({name}) == {record.itemsize}, "{name}");')
    return "\n".join([*lines, f"}} {name};", *checks])


def _member(field: str, dtype: np.dtype[Any]) -> str:
    base, shape = dtype.subdtype or (dtype, ())
    names = {record: name for name, record in RECORDS.items()}
    kind = names[base] if base.names else _TYPES[base.str.lstrip("<|")]
    return f"{kind} {field}" + "".join(f"[{length}]" for length in shape)
