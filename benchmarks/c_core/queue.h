/* Waiting requests in service order (sched_env/engine/waiting.py, heap.py), and how requests end
 * (ending.py, reward.py).
 */
#pragma once

#include "base.h"
#include "cohort.h"
#include "view.h"

/* ---- the reward of a step ---- */

ALWAYS_INLINE double discount_at(const Server *s, double time_s)
{
    return exp(-(time_s - s->step_start_s) / s->discount_time_s);
}

static void punish_waiting(Server *s, double weight, double since_s)
{
    if (s->reward_waiting == 0.0) return;
    const double span = discount_at(s, since_s) - discount_at(s, s->clock_s);
    s->reward -= s->reward_waiting * weight * s->discount_time_s * span;
}

ALWAYS_INLINE void settle_waiting(Server *s)
{
    if (s->reward_waiting != 0.0 && s->clock_s > s->waiting_since_s)
        punish_waiting(s, s->waiting_weight, s->waiting_since_s);
    s->waiting_since_s = s->clock_s;
}

static void punish_recompute(Server *s, int64_t tokens)
{
    if (s->reward_recompute == 0.0) return;
    const double cost = s->reward_recompute * (double)tokens * 1e-3;
    s->reward -= cost * discount_at(s, s->clock_s);
}

/* ---- heaps of Entry, the smallest (key, second_key, tie) on top ---- */

#define goes_before(key_, second_, tie_, other)                                                    \
    ((key_) != (other)->key                ? (key_) < (other)->key                                 \
     : (second_) != (other)->second_key    ? (second_) < (other)->second_key                       \
                                           : (tie_) < (other)->tie)
#define precedes(left, right) goes_before((left)->key, (left)->second_key, (left)->tie, right)

static void push(Entry *heap, int64_t size, Entry entry)
{
    int64_t child = size;
    while (child > 0) {
        const int64_t parent = (child - 1) >> 1;
        if (!precedes(&entry, &heap[parent])) break;
        heap[child] = heap[parent];
        child = parent;
    }
    heap[child] = entry;
}

static void drop_top(Entry *heap, int64_t size)
{
    const int64_t last = size - 1;
    int64_t parent = 0;
    for (;;) {
        int64_t child = 2 * parent + 1;
        if (child >= last) break;
        if (child + 1 < last && precedes(&heap[child + 1], &heap[child])) child++;
        if (!precedes(&heap[child], &heap[last])) break;
        heap[parent] = heap[child];
        parent = child;
    }
    heap[parent] = heap[last];
}

/* ---- the queue ---- */

ALWAYS_INLINE bool is_waiting(const Request *request)
{
    return request->status == WAITING || request->status == PREEMPTED;
}

ALWAYS_INLINE double density_of(const Request *request)
{
    const double work_s =
        request->lone_prefill_s + decode_tokens_left(request) * request->token_time_s;
    const double logarithm = log(max2(request->weight, 1e-6) / max2(work_s, 1e-6)) / 5.0;
    return min2(max2(logarithm, -10.0), 10.0);
}

/* Write what decisions and observations look at into a place of the front and its cell. */
static void fill_place(Server *s, int64_t position, const Request *request, Key key)
{
    Place *place = &order_of(s)[position];
    Waiter *waiter = &front_of(s)[place->cell];
    s->num_unmoved = imin(s->num_unmoved, position);
    place->key = key.first;
    waiter->key = key.first;
    waiter->second_key = key.second;
    waiter->tie = request->tie;
    waiter->row = request->row;
    waiter->num_tokens = (int32_t)num_tokens(request);
    place->whole_blocks = request->whole_blocks;
    place->moved_at_iteration = request->moved_at_iteration;
    place->density = request->density;
    waiter->weight = request->weight;
    place->arrival_time_s = request->arrival_time_s;
    place->slot = -1;
    waiter->arrival_time_s = request->arrival_time_s;
    waiter->ttft_slo_s = request->ttft_slo_s;
    waiter->lone_prefill_s = request->lone_prefill_s;
    waiter->first_token_s = request->first_token_s;
    waiter->allowed_s = request->tpot_slo_s * request->num_output_tokens;
    show_rest(request, &waiter->resting);
    waiter->resting.preemptible = request->preemptible;
    show_progress(request, request->whole_blocks / (double)s->num_blocks, &waiter->resting);
}

static void push_back(Server *s, int64_t row, Key key, int64_t tie)
{
    push(backlog_of(s), s->num_backlog, (Entry){key.first, key.second, tie, row});
    s->num_backlog += 1;
}

static void place_request(Server *s, const Request *request, Key key)
{
    Place *order = order_of(s);
    Waiter *front = front_of(s);
    const bool is_full = s->num_front == s->front_size;
    if (is_full || s->num_backlog > 0) {
        const Waiter *last = &front[order[s->num_front - 1].cell];
        if (!goes_before(key.first, key.second, request->tie, last)) {
            push_back(s, request->row, key, request->tie);
            return;
        }
        if (is_full) {
            push_back(s, last->row, (Key){last->key, last->second_key}, last->tie);
            s->num_front -= 1;
        }
    }
    const int64_t count = s->num_front;
    const uint32_t cell = order[count].cell;
    int64_t low = 0, high = count;
    while (low < high) {
        const int64_t middle = (low + high) >> 1;
        const Place *place = &order[middle];
        const bool is_before =
            key.first != place->key
                ? key.first < place->key
                : goes_before(key.first, key.second, request->tie, &front[place->cell]);
        if (is_before)
            high = middle;
        else
            low = middle + 1;
    }
    memmove(&order[low + 1], &order[low], (size_t)(count - low) * sizeof(Place));
    order[low].cell = cell;
    s->place_came_in = 1;
    fill_place(s, low, request, key);
    s->num_front = count + 1;
}

/* Let the request of a row wait, at the place that the key gives it. */
static void enqueue(Server *s, KeyFunction key_of, Request *request)
{
    settle_waiting(s);
    s->num_waiting += 1;
    s->waiting_weight += request->weight;
    s->waiting_prefill_tokens += (double)num_tokens(request);
    s->waiting_decode_tokens += decode_tokens_left(request);
    request->passes_waited = 0;
    request->times_passed = 0;
    request->whole_blocks = (int32_t)blocks_for(num_tokens(request), s->block_size);
    request->density = (float)density_of(request);
    Key key;
    void *error;
    key_of(&key, &error, request, s->clock_s);
    place_request(s, request, key);
}

/* Count a request out of the waiting ones. */
static void leave(Server *s, const Request *request)
{
    settle_waiting(s);
    s->num_waiting -= 1;
    s->waiting_weight -= request->weight;
    s->waiting_prefill_tokens -= (double)num_tokens(request);
    s->waiting_decode_tokens -= decode_tokens_left(request);
}

/* Bring the best of the backlog to the front until it holds as many as are shown. */
static void refill(Server *s)
{
    Entry *backlog = backlog_of(s);
    while (s->num_front < s->num_waiting_slots && s->num_backlog > 0) {
        const Entry best = backlog[0];
        drop_top(backlog, s->num_backlog);
        s->num_backlog -= 1;
        const Request *request = &requests_of(s)[best.row];
        if (!is_waiting(request)) continue;
        fill_place(s, s->num_front, request, (Key){best.key, best.second_key});
        s->num_front += 1;
    }
}

/* Take the request at a position of the front out of the waiting ones. */
static void dequeue(Server *s, int64_t position)
{
    Place *order = order_of(s);
    const uint32_t cell = order[position].cell;
    const int64_t last = s->num_front - 1, row = front_of(s)[cell].row;
    memmove(&order[position], &order[position + 1], (size_t)(last - position) * sizeof(Place));
    order[last].cell = cell;
    leave(s, &requests_of(s)[row]);
    s->num_front = last;
    s->num_unmoved = imin(s->num_unmoved, position);
    refill(s);
}

/* Take a waiting request out of the queue, wherever it stands. */
static void take_out(Server *s, int64_t row)
{
    const Place *order = order_of(s);
    const Waiter *front = front_of(s);
    for (int64_t position = 0; position < s->num_front; position++) {
        if (front[order[position].cell].row == row) {
            dequeue(s, position);
            return;
        }
    }
    leave(s, &requests_of(s)[row]);
}

/* ---- how requests end ---- */

ALWAYS_INLINE double hopeless_from_s(const Request *request)
{
    return request->arrival_time_s + request->ttft_slo_s - request->lone_prefill_s;
}

ALWAYS_INLINE bool is_out_of_reach(const Server *s, const Request *request)
{
    return isnan(request->first_token_s) && s->clock_s > hopeless_from_s(request);
}

/* Count a request whose SLO can no longer be met, once. */
static void miss(Server *s, Request *request, double time_s)
{
    if (request->missed) return;
    request->missed = 1;
    s->num_missed += 1;
    s->weight_missed += request->weight;
    if (s->reward_miss != 0.0)
        s->reward -= s->reward_miss * request->weight * discount_at(s, time_s);
}

static bool meets_slo(const Request *request)
{
    if (request->finish_reason == KV_CAPACITY) return false;
    if (request->first_token_s - request->arrival_time_s > request->ttft_slo_s) return false;
    if (request->num_output_tokens < 2) return true;
    const double decode_s = request->finish_s - request->first_token_s;
    return decode_s <= request->tpot_slo_s * (request->num_output_tokens - 1);
}

/* End a request, its row of the table, which holds no blocks any more. */
static void end(Server *s, Request *request, int8_t status, int8_t reason)
{
    request->status = status;
    request->finish_reason = reason;
    request->finish_s = s->clock_s;
    if (status == FINISHED)
        s->num_finished += 1;
    else if (status == REJECTED)
        s->num_rejected += 1;
    else
        s->num_timed_out += 1;
    if (!request->missed && status == FINISHED && meets_slo(request)) {
        s->num_met += 1;
        s->weight_met += request->weight;
        if (s->reward_goodput != 0.0)
            s->reward += s->reward_goodput * request->weight * discount_at(s, s->clock_s);
    } else {
        miss(s, request, s->clock_s);
    }
    s->news = 1;
    s->progress_iteration = s->iteration;
}

/* Write the progress of a running request into its row of the table, and return that. */
static Request *stand_up(const Server *s, const Seat *seat)
{
    Request *request = &requests_of(s)[seat->row];
    request->num_output_tokens = seat->num_output_tokens;
    request->num_computed_tokens = seat->num_computed_tokens;
    request->num_blocks = seat->num_blocks;
    request->num_output_placeholders = seat->num_output_placeholders;
    request->stop_at_tokens = seat->stop_at_tokens;
    request->is_prefill_chunk = seat->is_prefill_chunk;
    request->in_flight = seat->in_flight;
    request->last_token_s = seat->last_token_s;
    return request;
}

ALWAYS_INLINE void give_back_blocks(Server *s, Seat *seat)
{
    s->free_blocks += seat->num_blocks;
    seat->num_blocks = 0;
}

/* Give back the blocks of a running request, which is in no cohort, and end it; the caller closes
 * its seat.
 */
static void settle(Server *s, Seat *seat, int8_t status, int8_t reason)
{
    give_back_blocks(s, seat);
    seat->num_scheduled_tokens = 0;
    seat->num_output_placeholders = 0;
    seat->in_flight = NOT_IN_FLIGHT;
    end(s, stand_up(s, seat), status, reason);
}

/* Return the status in which a request ends that cannot go on. */
static int8_t status_of_stuck(int32_t num_output_tokens)
{
    return (int8_t)(num_output_tokens > 0 ? FINISHED : REJECTED);
}

/* Close the gap of a request that leaves the running ones; order is kept. */
static void remove_running(Server *s, int64_t position)
{
    Seat *running = running_of(s);
    s->num_running -= 1;
    memmove(&running[position], &running[position + 1],
            (size_t)(s->num_running - position) * sizeof(Seat));
}

/* End the running request at a position, which cannot go on, before its last token. */
static void end_running(Server *s, int64_t position, int8_t reason)
{
    step_out(s, position);
    Seat *seat = &running_of(s)[position];
    settle(s, seat, status_of_stuck(seat->num_output_tokens), reason);
    remove_running(s, position);
}
