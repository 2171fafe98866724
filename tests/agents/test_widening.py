"""A wider network decides as the narrower one did, and can learn more."""

from __future__ import annotations

import numpy as np
import pytest

from sched_env.agents.widening import widened
from sched_env.errors import PolicyError
from sched_env.policy.registry import resolve_policy


def test_a_wider_network_has_the_same_logits():
    narrow = resolve_policy("pretrained/azure2023")
    hidden_size = narrow.card.architecture.hidden_size
    wide = widened(narrow, 2 * hidden_size, seed=3)
    rng = np.random.default_rng(0)
    observations = rng.uniform(0.0, 1.0, (50, narrow.observation_size)).astype(np.float32)
    masks = np.ones((50, narrow.num_actions), np.int8)
    expected = narrow.logits(observations, masks)
    np.testing.assert_allclose(wide.logits(observations, masks), expected, atol=1e-4)
    assert wide.card.architecture.hidden_size == 2 * hidden_size
    assert np.any(wide.weights["embed.weight"][:, hidden_size:])
    assert widened(narrow, hidden_size, seed=3) is narrow


@pytest.mark.parametrize(("policy", "hidden_size"), [("azure2023", 4), ("tuned_linear", 64)])
def test_what_cannot_be_widened_is_refused(policy, hidden_size):
    with pytest.raises(PolicyError, match="cannot be widened"):
        widened(resolve_policy(f"pretrained/{policy}"), hidden_size, seed=0)
