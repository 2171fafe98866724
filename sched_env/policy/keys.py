"""Heuristics as key functions, compiled into the core.

A key function is plain Python over one request::

    @heuristic("sjf", static=True, reference="Shortest job first")
    def sjf(request, now):
        return request.predicted_output_tokens, request.arrival_time_s

It returns one or two floats; smaller is served first. ``request`` is a REQUEST record of
`sched_env.engine.records`, ``now`` the clock in seconds. It is compiled once, when a simulation
first needs it, for the one signature that the core calls.
"""

from __future__ import annotations

import dis
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType, FunctionType, ModuleType
from typing import Any, Literal, Self

import numba

from sched_env.compiled import compiled
from sched_env.config.scheduler import SchedulerConfig
from sched_env.engine.keycall import KEY_SIGNATURE, register_key
from sched_env.engine.records import REQUEST
from sched_env.errors import PolicyError, did_you_mean
from sched_env.policy.names import register
from sched_env.policy.protocol import KeyFunction, ParameterValue

HIDDEN_FIELDS = ("output_tokens", "stop_at_tokens", "stop_reason")
"""Fields of a request that no server knows in advance; a key that reads one is privileged."""

BUDGETS = (
    "max_num_batched_tokens",
    "max_num_seqs",
    "num_blocks",
    "block_size",
    "max_model_len",
    "swap_s_per_block",
)
"""What a server has to give: the same for every policy that is compared."""

_NAME = re.compile(r"[a-z][a-z0-9_]*(:[A-Za-z_]\w*)?|[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, eq=False)
class Heuristic:
    """A policy that serves the request with the smallest key first.

    Attributes:
        name: The name in the registry and in results.
        function: ``key(request, now_s)``, plain Python, returns one or two floats.
        static: True if the key of a waiting request does not change with time, so that the core
            sorts once instead of before each iteration.
        reference: A paper, a book or a system that describes the heuristic.
        parameters: The constants in the key, for results and reports.
        scheduler: Switches of the server that belong to the policy, such as its victim rule: fields
            of ``SchedulerConfig`` other than `BUDGETS`, laid over those of the environment.
        base: The policy that this one differs from by its switches, or ``None``.
        lane: ``lane(request, now_s)``, plain Python: names the lane of a waiting request by a
            number. Requests of one lane have to keep the order of their arrival, whatever the time,
            for as long as they wait, and a request its lane. Then the core looks at the first of
            each lane only (see ``engine/lanes.py``) instead of sorting the queue.
    """

    name: str
    function: KeyFunction
    static: bool = False
    reference: str = ""
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    base: Self | None = None
    lane: KeyFunction | None = None
    kind: Literal["heuristic"] = field(default="heuristic", init=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise PolicyError(
                f"policy name {self.name!r} is not allowed: use lower-case letters, digits and _"
            )
        _check_arguments(self.name, self.function)
        _check_switches(self.name, self.scheduler)
        if self.static and _reads_name(self.function, list(_code(self.function).co_varnames)[1]):
            raise PolicyError(
                f"key function of {self.name!r} reads the clock and is declared static=True: "
                "its order changes with time, declare static=False"
            )
        if self.lane is not None:
            _check_lane(self.name, self.lane, self.static)

    @cached_property
    def privileged(self) -> bool:
        """True if the key, or a function it calls, names one of `HIDDEN_FIELDS`."""
        return any(hidden in _names(self.function) for hidden in HIDDEN_FIELDS)

    @property
    def counts_classes(self) -> bool:
        """True if the key reads what its service class has been served (see ``fair_share``)."""
        return "class_tokens" in _names(self.function)

    @cached_property
    def addresses(self) -> tuple[int, int]:
        """The two addresses by which the core calls the key; compiles it at first use.

        Raises:
            PolicyError: If numba cannot compile the key for `KEY_SIGNATURE`.
        """
        return register_key(self._compiled_key)

    @cached_property
    def lane_addresses(self) -> tuple[int, int] | None:
        """The two addresses by which the core asks for a request's lane; ``None`` without lanes."""
        return None if self.lane is None else register_key(self._compiled_lane)

    @cached_property
    def _compiled_lane(self) -> Callable[..., Any]:
        assert self.lane is not None
        return _compile(self.name, self.lane)

    @cached_property
    def _compiled_key(self) -> Callable[..., Any]:
        """The compiled key; held here because its addresses die with it."""
        return _compile(self.name, self.function)

    def with_switches(self, name: str, reference: str, **scheduler: Any) -> Self:
        """Return the same order of requests with switches of the server, under another name.

        Args:
            name: Lower-case letters, digits and ``_``.
            reference: A paper, a book or a system that describes the switches.
            scheduler: Fields of ``SchedulerConfig``, no budgets.

        Raises:
            PolicyError: If the name is malformed, or a switch is a budget or unknown.
        """
        parameters = {**self.parameters, **scheduler}
        made_of = self.function, self.static, reference, parameters, scheduler, self, self.lane
        return type(self)(name, *made_of)

    def on_server(self, config: SchedulerConfig) -> SchedulerConfig:
        """Return a server's budgets and rules with the policy's own switches laid over them."""
        return config.replace(**self.scheduler) if self.scheduler else config

    def __call__(self, request: Any, now_s: float) -> tuple[float, float]:
        """Compute the key of one request in plain Python.

        Args:
            request: A REQUEST record with named fields, such as a ``np.recarray`` row.
            now_s: The clock in seconds.
        """
        return _as_pair(self.function(request, now_s))

    def __copy__(self) -> Self:
        """Return itself: it never changes."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return itself: it never changes."""
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Pickle without addresses, which mean nothing in another process.

        What `heuristic` made stands where its function stood, so it is pickled by that place.
        """
        if self.base is not None:
            return _switched, (self.base, self.name, self.reference, dict(self.scheduler))
        place = self.function.__module__, self.function.__qualname__
        if getattr(sys.modules.get(place[0]), place[1], None) is self:
            return _at_place, place
        parameters, scheduler = dict(self.parameters), dict(self.scheduler)
        made_of = self.name, self.function, self.static, self.reference, parameters, scheduler
        return type(self), (*made_of, None, self.lane)


def _switched(base: Heuristic, name: str, reference: str, switches: dict[str, Any]) -> Heuristic:
    """Return a heuristic with switches, as it was before it was pickled."""
    return base.with_switches(name, reference, **switches)


def _at_place(module_name: str, name: str) -> Heuristic:
    """Return the heuristic that stands in a module."""
    return getattr(importlib.import_module(module_name), name)


def heuristic(
    name: str,
    *,
    static: bool = False,
    lane: KeyFunction | None = None,
    reference: str = "",
    parameters: Mapping[str, ParameterValue] | None = None,
    scheduler: Mapping[str, Any] | None = None,
) -> Callable[[KeyFunction], Heuristic]:
    """Make a key function a heuristic and register it under ``name``.

    Args:
        name: Lower-case letters, digits and ``_``.
        static: True if the key of a waiting request does not change with time.
        lane: Names the lane of a waiting request, see ``Heuristic``.
        reference: A paper, a book or a system that describes the heuristic.
        parameters: The constants in the key, for results and reports.
        scheduler: Switches of the server that belong to the policy; no budgets.

    Raises:
        PolicyError: If the name is taken or malformed, if the function does not take
            ``(request, now)``, if it is declared static and reads the clock, or if ``scheduler``
            names a budget or no switch.
    """

    def decorate(function: KeyFunction) -> Heuristic:
        own, switches = dict(parameters or {}), dict(scheduler or {})
        made = Heuristic(name, _plain(function), static, reference, own, switches, lane=lane)
        register(made)
        return made

    return decorate


def _as_pair(key: Any) -> tuple[float, float]:
    """Return a key of one or two numbers as two floats."""
    if isinstance(key, tuple):
        return float(key[0]), float(key[1])
    return float(key), 0.0


def _compile(name: str, function: KeyFunction) -> Callable[..., Any]:
    """Return ``function`` compiled for `KEY_SIGNATURE`; a single float is paired with zero."""
    # Kernels are cached on disk for our own sources only: the name of the cache is their hash.
    is_ours = function.__module__.startswith("sched_env.")
    key: Any = compiled(function) if is_ours else numba.njit(error_model="numpy")(function)
    if not hasattr(key, "compile"):  # NUMBA_DISABLE_JIT=1
        return lambda request, now_s: _as_pair(function(request, now_s))
    try:
        key.compile(KEY_SIGNATURE)
    except Exception as fault:  # numba raises KeyError, ValueError and errors of its own
        paired = _try_paired(key)
        if paired is None:
            raise _compile_error(name, fault) from fault
        return paired
    return key


def _try_paired(key: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return ``(key(request, now), 0.0)`` compiled, or ``None`` if ``key`` is not one number."""

    @numba.njit(error_model="numpy")
    def paired(request: Any, now_s: float) -> tuple[float, float]:
        return float(key(request, now_s)), 0.0

    try:
        paired.compile(KEY_SIGNATURE)  # pyright: ignore[reportFunctionMemberAccess]
    except Exception:
        return None
    return paired


def _compile_error(name: str, fault: Exception) -> PolicyError:
    fields = [known for known in REQUEST.names or () if known not in HIDDEN_FIELDS]
    if isinstance(fault, KeyError) and fault.args[0] not in (REQUEST.names or ()):
        unknown = str(fault.args[0])
        return PolicyError(
            f"key function of {name!r} reads request.{unknown}, which does not exist."
            f"{did_you_mean(unknown, fields)} Known: {', '.join(fields)}"
        )
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    cause = next((line for line in lines if not line.startswith("Failed in")), "")
    return PolicyError(
        f"key function of {name!r} does not compile ({cause.rstrip('.')}): it must take "
        "(request, now) and return one or two floats, in the part of Python that numba compiles"
    )


def _plain(function: Any) -> Any:
    """Return the Python function behind a numba dispatcher, or the function itself."""
    return getattr(function, "py_func", function)


def _code(function: Any) -> CodeType:
    return _plain(function).__code__


def _check_arguments(name: str, function: Any) -> None:
    if not isinstance(function, FunctionType):
        raise PolicyError(f"key of {name!r} is {function!r}: give a Python function of two values")
    given = list(inspect.signature(function).parameters.values())
    if len(given) != 2 or any(p.kind is not p.POSITIONAL_OR_KEYWORD for p in given):
        raise PolicyError(
            f"key function of {name!r} takes {inspect.signature(function)}: "
            "it must take (request, now)"
        )


def _check_lane(name: str, lane: Any, is_static: bool) -> None:
    if is_static:
        raise PolicyError(
            f"{name!r} is declared static=True and has lanes: its order does not change with time, "
            "so leave the lanes out"
        )
    _check_arguments(f"{name} (lane)", lane)
    if _reads_name(lane, list(_code(lane).co_varnames)[1]):
        raise PolicyError(
            f"lane function of {name!r} reads the clock: a request keeps its lane while it waits"
        )


def _check_switches(name: str, switches: Mapping[str, Any]) -> None:
    known = [field for field in SchedulerConfig.model_fields if field not in BUDGETS]
    for switch in switches:
        if switch in BUDGETS:
            raise PolicyError(
                f"policy {name!r} sets {switch}: budgets are the server's and the same for every "
                f"policy; a policy may set {', '.join(known)}"
            )
        if switch not in known:
            raise PolicyError(
                f"policy {name!r} sets {switch!r}, which is no switch of a server."
                f"{did_you_mean(switch, known)} Known: {', '.join(known)}"
            )
    SchedulerConfig(**switches)


def _reads_name(function: Any, name: str) -> bool:
    for instruction in dis.get_instructions(_code(function)):
        loaded = instruction.argval
        names = loaded if isinstance(loaded, tuple) else (loaded,)
        if instruction.opname.startswith("LOAD_") and name in names:
            return True
    return False


def _names(function: Any, seen: set[int] | None = None) -> set[str]:
    """Return every name and string in ``function`` and in the functions that it calls."""
    seen = set() if seen is None else seen
    seen.add(id(function))
    found: set[str] = set()
    reachable: dict[str, Any] = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        reachable[name] = cell.cell_contents
        found.add(name)
    for code in _nested(function.__code__):
        found.update(code.co_names)
        found.update(text for text in code.co_consts if isinstance(text, str))
    used = [reachable[name] for name in found if name in reachable]
    modules = [value for value in used if isinstance(value, ModuleType)]
    used += [getattr(module, name, None) for module in modules for name in found]
    for called in map(_plain, used):
        if isinstance(called, FunctionType) and id(called) not in seen and _is_users(called):
            found |= _names(called, seen)
    return found


def _is_users(function: FunctionType) -> bool:
    return function.__module__.partition(".")[0] not in ("math", "numba", "numpy")


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
