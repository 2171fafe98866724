"""Work done per second of the run, over the requests that finished, as vLLM counts it."""

from __future__ import annotations

from sched_env.metrics.outcome import RequestOutcomes, is_finished


def request_throughput(requests: RequestOutcomes, span_s: float) -> float:
    """Return requests finished per second; NaN where the run has no length."""
    return _per_second(float(is_finished(requests).sum()), span_s)


def output_throughput(requests: RequestOutcomes, span_s: float) -> float:
    """Return output tokens of finished requests per second; NaN where the run has no length."""
    finished = requests[is_finished(requests)]
    return _per_second(float(finished["num_output_tokens"].sum()), span_s)


def total_token_throughput(requests: RequestOutcomes, span_s: float) -> float:
    """Return prompt and output tokens of finished requests per second; NaN if no length.

    A prompt token counts once, however often it was computed.
    """
    finished = requests[is_finished(requests)]
    tokens = finished["num_output_tokens"].sum() + finished["prompt_tokens"].sum()
    return _per_second(float(tokens), span_s)


def _per_second(amount: float, span_s: float) -> float:
    return amount / span_s if span_s > 0 else float("nan")
