"""Actor networks and the critic, in torch.

An observation is one float32 row: ``num_slots x num_slot_features`` slot features row by row
(waiting slots first, running slots after), then ``num_globals`` features of the whole server, then
``num_privileged`` columns which only the critic may read. Actions come in the order proceed levels,
admit waiting slot k, preempt running slot j.

The actors compute what `sched_env.policy.pointer` and `sched_env.policy.mlp` compute when they
have been exported, with the tensors named and laid out as there, (in, out).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sched_env.policy.layers import MASKED_LOGIT

FINAL_LAYER_GAIN = 0.01
"""Gain of the last actor layer: the first policy is nearly the prior alone (or uniform)."""

_RELU_GAIN = math.sqrt(2.0)


@dataclass(frozen=True)
class ObservationShape:
    """Sizes of the parts of an observation and of the action space.

    Attributes:
        num_waiting_slots: Waiting requests shown, each of which can be admitted.
        num_running_slots: Running requests shown, each of which can be preempted.
        num_slot_features: Features of one slot; feature 0 is above 0.5 where a request is present.
        num_globals: Features of the whole server.
        num_privileged: Columns at the end which only the critic reads.
        num_levels: Prefill levels of the proceed action.
    """

    num_waiting_slots: int
    num_running_slots: int
    num_slot_features: int
    num_globals: int
    num_privileged: int = 0
    num_levels: int = 4

    @property
    def num_slots(self) -> int:
        """Return the number of waiting and running slots together."""
        return self.num_waiting_slots + self.num_running_slots

    @property
    def num_slot_columns(self) -> int:
        """Return the number of columns that hold slot features."""
        return self.num_slots * self.num_slot_features

    @property
    def num_public(self) -> int:
        """Return the number of columns that the actor reads."""
        return self.num_slot_columns + self.num_globals

    @property
    def num_observed(self) -> int:
        """Return the number of columns of an observation, privileged ones included."""
        return self.num_public + self.num_privileged

    @property
    def num_actions(self) -> int:
        """Return the number of discrete actions."""
        return self.num_levels + self.num_slots

    def slots(self, observations: Tensor) -> Tensor:
        """View the slot features of a batch as (batch, num_slots, num_slot_features)."""
        columns = observations[:, : self.num_slot_columns]
        return columns.reshape(-1, self.num_slots, self.num_slot_features)


def _orthogonal(num_in: int, num_out: int, gain: float) -> nn.Parameter:
    return nn.Parameter(nn.init.orthogonal_(torch.empty(num_in, num_out), gain=gain))


def _zeros(*size: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*size))


class PointerNet(nn.Module):
    """Score every slot with shared weights, and the proceed levels from the pooled context.

    It does not matter in which slot a request stands, and the number of parameters does not grow
    with the number of slots. The formulas stand in `sched_env.policy.pointer`.
    """

    def __init__(self, shape: ObservationShape, hidden_size: int) -> None:
        """Create the tensors; ``hidden_size`` is the width of each layer."""
        super().__init__()
        self.shape = shape
        width = hidden_size
        self.embed_weight = _orthogonal(shape.num_slot_features, width, _RELU_GAIN)
        self.embed_bias_waiting = _zeros(width)
        self.embed_bias_running = _zeros(width)
        self.context_weight = _orthogonal(4 * width + shape.num_globals, width, _RELU_GAIN)
        self.context_bias = _zeros(width)
        self.slot_weight = _orthogonal(width, width, _RELU_GAIN)
        self.slot_bias_waiting = _zeros(width)
        self.slot_bias_running = _zeros(width)
        self.proceed_weight = _orthogonal(width, shape.num_levels, FINAL_LAYER_GAIN)
        self.proceed_bias = _zeros(shape.num_levels)
        self.admit_weight = nn.Parameter(_orthogonal(width, 1, FINAL_LAYER_GAIN).detach()[:, 0])
        self.admit_bias = _zeros(1)
        self.preempt_weight = nn.Parameter(_orthogonal(width, 1, FINAL_LAYER_GAIN).detach()[:, 0])
        self.preempt_bias = _zeros(1)

    def forward(self, observations: Tensor) -> Tensor:
        """Return the logits, (batch, num_actions), of ``observations``, (batch, num_observed).

        Only present slots are computed, which are few on most servers most of the time; logits of
        absent ones are -1e8.
        """
        shape = self.shape
        slots = shape.slots(observations)
        present = slots[:, :, 0] > 0.5
        places = present.flatten().nonzero().squeeze(1)
        rows = places // shape.num_slots
        kinds = (places % shape.num_slots >= shape.num_waiting_slots).long()
        features = slots.reshape(-1, shape.num_slot_features).index_select(0, places)
        bias = torch.stack([self.embed_bias_waiting, self.embed_bias_running])
        embedded = torch.relu(features @ self.embed_weight + bias.index_select(0, kinds))
        context = self._context(self._pools(embedded, present, 2 * rows + kinds), observations)
        bias = torch.stack([self.slot_bias_waiting, self.slot_bias_running])
        inputs = bias.index_select(0, kinds) + context.index_select(0, rows)
        hidden = torch.relu(embedded @ self.slot_weight + inputs)
        heads = torch.stack([self.admit_weight, self.preempt_weight], dim=1)
        biases = torch.cat([self.admit_bias, self.preempt_bias])
        scores = (hidden @ heads + biases).gather(1, kinds.unsqueeze(1)).squeeze(1)
        absent = observations.new_full((present.numel(),), float(MASKED_LOGIT))
        slot_logits = absent.index_copy(0, places, scores).reshape(present.shape)
        return torch.cat([self._proceed(context), slot_logits], dim=1)

    def _pools(self, embedded: Tensor, present: Tensor, segments: Tensor) -> Tensor:
        """Return mean and largest embedding of present waiting, then running slots, (batch, 4H).

        Args:
            embedded: (num_present, H), by row and slot.
            present: bool (batch, num_slots).
            segments: int64 (num_present,), 2 x row + kind.
        """
        last = self.shape.num_waiting_slots
        counts = torch.stack([present[:, :last].sum(dim=1), present[:, last:].sum(dim=1)], dim=1)
        zeros = embedded.new_zeros(counts.numel(), embedded.shape[1])
        sums = zeros.index_add(0, segments, embedded)
        means = sums / counts.flatten().clamp(min=1).unsqueeze(1)
        largest = torch.segment_reduce(
            embedded, "max", lengths=counts.flatten(), axis=0, unsafe=True, initial=0.0
        )
        return torch.stack([means, largest], dim=1).reshape(len(present), -1)

    def _context(self, pools: Tensor, observations: Tensor) -> Tensor:
        globals_ = observations[:, self.shape.num_slot_columns : self.shape.num_public]
        return torch.cat([pools, globals_], dim=1) @ self.context_weight + self.context_bias

    def _proceed(self, context: Tensor) -> Tensor:
        return torch.relu(context) @ self.proceed_weight + self.proceed_bias

    def dense_logits(self, observations: Tensor) -> Tensor:
        """Return what `forward` returns by operations whose sizes are fixed, for graph formats."""
        shape = self.shape
        slots = shape.slots(observations)
        present = (slots[:, :, :1] > 0.5).to(slots.dtype)
        bias = self._rows(self.embed_bias_waiting, self.embed_bias_running)
        embedded = torch.relu(slots @ self.embed_weight + bias) * present
        last = shape.num_waiting_slots
        pools: list[Tensor] = []
        for part in (slice(0, last), slice(last, None)):
            counts = present[:, part].sum(dim=1).clamp(min=1.0)
            pools += [embedded[:, part].sum(dim=1) / counts, embedded[:, part].amax(dim=1)]
        context = self._context(torch.cat(pools, dim=1), observations)
        bias = self._rows(self.slot_bias_waiting, self.slot_bias_running)
        hidden = torch.relu(embedded @ self.slot_weight + bias + context.unsqueeze(1))
        admit = hidden[:, :last] @ self.admit_weight + self.admit_bias
        preempt = hidden[:, last:] @ self.preempt_weight + self.preempt_bias
        scores = torch.cat([admit, preempt], dim=1)
        slot_logits = torch.where(present.squeeze(2) > 0, scores, float(MASKED_LOGIT))
        return torch.cat([self._proceed(context), slot_logits], dim=1)

    def _rows(self, waiting: Tensor, running: Tensor) -> Tensor:
        """Repeat a waiting and a running bias, one row a slot."""
        shape = self.shape
        return torch.cat(
            [
                waiting.expand(shape.num_waiting_slots, -1),
                running.expand(shape.num_running_slots, -1),
            ]
        )


class FlatNet(nn.Module):
    """A plain multi-layer perceptron over the public columns."""

    def __init__(self, shape: ObservationShape, hidden_sizes: Sequence[int]) -> None:
        """Create hidden layers of ``hidden_sizes`` and the action layer."""
        super().__init__()
        self.shape = shape
        sizes = [shape.num_public, *hidden_sizes]
        self.layers = dense_layers(sizes, shape.num_actions, nn.Tanh, FINAL_LAYER_GAIN)

    def forward(self, observations: Tensor) -> Tensor:
        """Return the logits, (batch, num_actions), of ``observations``, (batch, num_observed)."""
        return self.layers(observations[:, : self.shape.num_public])


class CriticNet(nn.Module):
    """Estimate the value of a state from every column, privileged ones included."""

    def __init__(self, shape: ObservationShape, hidden_sizes: Sequence[int]) -> None:
        """Create tanh layers of ``hidden_sizes`` and the value layer."""
        super().__init__()
        self.layers = dense_layers([shape.num_observed, *hidden_sizes], 1, nn.Tanh, 1.0)

    def forward(self, observations: Tensor) -> Tensor:
        """Return values, (batch, 1), of ``observations``, (batch, num_observed)."""
        return self.layers(observations)


def dense_layers(
    sizes: Sequence[int], num_outputs: int, activation: type[nn.Module], final_gain: float
) -> nn.Sequential:
    """Return orthogonal linear layers with activations between; ``sizes[0]`` counts the inputs."""
    layers: list[nn.Module] = []
    for num_in, width in itertools.pairwise(sizes):
        layers += [_linear(num_in, width, _RELU_GAIN), activation()]
    layers.append(_linear(sizes[-1], num_outputs, final_gain))
    return nn.Sequential(*layers)


def _linear(num_in: int, num_out: int, gain: float) -> nn.Linear:
    layer = nn.Linear(num_in, num_out)
    nn.init.orthogonal_(layer.weight, gain=gain)
    nn.init.zeros_(layer.bias)
    return layer
