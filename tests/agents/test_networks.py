from __future__ import annotations

import pytest
import torch

from sched_env.agents.networks import CriticNet, FlatNet, ObservationShape, PointerNet

SHAPE = ObservationShape(5, 3, 4, 6, num_privileged=2)


def _net() -> PointerNet:
    torch.manual_seed(0)
    net = PointerNet(SHAPE, 16)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return net


def _observations(count: int = 200) -> torch.Tensor:
    observations = torch.randn(count, SHAPE.num_observed)
    slots = observations[:, : SHAPE.num_slot_columns].view(count, SHAPE.num_slots, -1)
    present = torch.rand(count, SHAPE.num_slots) < 0.5
    present[:10] = False
    present[10:20] = True
    slots *= present[:, :, None]
    slots[:, :, 0] = present.float()
    return observations


def test_present_slots_alone_give_the_logits_of_all_slots_and_the_same_gradients() -> None:
    net, observations = _net(), _observations()
    gradients = []
    for logits in (net(observations), net.dense_logits(observations)):
        net.zero_grad()
        torch.log_softmax(logits, dim=1)[:, 0].mean().backward()
        gradients.append([parameter.grad.clone() for parameter in net.parameters()])
    assert torch.allclose(net(observations), net.dense_logits(observations), atol=1e-5)
    for ragged, dense in zip(*gradients, strict=True):
        assert torch.allclose(ragged, dense, atol=1e-6)


def test_swapping_two_slots_of_a_kind_swaps_their_logits() -> None:
    net, observations = _net(), _observations()
    swapped = observations.clone()
    slots = swapped[:, : SHAPE.num_slot_columns].view(-1, SHAPE.num_slots, 4)
    slots[:, [0, 3]] = slots[:, [3, 0]].clone()
    before, after = net(observations), net(swapped)
    first = SHAPE.num_levels
    assert torch.allclose(before[:, first], after[:, first + 3], atol=1e-5)
    assert torch.allclose(before[:, :first], after[:, :first], atol=1e-5)


def test_the_number_of_slots_does_not_change_the_number_of_parameters() -> None:
    sizes = {
        sum(parameter.numel() for parameter in PointerNet(shape, 32).parameters())
        for shape in (ObservationShape(8, 4, 20, 24), ObservationShape(64, 16, 20, 24))
    }
    assert sizes == {6886}


def test_the_first_policy_is_nearly_uniform() -> None:
    torch.manual_seed(0)
    observations = _observations()
    for net in (PointerNet(SHAPE, 32), FlatNet(SHAPE, (64, 64))):
        logits = net(observations)
        assert logits[logits > -1e6].abs().max() < 0.2


@pytest.mark.parametrize("net", [PointerNet(SHAPE, 8), FlatNet(SHAPE, (8,))])
def test_actors_ignore_privileged_columns(net: torch.nn.Module) -> None:
    observations = _observations()
    changed = observations.clone()
    changed[:, SHAPE.num_public :] += 1.0
    assert torch.equal(net(observations), net(changed))
    critic = CriticNet(SHAPE, (8,))
    assert not torch.equal(critic(observations), critic(changed))
