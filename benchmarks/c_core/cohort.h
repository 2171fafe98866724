/* The decodes that stand first and get one token each in every iteration
 * (sched_env/engine/cohort.py).
 */
#pragma once

#include "base.h"

static void empty_cohort(Server *s)
{
    s->cohort_size = 0;
    s->cohort_tokens = 0;
    s->cohort_is_scheduled = 0;
    s->cohort_token_s = 0.0;
    s->cohort_ends_at_tokens = NO_LIMIT;
    s->cohort_context_tokens = 0;
    s->cohort_left_tokens = 0;
    s->cohort_place = 0;
    memset(growth_of(s), 0, (size_t)s->block_size * sizeof(int64_t));
}

/* Write into the seat of a member what it has been given with the others. */
static void catch_up(const Server *s, Seat *seat)
{
    const int32_t scheduled = s->cohort_is_scheduled;
    seat->num_output_tokens += (int32_t)s->cohort_tokens;
    seat->num_computed_tokens += (int32_t)s->cohort_tokens + scheduled;
    seat->num_blocks = (int32_t)blocks_for(seat->num_computed_tokens, s->block_size);
    seat->num_scheduled_tokens = scheduled;
    seat->last_token_s = s->cohort_token_s;
}

/* Let all out of the cohort: each seat tells all of its request. */
static void fall_out(Server *s)
{
    Seat *running = running_of(s);
    for (int64_t i = 0; i < s->cohort_size; i++) catch_up(s, &running[i]);
    empty_cohort(s);
}

/* Return after how many tokens of its cohort a member gets to its last one. */
ALWAYS_INLINE int64_t ends_at_tokens(const Seat *seat)
{
    return (int64_t)seat->stop_at_tokens - seat->num_output_tokens;
}

/* Return where a request, whose seat tells all, is counted as one to need a block. */
ALWAYS_INLINE int64_t place_of_growth(const Server *s, const Seat *seat)
{
    const int64_t place =
        s->cohort_place + seat->num_blocks * s->block_size - seat->num_computed_tokens;
    return place < s->block_size ? place : place - s->block_size;
}

ALWAYS_INLINE int64_t place_after(int64_t place, int64_t block_size)
{
    return place + 1 < block_size ? place + 1 : 0;
}

static void join(Server *s, Seat *seat)
{
    growth_of(s)[place_of_growth(s, seat)] += 1;
    s->cohort_context_tokens += num_tokens(seat);
    s->cohort_left_tokens += seat->stop_at_tokens - seat->num_output_tokens;
    seat->num_output_tokens -= (int32_t)s->cohort_tokens;
    seat->num_computed_tokens -= (int32_t)s->cohort_tokens;
    s->cohort_ends_at_tokens = imin(s->cohort_ends_at_tokens, ends_at_tokens(seat));
    s->cohort_size += 1;
}

/* Let the decodes that stand behind the cohort join it, between two batches. */
static void line_up(Server *s)
{
    Seat *running = running_of(s);
    if (UNLIKELY(s->cohort_tokens > MOST_TOKENS)) fall_out(s);
    const int64_t most = imin(s->num_running, s->max_num_batched_tokens);
    while (s->cohort_size < most && is_next_decode(&running[s->cohort_size])) {
        Seat *seat = &running[s->cohort_size];
        if (s->cohort_size == 0) {
            empty_cohort(s);
            s->cohort_token_s = seat->last_token_s;
        } else if (seat->last_token_s != s->cohort_token_s) {
            return;
        }
        join(s, seat);
    }
}

/* Give each of the cohort a token of the empty batch; return how many they are. */
static int64_t schedule_cohort(Server *s)
{
    line_up(s);
    if (s->cohort_size == 0) return 0;
    const int64_t need = growth_of(s)[s->cohort_place];
    if (need > s->free_blocks) {
        fall_out(s);
        return 0;
    }
    s->free_blocks -= need;
    s->cohort_place = place_after(s->cohort_place, s->block_size);
    s->cohort_is_scheduled = 1;
    s->batch_decodes = s->cohort_size;
    s->batch_tokens = s->cohort_size;
    s->batch_context_tokens = s->cohort_context_tokens;
    return s->cohort_size;
}

/* Give the cohort, which was scheduled, the output tokens of so many batches. */
static void advance(Server *s, int64_t iterations)
{
    const int64_t tokens = s->cohort_size * iterations;
    s->cohort_tokens += iterations;
    s->cohort_context_tokens += tokens;
    s->cohort_left_tokens -= tokens;
    s->cohort_token_s = s->clock_s;
    s->cohort_is_scheduled = 0;
}

/* Return after how many tokens the first member ends, but for one. */
static int64_t next_end(const Server *s, int64_t left_out)
{
    const Seat *running = running_of(s);
    const int64_t size = s->cohort_size;
    int64_t first = NO_LIMIT;
    for (int64_t i = 0; i < size; i++)
        if (i != left_out) first = imin(first, ends_at_tokens(&running[i]));
    return first;
}

/* Let a request, if it is in the cohort, out of it: its seat tells all. It must leave that. */
static void step_out(Server *s, int64_t position)
{
    if (position >= s->cohort_size) return;
    Seat *seat = &running_of(s)[position];
    const int64_t ended_at = ends_at_tokens(seat);
    catch_up(s, seat);
    growth_of(s)[place_of_growth(s, seat)] -= 1;
    s->cohort_context_tokens -= num_tokens(seat);
    s->cohort_left_tokens -= seat->stop_at_tokens - seat->num_output_tokens;
    if (ended_at == s->cohort_ends_at_tokens) s->cohort_ends_at_tokens = next_end(s, position);
    s->cohort_size -= 1;
}
