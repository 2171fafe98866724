from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sched_env.errors import PolicyError
from sched_env.policy.format import write_policy
from sched_env.policy.layers import best_legal
from sched_env.policy.protocol import Policy
from sched_env.policy.runtime import ExportedPolicy, load_policy

KINDS = ("pointer", "mlp_tanh", "mlp_relu", "linear", "score")


def reference_logits(policy, observation, mask):
    """Compute one row in plain NumPy float64, from the formulas and nothing else."""
    card, schema = policy.card, policy.card.observation
    w = {name: tensor.astype(float) for name, tensor in policy.weights.items()}
    num_waiting, num_slots = schema.num_waiting_slots, schema.num_slots
    edge = num_slots * len(schema.slot_features)
    seen = observation[:edge].astype(float).reshape(num_slots, -1)
    slots, glob = seen, observation[edge:].astype(float)
    if card.normalisation.kind == "standard":
        clip = card.normalisation.clip
        n = "normalisation."
        slots = np.clip((slots - w[n + "slot_mean"]) * w[n + "slot_inverse_std"], -clip, clip)
        glob = np.clip((glob - w[n + "global_mean"]) * w[n + "global_inverse_std"], -clip, clip)
    if card.architecture.kind == "mlp":
        x = np.concatenate([slots.ravel(), glob])
        depth = len(card.architecture.hidden_sizes)
        for i in range(depth + 1):
            x = x @ w[f"layer.{i}.weight"] + w[f"layer.{i}.bias"]
            if i < depth:
                x = np.tanh(x) if card.architecture.activation == "tanh" else np.maximum(x, 0)
        logits = x
    elif card.architecture.kind == "linear_score":
        logits = reference_score(w, "", slots, glob, observation, num_waiting)
    else:
        present = seen[:, 0] > 0.5
        waits = np.arange(num_slots) < num_waiting
        bias = np.where(waits[:, None], w["embed.bias_waiting"], w["embed.bias_running"])
        u = np.maximum(slots @ w["embed.weight"] + bias, 0)
        pool = []
        for kind in (waits, ~waits):
            rows = u[kind & present]
            pool += [rows.mean(0), rows.max(0)] if len(rows) else [np.zeros(u.shape[1])] * 2
        c = np.concatenate([*pool, glob]) @ w["context.weight"] + w["context.bias"]
        bias = np.where(waits[:, None], w["slot.bias_waiting"], w["slot.bias_running"])
        h = np.maximum(u @ w["slot.weight"] + c + bias, 0)
        admit = h[waits] @ w["admit.weight"] + w["admit.bias"]
        preempt = h[~waits] @ w["preempt.weight"] + w["preempt.bias"]
        proceed = np.maximum(c, 0) @ w["proceed.weight"] + w["proceed.bias"]
        logits = np.concatenate([proceed, admit, preempt])
    if card.prior.kind == "weighted_sjf":
        logits = logits + reference_prior(card.prior, seen[:, 1], mask, schema)
    if card.prior.kind == "linear_score":
        glob = observation[edge:].astype(float)
        score = reference_score(w, "prior.", seen, glob, observation, num_waiting)
        gaps = card.prior.strength * (score - score[mask].max())
        logits = logits + np.maximum(gaps, card.prior.floor)
    return np.where(mask, logits, -1e8)


def reference_score(w, prefix, slots, glob, observation, num_waiting):
    weight = {name.removeprefix(prefix): w[name] for name in w if name.startswith(prefix)}
    admit = slots[:num_waiting] @ weight["admit.weight"] + weight["admit.bias"]
    free, blocks = observation[slots.size], observation[: 4 * num_waiting].reshape(-1, 4)[:, 3]
    admit = admit - 1e4 * (free - blocks < weight["watermark"].astype(np.float32))
    preempt = slots[num_waiting:] @ weight["preempt.weight"] + weight["preempt.bias"]
    proceed = glob @ weight["proceed.weight"] + weight["proceed.bias"]
    return np.concatenate([proceed, admit, preempt])


def reference_prior(p, density, mask, schema):
    levels, num_waiting = schema.num_levels, schema.num_waiting_slots
    score = p.score_scale * density
    legal = mask[levels:]
    admits, preempts = legal[:num_waiting], legal[num_waiting:]
    added = np.full(mask.size, np.nan)
    added[:levels] = p.proceed_go if admits.any() else p.proceed_stop
    added[: levels - 1] += p.lower_level
    added[0] += p.hold_prefill
    waiting, running = score[:num_waiting], score[num_waiting:]
    best = waiting[admits].max(initial=-np.inf)
    worst = running[preempts].min(initial=np.inf)
    with np.errstate(invalid="ignore"):
        added[levels : levels + num_waiting] = np.maximum(p.floor, p.strength * (waiting - best))
        gap = np.maximum(p.floor, p.strength * (worst - running))
    added[levels + num_waiting :] = gap + p.preempt_bias
    return added


@pytest.mark.parametrize("standard", [False, True])
@pytest.mark.parametrize("prior", [False, True, "score"])
@pytest.mark.parametrize("architecture", KINDS)
def test_logits_equal_an_independent_float64_computation(
    make_policy, states, architecture, prior, standard
):
    policy = make_policy(architecture, prior=prior, standard=standard)
    observations, masks = states(policy, 200)
    logits = policy.logits(observations, masks)
    expected = np.array(
        [reference_logits(policy, o, m) for o, m in zip(observations, masks, strict=True)]
    )
    np.testing.assert_allclose(logits, expected, rtol=2e-5, atol=2e-5)
    assert logits.dtype == np.float32


@pytest.mark.parametrize("architecture", KINDS)
def test_a_batch_decides_as_its_rows_do(make_policy, states, architecture):
    policy = make_policy(architecture, prior=True)
    observations, masks = states(policy, 64)
    batch = policy.logits(observations, masks)
    alone = [policy.logits(observations[i : i + 1], masks[i : i + 1])[0] for i in range(64)]
    assert np.array_equal(batch, np.array(alone))
    assert np.array_equal(policy.act(observations, masks), batch.argmax(axis=1))


def test_no_illegal_action_is_ever_chosen(make_policy, states):
    policy = make_policy("pointer", prior=True, scale=3.0)
    observations, masks = states(policy, 2000)
    actions = policy.act(observations, masks)
    assert actions.dtype == np.int64
    assert masks[np.arange(2000), actions].all()
    assert (policy.logits(observations, masks)[~masks] == -1e8).all()


def test_a_sole_legal_action_is_chosen_whatever_its_logit(make_policy, states):
    policy = make_policy("mlp_relu", scale=100.0)
    observations, masks = states(policy, policy.num_actions)
    masks[:] = np.eye(policy.num_actions, dtype=bool)
    assert policy.act(observations, masks).tolist() == list(range(policy.num_actions))


@given(
    st.lists(
        st.tuples(st.sampled_from([-1e9, -1.0, 0.0, 2.0]), st.booleans()), min_size=1, max_size=9
    )
)
def test_ties_go_to_the_lowest_legal_index(pairs):
    logits = np.array([logit for logit, _ in pairs], np.float32)
    mask = np.array([legal for _, legal in pairs], np.int8)
    legal = [i for i in range(len(pairs)) if mask[i]]
    expected = max(legal, key=lambda i: (logits[i], -i)) if legal else -1
    assert best_legal(logits, mask) == expected


def test_a_zero_network_takes_the_lowest_legal_action(make_policy, states):
    policy = make_policy("pointer", scale=0.0)
    observations, masks = states(policy, 100)
    assert np.array_equal(policy.act(observations, masks), masks.argmax(axis=1))


@pytest.mark.parametrize("architecture", ["pointer", "mlp_tanh", "linear"])
def test_a_zero_network_decides_as_the_linear_score_that_is_its_prior(
    make_policy, states, architecture
):
    score = make_policy("score", seed=4)
    card = make_policy(architecture, prior="score").card
    weights = {name: np.zeros(shape, np.float32) for name, shape in card.tensor_shapes().items()}
    weights |= {f"prior.{name}": tensor for name, tensor in score.weights.items()}
    policy = ExportedPolicy(card, weights)
    observations, masks = states(policy, 1000)
    assert np.array_equal(policy.act(observations, masks), score.act(observations, masks))
    logits = policy.logits(observations, masks)[masks]
    assert logits.max() == 0
    assert logits.min() == -1.5


def test_a_zero_network_with_a_prior_is_the_heuristic(make_policy, states):
    policy = make_policy("pointer", scale=0.0, prior=True)
    observations, masks = states(policy, 500)
    levels, num_waiting = 3, policy.card.observation.num_waiting_slots
    masks[:, levels - 1] = True  # the full level is always legal unless a victim is wanted
    density = observations[:, : 8 * 4].reshape(-1, 8, 4)[:, :num_waiting, 1]
    admits = masks[:, levels : levels + num_waiting]
    heaviest = np.where(admits, density, -np.inf).argmax(axis=1) + levels
    expected = np.where(admits.any(axis=1), heaviest, levels - 1)
    assert np.array_equal(policy.act(observations, masks), expected)


def test_under_a_shortage_the_prior_picks_the_lightest_victim(make_policy, states):
    policy = make_policy("pointer", scale=0.0, prior=True)
    observations, masks = states(policy, 500)
    masks[:, :8] = False
    some = masks.any(axis=1)
    density = observations[:, : 8 * 4].reshape(-1, 8, 4)[:, 5:, 1]
    lightest = np.where(masks[:, 8:], density, np.inf).argmin(axis=1) + 8
    actions = policy.act(observations[some], masks[some])
    assert some.sum() > 100
    assert np.array_equal(actions, lightest[some])


@pytest.mark.parametrize("prior", [False, True])
def test_swapping_slots_swaps_their_logits(make_policy, states, prior):
    policy = make_policy("pointer", prior=prior)
    observations, masks = states(policy, 50)
    rng = np.random.default_rng(3)
    order = np.concatenate([rng.permutation(5), 5 + rng.permutation(3)])
    assert not np.array_equal(order, np.arange(8))
    slots = observations[:, :32].reshape(-1, 8, 4)[:, order].reshape(-1, 32)
    moved = np.concatenate([slots, observations[:, 32:]], axis=1)
    moved_masks = np.concatenate([masks[:, :3], masks[:, 3:][:, order]], axis=1)
    before = policy.logits(observations, masks)
    after = policy.logits(moved, moved_masks)
    np.testing.assert_allclose(after[:, 3:], before[:, 3:][:, order], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(after[:, :3], before[:, :3], rtol=1e-5, atol=1e-5)


def test_waiting_and_running_slots_are_told_apart(make_policy, states):
    policy = make_policy("pointer", waiting=3, running=3)
    observations, masks = states(policy, 5)
    masks[:] = True
    observations[:, :24:4] = 1.0
    slots = observations[:, :24].reshape(-1, 6, 4)
    slots[:, 3:] = slots[:, :3]
    logits = policy.logits(observations, masks)
    assert np.abs(logits[:, 3:6] - logits[:, 6:]).min() > 1e-4


def test_what_lies_in_absent_slots_does_not_matter(make_policy, states):
    policy = make_policy("pointer", prior=True)
    observations, masks = states(policy, 100)
    changed = observations.copy()
    slots = changed[:, :32].reshape(-1, 8, 4)
    absent = slots[:, :, 0] == 0
    assert absent.any()
    slots[:, :, 1:][absent] = 1e6
    assert np.array_equal(policy.logits(changed, masks), policy.logits(observations, masks))


def test_inputs_may_be_views(make_policy, states):
    policy = make_policy("pointer")
    observations, masks = states(policy, 40)
    every_other = policy.logits(observations[::2], masks[::2])
    assert np.array_equal(every_other, policy.logits(observations, masks)[::2])
    as_int8 = policy.logits(observations, masks.astype(np.int8))
    assert np.array_equal(as_int8[::2], every_other)


def test_an_empty_batch_is_no_fault(make_policy):
    policy = make_policy("pointer")
    observations = np.empty((0, policy.observation_size), np.float32)
    assert policy.act(observations, np.empty((0, policy.num_actions), bool)).shape == (0,)


def test_wrong_inputs_are_refused_with_what_is_allowed(make_policy, states):
    policy = make_policy("pointer")
    observations, masks = states(policy, 4)
    with pytest.raises(PolicyError, match=r"float64 \(4, 34\); give float32 \(4, 34\)"):
        policy.act(observations.astype(np.float64), masks)
    with pytest.raises(PolicyError, match=r"observations are float32 \(4, 33\)"):
        policy.act(np.ascontiguousarray(observations[:, :-1]), masks)
    with pytest.raises(PolicyError, match=r"observations are float32 \(34,\)"):
        policy.act(observations[0], masks[0])
    with pytest.raises(PolicyError, match=r"masks are int64 .* give int8 or bool \(4, 11\)"):
        policy.act(observations, masks.astype(np.int64))
    with pytest.raises(PolicyError, match=r"masks are bool \(3, 11\)"):
        policy.act(observations, masks[:3])
    masks[2] = False
    with pytest.raises(PolicyError, match="row 2 has no legal action"):
        policy.act(observations, masks)


def test_an_exported_policy_is_a_policy(make_policy):
    policy = make_policy("pointer", training={"run": "azure__seed3", "seed": 3, "traces": ("a",)})
    assert isinstance(policy, Policy)
    assert (policy.name, policy.kind, policy.privileged) == ("sample", "network", False)
    assert policy.reference == "azure__seed3"
    assert policy.parameters == {"run": "azure__seed3", "seed": 3}


@pytest.mark.parametrize("architecture", KINDS)
def test_a_loaded_policy_decides_as_the_one_that_was_written(
    tmp_path, make_policy, states, architecture
):
    policy = make_policy(architecture, prior=True, standard=True)
    loaded = load_policy(write_policy(tmp_path / "policy", policy.weights, policy.card))
    observations, masks = states(policy, 100)
    assert isinstance(loaded, ExportedPolicy)
    assert loaded.folder == tmp_path / "policy"
    assert np.array_equal(loaded.logits(observations, masks), policy.logits(observations, masks))


_PLAIN_RUN = """
import sys
import numpy as np
from sched_env.policy.runtime import load_policy
data = np.load(sys.argv[2])
np.save(sys.argv[3], load_policy(sys.argv[1]).logits(data["observations"], data["masks"]))
assert not {"torch", "stable_baselines3"} & set(sys.modules), "torch was imported"
"""


@pytest.mark.parametrize("architecture", ["pointer", "mlp_relu"])
def test_plain_python_gives_the_same_bits_and_needs_no_torch(
    tmp_path, make_policy, states, architecture
):
    policy = make_policy(architecture, prior=True, standard=True)
    write_policy(tmp_path / "policy", policy.weights, policy.card)
    observations, masks = states(policy, 20)
    np.savez(tmp_path / "states.npz", observations=observations, masks=masks)
    places = [str(tmp_path / name) for name in ("policy", "states.npz", "logits.npy")]
    subprocess.run(
        [sys.executable, "-c", _PLAIN_RUN, *places],
        check=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert np.array_equal(np.load(places[2]), policy.logits(observations, masks))
