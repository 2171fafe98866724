"""Where the time of a decision goes, in cycles of the time-stamp counter.

    python benchmarks/decision_cycles.py [NUM_ENVS]

Steps servers under random legal actions and prints, for each kind of action, the mean cycles of its
parts, the least of many short measurements each. ``open`` brings the next iteration, ``forced`` is
what is applied unasked. Few environments (4) show the work, many (64) the memory as well.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from sched_env.cli.main import Command, run_script
from sched_env.cli.speed import LOADS, make_envs
from sched_env.compiled import compiled
from sched_env.engine import decide, episode, legality
from sched_env.engine.keycall import key_at
from sched_env.engine.layout import NUM_LEVELS
from sched_env.engine.memory import aim_outputs, mask_of, memory_at, outputs_of, server_of
from sched_env.engine.view import view
from sched_env.env.state import check_number

KINDS = ("proceed", "admit", "preempt")
PARTS = ("apply", "open", "mask", "forced", "view")
_WARM_UP, _STEPS, _MEASUREMENTS = 1500, 64, 60


@intrinsic
def _cycles(typing_context: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [])
        counter = builder.module.declare_intrinsic("llvm.readcyclecounter", fnty=kind)
        return builder.call(counter, [])

    return types.int64(), codegen


@compiled
def _draw(mask: NDArray[np.int8]) -> int:
    skipped, action = np.random.randint(mask.sum()), 0  # noqa: NPY002  (numba has no other)
    while mask[action] == 0 or skipped > 0:
        skipped -= mask[action]
        action += 1
    return action


@compiled
def _run(
    address: int,
    observations: NDArray[np.float32],
    masks: NDArray[np.int8],
    num_steps: int,
    cycles: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    memory = memory_at(address)
    key, outputs = key_at(memory.key_at, memory.key_jit_at), outputs_of(observations, masks)
    for _ in range(num_steps):
        for index in range(memory.num_servers):
            state = server_of(memory, index)
            aim_outputs(state, outputs, index)
            action = _draw(mask_of(state))
            kind = min(max(action - NUM_LEVELS + 1, 0), 1)
            kind += action >= NUM_LEVELS + state.num_waiting_slots
            began = _cycles()
            decide.apply(state, key, action)
            applied = _cycles()
            if not state.deciding:
                decide.open_iteration(state, key)
            opened = _cycles()
            num_legal = legality.legal_actions(state)
            masked = _cycles()
            if num_legal == 1:
                decide.settle_decisions(state, key)
            settled = _cycles()
            view(state)
            cycles[kind, 4] += _cycles() - settled
            cycles[kind, 3] += settled - masked
            cycles[kind, 2] += masked - opened
            cycles[kind, 1] += opened - applied
            cycles[kind, 0] += applied - began
            counts[kind] += 1
            if state.terminated or state.truncated:
                state.episode += 1
                episode.start_episode(state, key, np.nan)


@dataclass(frozen=True)
class Arguments:
    """Print where the time of a decision goes, in cycles, one table for each load."""

    num_envs: tyro.conf.Positional[int] = 4
    """Environments that are stepped together."""


def main(arguments: Arguments) -> None:
    num_envs = arguments.num_envs
    check_number("NUM_ENVS", num_envs)
    for load in (None, *LOADS):
        envs: Any = make_envs(num_envs, load).unwrapped
        observations, _ = envs.reset(seed=0)
        masks = envs.world.buffers()[1]
        envs.world.view(observations, masks)
        cycles, counts = (
            np.zeros((len(KINDS), len(PARTS)), np.int64),
            np.zeros(len(KINDS), np.int64),
        )
        _run(envs.world.address, observations, masks, _WARM_UP, cycles, counts)
        least = np.full(cycles.shape, np.inf)
        for _ in range(_MEASUREMENTS):
            cycles[:], counts[:] = 0, 0
            _run(envs.world.address, observations, masks, _STEPS, cycles, counts)
            least = np.minimum(least, cycles / np.maximum(counts, 1)[:, None])
        print(f"\n{num_envs} envs, {'standard server' if load is None else load.name}")
        print(f"{'':>8}{'share':>7}" + "".join(f"{part:>8}" for part in PARTS))
        for kind, row, share in zip(KINDS, least, counts / counts.sum(), strict=True):
            print(f"{kind:>8}{share:7.2f}" + "".join(f"{value:8.0f}" for value in row))


if __name__ == "__main__":
    sys.exit(run_script(Command(Arguments, main), Path(__file__).name))
