"""What the fields of a model mean: the docstrings under them.

pydantic can note them as it makes a model, but it reads the sources again for each one, which takes
longer than all the rest of it. They are wanted only where a command shows its help.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap

from pydantic import BaseModel


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstring under each field of ``model``, inherited ones included, by its name."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            found.update(_own_meanings(base))
    return {name: meaning for name, meaning in found.items() if name in model.model_fields}


def _own_meanings(model: type[BaseModel]) -> dict[str, str]:
    module = ast.parse(textwrap.dedent(inspect.getsource(model)))
    body = next(node for node in ast.walk(module) if isinstance(node, ast.ClassDef)).body
    found: dict[str, str] = {}
    for field, text in itertools.pairwise(body):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(meaning))),
            ):
                found[name] = inspect.cleandoc(meaning)
            case _:
                pass
    return found
