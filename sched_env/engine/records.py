"""The records that the compiled core works on.

A world of N servers is a handful of NumPy structured arrays. ``requests`` is the table of all
requests of a run, one row each. Two groups of requests are looked at in every iteration or
decision, so what is looked at lies by value, packed together: running ones in ``seats`` (in batch
order), and the best few of the waiting ones in ``front``. A row of the table is up to date
but for what a seat holds: its request's progress while it runs. A seat of the cohort of decodes
(``cohort.py``) tells that beside what all of them have been given.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Status of a request; a live one is waiting, running or preempted.
WAITING, RUNNING, PREEMPTED, FINISHED, REJECTED, TIMED_OUT = range(6)
STATUS_NAMES = ("waiting", "running", "preempted", "finished", "rejected", "timed_out")

# Why a request ended.
(
    NOT_ENDED,
    STOP,
    LENGTH,
    MAX_MODEL_LEN,
    KV_CAPACITY,
    SHED,
    TOO_LARGE,
    TIMEOUT,
    NO_PROGRESS,
) = range(9)
FINISH_REASON_NAMES = (
    "",
    "stop",
    "length",
    "max_model_len",
    "kv_capacity",
    "shed",
    "too_large",
    "timeout",
    "no_progress",
)

# Which running request makes room when blocks run short.
(
    VICTIM_TAIL,
    VICTIM_LARGEST_KEY,
    VICTIM_LOWEST_PRIORITY,
    VICTIM_LEAST_COMPUTED,
    VICTIM_MOST_BLOCKS_PER_TOKEN,
    VICTIM_RANDOM,
) = range(6)

# What an admission reserves blocks for, beyond the sequence so far.
RESERVE_NOTHING, RESERVE_PREDICTED, RESERVE_MAX = range(3)

# Kinds of events.
(
    EVENT_ARRIVE,
    EVENT_ADMIT,
    EVENT_PREEMPT,
    EVENT_FIRST_TOKEN,
    EVENT_FINISH,
    EVENT_REJECT,
    EVENT_TIME_OUT,
) = range(7)
EVENT_NAMES = ("arrive", "admit", "preempt", "first_token", "finish", "reject", "time_out")
# An arrival, a first token and an end happen once for each request; the others may recur.
ONE_TIME_EVENTS = 3

NO_LIMIT = np.int64(2**62)

CACHE_LINE = 64


def in_whole_lines(fields: list[Any]) -> np.dtype[Any]:
    """Return an aligned record that is a whole number of cache lines long."""
    record: Any = np.dtype(fields, align=True)
    whole: Any = {
        "names": record.names,
        "formats": [record.fields[name][0] for name in record.names],
        "offsets": [record.fields[name][1] for name in record.names],
        "itemsize": -(-record.itemsize // CACHE_LINE) * CACHE_LINE,
    }
    return np.dtype(whole, align=True)


TRACE = np.dtype(
    [
        ("arrival_time_s", "f8"),
        ("predicted_output_tokens", "f8"),  # NaN: drawn per seed from the length prediction
        ("priority", "f8"),  # larger is served first; NaN: the weight of its class
        ("cumulative_tokens", "f8"),  # prompt + output of all rows before this one
        ("prompt_tokens", "i4"),
        ("output_tokens", "i4"),
        ("service_class", "i4"),  # -1: drawn per seed
        ("num_hashes", "i4"),  # ids of its prompt's content
        ("first_hash", "i8"),
    ],
    align=True,
)

# A request, in three lines of a cache: what it is shown by, how far it is, what orders it.
REQUEST = in_whole_lines(
    [
        ("arrival_time_s", "f8"),
        ("ttft_slo_s", "f8"),
        ("tpot_slo_s", "f8"),
        ("lone_prefill_s", "f8"),  # prefill of the prompt on an otherwise idle server
        ("weight", "f8"),
        ("first_token_s", "f8"),  # NaN until then, as for the other times to come
        ("density", "f4"),  # log(weight / work) / 5, as it began to wait
        ("num_preemptions", "i4"),
        ("prompt_tokens", "i4"),
        ("num_output_tokens", "i4"),
        ("predicted_output_tokens", "f8"),
        ("last_token_s", "f8"),
        ("finish_s", "f8"),
        ("num_computed_tokens", "i4"),
        ("num_blocks", "i4"),
        ("whole_blocks", "i4"),  # KV blocks of the sequence so far, counted when it began to wait
        ("stop_at_tokens", "i4"),  # output length at which it ends: hidden from policies
        ("output_tokens", "i4"),  # longest output, what the trace asks for: hidden from policies
        ("moved_at_iteration", "i4"),  # of the last admission or preemption by a decision
        ("num_recomputed_tokens", "i4"),  # computed tokens that preemptions threw away
        ("row", "i4"),
        ("status", "i1"),
        ("finish_reason", "i1"),
        ("stop_reason", "i1"),  # the finish reason when it gets to its last token
        ("missed", "i1"),  # its SLO can no longer be met
        ("preemptible", "i1"),
        ("is_prefill_chunk", "i1"),  # its last batch left tokens of it to compute
        ("in_flight", "i1"),  # what the batch before the one formed last does for it
        ("num_output_placeholders", "i1"),  # output tokens that batches in flight will bring
        ("first_scheduled_s", "f8"),
        ("token_time_s", "f8"),  # one output token's share of a typical decode step
        ("priority", "f8"),  # larger is served first
        ("tie", "i8"),  # service order: smaller (key, second key, tie) first
        ("class_tokens", "f8"),  # served to its class, over its weight, where a key reads it
        ("service_class", "i4"),
        ("passes_waited", "i4"),  # times the queue was put in order while it waited
        ("times_passed", "i4"),  # admissions of others while it came first and did not fit
        ("num_cached_tokens", "i4"),  # found in the prefix cache at its last admission or look
        ("num_known_blocks", "i4"),  # of those held, leading ones known by their hash
        ("table", "i4"),  # where the ids of its blocks are written
    ]
)

# What of a request the batch before the one formed last holds: its tokens, or an output to come.
NOT_IN_FLIGHT, IN_FLIGHT, BRINGS_OUTPUT = range(3)

# A running request: what each iteration looks at, a line of a cache.
SEAT = in_whole_lines(
    [
        ("prompt_tokens", "i4"),
        ("num_output_tokens", "i4"),
        ("num_computed_tokens", "i4"),
        ("num_blocks", "i4"),
        ("num_scheduled_tokens", "i4"),  # in the batch formed last
        ("stop_at_tokens", "i4"),
        ("row", "i4"),
        ("is_prefill_chunk", "i1"),
        ("in_flight", "i1"),
        ("num_output_placeholders", "i1"),
        ("preemptible", "i1"),
        ("predicted_output_tokens", "f8"),
        ("first_token_s", "f8"),
        ("last_token_s", "f8"),
        ("tpot_slo_s", "f8"),
    ]
)
SEAT_PROGRESS = (
    "num_output_tokens",
    "num_computed_tokens",
    "num_blocks",
    "num_output_placeholders",
    "stop_at_tokens",
    "is_prefill_chunk",
    "in_flight",
    "last_token_s",
)
"""What is up to date in the seat of a running request, and not in its row."""

ENTRY = np.dtype(
    [("key", "f8"), ("second_key", "f8"), ("tie", "i8"), ("row", "i8")],
    align=True,
)

BLOCK = np.dtype(
    [
        ("hash", "i8"),  # of its tokens and all before them; 0: not known
        ("num_users", "i4"),
        ("previous", "i4"),  # in the list of free blocks
        ("next", "i4"),
        ("next_in_bucket", "i4"),
    ],
    align=True,
)

EVENT = np.dtype(
    [
        ("time_s", "f8"),
        ("iteration", "i8"),
        ("kind", "i4"),
        ("row", "i4"),
        ("tokens", "i4"),  # scheduled, lost or output tokens, by kind
        ("blocks", "i4"),  # blocks taken (> 0) or given back (< 0)
        ("free_blocks", "i4"),  # after the event
        ("num_preemptions", "i4"),  # of this request, this one included
    ],
    align=True,
)

SEGMENT = np.dtype(
    [
        ("first_row", "i8"),
        ("end_row", "i8"),
        ("start_s", "f8"),
        ("end_s", "f8"),
        ("interval_scale", "f8"),  # arrival intervals at load 1 = recorded intervals x this
    ],
    align=True,
)

MOST_COUNTED_CLASSES = 16
"""Service classes that virtual token counters have room for."""

_LIMITS: list[Any] = [
    # capacities of the arrays
    ("front_size", "i8"),
    ("num_looked_at", "i8"),  # places of the front at which a scheduler looks for an admission
    ("seat_capacity", "i8"),
    ("row_capacity", "i8"),
    ("event_reserve", "i8"),  # room that one iteration may need, whatever happens in it
    # rules
    ("max_num_batched_tokens", "i8"),
    ("max_num_seqs", "i8"),
    ("num_blocks", "i8"),
    ("block_size", "i8"),
    ("max_model_len", "i8"),
    ("reserve_full_isl", "i1"),
    ("readmit_after_preemption", "i1"),
    ("watermark_blocks", "i8"),
    ("long_prefill_token_threshold", "i8"),
    ("long_prefill_token_threshold_adaptive", "i1"),
    ("enable_chunked_prefill", "i1"),
    ("max_num_active_seqs", "i8"),
    ("prefill_schedule_interval", "i8"),
    ("async_scheduling", "i1"),
    ("enable_prefix_caching", "i1"),
    ("hash_block_tokens", "i8"),  # tokens that one id of a prompt's content stands for
    ("preemptive_priority", "i1"),
    ("resume_first", "i1"),
    ("victim", "i1"),
    ("victim_tie_last", "i1"),
    ("swaps", "i1"),  # a preempted request keeps its computed tokens
    ("swap_s_per_block", "f8"),
    ("reserve_outputs", "i1"),  # RESERVE_...
    ("skip_ahead", "i8"),
    ("static_order", "i1"),  # waiting keys do not change with time
    ("may_have_lanes", "i1"),  # those of one lane keep the order of their arrival
    ("counts_classes", "i1"),  # the key reads what each service class has been served
    ("jump_ahead", "i1"),
    ("live", "i1"),  # batches run elsewhere, and the time that they take is measured
    ("shed_hopeless", "i1"),
    ("track_misses", "i1"),
    ("request_timeout_s", "f8"),  # infinity: none
    ("length_sigma", "f8"),  # of noisy predictions; 0: oracle; NaN: none
    ("slo_factor", "f8"),
    ("num_waiting_slots", "i8"),
    ("num_running_slots", "i8"),
    ("privileged", "i1"),
    ("horizon_s", "f8"),
    ("warmup_s", "f8"),
    ("discount_time_s", "f8"),
    ("reward_goodput", "f8"),
    ("reward_miss", "f8"),
    ("reward_waiting", "f8"),
    ("reward_recompute", "f8"),
    ("load_low", "f8"),
    ("load_high", "f8"),
    ("mean_output_tokens", "f8"),  # the guess when there is no length prediction
    ("token_time_s", "f8"),  # a decode token's share of a typical step, for work estimates
]

# Where a server's arrays lie, set anew at each entry into compiled code (see ``memory.py``).
_ADDRESSES = [
    ("cost_at", "i8"),
    ("classes_at", "i8"),
    ("num_classes", "i8"),
    ("trace_at", "i8"),
    ("num_trace_rows", "i8"),
    ("segments_at", "i8"),
    ("num_segments", "i8"),
    ("requests_at", "i8"),
    ("seats_at", "i8"),
    ("front_at", "i8"),
    ("order_at", "i8"),
    ("heaps_at", "i8"),
    ("lanes_at", "i8"),
    ("lane_key_at", "i8"),
    ("lane_key_jit_at", "i8"),
    ("events_at", "i8"),
    ("event_capacity", "i8"),
    ("scratch_at", "i8"),
    ("num_itl_bins", "i8"),
    ("blocks_at", "i8"),
    ("num_buckets", "i8"),
    ("tables_at", "i8"),
    ("hash_ids_at", "i8"),
    ("num_hash_ids", "i8"),
    ("observation_at", "i8"),
    ("mask_at", "i8"),
    ("num_actions", "i8"),
]

_STATE: list[Any] = [
    ("clock_s", "f8"),
    ("free_blocks", "i8"),
    ("num_running", "i8"),
    ("num_front", "i8"),
    ("num_admitted", "i8"),
    ("num_backlog", "i8"),
    ("num_expiries", "i8"),
    ("num_waiting", "i8"),
    ("num_events", "i8"),
    ("num_recurring_events", "i8"),
    ("num_lost_events", "i8"),  # for want of room
    # where arrivals come from
    ("seed", "i8"),  # of this episode
    ("next_row", "i8"),
    ("num_rows", "i8"),
    ("trace_row", "i8"),  # of row 0
    ("trace_start_s", "f8"),
    ("interval_scale", "f8"),
    ("next_arrival_s", "f8"),  # infinity: none
    # the batch of this iteration
    ("iteration", "i8"),
    ("num_preempted_now", "i8"),
    ("batch_tokens", "i8"),
    ("batch_prefill_tokens", "i8"),
    ("batch_decodes", "i8"),
    ("batch_context_tokens", "i8"),
    ("batch_attention", "f8"),
    ("batch_moved_blocks", "i8"),  # swapped out or in
    ("batch_has_prefill", "i1"),
    ("chunk_cap", "i8"),  # most tokens of one request
    ("defers_prefill", "i1"),
    ("step_time_s", "f8"),
    ("first_end_s", "f8"),  # end of the first iteration of a jump
    # the cohort of decodes that stand first (see ``cohort.py``)
    ("cohort_size", "i8"),
    ("cohort_tokens", "i8"),  # given to each, beside what its seat tells
    ("cohort_is_scheduled", "i1"),  # the batch formed last holds a token of each
    ("cohort_token_s", "f8"),  # when they got the last one
    ("cohort_ends_at_tokens", "i8"),  # after how many the first of them ends
    ("cohort_context_tokens", "i8"),  # of their sequences
    ("cohort_left_tokens", "i8"),  # outputs to come until they end
    ("cohort_place", "i8"),  # of the next token in ``growth_of``
    # what earlier batches leave behind
    ("num_executed_steps", "i8"),
    ("last_prefill_step", "i8"),
    ("prefill_capacity_bound", "i1"),
    ("progress_iteration", "i8"),  # the last that made a token or ended a request
    ("num_free_tables", "i8"),
    # batches in flight
    ("num_in_flight", "i8"),
    ("num_stale", "i8"),  # preempted requests with a token in flight
    ("newest_step_s", "f8"),
    ("oldest_step_s", "f8"),
    ("newest_tokens", "i8"),
    ("oldest_tokens", "i8"),
    # counts
    ("num_finished", "i8"),
    ("num_rejected", "i8"),
    ("num_timed_out", "i8"),
    ("num_preemptions", "i8"),
    ("num_computed_tokens", "i8"),
    ("num_recomputed_tokens", "i8"),
    ("num_cached_tokens", "i8"),  # not computed, because the prefix cache had them
    ("num_output_tokens", "i8"),
    ("num_steps_beyond_table", "i8"),  # longer or larger than a measured table reaches
    ("busy_s", "f8"),
    ("kv_block_seconds", "f8"),
    ("weight_injected", "f8"),
    ("weight_met", "f8"),
    ("weight_missed", "f8"),
    ("num_met", "i8"),
    ("num_missed", "i8"),
    # sums over waiting requests
    ("waiting_weight", "f8"),
    ("waiting_prefill_tokens", "f8"),
    ("waiting_decode_tokens", "f8"),
    # the decision process
    ("ledger_blocks", "i8"),
    ("ledger_reserved", "i8"),  # blocks kept for outputs (no_evict)
    ("ledger_tokens", "i8"),
    ("ledger_prefill_tokens", "i8"),
    ("num_decoding", "i8"),
    ("decode_context_tokens", "i8"),
    ("true_decode_tokens", "i8"),
    ("arrival_rate_rps", "f8"),
    ("last_arrival_s", "f8"),
    ("num_evicted_now", "i8"),  # preempted by decisions of this iteration
    ("num_fitting", "i8"),  # shown waiting requests that could be admitted
    # what the observation that was written last shows (see ``view.py``)
    ("viewed_at", "i8"),  # where it lies; 0: nowhere
    ("viewed_clock_s", "f8"),
    ("viewed_iteration", "i8"),
    ("viewed_density", "f8"),  # the best one shown
    ("viewed_free_blocks", "i8"),
    ("num_waiting_viewed", "i8"),  # slots that are not empty
    ("num_running_viewed", "i8"),
    ("num_unmoved", "i8"),  # places from the head that are as they were then
    ("place_came_in", "i1"),  # before others
    ("news", "i1"),  # an arrival, end or first token since the last proceed
    ("deciding", "i1"),  # the iteration is open for decisions
    ("measuring", "i1"),  # the batch of a live server runs, and its time is not known yet
    ("terminated", "i1"),
    ("truncated", "i1"),
    # the environment step
    ("reward", "f8"),
    ("step_start_s", "f8"),
    ("waiting_since_s", "f8"),
    ("invalid_actions", "i8"),
    ("decisions", "i8"),
    ("episode", "i8"),
    ("env_seed", "i8"),
    ("load", "f8"),
    # lanes of waiting requests
    ("has_lanes", "i1"),
    ("num_lanes", "i8"),
    ("num_passes", "i8"),  # times the queue was put in order
    # virtual token counters of the service classes
    ("classes_waiting", "i8"),  # one bit a class, when the queue was last put in order
    ("class_tokens", "f8", (MOST_COUNTED_CLASSES,)),  # of ended requests, and what lifted it
    ("class_totals", "f8", (MOST_COUNTED_CLASSES,)),  # of live ones too
]

SERVER = np.dtype(_LIMITS + _ADDRESSES + _STATE, align=True)


class Arrays(NamedTuple):
    """The memory of a world of N servers."""

    state: NDArray[Any]  # SERVER (N,)
    cost: NDArray[Any]  # COST (1,)
    classes: NDArray[Any]  # SERVICE_CLASS (num_classes,)
    trace: NDArray[Any]  # TRACE (num_trace_rows,)
    segments: NDArray[Any]  # SEGMENT (num_segments,), pieces of the trace that episodes come from
    requests: NDArray[Any]  # REQUEST (N, row_capacity)
    seats: NDArray[Any]  # SEAT (N, seat_capacity + 1), the last one for swapping
    front: NDArray[Any]  # WAITER (N, front_size)
    order: NDArray[Any]  # PLACE (N, front_size)
    heaps: NDArray[Any]  # ENTRY (N, 4 row_capacity + seat_capacity)
    lanes: NDArray[Any]  # LANE (N, MOST_LANES); (N, 0) if the order has none
    events: NDArray[Any]  # EVENT (N, capacity)
    scratch: NDArray[Any]  # int64 (N, 2 seat_capacity + block_size + num_bins)
    blocks: NDArray[Any]  # BLOCK (N, num_blocks + 1); (N, 0) without prefix caching
    tables: NDArray[Any]  # int64 (N, num_buckets + seat_capacity x (1 + num_blocks)); or (N, 0)
    hash_ids: NDArray[Any]  # int64 (num_hash_ids,), shared by all servers


# Where the arrays of a world lie and how far apart its servers are, for compiled code.
MEMORY = np.dtype(
    [(f"{name}_at", "i8") for name in Arrays._fields]
    + [(f"{name}_bytes", "i8") for name in Arrays._fields]
    + [
        ("num_servers", "i8"),
        ("num_classes", "i8"),
        ("num_trace_rows", "i8"),
        ("num_segments", "i8"),
        ("num_hash_ids", "i8"),
        ("event_capacity", "i8"),
        ("num_itl_bins", "i8"),
        ("key_at", "i8"),
        ("key_jit_at", "i8"),
        ("lane_key_at", "i8"),
        ("lane_key_jit_at", "i8"),
    ],
    align=True,
)
