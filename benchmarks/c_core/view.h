/* The observation of a server (sched_env/engine/view.py). */
#pragma once

#include "cohort.h"

static const Slot EMPTY_SLOT;

typedef float Eights __attribute__((vector_size(32), aligned(4), may_alias));

ALWAYS_INLINE double tpot_slack_s(double clock_s, const Seat *seat, int64_t outputs)
{
    return seat->tpot_slo_s * (double)outputs - (clock_s - seat->first_token_s);
}

/* Write what neither waiting nor running changes, to a Resting. */
#define show_rest(request, resting)                                                                \
    do {                                                                                           \
        const Four x_ = {(request)->weight, (request)->num_preemptions, (request)->tpot_slo_s, 0}; \
        const Four half_ = {2.0, 1.0, 0.1, 1.0};                                                   \
        const FourFloats shown_ = rises(x_, half_);                                                \
        (resting)->weight = shown_[0];                                                             \
        (resting)->density = (request)->density;                                                   \
        (resting)->preemptions = shown_[1];                                                        \
        (resting)->tpot_slo = shown_[2];                                                           \
    } while (0)

/* Write what changes while a request, a Request or a Seat, runs. */
#define show_progress(request, part_of_pool, resting)                                              \
    write_progress((double)tokens_left(request), decode_tokens_left(request),                      \
                   (request)->num_computed_tokens, (request)->num_output_tokens, part_of_pool,     \
                   resting)

ALWAYS_INLINE void write_progress(double prefill_left, double decode_left, double computed,
                                  double outputs, double part_of_pool, Resting *resting)
{
    const Four x = {prefill_left, decode_left, computed, outputs};
    const Four half = {512.0, 128.0, 1024.0, 64.0};
    const FourFloats shown = rises(x, half);
    resting->prefill_left = shown[0];
    resting->decode_left = shown[1];
    resting->blocks_of_pool = min2(part_of_pool, 2.0);
    resting->computed = shown[2];
    resting->outputs = shown[3];
}

/* Return the first of two numbers if a condition holds, else the second, without a branch. */
ALWAYS_INLINE double either(bool condition, double one, double other)
{
    const uint64_t chosen = -(uint64_t)condition;
    uint64_t bits, other_bits;
    memcpy(&bits, &one, sizeof bits);
    memcpy(&other_bits, &other, sizeof other_bits);
    bits = (bits & chosen) | (other_bits & ~chosen);
    memcpy(&one, &bits, sizeof bits);
    return one;
}

/* How long a request waits, and how much longer it may. */
typedef struct Times {
    double wait_s, slack_s;
} Times;

ALWAYS_INLINE Times times_of(double clock_s, double arrival_s, double ttft_slo_s, double prefill_s)
{
    const double wait_s = clock_s - arrival_s;
    return (Times){wait_s, ttft_slo_s - wait_s - prefill_s};
}

/* Within -1 and 1. Rounding keeps order, so it may come first: then no branch is made of it. */
ALWAYS_INLINE float clamped(double x)
{
    float rounded = (float)x;
    rounded = rounded > -1.0f ? rounded : -1.0f;
    return rounded < 1.0f ? rounded : 1.0f;
}

/* Write what the slack until the first token says. */
ALWAYS_INLINE void show_slack(double slack_s, Slot *slot)
{
    slot->short_slack = clamped(slack_s * 2.0);
    slot->middle_slack = clamped(slack_s * 0.5);
    slot->long_slack = clamped(slack_s * 0.125);
}

ALWAYS_INLINE double part_of_free(int64_t blocks, int64_t free_blocks)
{
    return (double)blocks / ((double)(blocks + free_blocks) + 1.0);
}

/* Copy a slot, with as few stores as it takes. */
ALWAYS_INLINE void copy_slot(Slot *slot, const Slot *kept)
{
    const Eights *from = (const Eights *)kept;
    Eights *to = (Eights *)slot;
    to[0] = from[0];
    to[1] = from[1];
    memcpy(to + 2, from + 2, sizeof(Slot) - 2 * sizeof(Eights));
}

static double best_density(const Place *order, int64_t shown)
{
    float best = -10.0f;
    for (int64_t k = 0; k < shown; k++) best = order[k].density > best ? order[k].density : best;
    return best;
}

/* Ask for all that has to be shown anew at once, for it lies apart. */
static void fetch_shown(
    const Server *s, const Place *order, int64_t num_waiting, int64_t most_running)
{
    const Seat *running = running_of(s);
    const int64_t num_running = s->num_running;
    for (int64_t k = 0; k < num_waiting; k++) __builtin_prefetch(&front_of(s)[order[k].cell]);
    for (int64_t j = 0; j < imin(num_running, most_running); j++)
        __builtin_prefetch(&requests_of(s)[running[num_running - 1 - j].row]);
}

/* Take no slot of the observation for written. */
static void forget_view(Server *s, Place *order)
{
    for (int64_t k = 0; k < s->num_front; k++) order[k].slot = -1;
    s->num_unmoved = 0;
    s->viewed_at = s->observation_at;
    s->viewed_iteration = -1;
    s->viewed_density = NAN;
    s->num_waiting_viewed = s->num_waiting_slots;
    s->num_running_viewed = s->num_running_slots;
}

/* ---- the waiting slots ---- */

/* Show a waiting request as it is at the clock. */
ALWAYS_INLINE void show_wait(double clock_s, Place *place, const Waiter *waiter, Slot *slot)
{
    const Times times =
        times_of(clock_s, waiter->arrival_time_s, waiter->ttft_slo_s, waiter->lone_prefill_s);
    const double pace_s = waiter->allowed_s - (clock_s - waiter->first_token_s);
    const bool has_tokens = slot->resting.outputs > 0.0f;
    const double pace = rise(pace_s, 0.5);
    place->urgent_weight = either(times.slack_s < URGENT_S, waiter->weight, 0.0);
    place->late_weight = either(times.slack_s < 0.0, waiter->weight, 0.0);
    show_slack(times.slack_s, slot);
    slot->wait = rise(times.wait_s, 2.0);
    slot->is_late = !has_tokens & (times.wait_s > waiter->ttft_slo_s);
    slot->tpot_slack = either(has_tokens, pace, 0.0);
}

ALWAYS_INLINE double gap(double density, double best)
{
    return max2(5.0 * (density - best), -20.0);
}

/* Show a waiting request that no slot shows yet. */
static void show_waiter(const Server *s, Place *place, Slot *slot, double best)
{
    const Waiter *waiter = &front_of(s)[place->cell];
    slot->present = 1.0f;
    slot->is_running = 0.0f;
    slot->resting = waiter->resting;
    slot->density_gap = gap(place->density, best);
    slot->blocks_of_free = part_of_free(place->whole_blocks, s->free_blocks);
    show_wait(s->clock_s, place, waiter, slot);
}

/* Move the slots before which one came in, the last ones first. */
static void move_down(Server *s, Place *order, Slot *slots, int64_t shown)
{
    for (int64_t k = shown; k < s->num_front; k++) order[k].slot = -1;
    for (int64_t k = shown - 1; k >= s->num_unmoved; k--) {
        const int64_t slot = order[k].slot;
        if (slot > k) {
            order[k].slot = -1;
        } else if (slot >= 0 && slot < k) {
            copy_slot(&slots[k], &slots[slot]);
            order[k].slot = (int32_t)k;
        }
    }
    s->place_came_in = 0;
}

/* Bring what the slots show of the first of the queue into the order that it has now. */
static void arrange_waiting(Server *s, Place *order, Slot *slots, int64_t shown, double best)
{
    const double step = 1.0 / (double)s->num_waiting_slots;
    if (s->place_came_in) move_down(s, order, slots, shown);
    for (int64_t k = s->num_unmoved; k < shown; k++) {
        const int64_t slot = order[k].slot;
        if (slot > k)
            copy_slot(&slots[k], &slots[slot]);
        else if (slot < 0)
            show_waiter(s, &order[k], &slots[k], best);
        order[k].slot = (int32_t)k;
        slots[k].rank = (double)k * step;
    }
    s->num_unmoved = s->front_size;
}

static void show_waits(const Server *s, Place *order, Slot *slots, int64_t shown)
{
    const Waiter *front = front_of(s);
    const double clock_s = s->clock_s;
    for (int64_t k = 0; k < shown; k++)
        show_wait(clock_s, &order[k], &front[order[k].cell], &slots[k]);
}

static void show_parts_of_free(const Server *s, const Place *order, Slot *slots, int64_t shown)
{
    const int64_t free_blocks = s->free_blocks;
    for (int64_t k = 0; k < shown; k++)
        slots[k].blocks_of_free = part_of_free(order[k].whole_blocks, free_blocks);
}

/* Write the waiting slots, and what they say together. */
static void view_waiting(
    Server *s, Place *order, int64_t shown, bool stood_still, double best, Globals *out)
{
    Slot *slots = slots_in(s);
    const int8_t *mask = mask_of(s) + NUM_LEVELS;
    double urgent = 0.0, late = 0.0, first_s = s->clock_s;
    arrange_waiting(s, order, slots, shown, best);
    if (!stood_still) show_waits(s, order, slots, shown);
    if (s->free_blocks != s->viewed_free_blocks) show_parts_of_free(s, order, slots, shown);
    if (best != s->viewed_density)
        for (int64_t k = 0; k < shown; k++) slots[k].density_gap = gap(order[k].density, best);
    for (int64_t k = 0; k < shown; k++) {
        const Place *place = &order[k];
        slots[k].is_legal = mask[k];
        urgent += place->urgent_weight;
        late += place->late_weight;
        first_s = min2(first_s, place->arrival_time_s);
    }
    for (int64_t k = shown; k < s->num_waiting_viewed; k++) slots[k] = EMPTY_SLOT;
    s->num_waiting_viewed = shown;
    out->urgent_weight = rise(urgent, 4.0);
    out->late_weight = rise(late, 4.0);
    out->longest_wait = rise(s->clock_s - first_s, 5.0);
}

/* ---- the running slots ---- */

/* Return wait, pace and part of the free blocks as they are shown. */
ALWAYS_INLINE FourFloats shown_times(double wait_s, double pace_s, double blocks, double total)
{
    const Four over = {wait_s, pace_s, blocks, 0.0};
    const Four under = {fabs(wait_s) + 2.0, fabs(pace_s) + 0.5, total + 1.0, 1.0};
    return quotients(over, under);
}

/* How far a running request is, where no batch is formed (cohort.py). */
typedef struct Progress {
    int64_t left, outputs, computed, blocks;
} Progress;

ALWAYS_INLINE Progress progress_of(const Server *s, int64_t position)
{
    const Seat *seat = &running_of(s)[position];
    const int64_t outputs = seat->num_output_tokens, computed = seat->num_computed_tokens;
    if (position >= s->cohort_size)
        return (Progress){tokens_left(seat), outputs, computed, seat->num_blocks};
    const int64_t now = computed + s->cohort_tokens;
    return (Progress){1, outputs + s->cohort_tokens, now, blocks_for(now, s->block_size)};
}

/* Show the running requests as they are now. */
static void show_running(const Server *s, Slot *slots, int64_t count)
{
    const Seat *running = running_of(s);
    const Request *requests = requests_of(s);
    const double clock_s = s->clock_s, pool = (double)s->num_blocks;
    const double step = 1.0 / (double)s->num_running_slots;
    const int64_t free_blocks = s->free_blocks, num_running = s->num_running;
    for (int64_t j = 0; j < count; j++) {
        const Seat *seat = &running[num_running - 1 - j];
        const Request *request = &requests[seat->row];
        Slot *slot = &slots[j];
        const Times times = times_of(
            clock_s, request->arrival_time_s, request->ttft_slo_s, request->lone_prefill_s);
        const Progress progress = progress_of(s, num_running - 1 - j);
        const int64_t outputs = progress.outputs, blocks = progress.blocks;
        const FourFloats shown = shown_times(times.wait_s, tpot_slack_s(clock_s, seat, outputs),
                                             (double)blocks, (double)(blocks + free_blocks));
        const bool has_tokens = outputs > 0;
        slot->present = 1.0f;
        slot->is_running = 1.0f;
        slot->rank = (double)j * step;
        show_rest(request, &slot->resting);
        slot->resting.preemptible = seat->preemptible;
        write_progress((double)progress.left, predicted_beyond(seat, outputs),
                       (double)progress.computed, (double)outputs, (double)blocks / pool,
                       &slot->resting);
        show_slack(times.slack_s, slot);
        slot->blocks_of_free = shown[2];
        slot->wait = shown[0];
        slot->is_late = !has_tokens & (times.wait_s > request->ttft_slo_s);
        slot->tpot_slack = either(has_tokens, shown[1], 0.0);
    }
}

/* Show the predicted output tokens that running requests have to come, and the late decodes. */
static void show_paces(const Server *s, Globals *out)
{
    const Seat *running = running_of(s);
    const int64_t num_running = s->num_running, num_members = s->cohort_size;
    const double clock_s = s->clock_s;
    double predicted = 0.0;
    int64_t num_late = 0;
    for (int64_t i = 0; i < num_members; i++) {
        const int64_t outputs = running[i].num_output_tokens + s->cohort_tokens;
        predicted += predicted_beyond(&running[i], outputs);
        num_late += tpot_slack_s(clock_s, &running[i], outputs) < 0.0;
    }
    for (int64_t i = num_members; i < num_running; i++) {
        const Seat *seat = &running[i];
        predicted += decode_tokens_left(seat);
        num_late +=
            is_decoding(seat) && tpot_slack_s(clock_s, seat, seat->num_output_tokens) < 0.0;
    }
    out->running_decode = rise(predicted, 8192.0);
    out->decodes_at_risk = (double)num_late * (1.0 / (double)s->max_num_seqs);
}

/* Write the running slots, from the end of the batch order, and what all running ones say. */
static void view_running(Server *s, bool changed, double best, Globals *out)
{
    const int64_t first = s->num_waiting_slots;
    const int64_t count = imin(s->num_running, s->num_running_slots);
    const int8_t *mask = mask_of(s) + NUM_LEVELS + first;
    Slot *slots = slots_in(s) + first;
    if (changed) {
        show_running(s, slots, count);
        show_paces(s, out);
        for (int64_t j = count; j < s->num_running_viewed; j++) slots[j] = EMPTY_SLOT;
        s->num_running_viewed = count;
    }
    for (int64_t j = 0; j < count; j++) slots[j].is_legal = mask[j];
    if (changed || best != s->viewed_density)
        for (int64_t j = 0; j < count; j++)
            slots[j].density_gap = min2(gap(slots[j].resting.density, best), 0.0);
}

/* ---- the server as a whole ---- */

static void view_budgets(const Server *s, Globals *out)
{
    const double seats = 1.0 / (double)s->max_num_seqs;
    const double budget = 1.0 / (double)s->max_num_batched_tokens;
    const double pool = 1.0 / (double)s->num_blocks;
    const Cost *cost = cost_of(s);
    const int64_t decodes = s->num_decoding, context = s->decode_context_tokens;
    const int64_t prefill = s->ledger_prefill_tokens;
    const double attention = 0.5 * (double)prefill * (double)prefill;
    out->free_kv = (double)s->free_blocks * pool;
    out->ledger_kv = max2((double)s->ledger_blocks * pool, -2.0);
    out->running = (double)s->num_running * seats;
    out->admitted = rise((double)s->num_admitted, 4.0);
    out->ledger_tokens = (double)s->ledger_tokens * budget;
    out->decoding = (double)s->num_decoding * seats;
    out->prefill_tokens = (double)s->ledger_prefill_tokens * budget;
    out->decode_context =
        min2((double)s->decode_context_tokens * pool / (double)s->block_size, 2.0);
    out->decode_step = rise(step_time_s(cost, decodes, context, 0, 0.0, decodes), 0.05);
    out->full_step =
        rise(step_time_s(cost, decodes, context, prefill, attention, decodes + 1), 0.05);
    out->shortage = s->ledger_blocks < 0;
    out->news = s->news;
}

static void view_queue(const Server *s, Globals *out)
{
    const int64_t beyond = imax(s->num_waiting - s->num_waiting_slots, 0);
    out->waiting = rise((double)s->num_waiting, 16.0);
    out->beyond_slots = rise((double)beyond, 16.0);
    out->waiting_weight = rise(max2(s->waiting_weight, 0.0), 16.0);
    out->waiting_prefill = rise(max2(s->waiting_prefill_tokens, 0.0), 8192.0);
    out->waiting_decode = rise(max2(s->waiting_decode_tokens, 0.0), 8192.0);
    out->fitting = rise((double)s->num_fitting, 4.0);
    out->arrival_rate = rise(s->arrival_rate_rps, 5.0);
}

/* Write the observation of a server whose mask is up to date. */
static void view(Server *s)
{
    Globals *out = globals_in(s);
    Place *order = order_of(s);
    if (s->viewed_at != s->observation_at) forget_view(s, order);
    const int64_t shown = imin(s->num_front, s->num_waiting_slots);
    const bool stood_still =
        s->clock_s == s->viewed_clock_s && s->iteration == s->viewed_iteration;
    const bool running_changed = !stood_still || s->free_blocks != s->viewed_free_blocks;
    fetch_shown(s, order, stood_still ? 0 : shown, running_changed ? s->num_running_slots : 0);
    const double best = best_density(order, shown);
    view_waiting(s, order, shown, stood_still, best, out);
    view_running(s, running_changed, best, out);
    view_budgets(s, out);
    view_queue(s, out);
    s->viewed_density = best;
    s->viewed_clock_s = s->clock_s;
    s->viewed_iteration = s->iteration;
    s->viewed_free_blocks = s->free_blocks;
}
