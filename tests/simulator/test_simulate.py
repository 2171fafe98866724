"""A whole trace under each heuristic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sched_env import EnvConfig, RequestTable, simulate
from sched_env.cost import cost_record, lone_prefill_s, step_time_s
from sched_env.engine.records import (
    EVENT_ADMIT,
    EVENT_ARRIVE,
    EVENT_FINISH,
    EVENT_FIRST_TOKEN,
    EVENT_PREEMPT,
    EVENT_REJECT,
    EVENT_TIME_OUT,
    FINISHED,
    KV_CAPACITY,
    MAX_MODEL_LEN,
    REJECTED,
    SHED,
    TIMED_OUT,
    TOO_LARGE,
    WAITING,
)
from sched_env.errors import ConfigError, PolicyError, TraceError, UnknownNameError
from sched_env.metrics.conservation import check_records, count_outcomes
from sched_env.policy.names import known_policies
from sched_env.simulator import SimulationResult, at_load, fcfs_capacity_rps
from sched_env.simulator import simulate as simulate_module
from sched_env.workload import read_trace

ENDS = {EVENT_FINISH: FINISHED, EVENT_REJECT: REJECTED, EVENT_TIME_OUT: TIMED_OUT}


@pytest.fixture(scope="module")
def table() -> RequestTable:
    rng = np.random.default_rng(9)
    count = 250
    return RequestTable.from_columns(
        arrival_time_s=np.sort(rng.uniform(0, 15, count)),
        prompt_tokens=rng.integers(5, 900, count),
        output_tokens=rng.integers(1, 150, count),
    )


def env_with(num_blocks: int = 500, scheduler: Any = None, **service: Any) -> EnvConfig:
    env = EnvConfig()
    return env.replace(
        scheduler=env.scheduler.replace(
            num_blocks=num_blocks, max_num_seqs=24, **(scheduler or {})
        ),
        service=env.service.replace(**service),
    )


@pytest.mark.parametrize("policy", known_policies())
def test_every_request_arrives_and_ends_once_in_the_event_log(
    table: RequestTable, policy: str
) -> None:
    env = env_with(request_timeout_s=6.0)
    result = simulate(table, policy, env, seed=2, record_events=True)
    check_records(result.requests)
    counts = count_outcomes(result.requests)
    assert counts.num_injected == 250
    assert counts.num_unfinished == 0
    events = result.events
    assert events is not None
    assert (np.diff(events["time_s"]) >= 0).all()
    assert (np.diff(events["iteration"]) >= 0).all()
    arrivals = events[events["kind"] == EVENT_ARRIVE]
    assert sorted(arrivals["row"].tolist()) == list(range(250))
    ends = events[np.isin(events["kind"], list(ENDS))]
    assert sorted(ends["row"].tolist()) == list(range(250))
    for event in ends:
        request = result.requests[event["row"]]
        assert ENDS[int(event["kind"])] == request["status"]
        assert event["time_s"] == request["finish_s"]
        assert event["tokens"] == request["num_output_tokens"]
    check_life_of_each(result)


def check_life_of_each(result: SimulationResult) -> None:
    """Check that admissions, preemptions and first tokens in the log tell each request's story."""
    events = result.events
    assert events is not None
    for row, request in enumerate(result.requests):
        own = events[events["row"] == row]
        kinds = own["kind"].tolist()
        assert kinds[0] == EVENT_ARRIVE
        assert kinds[-1] in ENDS
        moves = [kind for kind in kinds if kind in (EVENT_ADMIT, EVENT_PREEMPT)]
        assert moves == [EVENT_ADMIT, EVENT_PREEMPT] * (len(moves) // 2) + [EVENT_ADMIT] * (
            len(moves) % 2
        )
        assert kinds.count(EVENT_PREEMPT) == request["num_preemptions"]
        lost = own[own["kind"] == EVENT_PREEMPT]["tokens"].sum()
        assert lost == request["num_recomputed_tokens"]
        has_token = request["num_output_tokens"] > 0
        assert kinds.count(EVENT_FIRST_TOKEN) == has_token


def test_each_preemption_tells_tokens_blocks_and_how_often(table: RequestTable) -> None:
    result = simulate(table, "fcfs", env_with(300, shed_hopeless=False), record_events=True)
    preemptions = result.preemptions
    assert preemptions is not None
    assert len(preemptions) > 10
    assert (preemptions["tokens"] > 0).all()
    assert (preemptions["blocks"] < 0).all()
    assert (preemptions["free_blocks"] + preemptions["blocks"] >= 0).all()  # free before it
    for row in np.unique(preemptions["row"]):
        times = preemptions[preemptions["row"] == row]["num_preemptions"]
        assert times.tolist() == list(range(1, len(times) + 1))


def test_the_log_is_the_same_however_often_it_had_to_grow(
    table: RequestTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = env_with(200, shed_hopeless=False)
    roomy = simulate(table, "fcfs", env, record_events=True)
    module = __import__("sys").modules[simulate_module.__module__]
    monkeypatch.setattr(module, "_FIRST_EVENTS", 1)
    monkeypatch.setattr(module, "_BATCHES_PER_CALL", 3)
    tight = simulate(table, "fcfs", env, record_events=True)
    assert roomy.events is not None
    assert tight.events is not None
    assert tight.events.tobytes() == roomy.events.tobytes()
    assert len(tight.events) > 4 * 250


def test_policies_meet_the_same_clients(table: RequestTable) -> None:
    drawn = ("service_class", "weight", "ttft_slo_s", "tpot_slo_s", "predicted_output_tokens")
    results = [simulate(table, name, env_with(), seed=4).requests for name in ("fcfs", "sjf")]
    for name in drawn:
        np.testing.assert_array_equal(results[0][name], results[1][name])
    other = simulate(table, "fcfs", env_with(), seed=5).requests
    assert not np.array_equal(results[0]["service_class"], other["service_class"])
    assert not np.array_equal(results[0]["ttft_slo_s"], other["ttft_slo_s"])
    again = simulate(table, "fcfs", env_with(), seed=4).requests
    assert again.tobytes() == results[0].tobytes()


def test_load_scales_the_arrivals_to_what_fcfs_drains(table: RequestTable) -> None:
    env = env_with()
    capacity_rps = fcfs_capacity_rps(table, env)
    at_once = table.with_columns(arrival_time_s=np.zeros(len(table)))
    drained = simulate(at_once, "fcfs", env_with(shed_hopeless=False))
    assert capacity_rps == pytest.approx(250 / drained.span_s, rel=1e-12)
    for load in (0.5, 1.3):
        scaled = at_load(table, load, capacity_rps)
        assert scaled.mean_rate_rps == pytest.approx(load * capacity_rps)
        assert scaled.arrival_time_s[0] == table.arrival_time_s[0]
        direct = simulate(scaled, "fcfs", env, seed=1)
        by_load = simulate(table, "fcfs", env, seed=1, load=load)
        assert direct.requests.tobytes() == by_load.requests.tobytes()


def test_capacity_does_not_depend_on_shedding_or_timeouts(table: RequestTable) -> None:
    impatient = env_with(shed_hopeless=True, request_timeout_s=0.5)
    patient = env_with(shed_hopeless=False)
    assert fcfs_capacity_rps(table, impatient) == fcfs_capacity_rps(table, patient)


def test_timeouts_end_whatever_lasts_too_long(table: RequestTable) -> None:
    env = env_with(80, request_timeout_s=4.0, shed_hopeless=False)
    requests = simulate(table, "fcfs", env).requests
    late = requests["status"] == TIMED_OUT
    assert late.any()
    assert (requests["num_output_tokens"][late] > 0).any()
    assert np.isnan(requests["first_scheduled_s"][late]).any()
    age_s = requests["finish_s"] - requests["arrival_time_s"]
    assert (age_s[late] > 4.0).all()
    assert (age_s[late] < 4.5).all()  # at the end of the iteration in which it passed
    assert (age_s[~late] <= 4.5).all()


def test_shedding_rejects_only_what_is_hopeless(table: RequestTable) -> None:
    shed = simulate(table, "fcfs", env_with(200), seed=1).requests
    rejected = shed["finish_reason"] == SHED
    assert rejected.any()
    assert (shed["num_output_tokens"][rejected] == 0).all()
    deadline_s = shed["arrival_time_s"] + shed["ttft_slo_s"]
    assert (shed["finish_s"] + shed["lone_prefill_s"] > deadline_s)[rejected].all()
    # Nothing hopeless is left waiting: whoever ran first started in time to meet its deadline.
    first_s = shed["first_scheduled_s"]
    served = ~np.isnan(first_s)
    assert (first_s + shed["lone_prefill_s"] <= deadline_s)[served].all()


def test_a_request_that_has_given_a_token_is_never_shed(table: RequestTable) -> None:
    requests = simulate(table, "fcfs", env_with(120), seed=1).requests
    assert (requests["num_preemptions"] > 0).any()
    assert not (requests["finish_reason"] == SHED)[requests["num_output_tokens"] > 0].any()


def test_a_run_is_cut_off_at_ten_times_its_window() -> None:
    count = 400
    slow = {"kind": "affine", "base_s": 1.0, "per_decode_s": 0.0, "per_prefill_token_s": 0.0}
    table = RequestTable.from_columns(
        arrival_time_s=np.linspace(0, 70, count),
        prompt_tokens=np.full(count, 10),
        output_tokens=np.full(count, 50),
    )
    env = EnvConfig(cost=slow, scheduler={"max_num_seqs": 10}, service={"shed_hopeless": False})
    result = simulate(table, "fcfs", env)
    assert 700.0 <= result.span_s < 702.0
    counts = count_outcomes(result.requests)
    assert counts.num_finished + counts.num_unfinished == count
    assert counts.num_unfinished > 100
    assert np.isnan(result.requests["finish_s"]).sum() == counts.num_unfinished
    # A burst has no window of its own: a minute counts.
    burst = table.with_columns(arrival_time_s=np.zeros(count))
    assert 600.0 <= simulate(burst, "fcfs", env).span_s < 602.0


def test_too_large_requests_are_rejected_on_arrival_and_counted() -> None:
    table = RequestTable.from_columns(
        arrival_time_s=[0.0, 0.5, 1.0, 1.5],
        prompt_tokens=[900, 8001, 8000, 20],
        output_tokens=[5, 5, 5, 5],
    )
    requests = simulate(table, "fcfs", env_with(500)).requests
    assert requests["finish_reason"].tolist()[:2] == [1, TOO_LARGE]
    assert requests["status"][1] == REJECTED
    assert requests["finish_s"][1] - 0.5 < 0.1  # at once, or after the batch at hand
    assert requests["finish_reason"][2] == KV_CAPACITY  # it fits, and can never grow
    assert requests["num_output_tokens"][2] == 1
    assert requests["finish_reason"][3] == 1


def test_max_model_len_ends_requests_and_refuses_prompts() -> None:
    table = RequestTable.from_columns(
        arrival_time_s=[0.0, 0.0, 0.0], prompt_tokens=[90, 100, 10], output_tokens=[50, 50, 50]
    )
    env = env_with(scheduler={"max_model_len": 100})
    requests = simulate(table, "fcfs", env).requests
    assert requests["finish_reason"].tolist() == [MAX_MODEL_LEN, TOO_LARGE, 1]
    assert requests["num_output_tokens"].tolist() == [10, 0, 50]


def test_lengths_can_be_hidden_or_known(table: RequestTable) -> None:
    def predicted(**prediction: Any) -> np.ndarray:
        env = env_with(length_prediction=prediction)
        return simulate(table, "sjf", env).requests["predicted_output_tokens"]

    true = table.output_tokens
    np.testing.assert_allclose(predicted(kind="oracle"), true)
    np.testing.assert_allclose(predicted(kind="none"), true.mean())
    noise = np.log(predicted(kind="noisy", sigma=0.5) / true)
    assert 0.4 < noise[true > 3].std() < 0.6


def test_the_longest_prompt_costs_no_time_to_look_at(table: RequestTable) -> None:
    tokens = np.full(250, 2**31 - 1)
    env = EnvConfig(scheduler={"max_num_batched_tokens": 1})
    result = simulate(table.with_columns(prompt_tokens=tokens), "fcfs", env)
    assert (result.requests["finish_reason"] == TOO_LARGE).all()
    with pytest.raises(ConfigError, match="no prompt fits this server"):
        simulate(table.with_columns(prompt_tokens=tokens), "fcfs", env, load=1.0)


@pytest.mark.parametrize(("prompt", "budget"), [(1, 1), (7, 8), (8, 8), (9, 8), (5000, 300)])
def test_lone_prefill_is_the_sum_of_its_chunks(prompt: int, budget: int) -> None:
    cost = cost_record(EnvConfig().cost).view(np.recarray)[0]
    total_s, past = 0.0, 0
    while past < prompt:
        chunk = min(budget, prompt - past)
        attention = max(chunk, cost.mixed_min_chunk_tokens) * (past + 0.5 * chunk)
        total_s += step_time_s(cost, 0, 0, chunk, attention, 1)
        past += chunk
    assert lone_prefill_s(cost, prompt, budget) == pytest.approx(total_s, rel=1e-12)


def test_wrong_arguments_are_refused(table: RequestTable) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'fcfs'"):
        simulate(table, "fcsf")
    wrong: Any
    for wrong in (0.0, -1.0, float("nan"), 1e300, 1e-300, "x", 10**400):
        with pytest.raises(ConfigError, match="load"):
            simulate(table, "fcfs", load=wrong)
    for wrong in (0.0, -1.0, float("nan"), "x", 10**400):
        with pytest.raises(ConfigError, match="until_s"):
            simulate(table, "fcfs", until_s=wrong)
    for wrong in ("nope", 3, None):
        with pytest.raises(TraceError, match="is no table of requests"):
            simulate(wrong, "fcfs")
    for wrong in (3, None, []):
        with pytest.raises(PolicyError, match="is no policy"):
            simulate(table, wrong)
    wrong = 3
    with pytest.raises(ConfigError, match="env is 3"):
        simulate(table, "fcfs", wrong)
    with pytest.raises(TraceError, match="3 is no trace"):
        read_trace(wrong)
    for seed in (-1, 2**70, 1.5, True):
        with pytest.raises(ConfigError, match="seed"):
            simulate(table, "fcfs", seed=seed)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TraceError, match="no requests"):
        simulate(table.take(np.zeros(250, np.bool_)), "fcfs")
    with pytest.raises(TraceError, match="at one time"):
        simulate(table.with_columns(arrival_time_s=np.zeros(250)), "fcfs", load=1.0)
    env = EnvConfig(observation={"privileged": True})
    with pytest.raises(ConfigError, match="privileged"):
        simulate(table, "fcfs", env)
    classed = table.with_columns(service_class=np.full(250, 3))
    with pytest.raises(TraceError, match="service_class 3"):
        simulate(classed, "fcfs")


def test_requests_that_a_cut_off_run_never_saw_are_what_they_would_have_been(table):
    """Sums over classes and weights count all requests, arrived or not."""
    env = env_with()
    whole = simulate(table, "fcfs", env, seed=5).requests
    cut = simulate(table, "fcfs", env, seed=5, until_s=6.0)
    unseen = table.arrival_time_s > 6.0
    drawn = ["service_class", "weight", "priority", "ttft_slo_s", "tpot_slo_s", "lone_prefill_s"]
    for name in [*drawn, "predicted_output_tokens", "arrival_time_s", "stop_at_tokens", "row"]:
        np.testing.assert_array_equal(cut.requests[name][unseen], whole[name][unseen])
    assert set(cut.requests["service_class"][unseen]) == {0, 1, 2}
    assert np.isnan(cut.requests["first_scheduled_s"][unseen]).all()
    assert (cut.requests["status"][unseen] == WAITING).all()
