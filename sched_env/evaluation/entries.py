"""What is compared: policies and traces, each under a name of its own, loads and seeds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import sched_env.baselines  # noqa: F401  (registers the heuristics)
from sched_env.config.env import OWN_RATE
from sched_env.errors import SchedEnvError
from sched_env.evaluation.fingerprints import function_sha256, weights_sha256
from sched_env.policy.keys import Heuristic
from sched_env.policy.registry import resolve_policy
from sched_env.simulator.number_checks import is_number, is_whole
from sched_env.simulator.simulate import check_load_alone, check_seed
from sched_env.workload import RequestTable

if TYPE_CHECKING:
    from sched_env.policy.runtime import ExportedPolicy

MOST_SEEDS = 10_000
"""More paired seeds than intervals gain anything from."""

CLAIRVOYANT = "clairvoyant"
"""The kind of a policy that reads what no server knows: a ceiling, never an opponent."""

PolicyLike = Any
"""A name, a folder, ``label=name or folder``, or a policy object."""

TraceLike = str | Path | RequestTable
"""A name of an embedded workload, a file, or a request table."""


@dataclass(frozen=True)
class PolicyEntry:
    """A policy under the name that its rows carry."""

    label: str
    target: Any  # what `resolve_policy` takes: text where it can be sent to another process
    kind: str
    description: Mapping[str, Any]  # where it comes from, as plain values


@dataclass(frozen=True)
class TraceEntry:
    """A trace under the name that its rows carry."""

    label: str
    source: str | RequestTable


@dataclass(frozen=True)
class Cell:
    """One simulation of the grid."""

    policy: PolicyEntry
    trace: TraceEntry
    load: float | None  # None: the trace's own rate
    seed: int

    def __str__(self) -> str:
        """Return how messages name the cell."""
        load = "own rate" if self.load is None else f"load {self.load:g}"
        return f"policy {self.policy.label!r}, trace {self.trace.label!r}, {load}, seed {self.seed}"


def policy_entries(
    policies: Sequence[PolicyLike] | Mapping[str, PolicyLike],
    *,
    allow_privileged: bool = False,
) -> tuple[PolicyEntry, ...]:
    """Resolve every policy, so that a wrong name fails before anything runs.

    Args:
        policies: Names, folders or policy objects; a mapping or texts ``label=policy`` choose the
            label, which else is the policy's own name, or that of its run folder where two
            exported policies share one.
        allow_privileged: Accept policies that read true output lengths, as kind "clairvoyant".

    Raises:
        SchedEnvError: there are none, or two have one label.
        UnknownNameError: no such policy.
        PolicyError: a folder holds no valid policy, or the policy reads what no server knows.
    """
    if isinstance(policies, str | Path):
        policies = [policies]
    given = list(policies.items()) if isinstance(policies, Mapping) else map(_labelled, policies)
    resolved = [
        (label, target, resolve_policy(target, allow_privileged=allow_privileged))
        for label, target in given
    ]
    if not resolved:
        raise SchedEnvError("no policies to evaluate: name one or more, such as fcfs,sjf")
    names = [policy.name for label, _, policy in resolved if label is None]
    entries = []
    for label, target, policy in resolved:
        if label is None:
            label = policy.name if names.count(policy.name) == 1 else _folder_name(target, policy)
        target = str(target) if isinstance(target, Path) else target
        kind = CLAIRVOYANT if policy.privileged else policy.kind
        entries.append(PolicyEntry(label, target, kind, describe_policy(target, policy)))
    _check_unique("policy", [entry.label for entry in entries])
    return tuple(entries)


def trace_entries(traces: Sequence[TraceLike] | Mapping[str, TraceLike]) -> tuple[TraceEntry, ...]:
    """Name every trace: by the mapping's key, its table's source, or its file without folders.

    Raises:
        SchedEnvError: there are none, or two have one label.
    """
    if isinstance(traces, str | Path | RequestTable):
        traces = [traces]
    named = traces.items() if isinstance(traces, Mapping) else ((None, one) for one in traces)
    entries = []
    for label, trace in named:
        if isinstance(trace, RequestTable):
            entries.append(TraceEntry(label or trace.source.name, trace))
        else:
            entries.append(TraceEntry(label or _file_label(str(trace)), str(trace)))
    if not entries:
        raise SchedEnvError("no traces to evaluate on: give a file or a name, such as azure_conv")
    _check_unique("trace", [entry.label for entry in entries])
    return tuple(entries)


def check_loads(loads: Sequence[float | None] | float | None) -> tuple[float | None, ...]:
    """Return the loads as a tuple; ``None`` is the trace's own rate.

    Raises:
        SchedEnvError: there are none, one appears twice, or one is not a number from 0.000001 to
            1,000,000.
    """
    given = (loads,) if loads is None or is_number(loads) else _listed("loads", loads, "[0.8, 1]")
    if not given:
        raise SchedEnvError("no loads to evaluate at: give one or more, such as 0.8,1.0")
    for load in given:
        if load is not None:
            check_load_alone(load)
    checked = tuple(None if load is None else float(load) for load in given)
    _check_unique("load", [OWN_RATE if load is None else str(load) for load in checked])
    return checked


def check_seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """Return the seeds: 0 to n - 1 for a number n, or those of a list.

    Raises:
        SchedEnvError: there are none or too many, one appears twice, is below 0 or above 2^63 - 1.
    """
    if is_whole(seeds):
        seeds = int(seeds)
        if seeds < 1:
            raise SchedEnvError(f"{seeds} seeds are not enough: give 1 or more")
        if seeds > MOST_SEEDS:
            raise SchedEnvError(f"{seeds} seeds are too many: give {MOST_SEEDS} at most")
        return tuple(range(seeds))
    given = _listed("seeds", seeds, "5 or [0, 1]")
    if not given:
        raise SchedEnvError("no seeds to evaluate with: give 1 or more")
    for seed in given:
        check_seed(seed)
    checked = tuple(int(seed) for seed in given)
    _check_unique("seed", [str(seed) for seed in checked])
    return checked


def _listed(name: str, given: object, example: str) -> tuple[Any, ...]:
    """Return the entries of a list; a text is none, whatever stands in it."""
    if not isinstance(given, str):
        with contextlib.suppress(TypeError):
            return tuple(cast("Iterable[Any]", given))
    raise SchedEnvError(f"{name} is {given!r}: give numbers, such as {example}")


def _labelled(policy: PolicyLike) -> tuple[str | None, PolicyLike]:
    """Take ``label=policy`` apart, unless a folder has that very name."""
    if isinstance(policy, str) and "=" in policy and not Path(policy).exists():
        label, _, target = policy.partition("=")
        if label and target:
            return label, target
    return None, policy


def _folder_name(target: PolicyLike, policy: Heuristic | ExportedPolicy) -> str:
    if not isinstance(target, str | Path):
        return policy.name
    path = Path(target).resolve()
    return path.parent.name if path.name == "policy" else path.name


def describe_policy(target: PolicyLike, policy: Heuristic | ExportedPolicy) -> dict[str, Any]:
    """Return what tells a policy from others, as plain values: its name, parameters and hashes."""
    described: dict[str, Any] = {"policy": target if isinstance(target, str) else policy.name}
    described |= {"reference": policy.reference, "parameters": dict(policy.parameters)}
    if not isinstance(policy, Heuristic):
        return {**described, "weights_sha256": weights_sha256(policy)}
    described["scheduler"] = dict(policy.scheduler)
    if not policy.function.__module__.startswith("sched_env."):
        described["function_sha256"] = function_sha256(policy.function)
    return described


def _file_label(text: str) -> str:
    name = Path(text).name
    for suffix in (".gz", ".csv", ".jsonl", ".parquet"):
        name = name.removesuffix(suffix)
    return name or text


def _check_unique(kind: str, labels: Sequence[str]) -> None:
    doubled = sorted({label for label in labels if labels.count(label) > 1})
    if doubled:
        remedy = f"; name them apart with label={kind}" if kind == "policy" else ""
        raise SchedEnvError(f"{kind} {doubled[0]!r} is given twice: give each one once{remedy}")
