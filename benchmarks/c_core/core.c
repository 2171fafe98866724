/* One decision in each of a range of servers (sched_env/engine/ledger.py, legality.py, decide.py,
 * kernels.py).
 */

#include "iteration.h"

/* ---- the ledger ---- */

/* Charge the ledger with the prefill of an admitted request. */
ALWAYS_INLINE void enter(Server *s, const Request *request)
{
    const int64_t tokens = imin(tokens_left(request), s->ledger_tokens);
    s->ledger_blocks -= blocks_to_grow(request, tokens, s->block_size);
    s->ledger_tokens -= tokens;
    s->ledger_prefill_tokens += tokens;
}

/* Count what the running requests and those admitted so far will take, prefill in full. */
static void read_ledger(Server *s)
{
    line_up(s);
    const Seat *running = running_of(s);
    const int64_t block_size = s->block_size, num_running = s->num_running;
    const int64_t num_members = s->cohort_size;
    int64_t budget = s->max_num_batched_tokens - num_members, blocks = s->free_blocks;
    int64_t prefill = 0, num_decoding = num_members, context = 0, actual = 0;
    s->chunk_cap = NO_LIMIT;
    s->defers_prefill = 0;
    if (num_members > 0) {
        blocks -= growth_of(s)[s->cohort_place];
        context = s->cohort_context_tokens;
        actual = s->cohort_left_tokens;
    }
    for (int64_t i = num_members; i < num_running; i++) {
        const Seat *seat = &running[i];
        const int64_t tokens = imin(tokens_left(seat), budget);
        blocks -= blocks_to_grow(seat, tokens, block_size);
        budget -= tokens;
        actual += seat->stop_at_tokens - seat->num_output_tokens;
        if (is_decoding(seat)) {
            num_decoding += 1;
            context += num_tokens(seat);
        } else {
            prefill += tokens;
        }
    }
    s->ledger_blocks = blocks;
    s->ledger_tokens = budget;
    s->ledger_prefill_tokens = prefill;
    s->num_decoding = num_decoding;
    s->decode_context_tokens = context;
    s->true_decode_tokens = actual;
    s->ledger_reserved = 0;
    for (int64_t i = 0; i < s->num_admitted; i++) enter(s, &requests_of(s)[admitted_of(s)[i]]);
}

/* ---- the point of decision ---- */

/* Order the running requests: decoding ones first, each group as it was. */
static void put_decodes_first(Server *s)
{
    Seat *running = running_of(s);
    const int64_t num_running = s->num_running, spare = s->seat_capacity;
    int64_t num_decoding = s->cohort_size;
    for (int64_t position = num_decoding; position < num_running; position++) {
        if (!is_decoding(&running[position])) continue;
        if (num_decoding < position) {
            running[spare] = running[position];
            memmove(&running[num_decoding + 1], &running[num_decoding],
                    (size_t)(position - num_decoding) * sizeof(Seat));
            running[num_decoding] = running[spare];
        }
        num_decoding += 1;
    }
}

static void idle(Server *s)
{
    if (s->next_arrival_s == INFINITY) {
        s->terminated = 1;
    } else {
        settle_waiting(s);
        s->clock_s = min2(s->next_arrival_s, s->horizon_s);
    }
}

ALWAYS_INLINE bool is_stuck(const Server *s)
{
    return s->ledger_blocks < 0 && s->num_running == 1 && s->num_admitted == 0;
}

/* Bring the server to the next point of decision: arrivals, deadlines, order, ledger. */
static void open_iteration(Server *s, KeyFunction key_of)
{
    while (!(s->terminated || s->truncated)) {
        if (s->clock_s >= s->horizon_s) {
            s->truncated = 1;
            break;
        }
        receive(s, key_of);
        expire(s);
        if (s->num_running == 0 && s->num_waiting == 0) {
            idle(s);
            continue;
        }
        if (s->batch_prefill_tokens > 0) put_decodes_first(s);
        break_livelock(s);
        read_ledger(s);
        if (is_stuck(s)) {
            end_running(s, 0, (int8_t)KV_CAPACITY);
            continue;
        }
        s->num_evicted_now = 0;
        s->deciding = 1;
        return;
    }
    s->num_fitting = 0;
    put_decodes_first(s);
    read_ledger(s);
}

/* ---- the mask ---- */

ALWAYS_INLINE int64_t prefill_cap(const Server *s, int64_t level)
{
    return (int64_t)ceil(PREFILL_LEVELS[level] * (double)s->max_num_batched_tokens);
}

/* Mark the waiting slots that fit; tell whether one lacks blocks or a seat. */
static bool legal_admissions(Server *s, int8_t *mask)
{
    const Place *order = order_of(s);
    const int32_t iteration = (int32_t)s->iteration;
    const int64_t shown = imin(s->num_front, s->num_waiting_slots);
    const int64_t num_live = s->num_running + s->num_admitted;
    const bool tokens = s->ledger_tokens > 0;
    int64_t most_blocks = s->ledger_blocks, num_fitting = 0, num_movable = 0;
    if (num_live > 0) most_blocks -= s->watermark_blocks;
    if (!s->reserve_full_isl &&
        blocks_for(imax(s->ledger_tokens, 1), s->block_size) <= most_blocks)
        most_blocks = NO_LIMIT;
    if (num_live >= s->max_num_active_seqs) most_blocks = -NO_LIMIT;
    for (int64_t k = 0; k < shown; k++) {
        const bool movable = order[k].moved_at_iteration != iteration;
        const bool fitting = movable & (order[k].whole_blocks <= most_blocks);
        num_movable += movable;
        num_fitting += fitting;
        mask[NUM_LEVELS + k] = fitting & tokens;
    }
    s->num_fitting = tokens ? num_fitting : 0;
    return num_fitting < num_movable;
}

/* Mark the prefill levels; of those that give the same batch only the highest. */
static int64_t legal_levels(const Server *s, int8_t *mask)
{
    if (s->num_running + s->num_admitted == 0) {
        mask[FULL_LEVEL] = s->num_fitting == 0;
        return s->num_fitting == 0;
    }
    mask[FULL_LEVEL] = 1;
    int64_t count = 1;
    const int64_t demand = s->ledger_prefill_tokens;
    if (demand == 0) return count;
    int64_t tokens = imin(prefill_cap(s, 0), demand);
    for (int64_t level = 0; level < FULL_LEVEL; level++) {
        const int64_t above = imin(prefill_cap(s, level + 1), demand);
        if (tokens < above && (tokens > 0 || s->num_decoding > 0)) {
            mask[level] = 1;
            count += 1;
        }
        tokens = above;
    }
    return count;
}

/* Write the mask of legal actions and return how many there are. */
static int64_t legal_actions(Server *s)
{
    int8_t *mask = mask_of(s);
    memset(mask, 0, (size_t)s->num_actions);
    if (s->terminated || s->truncated) {
        mask[FULL_LEVEL] = 1;
        return 1;
    }
    const int64_t first_running = NUM_LEVELS + s->num_waiting_slots;
    const int64_t shown_running = imin(s->num_running, s->num_running_slots);
    if (s->ledger_blocks < 0) {
        memset(mask + first_running, 1, (size_t)shown_running);
        s->num_fitting = 0;
        return shown_running;
    }
    const bool lacking = legal_admissions(s, mask);
    int64_t count = s->num_fitting + legal_levels(s, mask);
    if (lacking && s->news) {
        const Seat *running = running_of(s);
        for (int64_t j = 0; j < shown_running; j++) {
            if (running[s->num_running - 1 - j].preemptible) {
                mask[first_running + j] = 1;
                count += 1;
            }
        }
    }
    return count;
}

static int64_t first_legal(const int8_t *mask)
{
    int64_t action = 0;
    while (mask[action] == 0) action++;
    return action;
}

/* ---- what a choice does ---- */

/* Admit a waiting slot: it will run behind those chosen before it. */
static void choose(Server *s, int64_t slot)
{
    const int64_t row = front_of(s)[order_of(s)[slot].cell].row;
    fetch_request(s, row);
    fetch_cell(s, slot);
    fetch_next_waiting(s);
    Request *request = &requests_of(s)[row];
    admitted_of(s)[s->num_admitted] = row;
    s->num_admitted += 1;
    request->moved_at_iteration = (int32_t)s->iteration;
    dequeue(s, slot);
    enter(s, request);
}

/* Form the batch and run it; tell whether the scheduler had the blocks for it. */
static bool proceed(Server *s, KeyFunction key_of, int64_t level)
{
    const int64_t num_admitted = s->num_admitted;
    for (int64_t i = 0; i < num_admitted; i++) fetch_request(s, admitted_of(s)[i]);
    fetch_coming(s);
    const int64_t cap = prefill_cap(s, level);
    const bool may_jump = num_admitted == 0 && s->num_evicted_now == 0 && s->num_fitting == 0;
    s->news = 0;
    s->deciding = 0;
    open_batch(s);
    if (UNLIKELY(!schedule_running(s, cap))) return false;
    for (int64_t i = 0; i < num_admitted; i++) {
        Request *request = &requests_of(s)[admitted_of(s)[i]];
        const int64_t tokens = tokens_to_schedule(s, request, cap);
        if (tokens > 0)
            admit(s, request, tokens);
        else
            enqueue(s, key_of, request);
    }
    s->num_admitted = 0;
    close_batch(s);
    if (s->num_evicted_now == 0) drop_stuck_head(s);
    execute(s, may_jump);
    return true;
}

/* Do a legal action. */
static bool apply(Server *s, KeyFunction key_of, int64_t action)
{
    if (action < NUM_LEVELS) return proceed(s, key_of, action);
    if (action < NUM_LEVELS + s->num_waiting_slots) {
        choose(s, action - NUM_LEVELS);
        return true;
    }
    const int64_t position = s->num_running - 1 - (action - NUM_LEVELS - s->num_waiting_slots);
    fetch_request(s, running_of(s)[position].row);
    fetch_free_cell(s);
    preempt(s, key_of, position);
    s->num_evicted_now += 1;
    read_ledger(s);
    if (is_stuck(s)) {
        end_running(s, 0, (int8_t)KV_CAPACITY);
        read_ledger(s);
    }
    return true;
}

/* Take one decision and go on to the next one; tell whether the scheduler had its blocks. */
static bool step(Server *s, KeyFunction key_of, int64_t action)
{
    s->reward = 0.0;
    s->step_start_s = s->clock_s;
    s->waiting_since_s = s->clock_s;
    s->decisions += 1;
    s->invalid_actions = 0;
    const int8_t *mask = mask_of(s);
    if (action < 0 || action >= s->num_actions || mask[action] == 0) {
        s->invalid_actions = 1;
        action = mask[FULL_LEVEL] ? FULL_LEVEL : first_legal(mask);
    }
    if (s->terminated || s->truncated) return true;
    for (;;) {
        if (UNLIKELY(!apply(s, key_of, action))) return false;
        if (!s->deciding) open_iteration(s, key_of);
        const int64_t count = legal_actions(s);
        if (count > 1 || s->terminated || s->truncated) break;
        action = first_legal(mask);
    }
    settle_waiting(s);
    return true;
}

/* ---- the entry ---- */

/* Write down where the arrays and the outputs of a server lie. */
ALWAYS_INLINE Server *aimed(const Memory *m, int64_t index, void *observations, int64_t size,
                            int8_t *masks, int64_t num_actions)
{
    Server *s = (Server *)(intptr_t)m->state_at + index;
    s->cost_at = m->cost_at;
    s->classes_at = m->classes_at;
    s->num_classes = m->num_classes;
    s->trace_at = m->trace_at;
    s->num_trace_rows = m->num_trace_rows;
    s->segments_at = m->segments_at;
    s->num_segments = m->num_segments;
    s->requests_at = m->requests_at + index * m->requests_bytes;
    s->seats_at = m->seats_at + index * m->seats_bytes;
    s->front_at = m->front_at + index * m->front_bytes;
    s->order_at = m->order_at + index * m->order_bytes;
    s->heaps_at = m->heaps_at + index * m->heaps_bytes;
    s->events_at = m->events_at + index * m->events_bytes;
    s->event_capacity = m->event_capacity;
    s->scratch_at = m->scratch_at + index * m->scratch_bytes;
    s->num_itl_bins = m->num_itl_bins;
    s->observation_at = (intptr_t)observations + index * size * (int64_t)sizeof(float);
    s->mask_at = (intptr_t)masks + index * num_actions;
    s->num_actions = num_actions;
    return s;
}

/* Take one decision in each server from ``first`` to ``end - 1``; return how many flags it set, or -1
 * where the scheduler would have to preempt by itself, which this code does not know.
 *
 * observations: float (N, size); masks: int8 (N, num_actions); results: double (6, N).
 */
int64_t step_batch(int64_t address, int64_t first, int64_t end, const int64_t *actions,
                   float *observations, int64_t size, int8_t *masks, int64_t num_actions,
                   double *results)
{
    const Memory *m = (const Memory *)(intptr_t)address;
    const KeyFunction key_of = (KeyFunction)(intptr_t)m->key_jit_at;
    const int64_t n = m->num_servers;
    int64_t num_flags = 0;
    for (int64_t i = first; i < end; i++) {
        Server *s = aimed(m, i, observations, size, masks, num_actions);
        if (UNLIKELY(!step(s, key_of, actions[i]))) return -1;
        view(s);
        const bool truncated = s->truncated && !s->terminated;
        const double elapsed_s = s->clock_s - s->step_start_s;
        results[i] = s->reward;
        results[n + i] = elapsed_s;
        results[2 * n + i] = elapsed_s > 0.0 ? exp(-elapsed_s / s->discount_time_s) : 1.0;
        results[3 * n + i] = s->terminated;
        results[4 * n + i] = truncated;
        results[5 * n + i] = (double)s->invalid_actions;
        num_flags += s->terminated + truncated + s->invalid_actions;
    }
    return num_flags;
}
