"""A run in compiled code decides as the same policy asked through Python."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sched_env import EnvConfig, RequestTable, simulate
from sched_env.engine.layout import Layout
from sched_env.policy.card import (
    LinearScoreArchitecture,
    MlpArchitecture,
    ObservationSchema,
    PointerArchitecture,
    PolicyCard,
)
from sched_env.policy.runtime import ExportedPolicy

LAYOUT = Layout(num_waiting_slots=6, num_running_slots=4)
ARCHITECTURES = {
    "pointer": PointerArchitecture(hidden_size=8),
    "mlp": MlpArchitecture(hidden_sizes=(8,)),
    "linear_score": LinearScoreArchitecture(),
}


@pytest.fixture(scope="module")
def table() -> RequestTable:
    rng = np.random.default_rng(4)
    return RequestTable.from_columns(
        arrival_time_s=np.sort(rng.uniform(0, 8, 150)),
        prompt_tokens=rng.integers(5, 900, 150),
        output_tokens=rng.integers(1, 120, 150),
    )


def random_policy(kind: str) -> ExportedPolicy:
    card = PolicyCard(
        name=kind,
        observation=ObservationSchema.from_layout(LAYOUT),
        architecture=ARCHITECTURES[kind],
    )
    rng = np.random.default_rng(1)
    weights = {
        name: rng.normal(0, 0.5, shape).astype(np.float32)
        for name, shape in card.tensor_shapes().items()
    }
    return ExportedPolicy(card, weights)


class Asked:
    """The same policy behind a face that compiled code does not know."""

    privileged = False

    def __init__(self, policy: ExportedPolicy) -> None:
        self._policy = policy
        seen = policy.card.observation
        self.card = SimpleNamespace(observation=seen, screen=policy.card.screen)
        self.act = policy.act
        self.check_layout = policy.check_layout


@pytest.mark.parametrize("record_events", [False, True])
@pytest.mark.parametrize("kind", sorted(ARCHITECTURES))
def test_compiled_and_asked_runs_are_equal(
    table: RequestTable, kind: str, record_events: bool
) -> None:
    env = EnvConfig(scheduler={"num_blocks": 250, "max_num_seqs": 12})
    policy = random_policy(kind)
    asked: Any = Asked(policy)
    left, right = (
        simulate(table, one, env, seed=2, record_events=record_events) for one in (policy, asked)
    )
    assert left.requests.tobytes() == right.requests.tobytes()
    assert left.num_decisions == right.num_decisions > 150
    assert left.num_invalid_actions == right.num_invalid_actions == 0
    if record_events:
        assert left.events is not None
        assert right.events is not None
        assert left.events.tobytes() == right.events.tobytes()
