"""What preemption cost: how often, whom, and the tokens computed again."""

from __future__ import annotations

from sched_env.metrics.outcome import RequestOutcomes


def num_preemptions(requests: RequestOutcomes) -> int:
    """Count preemptions over all requests."""
    return int(requests["num_preemptions"].sum())


def num_preempted_requests(requests: RequestOutcomes) -> int:
    """Count requests that were preempted at least once."""
    return int((requests["num_preemptions"] > 0).sum())


def max_preemptions_per_request(requests: RequestOutcomes) -> int:
    """Return the most preemptions that one request suffered; 0 where there are no requests."""
    return int(requests["num_preemptions"].max()) if requests.size else 0


def num_recomputed_tokens(requests: RequestOutcomes) -> int:
    """Count tokens computed again after a preemption had thrown their KV away."""
    return int(requests["num_recomputed_tokens"].sum())


def recompute_tax(requests: RequestOutcomes, num_computed_tokens: int) -> float:
    """Return tokens computed again / tokens computed, 0 to 1; NaN where none was computed.

    Args:
        requests: The outcome table.
        num_computed_tokens: Tokens computed in the run, those computed again included.
    """
    if num_computed_tokens == 0:
        return float("nan")
    return num_recomputed_tokens(requests) / num_computed_tokens
