/* What all parts of the core share: where a server's arrays lie, how large a request is, what a
 * step takes, what the seed draws.
 *
 * The names are those of the Python functions that these transcribe (sched_env/engine,
 * sched_env/cost/step_time.py, sched_env/workload). Branches on switches that c_core.library
 * refuses are left out; all else is the same work in the same order, to the last bit.
 */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "records.h"

#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* The order of requests, a native function of numba's calling convention. */
typedef struct Key {
    double first, second;
} Key;
typedef int (*KeyFunction)(Key *key, void **error, const Request *request, double now_s);

/* ---- the smaller and the larger, as Python chooses between equals ---- */

ALWAYS_INLINE double min2(double left, double right) { return right < left ? right : left; }
ALWAYS_INLINE double max2(double left, double right) { return right > left ? right : left; }
ALWAYS_INLINE int64_t imin(int64_t left, int64_t right) { return right < left ? right : left; }
ALWAYS_INLINE int64_t imax(int64_t left, int64_t right) { return right > left ? right : left; }

/* ---- where the arrays of a server lie ---- */

#define ARRAY_OF(function, type, address)                                                          \
    ALWAYS_INLINE type *function(const Server *s) { return (type *)(intptr_t)s->address; }
ARRAY_OF(cost_of, const Cost, cost_at)
ARRAY_OF(classes_of, const ServiceClass, classes_at)
ARRAY_OF(trace_of, const TraceRow, trace_at)
ARRAY_OF(requests_of, Request, requests_at)
ARRAY_OF(running_of, Seat, seats_at)
ARRAY_OF(front_of, Waiter, front_at)
ARRAY_OF(order_of, Place, order_at)
ARRAY_OF(backlog_of, Entry, heaps_at)
ARRAY_OF(admitted_of, int64_t, scratch_at)
ARRAY_OF(mask_of, int8_t, mask_at)
ARRAY_OF(slots_in, Slot, observation_at)

ALWAYS_INLINE Entry *expiries_of(const Server *s) { return backlog_of(s) + s->row_capacity; }
ALWAYS_INLINE int64_t *growth_of(const Server *s) { return admitted_of(s) + s->seat_capacity; }
ALWAYS_INLINE Globals *globals_in(const Server *s)
{
    return (Globals *)(slots_in(s) + s->num_waiting_slots + s->num_running_slots);
}

/* ---- asking for what lies apart before it is looked at (sched_env/engine/prefetch.py) ---- */

ALWAYS_INLINE void fetch_request(const Server *s, int64_t row)
{
    const char *start = (const char *)&requests_of(s)[row];
    for (size_t offset = 0; offset < sizeof(Request); offset += CACHE_LINE)
        __builtin_prefetch(start + offset);
}

ALWAYS_INLINE void fetch_cell(const Server *s, int64_t position)
{
    const char *start = (const char *)&front_of(s)[order_of(s)[position].cell];
    for (size_t offset = 0; offset < sizeof(Waiter); offset += CACHE_LINE)
        __builtin_prefetch(start + offset);
}

ALWAYS_INLINE void fetch_free_cell(const Server *s)
{
    fetch_cell(s, imin(s->num_front, s->front_size - 1));
}

ALWAYS_INLINE void fetch_next_waiting(const Server *s)
{
    if (s->num_backlog == 0) return;
    const Entry *backlog = backlog_of(s);
    fetch_request(s, backlog[0].row);
    __builtin_prefetch((const char *)backlog + CACHE_LINE);
    __builtin_prefetch(&backlog[s->num_backlog - 1]);
}

ALWAYS_INLINE void fetch_coming(const Server *s)
{
    const Entry *expiries = expiries_of(s);
    __builtin_prefetch(&trace_of(s)[s->trace_row + s->next_row]);
    __builtin_prefetch(expiries);
    __builtin_prefetch(&expiries[s->num_expiries]);
    __builtin_prefetch(&expiries[s->num_expiries >> 1]);
    fetch_free_cell(s);
}

/* ---- sizes; a Request and a Seat have the same fields for these ---- */

#define num_tokens(request) ((int64_t)(request)->prompt_tokens + (request)->num_output_tokens)
#define tokens_left(request)                                                                       \
    (num_tokens(request) + (request)->num_output_placeholders - (request)->num_computed_tokens)
#define decode_tokens_left(request) predicted_beyond(request, (request)->num_output_tokens)
#define predicted_beyond(request, outputs)                                                         \
    max2((request)->predicted_output_tokens - (double)(outputs), 1.0)
#define is_decoding(request)                                                                       \
    ((request)->num_output_tokens + (request)->num_output_placeholders > 0 &&                      \
     tokens_left(request) == 1)
#define is_next_decode(seat)                                                                       \
    ((seat)->num_output_tokens > 0 &&                                                              \
     num_tokens(seat) == (int64_t)(seat)->num_computed_tokens + 1 && !(seat)->is_prefill_chunk)
#define blocks_to_grow(request, tokens, block_size)                                                \
    blocks_beyond(                                                                                 \
        (request)->num_blocks *(block_size) - (request)->num_computed_tokens, tokens, block_size)

ALWAYS_INLINE int64_t blocks_for(int64_t tokens, int64_t block_size)
{
    return (tokens + block_size - 1) / block_size;
}

ALWAYS_INLINE int64_t blocks_beyond(int64_t room, int64_t tokens, int64_t block_size)
{
    return tokens <= room ? 0 : blocks_for(tokens - room, block_size);
}

/* x / (|x| + half). */
ALWAYS_INLINE double rise(double x, double half) { return x / (fabs(x) + half); }

/* Four of them at once: divisions are what most of an observation waits for. */
typedef double Four __attribute__((vector_size(32)));
typedef float FourFloats __attribute__((vector_size(16)));
typedef int64_t FourBits __attribute__((vector_size(32)));

ALWAYS_INLINE FourFloats quotients(Four over, Four under)
{
    return __builtin_convertvector(over / under, FourFloats);
}

ALWAYS_INLINE FourFloats rises(Four x, Four half)
{
    const Four size = (Four)((FourBits)x & INT64_MAX);
    return quotients(x, size + half);
}

/* ---- how long an iteration takes ---- */

static double smooth_max(double left, double right, double smoothness)
{
    if (smoothness >= SHARP) return max2(left, right);
    if (smoothness == 2.0) return sqrt(left * left + right * right);
    if (smoothness == 4.0) {
        const double left2 = left * left, right2 = right * right;
        return sqrt(sqrt(left2 * left2 + right2 * right2));
    }
    const double larger = max2(left, right), smaller = min2(left, right);
    if (larger == 0.0) return 0.0;
    return larger * pow(1.0 + pow(smaller / larger, smoothness), 1.0 / smoothness);
}

ALWAYS_INLINE double formula_s(
    const Cost *cost, int64_t num_decodes, int64_t context, int64_t prefill, double attention)
{
    if (prefill == 0) {
        const double paid = max2((double)context - cost->decode_free_context_tokens, 0.0);
        return cost->decode_base_s + cost->decode_per_sequence_s * (double)num_decodes +
               cost->decode_per_context_token_s * paid;
    }
    const double tile = cost->mixed_tile_tokens;
    const double new_tokens = ceil((double)(num_decodes + prefill) / tile) * tile;
    const double paid = smooth_max(cost->mixed_knee_tokens, new_tokens, cost->mixed_smoothness);
    return cost->mixed_base_s + cost->mixed_per_token_s * paid +
           cost->mixed_per_sequence_s * (double)num_decodes +
           cost->mixed_per_context_token_s * (double)context +
           cost->mixed_per_attention_s * attention;
}

ALWAYS_INLINE double step_time_s(const Cost *cost, int64_t num_decodes, int64_t context,
                                 int64_t prefill, double attention, int64_t num_sequences)
{
    const double overhead_s =
        cost->overhead_per_step_s + cost->overhead_per_sequence_s * (double)num_sequences;
    return overhead_s + formula_s(cost, num_decodes, context, prefill, attention);
}

/* The time of steps that only decode, for a number of sequences: its parts without context. */
typedef struct DecodePace {
    double overhead_s, base_s, per_context_token_s, free_context_tokens;
} DecodePace;

ALWAYS_INLINE DecodePace decode_pace(const Cost *cost, int64_t num_decodes)
{
    return (DecodePace){
        cost->overhead_per_step_s + cost->overhead_per_sequence_s * (double)num_decodes,
        cost->decode_base_s + cost->decode_per_sequence_s * (double)num_decodes,
        cost->decode_per_context_token_s,
        cost->decode_free_context_tokens,
    };
}

ALWAYS_INLINE double paced_step_s(DecodePace pace, int64_t context)
{
    const double paid = max2((double)context - pace.free_context_tokens, 0.0);
    return pace.overhead_s + (pace.base_s + pace.per_context_token_s * paid);
}

static double lone_prefill_s(const Cost *cost, int64_t prompt, int64_t budget)
{
    const int64_t num_full = prompt / budget, past = num_full * budget, rest = prompt - past;
    double total_s = 0.0;
    if (num_full > 0) {
        const double paid = max2((double)budget, cost->mixed_min_chunk_tokens);
        const double attention = paid * 0.5 * (double)past;
        total_s += (double)num_full * step_time_s(cost, 0, 0, budget, attention, 1);
    }
    if (rest > 0) {
        const double paid = max2((double)rest, cost->mixed_min_chunk_tokens);
        const double attention = paid * ((double)past + 0.5 * (double)rest);
        total_s += step_time_s(cost, 0, 0, rest, attention, 1);
    }
    return total_s;
}

/* ---- what the seed draws (splitmix64, applied once for each key) ---- */

ALWAYS_INLINE uint64_t absorb(uint64_t state, uint64_t key)
{
    uint64_t z = (state ^ key) + GOLDEN;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static double uniform(int64_t seed, int64_t row, int64_t stream)
{
    uint64_t state = absorb((uint64_t)DRAW_DOMAIN, (uint64_t)seed);
    state = absorb(absorb(state, (uint64_t)row), (uint64_t)stream);
    return (double)(state >> 11) * 0x1p-53;
}

static double normal(int64_t seed, int64_t row, int64_t stream)
{
    const double radius = sqrt(-2.0 * log(1.0 - uniform(seed, row, stream)));
    return radius * cos(2.0 * 3.141592653589793 * uniform(seed, row, stream + SECOND_UNIFORM));
}
