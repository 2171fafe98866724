from __future__ import annotations

import numpy as np
import pytest
import torch
from stable_baselines3 import PPO

from sched_env.agents.policies import (
    CRITIC_GROUP,
    MaskableSchedulingPolicy,
    PolicySpec,
    SchedulingPolicy,
    policy_parts,
)
from sched_env.agents.ppo import ElapsedMaskablePPO, ElapsedPPO
from sched_env.agents.rollout import ElapsedRolloutBuffer
from sched_env.agents.sb3 import SchedVecEnv
from sched_env.policy.prior import PriorParameters
from tests.agents.fake_env import SHAPE, FakeVectorEnv


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def _env(num_envs: int = 16) -> SchedVecEnv:
    return SchedVecEnv(FakeVectorEnv(num_envs), seed=1, normalise_returns=True)


def _model(network: str = "pointer", seed: int = 0, **kwargs: object) -> ElapsedMaskablePPO:
    return ElapsedMaskablePPO(
        MaskableSchedulingPolicy,
        _env(),
        learning_rate=3e-3,
        n_steps=32,
        n_epochs=3,
        gae_lambda=0.9,
        policy_kwargs={"net_arch": PolicySpec(SHAPE, network=network)},
        seed=seed,
        device="cpu",
        **{"batch_size": 128, **kwargs},
    )


def _mean_paid(model: ElapsedMaskablePPO | ElapsedPPO, with_masks: bool = True) -> float:
    env = SchedVecEnv(FakeVectorEnv(64), seed=77)
    observations = env.reset()
    paid = 0.0
    for _ in range(20):
        masks = {"action_masks": env.action_masks()} if with_masks else {}
        actions, _ = model.predict(observations, deterministic=True, **masks)
        observations, rewards, _, _ = env.step(actions)
        paid += float(rewards.mean()) / 20
    return paid


@pytest.mark.parametrize("network", ["pointer", "mlp"])
def test_maskable_ppo_learns_the_known_best_action(network: str) -> None:
    model = _model(network)
    before = _mean_paid(model)
    model.learn(8_192)
    # Always taking the best legal slot pays about 0.4 here, drawing at random nearly nothing.
    assert before < 0.1
    assert _mean_paid(model) > 0.2
    assert model.env.invalid_actions == 0


def test_plain_ppo_learns_without_masks() -> None:
    model = ElapsedPPO(
        SchedulingPolicy,
        _env(),
        learning_rate=3e-3,
        n_steps=32,
        batch_size=128,
        n_epochs=3,
        policy_kwargs={"net_arch": PolicySpec(SHAPE, network="mlp")},
        seed=0,
        device="cpu",
    )
    before = _mean_paid(model, with_masks=False)
    model.learn(8_192)
    assert _mean_paid(model, with_masks=False) > before + 0.05


def test_stock_ppo_takes_the_buffer_and_the_environment() -> None:
    env = _env()
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=8,
        batch_size=64,
        gamma=1.0,
        rollout_buffer_class=ElapsedRolloutBuffer,
        rollout_buffer_kwargs={"discount_source": env},
        device="cpu",
        seed=0,
    )
    model.learn(128)
    assert model.num_timesteps == 128
    assert (model.rollout_buffer.discounts < 1.0).any()


def test_equal_seeds_give_equal_weights_and_others_do_not() -> None:
    weights = []
    for seed in (5, 5, 6):
        model = _model(seed=seed)
        model.learn(1024)
        weights.append(torch.cat([p.detach().flatten() for p in model.policy.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_rollouts_hold_the_discounts_of_the_environment() -> None:
    model = _model()
    model.learn(16 * 32)
    # The fake takes 0 to 2 s a step at tau = 8 s, so discounts lie in (exp(-1/4), 1).
    discounts = model.rollout_buffer.discounts
    assert discounts.shape == (32, 16)
    assert np.unique(discounts).size > 500
    assert discounts.min() > np.exp(-0.25) - 1e-6
    assert discounts.max() <= 1.0


@pytest.mark.parametrize(("batch_size", "sizes"), [(511, [512]), (73, [73] * 6 + [74])])
def test_a_decision_left_over_joins_the_minibatch_before(batch_size: int, sizes: list[int]) -> None:
    model = _model(batch_size=batch_size)
    model.learn(16 * 32)
    assert all(bool(torch.isfinite(one).all()) for one in model.policy.parameters())
    model.rollout_buffer.reset()
    model.collect_rollouts(model.env, model._init_callback(None), model.rollout_buffer, 32)
    minibatches = list(model.rollout_buffer.get(batch_size))
    assert [len(one.actions) for one in minibatches] == sizes
    told = torch.cat([one.old_log_prob for one in minibatches])
    kept = torch.from_numpy(model.rollout_buffer.log_probs.flatten())
    assert torch.equal(told.sort().values, kept.sort().values)


def test_actor_and_critic_have_their_own_learning_rates() -> None:
    model = _model(critic_learning_rate=lambda remaining: 1e-4 * remaining)
    model.learn(16 * 32 * 2)
    rates = {group["name"]: group["lr"] for group in model.policy.optimizer.param_groups}
    assert rates[CRITIC_GROUP] <= 1e-4
    assert rates["actor"] == 3e-3


@pytest.mark.parametrize("network", ["pointer", "mlp"])
def test_the_actor_does_not_read_privileged_columns_and_the_critic_does(network: str) -> None:
    policy = _model(network).policy
    observations = torch.randn(5, SHAPE.num_observed)
    changed = observations.clone()
    changed[:, SHAPE.num_public :] += 1.0
    assert torch.equal(policy.masked_logits(observations), policy.masked_logits(changed))
    assert not torch.equal(policy.predict_values(observations), policy.predict_values(changed))


def test_actions_are_legal_and_the_first_of_equals_is_taken() -> None:
    policy = _model().policy
    observations = torch.zeros(1, SHAPE.num_observed)
    observations[:, : SHAPE.num_slot_columns : SHAPE.num_slot_features] = 1.0
    with torch.no_grad():
        for parameter in policy.actor.parameters():
            parameter.zero_()
    masks = np.zeros((1, SHAPE.num_actions), dtype=bool)
    masks[0, [2, 5, 8]] = True
    actions, _ = policy.predict(observations.numpy(), deterministic=True, action_masks=masks)
    assert actions.tolist() == [2]
    drawn = {
        int(policy.predict(observations.numpy(), action_masks=masks)[0][0]) for _ in range(100)
    }
    assert drawn == {2, 5, 8}


def test_log_probabilities_agree_with_those_of_the_masked_distribution() -> None:
    policy = _model().policy
    observations = torch.randn(6, SHAPE.num_observed)
    masks = torch.ones(6, SHAPE.num_actions, dtype=torch.bool)
    masks[:, 1:4] = False
    actions, values, log_probs = policy(observations, action_masks=masks)
    again = policy.evaluate_actions(observations, actions, action_masks=masks)
    distribution = policy.get_distribution(observations, masks)
    assert torch.allclose(log_probs, distribution.log_prob(actions), atol=1e-6)
    assert torch.allclose(again[1], log_probs, atol=1e-6)
    assert torch.allclose(again[2], distribution.entropy(), atol=1e-6)
    assert torch.equal(again[0], values)


def test_with_a_prior_the_entropy_is_minus_the_divergence_from_it() -> None:
    parameters = PriorParameters(1, *(np.float32(x) for x in (1.5, -8, 2, -3, -3, -3, 5)))
    spec = PolicySpec(SHAPE, prior=parameters)
    env = _env()
    policy = ElapsedMaskablePPO(
        MaskableSchedulingPolicy, env, n_steps=8, policy_kwargs={"net_arch": spec}, device="cpu"
    ).policy
    observations = torch.as_tensor(env.reset())
    masks = torch.as_tensor(env.action_masks())
    actions = masks.long().argmax(dim=1)
    prior = torch.where(masks, policy.prior(observations, masks), -torch.inf).softmax(dim=1)
    ours = policy.masked_logits(observations, masks).softmax(dim=1)
    divergence = torch.where(masks, ours * (ours / prior).log(), 0.0).sum(dim=1)
    entropy = policy.evaluate_actions(observations, actions, masks)[2]
    assert torch.allclose(entropy, -divergence, atol=1e-6)
    with torch.no_grad():
        for parameter in policy.actor.parameters():
            parameter.zero_()
    entropy = policy.evaluate_actions(observations, actions, masks)[2]
    assert torch.allclose(entropy, torch.zeros(len(entropy)), atol=1e-6)


def test_a_foreign_policy_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="Linear is no scheduling policy"):
        policy_parts(torch.nn.Linear(1, 1))
