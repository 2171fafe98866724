"""A larger policy decides as the smaller one did, and can learn or see more."""

from __future__ import annotations

import numpy as np
import pytest

from sched_env.agents.widening import shown, widened
from sched_env.cli.main import main
from sched_env.engine.layout import Layout
from sched_env.errors import PolicyError
from sched_env.policy.registry import resolve_policy
from sched_env.policy.scores import linear_score


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


def test_what_scores_slots_scores_any_number_of_them():
    layouts = [Layout(3, 2), Layout(7, 2)]
    few = linear_score("few", admit={"density": 5.0}, preempt={"computed": -1.0}, layout=layouts[0])
    many = shown(few, 7)
    many.check_layout(layouts[1])
    shown(few, None, 5).check_layout(Layout(3, 5))
    rng = np.random.default_rng(0)
    seen = rng.uniform(0.0, 1.0, (20, layouts[1].public_size)).astype(np.float32)
    slots, rest, _ = layouts[1].split(seen)
    kept = np.concatenate([slots[:, :3], slots[:, 7:]], axis=1).reshape(20, -1)
    least = np.concatenate([kept, rest], axis=1)
    masks = [np.ones((20, layout.num_actions), np.int8) for layout in layouts]
    first = layouts[0].num_levels
    expected, found = few.logits(least, masks[0]), many.logits(seen, masks[1])
    np.testing.assert_array_equal(found[:, : first + 3], expected[:, : first + 3])
    np.testing.assert_array_equal(found[:, first + 7 :], expected[:, first + 3 :])


@pytest.mark.parametrize("name", ["tune", "train"])
def test_more_slots_than_a_policy_may_have_are_refused_at_once(name, tmp_path, capsys):
    key = {"tune": "tuning", "train": "cloning"}[name]
    option = {"tune": "--out", "train": "--run-dir"}[name]
    folder = tmp_path / "out"
    words = [name, "experiment/pretrained", f"{key}.num_waiting_slots=4097", option, str(folder)]
    assert main(words) == 2
    assert f"{key}.num_waiting_slots: 4097 is not allowed" in capsys.readouterr().err
    assert not folder.exists()
