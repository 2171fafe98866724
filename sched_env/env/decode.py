"""The teaching machine as a Gymnasium environment, one or many."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from sched_env.env.decode_build import (
    DecodeConfigLike,
    build_decode_world,
    decode_config,
    decode_episode_info,
    refuse_options,
)
from sched_env.env.decode_render import draw_decode_image, draw_decode_text
from sched_env.env.native import NativeEnv
from sched_env.env.native_vector import NativeVectorEnv, VectorOptions
from sched_env.registration import DECODE_SCHEDULING

_STATE_ARRAYS = ("state", "requests", "slots")


class DecodeSchedulingEnv(NativeEnv):
    """Give a handful of requests their steps, one at a time.

    ## Description
    The machine of `DecodeSchedulerSim`: a request takes one step for its prefill and one for each
    output token, and holds all its KV blocks from admission to its end, or until it is preempted;
    preemption keeps phase and progress. Each decision gives one shown request the step, or preempts
    one. Requests arrive as the clock passes their arrival step.

    ## Action space
    `Discrete(2 S)`, by default `Discrete(12)`:

    | number | action |
    |---|---|
    | 0 to S - 1 | give the request of this slot the step, admitting it if need be |
    | S to 2 S - 1 | preempt the request of slot number - S; takes no time |

    `info["action_mask"]`, int8, marks the legal ones. A request may get the step if it is admitted
    or its blocks are free. One may be preempted if it is admitted and preemptible, and a shown
    request that lacks blocks fits once it is gone; at most one between two steps, and the step
    that follows goes to a request that so came to fit. An illegal action sets
    `info["invalid_action"]` and is replaced by the lowest legal one.

    ## Observation space
    `Box` of float32, laid out as S slots of features, then global features; `env.unwrapped.layout`
    names each with its unit and scale. Nothing tells of requests that have not arrived.

    Each slot:

    | feature | name | unit | value | min | max |
    |---|---|---|---|---|---|
    | 0 | present | flag | 1 where the slot holds a request | 0 | 1 |
    | 1 | can_step | flag | 1 where it may get the step | 0 | 1 |
    | 2 | can_preempt | flag | 1 where it may be preempted | 0 | 1 |
    | 3 | admitted | flag | 1 where it holds its blocks | 0 | 1 |
    | 4 | is_decode | flag | 1 after its prefill | 0 | 1 |
    | 5 | cache_hit | flag | 1 where its prefix is cached | 0 | 1 |
    | 6 | preemptible | flag | 1 where it may be preempted at all | 0 | 1 |
    | 7 | priority | 1 | x / (abs(x) + 2) | -1 | 1 |
    | 8 | remaining | steps | x / (x + 8) | 0 | 1 |
    | 9 | prompt_len | tokens | x / (x + 16) | 0 | 1 |
    | 10 | generated | tokens | x / (x + 8) | 0 | 1 |
    | 11 | required_blocks | blocks | x / all blocks | 0 | 1 |
    | 12 | wait | steps | x / (x + 8) | 0 | 1 |
    | 13 | has_deadline | flag | 1 where it has one | 0 | 1 |
    | 14 | slack | steps | x / (abs(x) + 4), 1 without a deadline | -1 | 1 |
    | 15 | missed | flag | 1 where its deadline cannot be met any more | 0 | 1 |
    | 16 | preemptions | 1 | x / (x + 1) | 0 | 1 |
    | 17 | weight | 1 | share of the weight shown | 0 | 1 |

    Global features:

    | feature | name | unit | value | min | max |
    |---|---|---|---|---|---|
    | 0 | free_kv | blocks | x / all blocks | 0 | 1 |
    | 1 | clock | steps | x / (x + 32) | 0 | 1 |
    | 2 | live | requests | x / (x + 4), arrived and not done | 0 | 1 |
    | 3 | beyond_slots | requests | x / (x + 4) | 0 | 1 |
    | 4 | has_preempted | flag | 1 between a preemption and the next step | 0 | 1 |

    ## Rewards
    The weighted sum of four terms (`reward` in the configuration). A request's weight is 1 + its
    priority, and counts as its share of all weight of the episode.

    | term | paid |
    |---|---|
    | goodput | its share, when a request is done by its deadline or has none |
    | miss | minus its share, once, when its deadline can no longer be met |
    | latency | minus the share of all that have arrived and are not done, each step |
    | preemption | minus 1, each time |

    ## Starting state
    An empty machine, and requests drawn from the seed (`workload` in the configuration), or the
    given instance (`requests`).

    ## Episode end
    Terminated when all requests are done, which takes the same number of steps in any order. The
    last `info` holds the metrics of the episode, such as `goodput_weighted`.

    ## Arguments
    `config`: name or path of a YAML file, mapping or model; `render_mode`: `"ansi"`,
    `"rgb_array"` or `"human"`.

    ## Vectorized environment
    `gymnasium.make_vec("sched_env/DecodeScheduling-v0", num_envs=64)` runs 64 machines in one
    compiled call.

    ## Version history
    - v0: initial version.
    """

    elapsed_name = "elapsed_steps"
    state_arrays = _STATE_ARRAYS

    def __init__(self, config: DecodeConfigLike = None, *, render_mode: str | None = None) -> None:
        self._check_render_mode(render_mode)
        self.config = decode_config(config)
        raises = self.config.episode.invalid_action == "raise"
        super().__init__(build_decode_world(self.config, 1), render_mode, raises=raises)

    def policy_action(self, policy: str) -> int:
        """Return what ``fixed_priority``, ``aging`` or ``deadline`` does next.

        Raises:
            UnknownNameError: There is no such policy.
        """
        return int(self._world.policy_actions(policy)[0])

    def _read_options(self, options: dict[str, Any] | None) -> None:
        refuse_options(options)

    def _start_episode(self, given: None) -> None:
        self._world.reset(self._outlet.observations, self._outlet.masks)

    def _episode_info(self) -> dict[str, Any]:
        return decode_episode_info(self._world, 0)

    def _action_name(self, action: int) -> str:
        return self.layout.action_name(action)

    def _draw_text(self) -> str:
        return draw_decode_text(self._world, 0)

    def _draw_image(self) -> NDArray[np.uint8]:
        return draw_decode_image(self._world, 0)


class DecodeSchedulingVectorEnv(NativeVectorEnv):
    """``num_envs`` teaching machines stepped by one call of the compiled core.

    A rollout equals ``num_envs`` rollouts of :class:`DecodeSchedulingEnv` with seeds ``seed``,
    ``seed + 1`` and so on.

    Args:
        num_envs: Number of machines.
        config: Name or path of a YAML file, mapping or model; ``None`` is the standard machine.
        render_mode: Only ``None``; render a single environment instead.
        max_episode_steps: Truncate an episode after so many decisions; ``None``: never.
        autoreset_mode: ``NEXT_STEP`` (Gymnasium's default) or ``SAME_STEP``
            (stable-baselines3's: the last observation is ``infos["final_obs"]``).
        copy: Return fresh arrays. With ``False`` all that a reset or a step returns are read-only
            views of buffers that the next step overwrites.

    ``infos`` holds arrays: ``action_mask`` int8 (num_envs, 2 S), ``elapsed_steps``, ``discount``
    and ``invalid_action`` (num_envs,), and, when an episode ends, its metrics under
    ``final_info`` (SAME_STEP) or at the top level (NEXT_STEP), each with a ``_name`` mask.

    Raises:
        ConfigError: The configuration or an argument is wrong.
    """

    elapsed_name = "elapsed_steps"
    state_arrays = _STATE_ARRAYS
    scalar_id = DECODE_SCHEDULING

    def __init__(
        self,
        num_envs: int = 1,
        config: DecodeConfigLike = None,
        *,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        copy: bool = True,
    ) -> None:
        options = VectorOptions(num_envs, render_mode, max_episode_steps, autoreset_mode, copy)
        options.check(self.scalar_id)
        self.config = decode_config(config)
        raises = self.config.episode.invalid_action == "raise"
        super().__init__(build_decode_world(self.config, num_envs), options, raises=raises)

    def policy_actions(self, policy: str) -> NDArray[np.int64]:
        """Return what ``fixed_priority``, ``aging`` or ``deadline`` does next, int64 (num_envs,).

        Raises:
            UnknownNameError: There is no such policy.
        """
        return self._world.policy_actions(policy)

    def _read_options(self, options: dict[str, Any] | None) -> None:
        refuse_options(options)

    def _start_episodes(self, given: None) -> None:
        self._world.reset(self._observations, self._masks)

    def _start_next(self, chosen: NDArray[np.bool_]) -> None:
        self._world.reset(self._observations, self._masks, chosen=chosen)

    def _episode_info(self, index: int) -> dict[str, Any]:
        return decode_episode_info(self._world, index)

    def _action_name(self, action: int) -> str:
        return self.layout.action_name(action)
