/* The observation of a server (sched_env/engine/view.py). */
#pragma once

#include "base.h"

static const Slot EMPTY_SLOT;

typedef float Eights __attribute__((vector_size(32), aligned(4), may_alias));

ALWAYS_INLINE double tpot_slack_s(double clock_s, const Seat *seat)
{
    const double allowed_s = seat->tpot_slo_s * seat->num_output_tokens;
    return allowed_s - (clock_s - seat->first_token_s);
}

/* Write what neither waiting nor running changes. */
ALWAYS_INLINE void show_rest(const Request *request, Resting *resting)
{
    resting->weight = rise(request->weight, 2.0);
    resting->density = request->density;
    resting->preemptible = request->preemptible;
    resting->preemptions = rise(request->num_preemptions, 1.0);
    resting->tpot_slo = rise(request->tpot_slo_s, 0.1);
}

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

/* Return wait, pace and part of the free blocks as they are shown. */
ALWAYS_INLINE FourFloats shown_times(double wait_s, double pace_s, double blocks, double total)
{
    const Four over = {wait_s, pace_s, blocks, 0.0};
    const Four under = {fabs(wait_s) + 2.0, fabs(pace_s) + 0.5, total + 1.0, 1.0};
    return quotients(over, under);
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

static void note_scene(Server *s)
{
    if (s->clock_s != s->scene_clock_s || s->iteration != s->scene_iteration) {
        s->scene += 1;
        s->scene_clock_s = s->clock_s;
        s->scene_iteration = s->iteration;
    }
}

static double best_density(const Place *order, int64_t shown)
{
    double best = -10.0;
    for (int64_t k = 0; k < shown; k++) best = max2(best, order[k].density);
    return best;
}

/* Show a waiting request as it is at the clock of this scene. */
ALWAYS_INLINE void show_wait(double clock_s, Waiter *waiter, double blocks, double total)
{
    Slot *slot = &waiter->slot;
    const Times times =
        times_of(clock_s, waiter->arrival_time_s, waiter->ttft_slo_s, waiter->lone_prefill_s);
    const double pace_s = waiter->allowed_s - (clock_s - waiter->first_token_s);
    const FourFloats shown = shown_times(times.wait_s, pace_s, blocks, total);
    const bool has_tokens = slot->resting.outputs > 0.0f;
    waiter->slack_s = times.slack_s;
    show_slack(times.slack_s, slot);
    slot->blocks_of_free = shown[2];
    slot->wait = shown[0];
    slot->is_late = !has_tokens & (times.wait_s > waiter->ttft_slo_s);
    slot->tpot_slack = has_tokens ? shown[1] : 0.0f;
}

/* Bring the first slots of the waiting up to date. */
static void refresh_waiting(const Server *s, Waiter *front, Place *order, int64_t shown)
{
    const double clock_s = s->clock_s;
    const int64_t scene = s->scene, free_blocks = s->free_blocks;
    for (int64_t k = 0; k < shown; k++) {
        Place *place = &order[k];
        Waiter *waiter = &front[place->cell];
        const double blocks = place->whole_blocks;
        const double total = (double)(place->whole_blocks + free_blocks);
        if (place->scene != scene)
            show_wait(clock_s, waiter, blocks, total);
        else if (place->free_blocks != free_blocks)
            waiter->slot.blocks_of_free = blocks / (total + 1.0);
        place->scene = (int32_t)scene;
        place->free_blocks = (int32_t)free_blocks;
    }
}

static void view_waiting(const Server *s, Place *order, int64_t shown, double best, Globals *out)
{
    Waiter *front = front_of(s);
    Slot *slots = slots_in(s);
    const int8_t *mask = mask_of(s) + NUM_LEVELS;
    const int64_t num_slots = s->num_waiting_slots;
    const double step = 1.0 / (double)num_slots;
    double urgent = 0.0, late = 0.0, first_s = s->clock_s;
    refresh_waiting(s, front, order, shown);
    for (int64_t k = 0; k < shown; k++) {
        const Place *place = &order[k];
        const Waiter *waiter = &front[place->cell];
        Slot *slot = &slots[k];
        copy_slot(slot, &waiter->slot);
        slot->is_legal = mask[k];
        slot->rank = (double)k * step;
        slot->density_gap = max2(5.0 * (place->density - best), -20.0);
        urgent += waiter->weight * (waiter->slack_s < URGENT_S);
        late += waiter->weight * (waiter->slack_s < 0.0);
        first_s = min2(first_s, waiter->arrival_time_s);
    }
    for (int64_t k = shown; k < num_slots; k++) slots[k] = EMPTY_SLOT;
    out->urgent_weight = rise(urgent, 4.0);
    out->late_weight = rise(late, 4.0);
    out->longest_wait = rise(s->clock_s - first_s, 5.0);
}

/* Show the running requests as they are in this scene. */
static void show_running(Server *s, Slot *shown)
{
    const Seat *running = running_of(s);
    const double clock_s = s->clock_s, pool = (double)s->num_blocks;
    const int64_t free_blocks = s->free_blocks, num_running = s->num_running;
    const int64_t num_slots = s->num_running_slots, count = imin(num_running, num_slots);
    s->shown_scene = s->scene;
    s->shown_free_blocks = free_blocks;
    for (int64_t j = 0; j < count; j++) {
        const Seat *seat = &running[num_running - 1 - j];
        Slot *slot = &shown[j];
        slot->present = 1.0f;
        slot->is_running = 1.0f;
        slot->resting = seat->resting;
        show_progress(seat, seat->num_blocks / pool, &slot->resting);
        const Times times =
            times_of(clock_s, seat->arrival_time_s, seat->ttft_slo_s, seat->lone_prefill_s);
        const bool has_tokens = seat->num_output_tokens > 0;
        const FourFloats shown_now =
            shown_times(times.wait_s, tpot_slack_s(clock_s, seat), seat->num_blocks,
                        (double)(seat->num_blocks + free_blocks));
        show_slack(times.slack_s, slot);
        slot->blocks_of_free = shown_now[2];
        slot->wait = shown_now[0];
        slot->is_late = !has_tokens & (times.wait_s > seat->ttft_slo_s);
        slot->tpot_slack = has_tokens ? shown_now[1] : 0.0f;
    }
    for (int64_t j = count; j < num_slots; j++) shown[j] = EMPTY_SLOT;
}

static void view_running(Server *s, double best)
{
    Slot *shown = shown_of(s);
    if (s->shown_scene != s->scene || s->shown_free_blocks != s->free_blocks)
        show_running(s, shown);
    const int64_t first = s->num_waiting_slots, num_slots = s->num_running_slots;
    const int64_t count = imin(s->num_running, num_slots);
    const int8_t *mask = mask_of(s) + NUM_LEVELS + first;
    const double step = 1.0 / (double)num_slots;
    Slot *slots = slots_in(s) + first;
    memcpy(slots, shown, (size_t)num_slots * sizeof(Slot));
    for (int64_t j = 0; j < count; j++) {
        slots[j].is_legal = mask[j];
        slots[j].rank = (double)j * step;
        slots[j].density_gap =
            min2(max2(5.0 * (shown[j].resting.density - best), -20.0), 0.0);
    }
}

static void view_budgets(const Server *s, Globals *out)
{
    const double seats = 1.0 / (double)s->max_num_seqs;
    const double budget = 1.0 / (double)s->max_num_batched_tokens;
    const double pool = 1.0 / (double)s->num_blocks;
    out->free_kv = (double)s->free_blocks * pool;
    out->ledger_kv = max2((double)s->ledger_blocks * pool, -2.0);
    out->running = (double)s->num_running * seats;
    out->admitted = rise((double)s->num_admitted, 4.0);
    out->ledger_tokens = (double)s->ledger_tokens * budget;
    out->decoding = (double)s->num_decoding * seats;
    out->prefill_tokens = (double)s->ledger_prefill_tokens * budget;
    out->decodes_at_risk = (double)s->decodes_at_risk * seats;
    out->decode_context =
        min2((double)s->decode_context_tokens * pool / (double)s->block_size, 2.0);
    out->decode_step = rise(s->next_decode_s, 0.05);
    out->full_step = rise(s->next_full_s, 0.05);
    out->shortage = s->ledger_blocks < 0;
    out->news = s->news;
    out->running_decode = rise(s->running_decode_tokens, 8192.0);
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
    const int64_t shown = imin(s->num_front, s->num_waiting_slots);
    note_scene(s);
    const double best = best_density(order, shown);
    view_waiting(s, order, shown, best, out);
    view_running(s, best);
    view_budgets(s, out);
    view_queue(s, out);
}
