"""One server as a Gymnasium environment."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.env.build import ConfigLike, build_world, env_config
from sched_env.env.episode_info import episode_info
from sched_env.env.native import NativeEnv
from sched_env.env.render import draw_text, draw_timeline
from sched_env.env.server_env import ServerEnv
from sched_env.env.state import ResetOptions


class ContinuousBatchingEnv(ServerEnv, NativeEnv):
    """Schedule a continuous-batching LLM server, one decision at a time.

    ## Description
    Requests arrive from a trace; a server prefills and decodes them in batches, within a token
    budget, a cap on running requests and a pool of KV blocks. Before each batch, at a frozen clock,
    the agent admits waiting requests, preempts running ones, and lets the server proceed. The
    batch is then formed by vLLM's rules on the order that the agent chose, and a step-time model
    says how long it takes. The agent is asked only where two actions or more are legal.

    ## Action space
    `Discrete(L + K + J)`, by default `Discrete(36)`:

    | number | action |
    |---|---|
    | 0 to 3 | proceed, with prefill up to 0, 1/4, 1/2 or all of `max_num_batched_tokens` |
    | 4 to 3 + K | admit waiting slot 0 to K - 1 |
    | 4 + K to 3 + K + J | preempt running slot 0 to J - 1; slot 0 is the last of the batch order |

    `info["action_mask"]`, int8, marks the legal ones. An illegal action sets
    `info["invalid_action"]` and is replaced by full proceed, or by the lowest legal action where
    that is illegal too.

    ## Observation space
    `Box` of float32, laid out as K + J slots of features, then global features;
    `env.unwrapped.layout` names each with its unit and scale, and `layout.split(observation)` takes
    it apart. No feature tells the future or the true output length, except privileged ones, which
    must be asked for.

    Each slot:

    | feature | name | unit | value | min | max |
    |---|---|---|---|---|---|
    | 0 | present | flag | 1 where the slot holds a request | 0 | 1 |
    | 1 | is_running | flag | 1 in running slots | 0 | 1 |
    | 2 | is_legal | flag | 1 where its action is legal now | 0 | 1 |
    | 3 | rank | 1 | position / slots | 0 | 1 |
    | 4 | density_gap | log 1/s | 5 (density - best density shown) | -20 | 0 |
    | 5 | short_slack | s | TTFT slack x / 0.5, within -1 and 1 | -1 | 1 |
    | 6 | middle_slack | s | TTFT slack x / 2, within -1 and 1 | -1 | 1 |
    | 7 | long_slack | s | TTFT slack x / 8, within -1 and 1 | -1 | 1 |
    | 8 | blocks_of_free | blocks | x / (x + free + 1) | 0 | 1 |
    | 9 | wait | s | x / (x + 2) | 0 | 1 |
    | 10 | is_late | flag | 1 where the TTFT deadline passed without a token | 0 | 1 |
    | 11 | tpot_slack | s | x / (abs(x) + 0.5), 0 before the first token | -1 | 1 |
    | 12 | prefill_left | tokens | x / (x + 512) | 0 | 1 |
    | 13 | decode_left | tokens | predicted x / (x + 128) | 0 | 1 |
    | 14 | weight | 1 | x / (x + 2) | 0 | 1 |
    | 15 | density | log 1/s | log(weight / work) / 5, as it began to wait | -10 | 10 |
    | 16 | blocks_of_pool | blocks | x / num_blocks | 0 | 2 |
    | 17 | preemptible | flag | 1 where it may be preempted by choice | 0 | 1 |
    | 18 | computed | tokens | x / (x + 1024) | 0 | 1 |
    | 19 | outputs | tokens | x / (x + 64) | 0 | 1 |
    | 20 | preemptions | 1 | x / (x + 1) | 0 | 1 |
    | 21 | tpot_slo | s | x / (x + 0.1) | 0 | 1 |

    Global features:

    | feature | name | unit | value | min | max |
    |---|---|---|---|---|---|
    | 0 | free_kv | blocks | x / num_blocks | 0 | 1 |
    | 1 | ledger_kv | blocks | x / num_blocks | -2 | 1 |
    | 2 | running | requests | x / max_num_seqs | 0 | 1 |
    | 3 | admitted | requests | x / (x + 4) | 0 | 1 |
    | 4 | ledger_tokens | tokens | x / max_num_batched_tokens | 0 | 1 |
    | 5 | decoding | requests | x / max_num_seqs | 0 | 1 |
    | 6 | prefill_tokens | tokens | x / max_num_batched_tokens | 0 | 1 |
    | 7 | waiting | requests | x / (x + 16) | 0 | 1 |
    | 8 | beyond_slots | requests | x / (x + 16) | 0 | 1 |
    | 9 | waiting_weight | 1 | x / (x + 16) | 0 | 1 |
    | 10 | waiting_prefill | tokens | x / (x + 8192) | 0 | 1 |
    | 11 | waiting_decode | tokens | x / (x + 8192) | 0 | 1 |
    | 12 | urgent_weight | 1 | x / (x + 4), shown, slack under 0.5 s | 0 | 1 |
    | 13 | late_weight | 1 | x / (x + 4), shown slack under 0 | 0 | 1 |
    | 14 | fitting | requests | x / (x + 4) | 0 | 1 |
    | 15 | decodes_at_risk | requests | x / max_num_seqs | 0 | 1 |
    | 16 | decode_context | tokens | x / pool tokens | 0 | 2 |
    | 17 | decode_step | s | x / (x + 0.05) | 0 | 1 |
    | 18 | full_step | s | x / (x + 0.05) | 0 | 1 |
    | 19 | arrival_rate | requests/s | x / (x + 5) | 0 | 1 |
    | 20 | shortage | flag | 1 where a request must be preempted | 0 | 1 |
    | 21 | news | flag | 1 after an arrival, end or first token | 0 | 1 |
    | 22 | longest_wait | s | x / (x + 5), of those shown | 0 | 1 |
    | 23 | running_decode | tokens | predicted x / (x + 8192) | 0 | 1 |

    Privileged features (`observation.privileged`), the future as no policy may know it:

    | feature | name | unit | value | min | max |
    |---|---|---|---|---|---|
    | 0 | next_arrival_1 | s | time to it x, x / (x + 1) | 0 | 1 |
    | 1 | next_arrival_4 | s | time to it x, x / (x + 2) | 0 | 1 |
    | 2 | next_arrival_16 | s | time to it x, x / (x + 4) | 0 | 1 |
    | 3 | next_arrival_64 | s | time to it x, x / (x + 16) | 0 | 1 |
    | 4 | next_tokens_16 | tokens | x of 16 arrivals, x / (x + 16384) | 0 | 1 |
    | 5 | next_tokens_64 | tokens | x of 64 arrivals, x / (x + 65536) | 0 | 1 |
    | 6 | true_running_decode | tokens | x / (x + 8192) | 0 | 1 |
    | 7 | true_shown_decode | tokens | x / (x + 8192) | 0 | 1 |

    ## Rewards
    The weighted sum of goodput at completion, missed SLOs, weighted waiting and recomputed tokens,
    each discounted from the start of the step (`reward` in the configuration).
    `info["elapsed_s"]` and `info["discount"]` tell how much simulated time the step took: discount
    later rewards by `info["discount"]`, not by a constant.

    ## Starting state
    An empty server (after `warmup_s`, if set) at a time of the trace and a load drawn from the
    seed; the service class, SLOs and predicted length of each request are drawn from it too.

    ## Episode end
    Terminated when the trace has ended and all requests have, truncated at `horizon_s`. The last
    `info` holds the metrics of the episode, such as `goodput_weighted`.

    ## Arguments
    `config`: name or path of a YAML file, mapping or model; `render_mode`: `"ansi"`,
    `"rgb_array"` or `"human"`.

    ## Vectorized environment
    `gymnasium.make_vec("sched_env/ContinuousBatching-v0", num_envs=64)` runs 64 servers in one
    compiled call.

    ## Version history
    - v0: initial version.
    """

    elapsed_name = "elapsed_s"

    def __init__(self, config: ConfigLike = None, *, render_mode: str | None = None) -> None:
        self._check_render_mode(render_mode)
        self.config = env_config(config)
        raises = self.config.episode.invalid_action == "raise"
        super().__init__(build_world(self.config, 1), render_mode, raises=raises)
        self._longest_warmup_s = self.config.episode.warmup_s

    def _start_episode(self, given: ResetOptions) -> None:
        self._set_warmup(given.warmup_s)
        offset_s = given.trace_offset_s
        self._world.reset(self._outlet.observations, self._outlet.masks, offset_s=offset_s)

    def _episode_info(self) -> dict[str, Any]:
        return episode_info(self._world, 0)

    def _draw_text(self) -> str:
        return draw_text(self._world, 0)

    def _draw_image(self) -> NDArray[np.uint8]:
        return draw_timeline(self._world, 0)
