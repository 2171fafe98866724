"""The ways to name a policy, and what a name stands for.

A policy is named by a registered name (``fcfs``), by the path of an exported policy or of the
run that holds one (``runs/azure/…``), by ``pretrained/NAME`` for one that ships with the package,
or by ``module:function`` for a key function in the user's
own module. The last form imports that module, which runs its code: name only modules you trust.
A path never runs code.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sched_env.config.places import exists
from sched_env.errors import PolicyError, UnknownNameError
from sched_env.policy.keys import Heuristic
from sched_env.policy.names import find_registered, known_policies

if TYPE_CHECKING:
    from sched_env.policy.runtime import ExportedPolicy

_PRETRAINED = "pretrained/"
_SHIPPED = Path(__file__).parents[1] / "agents" / "pretrained"
_MODULE_AND_FUNCTION = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")


def resolve_policy(
    policy: str | Path | Heuristic | ExportedPolicy, *, allow_privileged: bool = False
) -> Heuristic | ExportedPolicy:
    """Return the policy that a name, a path or ``module:function`` stands for.

    Args:
        policy: A registered name, the folder of an exported policy, a run folder with a
            ``policy`` folder inside, ``pretrained/NAME``, or ``module:function``. A policy is
            returned as it is. A registered name and ``pretrained/`` win over a folder of the same
            name; write ``./name`` for that.
        allow_privileged: Accept heuristics that read the true output length.

    Raises:
        UnknownNameError: If the name is not known; the message offers the nearest.
        PolicyError: If a folder holds no valid policy, a module cannot be imported, or the
            policy is privileged and that was not allowed.
    """
    found = _find(policy) if isinstance(policy, str | Path) else policy
    if not hasattr(found, "privileged"):
        raise PolicyError(
            f"{found!r} is no policy: give a name, a folder, a heuristic or an exported policy"
        )
    if found.privileged and not allow_privileged:
        raise PolicyError(
            f"policy {found.name!r} reads the true output length, which no server knows: "
            "it is a bound, not a scheduler; allow privileged policies to run it"
        )
    return found


def _find(policy: str | Path) -> Heuristic | ExportedPolicy:
    name = str(policy)
    registered = find_registered(name)
    if registered is not None:
        return registered
    if name.startswith(_PRETRAINED):
        return _pretrained(name.removeprefix(_PRETRAINED).rstrip("/"))
    path = Path(name)
    if not exists(name):
        match = _MODULE_AND_FUNCTION.fullmatch(name)
        if match:
            return _from_module(match[1], match[2])
        if path.name != name or isinstance(policy, Path):
            raise PolicyError(f"no folder {name!r}: give the folder of a policy or of a run")
        shipped = (_PRETRAINED + one for one in pretrained_policies())
        raise UnknownNameError("policy", name, (*known_policies(), *shipped))
    return _from_folder(path)


def pretrained_policies() -> tuple[str, ...]:
    """Return the names of the policies that ship with the package, sorted."""
    return tuple(sorted(path.parent.name for path in _SHIPPED.glob("*/config.json")))


def _pretrained(name: str) -> ExportedPolicy:
    known = pretrained_policies()
    if name not in known:
        raise UnknownNameError("pretrained policy", name, known)
    return _from_folder(_SHIPPED / name)


def _from_folder(path: Path) -> ExportedPolicy:
    from sched_env.policy.runtime import load_policy

    if not path.is_dir():
        raise PolicyError(f"{path} is a file: give the folder of a policy, which holds config.json")
    if not (path / "config.json").exists() and (path / "policy").is_dir():
        return load_policy(path / "policy")
    return load_policy(path)


def _from_module(module_name: str, function_name: str) -> Heuristic:
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as fault:
        if fault.name is None or not f"{module_name}.".startswith(f"{fault.name}."):
            raise
        raise PolicyError(
            f"no module {module_name!r} for policy '{module_name}:{function_name}': "
            "run from its folder or put the folder on PYTHONPATH"
        ) from fault
    found = getattr(module, function_name, None)
    if isinstance(found, Heuristic):
        return found
    if not callable(found):
        known = [name for name, value in vars(module).items() if callable(value)]
        raise UnknownNameError(f"function of module {module_name}", function_name, known)
    plain: Any = getattr(found, "py_func", found)
    return Heuristic(f"{module_name}:{function_name}", plain, reference=module.__name__)
