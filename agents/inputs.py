"""What a training run reads beside its configuration, by hash: it goes on only with the same."""

from __future__ import annotations

from sched_env.agents.prior_sources import prior_hashes
from sched_env.config import ExperimentConfig
from sched_env.evaluation.fingerprints import cost_sha256, table_sha256
from sched_env.workload.env_trace import read_env_trace


def input_hashes(experiment: ExperimentConfig) -> dict[str, str]:
    """Return the hash of each trace, of the step times and of each linear score, by dotted key.

    Raises:
        SchedEnvError: One of them cannot be read.
    """
    env = experiment.env
    hashes = {f"env.trace {name}": table_sha256(read_env_trace(env, name)) for name in env.trace}
    step_times = cost_sha256(env.cost)
    if step_times is not None:
        hashes["env.cost"] = step_times
    return {**hashes, **prior_hashes(experiment)}
