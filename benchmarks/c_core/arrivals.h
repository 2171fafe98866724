/* What happens to requests by the clock alone (sched_env/engine/arrivals.py). */
#pragma once

#include "queue.h"

static double arrival_time_s(const Server *s, int64_t row)
{
    if (row >= s->num_rows) return INFINITY;
    const double recorded_s = trace_of(s)[s->trace_row + row].arrival_time_s;
    return (recorded_s - s->trace_start_s) * s->interval_scale;
}

static int32_t draw_class(const ServiceClass *classes, int64_t count, int64_t seed, int64_t row)
{
    double total = 0.0, cumulative = 0.0;
    for (int64_t i = 0; i < count; i++) total += classes[i].share;
    const double target = uniform(seed, row, CLASS_STREAM) * total;
    for (int64_t i = 0; i < count; i++) {
        cumulative += classes[i].share;
        if (target < cumulative) return (int32_t)i;
    }
    return (int32_t)count - 1;
}

static double predict(const Server *s, const TraceRow *source, int64_t index)
{
    if (!isnan(source->predicted_output_tokens)) return source->predicted_output_tokens;
    const double sigma = s->length_sigma;
    if (isnan(sigma)) return s->mean_output_tokens;
    const double noise = normal(s->seed, index, LENGTH_PREDICTION_STREAM);
    return max2(1.0, source->output_tokens * exp(sigma * noise - 0.5 * sigma * sigma));
}

/* Make a row of the table a request to which nothing has happened. */
static void reset_request(Request *request, int64_t row)
{
    request->row = (int32_t)row;
    request->tie = row;
    request->first_scheduled_s = NAN;
    request->first_token_s = NAN;
    request->last_token_s = NAN;
    request->finish_s = NAN;
    request->num_computed_tokens = 0;
    request->num_output_tokens = 0;
    request->num_blocks = 0;
    request->num_output_placeholders = 0;
    request->in_flight = NOT_IN_FLIGHT;
    request->is_prefill_chunk = 0;
    request->num_known_blocks = 0;
    request->num_cached_tokens = 0;
    request->passes_waited = 0;
    request->times_passed = 0;
    request->class_tokens = 0.0;
    request->num_preemptions = 0;
    request->num_recomputed_tokens = 0;
    request->moved_at_iteration = -1;
    request->status = WAITING;
    request->finish_reason = NOT_ENDED;
    request->preemptible = 1;
    request->missed = 0;
}

/* Write the request of a trace row into the table, with what the seed draws for it. */
static Request *fill_row(Server *s, int64_t row)
{
    const int64_t index = s->trace_row + row;
    const TraceRow *source = &trace_of(s)[index];
    Request *request = &requests_of(s)[row];
    const int64_t prompt = source->prompt_tokens, output = source->output_tokens;
    reset_request(request, row);
    request->arrival_time_s = s->next_arrival_s;
    request->prompt_tokens = (int32_t)prompt;
    request->output_tokens = (int32_t)output;
    request->stop_at_tokens = (int32_t)output;
    request->stop_reason = STOP;
    if (prompt + output > s->max_model_len) {
        request->stop_at_tokens = (int32_t)imax(s->max_model_len - prompt, 1);
        request->stop_reason = MAX_MODEL_LEN;
    }
    request->service_class = source->service_class;
    if (source->service_class < 0)
        request->service_class = draw_class(classes_of(s), s->num_classes, s->seed, index);
    const ServiceClass *service = &classes_of(s)[request->service_class];
    const double jitter = 0.75 + 0.75 * uniform(s->seed, index, SLO_JITTER_STREAM);
    request->weight = service->weight;
    request->priority = isnan(source->priority) ? service->weight : source->priority;
    request->lone_prefill_s = lone_prefill_s(cost_of(s), prompt, s->max_num_batched_tokens);
    request->token_time_s = s->token_time_s;
    const double own_ttft_s = s->slo_factor * service->ttft_slo_s * jitter;
    request->ttft_slo_s = own_ttft_s + 2.0 * request->lone_prefill_s;
    request->tpot_slo_s = s->slo_factor * service->tpot_slo_s;
    request->predicted_output_tokens = predict(s, source, index);
    return request;
}

static void set_alarm(Server *s, int64_t row, double time_s, double why)
{
    push(expiries_of(s), s->num_expiries, (Entry){time_s, why, row, row});
    s->num_expiries += 1;
}

static bool can_never_run(const Server *s, int64_t prompt)
{
    return prompt >= s->max_model_len || blocks_for(prompt, s->block_size) > s->num_blocks;
}

/* Take in the request of a filled row: reject it if it can never run, else let it wait. */
static void submit(Server *s, KeyFunction key_of, Request *request)
{
    s->weight_injected += request->weight;
    s->news = 1;
    punish_waiting(s, request->weight, request->arrival_time_s);
    if (s->num_running + s->num_waiting == 0) s->progress_iteration = s->iteration;
    if (can_never_run(s, request->prompt_tokens)) {
        end(s, request, (int8_t)REJECTED, (int8_t)TOO_LARGE);
        return;
    }
    enqueue(s, key_of, request);
    const int64_t row = request->row;
    if (s->shed_hopeless)
        set_alarm(s, row, hopeless_from_s(request), BY_DEADLINE);
    else if (s->track_misses)
        set_alarm(s, row, request->arrival_time_s + request->ttft_slo_s, BY_DEADLINE);
    if (s->request_timeout_s < INFINITY)
        set_alarm(s, row, request->arrival_time_s + s->request_timeout_s, BY_TIMEOUT);
}

/* Let everything that has arrived by now wait. */
static void receive(Server *s, KeyFunction key_of)
{
    while (s->next_arrival_s <= s->clock_s) {
        Request *request = fill_row(s, s->next_row);
        const double later_s = max2(s->next_arrival_s - s->last_arrival_s, 0.0);
        s->arrival_rate_rps = s->arrival_rate_rps * exp(-later_s / 8.0) + 1.0 / 8.0;
        s->last_arrival_s = s->next_arrival_s;
        s->next_row += 1;
        s->next_arrival_s = arrival_time_s(s, s->next_row);
        submit(s, key_of, request);
    }
}

/* Count a miss if the TTFT deadline passed, else come back when it does. */
static void pass_deadline(Server *s, Request *request, double time_s)
{
    const double deadline_s = request->arrival_time_s + request->ttft_slo_s;
    if (!s->track_misses || request->missed) return;
    if (time_s < deadline_s)
        set_alarm(s, request->row, deadline_s, BY_DEADLINE);
    else
        miss(s, request, deadline_s);
}

/* End a live request before its time, wherever it is. */
static void drop(Server *s, Request *request, int8_t status, int8_t reason)
{
    const int32_t row = request->row;
    if (request->status == RUNNING) {
        Seat *running = running_of(s);
        int64_t position = 0;
        while (running[position].row != row) position++;
        step_out(s, position);
        settle(s, &running[position], status, reason);
        remove_running(s, position);
        return;
    }
    take_out(s, row);
    end(s, request, status, reason);
}

/* Handle every deadline that the clock has passed. */
static void expire(Server *s)
{
    Entry *expiries = expiries_of(s);
    while (s->num_expiries > 0 && expiries[0].key < s->clock_s) {
        const Entry alarm = expiries[0];
        drop_top(expiries, s->num_expiries);
        s->num_expiries -= 1;
        Request *request = &requests_of(s)[alarm.row];
        if (request->status != RUNNING && !is_waiting(request)) continue;
        if (alarm.second_key == BY_TIMEOUT)
            drop(s, request, (int8_t)TIMED_OUT, (int8_t)TIMEOUT);
        else if (s->shed_hopeless && is_waiting(request) && is_out_of_reach(s, request))
            drop(s, request, (int8_t)REJECTED, (int8_t)SHED);
        else if (isnan(request->first_token_s))
            pass_deadline(s, request, alarm.key);
    }
}

/* Return when the next deadline is due that can still matter; infinity if there is none. */
static double next_alarm_s(Server *s)
{
    Entry *expiries = expiries_of(s);
    while (s->num_expiries > 0) {
        const Entry *alarm = &expiries[0];
        const Request *request = &requests_of(s)[alarm->row];
        const bool is_live = request->status == RUNNING || is_waiting(request);
        if (is_live && (alarm->second_key == BY_TIMEOUT || isnan(request->first_token_s)))
            return alarm->key;
        drop_top(expiries, s->num_expiries);
        s->num_expiries -= 1;
    }
    return INFINITY;
}
