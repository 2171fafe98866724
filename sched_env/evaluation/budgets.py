"""Where each compared policy comes from, and what it cost to find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sched_env.evaluation.compare import TUNED, Comparison, Versus
from sched_env.evaluation.table import MISSING, TextTable, format_interval, format_number
from sched_env.policy.runtime import SEARCH_BUDGET

_DECISIONS = "num_decisions"
_SEARCHES = ("polish_requests", "clone_requests")
_PRIOR = "prior_search_requests"


def policies_table(policies: Sequence[Mapping[str, Any]]) -> TextTable:
    """Return the kind of each policy and the simulation that was spent on it.

    Args:
        policies: Their descriptions in the ``config.yaml`` of an evaluation.
    """
    rows = [(str(one["label"]), str(one["kind"]), _budget(one)) for one in policies]
    return TextTable("Policies, and what was simulated to find them", _HEADS, tuple(rows))


def opponents_table(comparison: Comparison) -> TextTable:
    """Return each policy's interquartile mean and its difference to every tuned score."""
    tuned = [one.policy for one in comparison.policies if one.kind == TUNED]
    level = f"{100 * comparison.confidence:g} %"
    rows = []
    for one in comparison.policies:
        to = {versus.heuristic: versus for versus in one.versus_each}
        iqm = format_number(one.interquartile_mean)
        rows.append((one.policy, iqm, *(_difference(to.get(name)) for name in tuned)))
    return TextTable(
        f"{comparison.metric}: interquartile mean over cells"
        + (", and paired difference to what was tuned" if tuned else ""),
        ("policy", "middle half", *(f"to {name} [{level}]" for name in tuned)),
        tuple(rows),
    )


_HEADS = ("policy", "kind", "search or training")


def _budget(policy: Mapping[str, Any]) -> str:
    parameters = policy.get("parameters") or {}
    if SEARCH_BUDGET in parameters:
        return f"{int(parameters[SEARCH_BUDGET]):,} requests"
    parts = []
    if _DECISIONS in parameters:
        parts.append(f"{int(parameters[_DECISIONS]):,} decisions")
    searched = sum(int(parameters.get(key) or 0) for key in _SEARCHES)
    if searched:
        parts.append(f"{searched:,} requests")
    if parameters.get(_PRIOR) is not None:
        parts.append(f"{int(parameters[_PRIOR]):,} requests for its prior")
    return ", ".join(parts) or MISSING


def _difference(versus: Versus | None) -> str:
    return MISSING if versus is None else format_interval(versus.difference, signed=True)
