"""Compare policies: the grid of simulations, its statistics, tables and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sched_env.evaluation.results import EvaluationResult
    from sched_env.evaluation.runner import evaluate

__all__ = ["EvaluationResult", "evaluate"]


def __getattr__(name: str) -> Any:
    """Import what is asked for: tables and reports of finished results need no simulator."""
    if name == "evaluate":
        from sched_env.evaluation.runner import evaluate

        return evaluate
    if name == "EvaluationResult":
        from sched_env.evaluation.results import EvaluationResult

        return EvaluationResult
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
