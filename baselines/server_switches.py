"""Weighted shortest job first on a server whose switches are set for it.

Order is one half of a scheduler; whom it evicts, whom it lets past and how much of the KV pool it
keeps free is the other. Each of these differs from ``weighted_sjf`` by one switch.
"""

from __future__ import annotations

from sched_env.baselines.weighted_sjf import weighted_sjf
from sched_env.policy.names import register

least_computed_victim = weighted_sjf.with_switches(
    "least_computed_victim",
    "vLLM #54644, #53723: the victim with the fewest computed tokens wastes least",
    victim="least_computed",
)
most_blocks_victim = weighted_sjf.with_switches(
    "most_blocks_victim",
    "Kwon et al., PagedAttention, SOSP 2023 (all-or-nothing eviction), scored by blocks freed per "
    "token to compute again",
    victim="most_blocks_per_token",
)
no_evict = weighted_sjf.with_switches(
    "no_evict",
    "NVIDIA TensorRT-LLM, capacity scheduler policy GUARANTEED_NO_EVICT, here by predicted length",
    no_evict="predicted",
)
watermark = weighted_sjf.with_switches(
    "watermark",
    "vLLM, SchedulerConfig.watermark: part of the pool that admissions leave free",
    watermark=0.05,
)
skip_ahead = weighted_sjf.with_switches(
    "skip_ahead",
    "Lifka, The ANL/IBM SP scheduling system, 1995 (backfilling), bounded",
    skip_ahead=8,
)

for _made in (least_computed_victim, most_blocks_victim, no_evict, watermark, skip_ahead):
    register(_made)
