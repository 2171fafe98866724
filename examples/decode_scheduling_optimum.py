"""The teaching environment: the machine's policies and a trained agent beside the optimum.

Episodes that the agent has not been trained on are played by each policy, by MaskablePPO, and by a
plan found by exhaustive search. `--decisions 0` leaves the agent out, and needs no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from sched_env import DecodeSchedulingEnv
from sched_env.cli.main import Command, run_script
from sched_env.env.state import check_number
from sched_env.errors import ConfigError
from sched_env.evaluation.decode_optimum import Optimum, find_optimum
from sched_env.simulator.simulate import check_seed

FIRST_TEST_SEED = 1_000_000
POLICIES = ("fixed_priority", "aging", "deadline")

Player = Callable[[DecodeSchedulingEnv, np.ndarray], int]


def play(env: DecodeSchedulingEnv, seed: int, player: Player) -> tuple[float, float, float]:
    """Return the return, the weighted goodput and the preemptions of an episode."""
    observation, _ = env.reset(seed=seed)
    total, is_over = 0.0, False
    while not is_over:
        observation, reward, is_over, _, info = env.step(player(env, observation))
        total += reward
    return total, info["goodput_weighted"], info["num_preemptions"]


def follow(optimum: Optimum) -> Player:
    """Return a player that follows a plan."""
    moves = [
        (request_id, is_preemption)
        for decision in optimum.plan
        for request_id, is_preemption in (
            (decision.preempted_request_id, True),
            (decision.request_id, False),
        )
        if request_id is not None
    ]

    def player(env: DecodeSchedulingEnv, observation: np.ndarray) -> int:
        request_id, is_preemption = moves.pop(0)
        rows = env.world.requests(0)["request_id"].tolist()
        slots = env.world.arrays.slots[0].tolist()
        return slots.index(rows.index(request_id)) + len(slots) * is_preemption

    return player


def train(decisions: int, seed: int) -> Player:
    """Train MaskablePPO on drawn episodes."""
    import torch
    from sb3_contrib import MaskablePPO

    from sched_env.agents.sb3 import make_sb3_vec_env

    torch.set_num_threads(1)
    env = make_sb3_vec_env(None, 64, seed, env_id="sched_env/DecodeScheduling-v0")
    model = MaskablePPO(
        "MlpPolicy",
        env,
        learning_rate=lambda left: 1e-3 * left + 1e-5,
        n_steps=64,
        batch_size=1024,
        n_epochs=6,
        gamma=1.0,
        ent_coef=0.005,
        policy_kwargs={"net_arch": [128, 128]},
        seed=seed,
        device="cpu",
    )
    model.learn(decisions)

    def player(env: DecodeSchedulingEnv, observation: np.ndarray) -> int:
        return int(
            model.predict(observation, action_masks=env.action_masks(), deterministic=True)[0]
        )

    return player


@dataclass(frozen=True)
class Options:
    """Play episodes by each policy, by a trained agent and by the optimal plan."""

    episodes: int = 100
    """Episodes to play."""

    decisions: int = 500_000
    """Decisions to train the agent for; 0 leaves it out."""

    seed: int = 0
    """Seed of the training."""


def main(options: Options) -> None:
    check_number("--episodes", options.episodes)
    if options.decisions < 0:
        raise ConfigError(f"--decisions {options.decisions} is not allowed: give 0 or more")
    check_seed(options.seed)
    players: dict[str, Player] = {
        name: lambda env, _, name=name: env.policy_action(name) for name in POLICIES
    }
    if options.decisions:
        players["maskable_ppo"] = train(options.decisions, options.seed)
    env = DecodeSchedulingEnv("decode_scheduling")
    seeds = range(FIRST_TEST_SEED, FIRST_TEST_SEED + options.episodes)
    figures = {
        name: [play(env, seed, player) for seed in seeds] for name, player in players.items()
    }
    figures["optimum"] = []
    for seed in seeds:
        env.reset(seed=seed)
        figures["optimum"].append(play(env, seed, follow(find_optimum(env))))

    best = np.array(figures["optimum"])[:, 0]
    table = Table(title=f"{options.episodes} episodes of 4 to 6 requests")
    for name in ("policy", "return", "below optimum", "optimal", "goodput_weighted", "preemptions"):
        table.add_column(name, justify="left" if name == "policy" else "right")
    for name, rows in figures.items():
        returns, goodput, preemptions = np.array(rows).T
        is_optimal = returns > best - 1e-9
        table.add_row(
            name,
            f"{returns.mean():.3f}",
            f"{(best - returns).mean():.3f}",
            f"{is_optimal.mean():.0%}",
            f"{goodput.mean():.3f}",
            f"{preemptions.mean():.2f}",
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    sys.exit(run_script(Command(Options, main), Path(__file__).name))
