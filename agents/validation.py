"""Judge policies on a split of the traces: same requests, loads and seeds for each of them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from sched_env.agents.conditions import condition_envs
from sched_env.agents.sb3 import SchedVecEnv, make_sb3_vec_env
from sched_env.agents.score_search.scenarios import part_with_a_rate
from sched_env.config import ExperimentConfig
from sched_env.metrics import summarize
from sched_env.policy.keys import Heuristic
from sched_env.policy.runtime import ExportedPolicy
from sched_env.simulator.simulate import simulate

_FIRST_SEED = 1000
_NUM_EPISODES = 8


class SplitSimulation:
    """Runs policies over one split of every trace of an experiment, at its comparison's loads."""

    def __init__(self, experiment: ExperimentConfig, split: str) -> None:
        """Read the traces and keep their ``split``.

        Raises:
            TraceError: A trace cannot be read, or no load can be set on this part of it.
        """
        env = experiment.env
        env = env.replace(split=split, observation=env.observation.replace(privileged=False))
        self.envs = condition_envs(env, experiment.conditions)
        self.tables = {trace: part_with_a_rate(env, trace, split) for trace in env.trace}
        self.loads = experiment.comparison.loads
        self.num_seeds = experiment.agent.validation_seeds

    def rows(self, policy: str | Heuristic | ExportedPolicy) -> list[dict[str, Any]]:
        """Return a row for each condition, trace, load and seed, paired over policies."""
        names = [one.name for one in self.envs[0].service.classes]
        rows: list[dict[str, Any]] = []
        seeds = range(_FIRST_SEED, _FIRST_SEED + self.num_seeds)
        cells = itertools.product(self.envs, self.tables.items(), self.loads, seeds)
        for env, (trace, table), load, seed in cells:
            result = simulate(table, policy, env, seed=seed, load=load)
            labels = {"trace": trace, "load": load, "seed": seed}
            rows.append(summarize(result, labels=labels, class_names=names))
        return rows


class EpisodeEvaluation:
    """Episodes of the environment itself, the same ones each time, under a policy that is certain.

    They give the curves that stable-baselines3's evaluation callbacks write: what is paid is not
    what a policy is judged by, but it is what it learns from.
    """

    def __init__(self, env: SchedVecEnv, seed: int = _FIRST_SEED) -> None:
        """Keep the environments; number i plays one episode, of seed ``seed + i``."""
        self.env = env
        self.seed = seed

    def curves(self, policy: ExportedPolicy) -> dict[str, float]:
        """Return mean reward, mean length and the share of successes, by TensorBoard tag."""
        self.env.seed(self.seed)
        observations = self.env.reset()
        ended: dict[int, dict[str, Any]] = {}
        while len(ended) < self.env.num_envs:
            self.env.step_async(policy.act(observations, self.env.action_masks()))
            observations, _, dones, infos = self.env.step_wait()
            for index in np.flatnonzero(dones).tolist():
                ended.setdefault(index, infos[index])
        first = [ended[index] for index in range(self.env.num_envs)]
        return {
            "eval/mean_reward": float(np.mean([info["episode"]["r"] for info in first])),
            "eval/mean_ep_length": float(np.mean([info["episode"]["l"] for info in first])),
            "eval/success_rate": float(np.mean([info["is_success"] for info in first])),
        }


def validation_episodes(experiment: ExperimentConfig) -> EpisodeEvaluation:
    """Return episodes of the validation split of ``experiment``."""
    env = experiment.env
    seen = env.observation.replace(privileged=False)
    config = env.replace(split="validation", observation=seen)
    return EpisodeEvaluation(
        make_sb3_vec_env(config, _NUM_EPISODES, conditions=experiment.conditions)
    )
