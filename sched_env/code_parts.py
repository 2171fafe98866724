"""Entries into compiled code, and its parts: what compiled callers call.

numba makes each function that another one calls a library of its own: optimised together with all
that it calls, and turned into native code that nobody runs, since its code is optimised once more
within the caller. For kernels that are made of hundreds of small functions that is most of the time
to compile them. A part stays as it is until the entry that it ends up in is optimised as a whole.
It has one version for integers of all sizes, and for all constants, instead of one for each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from llvmlite import binding, ir
from llvmlite.binding import Linkage
from numba import types
from numba.core import config
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

_F = TypeVar("_F", bound=Callable[..., Any])


class _NoEngine:
    """Where parts would be made native."""

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: a part has no address at which to note the environment."""


class _PartLibrary(JITCodeLibrary):
    """The code of a part and of the parts that it calls, as it was written."""

    @property
    def codegen(self) -> Any:
        return _NoEngine()

    def _optimize_final_module(self) -> None:
        """Leave that to the entry."""

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return no address."""
        self._ensure_finalized()
        return 0


class _EntryLibrary(JITCodeLibrary):
    """The code of an entry, to which all the parts in it belong alone.

    numba lets every function that it links in be replaced by another of its name, so LLVM may not
    rely on the body it sees: each call would have to look at whether an error came back. Private
    ones have no name that another library could meet.
    """

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.linkonce_odr:
                function.linkage = Linkage.private
        super()._optimize_final_module()

    def serialize_using_object_code(self) -> Any:
        """Return what the cache keeps: native code and the names of what is in it.

        numba keeps the code that it was made of as well, and reads it at each start: a caller
        could be linked with it. But compiled callers call parts.
        """
        self._ensure_finalized()
        names = ir.Module()
        for one in (*self._final_module.functions, *self._final_module.global_variables):
            if not one.is_declaration and one.linkage not in (Linkage.private, Linkage.internal):
                variable: Any = ir.GlobalVariable(names, ir.IntType(8), one.name)
                variable.initializer = ir.Constant(ir.IntType(8), 0)
        listed = binding.parse_assembly(str(names)).as_bitcode()
        return self.name, "object", (self._get_compiled_object(), listed)


class _RecordEntryLibrary(_EntryLibrary):
    """The same of an entry whose loops go over records.

    LLVM would make vectors of them, of numbers that lie apart: to gather those takes longer than
    what is done with them.
    """

    def _optimize_final_module(self) -> None:
        settings: Any = config
        before = settings.LOOP_VECTORIZE
        settings.LOOP_VECTORIZE = 0
        try:
            super()._optimize_final_module()
        finally:
            settings.LOOP_VECTORIZE = before


class _Unprinted(tuple[Any, ...]):
    """Types of arguments. numba prints them for each pass, and records have hundreds of fields."""

    def __repr__(self) -> str:
        return f"{len(self)} arguments"


class EntryCompiler(Compiler):
    """Compiles one function into an entry."""

    library = _EntryLibrary

    def compile_extra(self, func: Any) -> Any:
        """Compile a Python function."""
        self.state.library = self.library(self.state.targetctx.codegen(), func.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(func)


class RecordEntryCompiler(EntryCompiler):
    """Compiles one function into an entry whose loops go over records."""

    library = _RecordEntryLibrary


class PartCompiler(Compiler):
    """Compiles one function into a part."""

    def compile_extra(self, func: Any) -> Any:
        """Compile a Python function."""
        self.state.args = _Unprinted(self.state.args)
        self.state.library = _PartLibrary(self.state.targetctx.codegen(), func.__qualname__)
        return super().compile_extra(func)


class Part:
    """A part as it stands in a module: numba's dispatcher is made when a caller is compiled.

    Hundreds are defined, and none is looked at where the cache holds the kernels.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    @functools.cached_property
    def dispatcher(self) -> Any:
        """What numba compiles."""
        return with_wide_integers(self._make())

    @property
    def _numba_type_(self) -> Any:
        return self.dispatcher._numba_type_


def called_as_part(entry: Any, part: Part) -> None:
    """Let compiled callers of an entry call a part instead."""
    entry.get_call_template = lambda *called_with: part.dispatcher.get_call_template(*called_with)
    entry.get_overload = lambda signature: part.dispatcher.get_overload(signature)


def with_wide_integers(dispatcher: _F) -> _F:
    """Let compiled callers call a function by one signature for integers of all sizes."""
    narrow: Any = dispatcher
    template_for = narrow.get_call_template

    def get_call_template(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        wide = {name: _widened(value) for name, value in keywords.items()}
        return template_for(tuple(map(_widened, arguments)), wide)

    narrow.get_call_template = get_call_template
    return dispatcher


def _widened(argument: Any) -> Any:
    plain: Any = types.unliteral(argument)
    if isinstance(plain, types.Integer):
        integer: Any = plain
        return types.int64 if integer.signed and integer.bitwidth < 64 else plain
    return plain
