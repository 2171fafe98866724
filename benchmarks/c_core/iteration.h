/* One iteration: its batch (sched_env/engine/batch.py, schedule.py, admission.py, preemption.py)
 * and what running it does (execute.py, output.py, progress.py).
 */
#pragma once

#include "arrivals.h"

/* ---- the batch ---- */

static void open_batch(Server *s)
{
    s->num_preempted_now = 0;
    s->batch_tokens = 0;
    s->batch_prefill_tokens = 0;
    s->batch_decodes = 0;
    s->batch_context_tokens = 0;
    s->batch_attention = 0.0;
    s->batch_moved_blocks = 0;
    s->batch_has_prefill = 0;
    s->chunk_cap = NO_LIMIT;
    s->defers_prefill = 0;
}

static void close_batch(Server *s)
{
    if (s->batch_tokens > 0) s->num_executed_steps += 1;
    if (s->batch_has_prefill) s->last_prefill_step = s->num_executed_steps;
}

/* Return how many tokens of a request, a Request or a Seat, the batch can still take. */
#define tokens_to_schedule(s, request, prefill_cap)                                                \
    scheduled_tokens(s, tokens_left(request), is_decoding(request), prefill_cap)

ALWAYS_INLINE int64_t scheduled_tokens(
    const Server *s, int64_t left, bool decodes, int64_t prefill_cap)
{
    int64_t tokens = imin(left, s->max_num_batched_tokens - s->batch_tokens);
    if (!decodes) tokens = imin(tokens, prefill_cap - s->batch_prefill_tokens);
    return imax(tokens, 0);
}

/* Take the blocks that more computed tokens need; take none if too few are free. */
ALWAYS_INLINE bool grow(Server *s, Seat *seat, int64_t tokens)
{
    const int64_t need = blocks_to_grow(seat, tokens, s->block_size);
    if (need > s->free_blocks) return false;
    s->free_blocks -= need;
    seat->num_blocks += (int32_t)need;
    return true;
}

ALWAYS_INLINE double attention_of(const Cost *cost, int64_t past, int64_t chunk)
{
    return max2((double)chunk, cost->mixed_min_chunk_tokens) *
           ((double)past + 0.5 * (double)chunk);
}

/* Put tokens of a request into the batch and count what the step-time model needs. */
static void assign(Server *s, Seat *seat, int64_t tokens)
{
    if (is_decoding(seat)) {
        s->batch_decodes += 1;
        s->batch_context_tokens += seat->num_computed_tokens + 1;
    } else {
        s->batch_prefill_tokens += tokens;
        s->batch_attention += attention_of(cost_of(s), seat->num_computed_tokens, tokens);
    }
    if (seat->is_prefill_chunk) s->batch_has_prefill = 1;
    s->batch_tokens += tokens;
    seat->num_scheduled_tokens = (int32_t)tokens;
    seat->num_computed_tokens += (int32_t)tokens;
    seat->is_prefill_chunk = tokens_left(seat) > 0;
}

/* Give each running request its tokens, in order; tell whether all blocks were there. Decisions
 * have seen to that: the scheduler never preempts by itself.
 */
static bool schedule_running(Server *s, int64_t prefill_cap)
{
    Seat *running = running_of(s);
    int64_t position = schedule_cohort(s);
    for (; position < s->num_running && s->batch_tokens < s->max_num_batched_tokens; position++) {
        Seat *seat = &running[position];
        const int64_t tokens = tokens_to_schedule(s, seat, prefill_cap);
        if (tokens == 0) continue;
        if (UNLIKELY(!grow(s, seat, tokens))) return false;
        assign(s, seat, tokens);
    }
    return true;
}

/* Append a waiting request to the running ones, with its first chunk in the batch. */
static void admit(Server *s, Request *request, int64_t tokens)
{
    Seat *seat = &running_of(s)[s->num_running];
    s->num_running += 1;
    seat->row = request->row;
    seat->prompt_tokens = request->prompt_tokens;
    seat->num_output_tokens = request->num_output_tokens;
    seat->num_computed_tokens = request->num_computed_tokens;
    seat->num_blocks = request->num_blocks;
    seat->num_scheduled_tokens = 0;
    seat->num_output_placeholders = request->num_output_placeholders;
    seat->stop_at_tokens = request->stop_at_tokens;
    seat->in_flight = request->in_flight;
    seat->preemptible = request->preemptible;
    seat->predicted_output_tokens = request->predicted_output_tokens;
    seat->first_token_s = request->first_token_s;
    seat->last_token_s = request->last_token_s;
    seat->tpot_slo_s = request->tpot_slo_s;
    request->status = RUNNING;
    seat->is_prefill_chunk = tokens_left(seat) > 1;
    grow(s, seat, tokens);
    assign(s, seat, tokens);
    if (isnan(request->first_scheduled_s)) request->first_scheduled_s = s->clock_s;
}

/* Send a running request, which has nothing in a batch, back to wait: its outputs stay. */
static void preempt(Server *s, KeyFunction key_of, int64_t position)
{
    step_out(s, position);
    Seat *seat = &running_of(s)[position];
    const int32_t lost = seat->num_computed_tokens;
    punish_recompute(s, lost);
    give_back_blocks(s, seat);
    Request *request = stand_up(s, seat);
    remove_running(s, position);
    s->num_preemptions += 1;
    s->num_preempted_now += 1;
    s->num_recomputed_tokens += lost;
    request->num_computed_tokens -= lost;
    request->num_recomputed_tokens += lost;
    request->num_preemptions += 1;
    request->moved_at_iteration = (int32_t)s->iteration;
    request->status = PREEMPTED;
    if (blocks_for(num_tokens(request), s->block_size) > s->num_blocks) {
        request->in_flight = NOT_IN_FLIGHT;
        end(s, request, status_of_stuck(request->num_output_tokens), (int8_t)KV_CAPACITY);
        return;
    }
    if (s->shed_hopeless && is_out_of_reach(s, request))
        set_alarm(s, request->row, s->clock_s, BY_DEADLINE);
    enqueue(s, key_of, request);
}

/* ---- the guard against runs that cannot move ---- */

/* End the first waiting request: it cannot move. */
static void drop_head(Server *s)
{
    const int64_t row = front_of(s)[order_of(s)[0].cell].row;
    take_out(s, row);
    Request *request = &requests_of(s)[row];
    end(s, request, status_of_stuck(request->num_output_tokens), (int8_t)NO_PROGRESS);
}

static void break_livelock(Server *s)
{
    const int64_t waited = s->iteration - s->progress_iteration;
    if (LIKELY(waited <= PATIENCE) || s->num_running + s->num_front == 0) return;
    const Seat *running = running_of(s);
    const Request *requests = requests_of(s);
    double tokens = s->waiting_prefill_tokens;
    int64_t worst = 0;
    for (int64_t i = 0; i < s->num_running; i++) {
        tokens += (double)num_tokens(&running[i]);
        if (requests[running[i].row].num_preemptions >
            requests[running[worst].row].num_preemptions)
            worst = i;
    }
    if ((double)waited <= (double)PATIENCE + tokens) return;
    if (s->num_running > 0)
        end_running(s, worst, (int8_t)NO_PROGRESS);
    else
        drop_head(s);
}

/* End the first waiting request if nothing runs and yet it was not admitted. */
static void drop_stuck_head(Server *s)
{
    if (s->num_running > 0 || s->num_preempted_now > 0) return;
    if (s->num_front > 0 && s->batch_tokens == 0) drop_head(s);
}

/* ---- the run ---- */

static double batch_time_s(const Server *s)
{
    int64_t size = s->batch_decodes;
    if (s->batch_decodes != s->batch_tokens) {
        const Seat *running = running_of(s);
        const int64_t num_running = s->num_running;
        size = s->cohort_size;
        for (int64_t i = size; i < num_running; i++) size += running[i].num_scheduled_tokens > 0;
    }
    return step_time_s(cost_of(s), s->batch_decodes, s->batch_context_tokens,
                       s->batch_prefill_tokens, s->batch_attention, size);
}

static int64_t iterations_to_next_finish(Server *s)
{
    if (s->cohort_size == s->num_running) return s->cohort_ends_at_tokens - s->cohort_tokens;
    fall_out(s);
    const Seat *running = running_of(s);
    const int64_t num_running = s->num_running;
    int32_t left = running[0].stop_at_tokens - running[0].num_output_tokens;
    for (int64_t i = 1; i < num_running; i++) {
        const int32_t own = running[i].stop_at_tokens - running[i].num_output_tokens;
        left = own < left ? own : left;
    }
    return left;
}

/* Count the requests that need a block for each of the next tokens, where there is no cohort. */
static void plan_growth(Server *s, int64_t *growth)
{
    const Seat *running = running_of(s);
    const int64_t block_size = s->block_size, num_running = s->num_running;
    s->cohort_place = 0;
    memset(growth, 0, (size_t)block_size * sizeof(int64_t));
    for (int64_t i = 0; i < num_running; i++)
        growth[running[i].num_blocks * block_size - running[i].num_computed_tokens] += 1;
}

/* Advance the clock over up to so many equal batches of decodes; return how many ran. */
static int64_t run_clock_ahead(Server *s, int64_t iterations)
{
    int64_t *growth = growth_of(s);
    if (s->cohort_size == 0) plan_growth(s, growth);
    const double alarm_s = min2(min2(s->horizon_s, s->next_arrival_s), next_alarm_s(s));
    const int64_t num_decodes = s->batch_decodes, num_blocks = s->num_blocks;
    const int64_t block_size = s->block_size;
    const DecodePace pace = decode_pace(cost_of(s), num_decodes);
    int64_t context = s->batch_context_tokens, free_blocks = s->free_blocks;
    double step_s = paced_step_s(pace, context);
    double clock_s = s->clock_s + step_s, busy_s = s->busy_s + step_s;
    double block_seconds = s->kv_block_seconds + (double)(num_blocks - free_blocks) * step_s;
    int64_t done = 1, place = s->cohort_place;
    s->first_end_s = clock_s;
    for (; done < iterations; done++) {
        const int64_t need = growth[place];
        if (clock_s >= alarm_s || need > free_blocks) break;
        place = place_after(place, block_size);
        free_blocks -= need;
        context += num_decodes;
        step_s = paced_step_s(pace, context);
        clock_s += step_s;
        busy_s += step_s;
        block_seconds += (double)(num_blocks - free_blocks) * step_s;
    }
    s->free_blocks = free_blocks;
    s->cohort_place = place;
    s->step_time_s = step_s;
    s->clock_s = clock_s;
    s->busy_s = busy_s;
    s->kv_block_seconds = block_seconds;
    return done;
}

/* Note the first token of a request, in its row and in its seat. */
static void first_token(Server *s, Seat *seat)
{
    Request *row = &requests_of(s)[seat->row];
    seat->first_token_s = s->clock_s;
    row->first_token_s = s->clock_s;
    s->news = 1;
    s->progress_iteration = s->iteration;
    if (s->track_misses && s->clock_s - row->arrival_time_s > row->ttft_slo_s)
        miss(s, row, row->arrival_time_s + row->ttft_slo_s);
}

/* Append the output tokens of a stretch of batches to a request; the caller counts them. */
ALWAYS_INLINE void append_tokens(
    Server *s, Seat *seat, int64_t iterations, double clock_s, int64_t block_size)
{
    if (seat->num_output_tokens == 0) first_token(s, seat);
    seat->last_token_s = clock_s;
    seat->num_output_tokens += (int32_t)iterations;
    if (iterations > 1) {
        seat->num_blocks += (int32_t)blocks_to_grow(seat, iterations - 1, block_size);
        seat->num_computed_tokens += (int32_t)iterations - 1;
    }
}

/* Append the output tokens of a stretch of batches to the cohort, and close the seats of those that
 * have finished; return how many tokens are new.
 */
static int64_t deliver_to_cohort(Server *s, int64_t iterations)
{
    const int64_t num_members = s->cohort_size;
    if (num_members == 0 || !s->cohort_is_scheduled) return 0;
    advance(s, iterations);
    int64_t position = s->cohort_tokens < s->cohort_ends_at_tokens ? num_members : 0;
    while (position < s->cohort_size) {
        Seat *seat = &running_of(s)[position];
        if (ends_at_tokens(seat) != s->cohort_tokens) {
            position++;
            continue;
        }
        step_out(s, position);
        settle(s, seat, (int8_t)FINISHED, (int8_t)requests_of(s)[seat->row].stop_reason);
        remove_running(s, position);
    }
    return num_members * iterations;
}

/* Append the output tokens of a stretch of batches and close the seats of the finished. */
static void deliver(Server *s, int64_t iterations)
{
    s->num_computed_tokens += s->batch_tokens + (iterations - 1) * s->batch_decodes;
    if (s->batch_decodes > 0) s->progress_iteration = s->iteration;
    int64_t num_new = deliver_to_cohort(s, iterations);
    Seat *running = running_of(s);
    const double clock_s = s->clock_s;
    const int64_t num_running = s->num_running, block_size = s->block_size;
    int64_t kept = s->cohort_size;
    for (int64_t position = kept; position < num_running; position++) {
        Seat *seat = &running[position];
        if (seat->num_scheduled_tokens > 0) {
            seat->num_scheduled_tokens = 0;
            if (seat->num_computed_tokens == num_tokens(seat)) {
                append_tokens(s, seat, iterations, clock_s, block_size);
                num_new += iterations;
            }
            if (seat->num_output_tokens == seat->stop_at_tokens) {
                settle(s, seat, (int8_t)FINISHED, (int8_t)requests_of(s)[seat->row].stop_reason);
                continue;
            }
        }
        if (kept < position) running[kept] = *seat;
        kept += 1;
    }
    s->num_output_tokens += num_new;
    s->num_running = kept;
}

/* Run the scheduled batch once, or for as many iterations as nothing else can happen. */
static void execute(Server *s, bool may_jump)
{
    if (s->batch_tokens == 0) {
        s->iteration += 1;
        return;
    }
    int64_t iterations = 1;
    if (may_jump && s->jump_ahead && s->batch_decodes == s->num_running)
        iterations = iterations_to_next_finish(s);
    if (iterations > 1) {
        iterations = run_clock_ahead(s, iterations);
        s->num_executed_steps += iterations - 1;
    } else {
        const double step_s = batch_time_s(s);
        s->step_time_s = step_s;
        s->clock_s += step_s;
        s->busy_s += step_s;
        s->kv_block_seconds += (double)(s->num_blocks - s->free_blocks) * step_s;
    }
    s->iteration += iterations - 1;
    deliver(s, iterations);
    s->iteration += 1;
}
