"""The table of all registered policies, made from the registry.

``python -m sched_env.evaluation.arena.opponents`` prints it; docs/arena.md holds a copy.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys

import sched_env.baselines
from sched_env.policy.keys import Heuristic
from sched_env.policy.names import find_registered, known_policies

_HEAD = "| policy | what it does | parameters | source |\n|---|---|---|---|\n"


def opponents_markdown() -> str:
    """Return every registered policy with its rule, parameters and source, as Markdown."""
    return _HEAD + "".join(_line(name) for name in known_policies())


def _line(name: str) -> str:
    policy = find_registered(name)
    values = {
        key: value for key, value in dict(policy.parameters).items() if value != policy.reference
    }
    parameters = ", ".join(f"{key} {value}" for key, value in values.items())
    cells = (f"`{name}`", _rule(name, policy), parameters or "–", policy.reference)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _rule(name: str, policy: object) -> str:
    """Return what a policy does, in the first sentence of what documents it."""
    if isinstance(policy, Heuristic) and policy.base is not None:
        return f"`{policy.base.name}` on a server with this switch"
    if isinstance(policy, Heuristic):
        return _first_sentence(inspect.getdoc(policy.function))
    for found in pkgutil.iter_modules(sched_env.baselines.__path__):
        module = importlib.import_module(f"sched_env.baselines.{found.name}")
        if getattr(module, name, None) is policy:
            return _first_sentence(inspect.getdoc(module))
    return "–"


def _first_sentence(text: str | None) -> str:
    return (text or "–").split("\n\n")[0].replace("\n", " ").replace("``", "`").rstrip(".")


if __name__ == "__main__":
    sys.stdout.write(opponents_markdown())
