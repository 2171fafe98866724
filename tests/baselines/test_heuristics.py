"""The heuristics order requests as their definitions say, and serve by that order."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

from sched_env import EnvConfig, RequestTable, simulate
from sched_env.baselines.clairvoyant_wsrpt import clairvoyant_wsrpt
from sched_env.engine.records import EVENT_ADMIT, EVENT_PREEMPT, REQUEST, SHED
from sched_env.errors import PolicyError
from sched_env.policy.keys import Heuristic
from sched_env.policy.names import known_policies
from sched_env.policy.registry import resolve_policy

NAMES = (
    "aging",
    "deadline",
    "edf",
    "fcfs",
    "fixed_priority",
    "least_attained",
    "mlfq",
    "random",
    "sjf",
    "sjf_aging",
    "srpt",
    "vtc",
    "weighted_sjf",
)


SWITCHED = {
    "least_computed_victim": {"victim": "least_computed"},
    "most_blocks_victim": {"victim": "most_blocks_per_token"},
    "no_evict": {"no_evict": "predicted"},
    "skip_ahead": {"skip_ahead": 8},
    "watermark": {"watermark": 0.05},
}


def work_s(one: Any) -> float:
    left = max(float(one.predicted_output_tokens) - int(one.num_output_tokens), 1.0)
    return float(one.lone_prefill_s) + left * float(one.token_time_s)


def slack_s(one: Any, now: float) -> float:
    due_s = float(one.arrival_time_s + one.ttft_slo_s)
    if not math.isnan(one.first_token_s):
        due_s = float(one.first_token_s + one.tpot_slo_s * one.num_output_tokens)
    return due_s - now - float(one.lone_prefill_s)


def due_s(one: Any, now: float) -> float:
    return slack_s(one, now) + now + float(one.lone_prefill_s)


def left_s(one: Any) -> float:
    tokens = int(one.prompt_tokens + one.num_output_tokens - one.num_computed_tokens)
    output = max(float(one.predicted_output_tokens) - int(one.num_output_tokens), 1.0)
    prefill_s = float(one.lone_prefill_s) * tokens / int(one.prompt_tokens)
    return prefill_s + output * float(one.token_time_s)


def attained(one: Any) -> int:
    return int(one.num_computed_tokens) + int(one.num_recomputed_tokens)


def queue(one: Any, now: float) -> int:
    since = one.arrival_time_s if math.isnan(one.last_token_s) else one.last_token_s
    if now - since >= 5.0:
        return 0
    level, quantum = 0, 256
    while quantum < max(attained(one), int(one.prompt_tokens)):
        level, quantum = level + 1, 2 * quantum
    return level


DEFINITIONS: dict[str, Any] = {
    "fcfs": lambda one, now: int(one.row),
    "fixed_priority": lambda one, now: (-float(one.priority), float(one.arrival_time_s)),
    "aging": lambda one, now: (
        -(float(one.priority) + (now - float(one.arrival_time_s)) // 4.0),
        float(one.arrival_time_s),
    ),
    "deadline": slack_s,
    "edf": due_s,
    "least_attained": lambda one, now: (attained(one), float(one.arrival_time_s)),
    "mlfq": lambda one, now: (queue(one, now), float(one.arrival_time_s)),
    "sjf_aging": lambda one, now: work_s(one) - 0.02 * (now - float(one.arrival_time_s)),
    "srpt": lambda one, now: left_s(one),
    "vtc": lambda one, now: (float(one.class_tokens), float(one.arrival_time_s)),
    "sjf": lambda one, now: work_s(one),
    "weighted_sjf": lambda one, now: -float(one.weight) / work_s(one),
}


@pytest.fixture(scope="module")
def waiting() -> Any:
    """Return requests that wait at 30 s, some of them preempted."""
    rng = np.random.default_rng(0)
    requests = np.zeros(40, REQUEST).view(np.recarray)
    requests.row = np.arange(40)
    requests.prompt_tokens = rng.integers(20, 4000, 40)
    requests.arrival_time_s = np.sort(rng.uniform(0, 30, 40))
    requests.priority = rng.integers(1, 5, 40)
    requests.weight = rng.choice([1.0, 2.0, 4.0], 40)
    requests.ttft_slo_s = rng.uniform(0.5, 12, 40)
    requests.tpot_slo_s = 0.08
    requests.class_tokens = rng.choice([10.0, 250.0, 90.5], 40)
    requests.lone_prefill_s = rng.uniform(0.01, 0.3, 40)
    requests.token_time_s = 0.0005
    requests.predicted_output_tokens = rng.uniform(1, 600, 40)
    has_token = rng.random(40) < 0.3
    requests.num_output_tokens = np.where(has_token, rng.integers(1, 50, 40), 0)
    late_s = requests.arrival_time_s + rng.uniform(0, 1, 40)
    requests.first_token_s = np.where(has_token, late_s, np.nan)
    recent_s = requests.first_token_s + rng.uniform(0, 1, 40)
    requests.last_token_s = np.where(has_token, np.minimum(recent_s, 30.0), np.nan)
    requests.num_recomputed_tokens = np.where(has_token, requests.prompt_tokens + 7, 0)
    return requests


def order_by(key: Any, requests: Any, now: float) -> list[int]:
    return sorted(range(len(requests)), key=lambda row: key(requests[row], now))


def test_all_have_names_references_and_definitions() -> None:
    assert {name for name in known_policies() if isinstance(resolve_policy(name), Heuristic)} == {
        *NAMES,
        *SWITCHED,
        "cache_aware",  # it needs a cache to look into
    }
    assert {*DEFINITIONS, "random"} == {*NAMES}
    for name in NAMES:
        policy = resolve_policy(name)
        assert isinstance(policy, Heuristic)
        assert policy.reference
        assert not policy.privileged


@pytest.mark.parametrize("name", [name for name in NAMES if name != "random"])
def test_order_is_that_of_the_definition(name: str, waiting: Any) -> None:
    key = resolve_policy(name)
    assert order_by(key, waiting, 30.0) == order_by(DEFINITIONS[name], waiting, 30.0)


@pytest.mark.parametrize("name", NAMES)
def test_static_orders_do_not_change_with_time(name: str, waiting: Any) -> None:
    key = resolve_policy(name)
    assert isinstance(key, Heuristic)
    orders = {tuple(order_by(key, waiting, now)) for now in (30.0, 31.0, 37.0, 90.0)}
    # What a class has been served changes with the server's work, not by the clock alone.
    assert (len(orders) == 1) == (key.static or key.counts_classes)


def served(policy: Any, table: RequestTable, **scheduler: Any) -> Any:
    classes = [
        {"name": "low", "share": 0.5, "weight": 1.0, "ttft_slo_s": 60.0, "tpot_slo_s": 1.0},
        {"name": "high", "share": 0.5, "weight": 5.0, "ttft_slo_s": 30.0, "tpot_slo_s": 1.0},
    ]
    env = EnvConfig(
        scheduler={"max_num_seqs": 1, **scheduler},
        service={
            "classes": classes,
            "shed_hopeless": False,
            "length_prediction": "oracle",
        },
    )
    return simulate(table, policy, env, record_events=True)


def admissions(result: Any) -> list[int]:
    events = result.events
    return events["row"][events["kind"] == EVENT_ADMIT].tolist()


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fcfs", [0, 1, 2, 3]),
        ("fixed_priority", [0, 2, 3, 1]),
        ("sjf", [0, 3, 1, 2]),
        ("weighted_sjf", [0, 3, 2, 1]),
    ],
)
def test_waiting_requests_are_served_in_order(policy: str, expected: list[int]) -> None:
    table = RequestTable.from_columns(  # the first one keeps the only seat for a while
        arrival_time_s=[0.0, 0.01, 0.02, 0.03],
        prompt_tokens=[50, 50, 50, 50],
        output_tokens=[50, 90, 300, 20],
        service_class=[0, 0, 1, 1],
    )
    assert admissions(served(policy, table)) == expected


def test_deadline_serves_the_least_slack_first() -> None:
    table = RequestTable.from_columns(
        arrival_time_s=[0.0, *np.linspace(0.01, 0.1, 12)],
        prompt_tokens=np.full(13, 50),
        output_tokens=[200, *np.full(12, 2)],
        service_class=np.arange(13) % 2,
    )
    result = served("deadline", table)
    slack = result.requests["arrival_time_s"] + result.requests["ttft_slo_s"]
    assert admissions(result) == [0, *(1 + np.argsort(slack[1:])).tolist()]


def test_aging_serves_at_last_what_fixed_priority_starves() -> None:
    count = 400
    table = RequestTable.from_columns(  # one of low priority, and a stream of the others
        arrival_time_s=[0.0, *(0.1 * np.arange(count))],
        prompt_tokens=[50, *np.full(count, 200)],
        output_tokens=[5, *np.full(count, 40)],
        service_class=[0, *np.ones(count)],
    )
    place = {name: admissions(served(name, table)).index(0) for name in ("aging", "fixed_priority")}
    assert place["fixed_priority"] == count
    assert place["aging"] < count // 2


def test_the_victim_is_whoever_the_key_serves_last() -> None:
    table = RequestTable.from_columns(  # both fit at first, and not with all their output
        arrival_time_s=[0.0, 0.0],
        prompt_tokens=[100, 100],
        output_tokens=[100, 300],
        service_class=[0, 1],
    )
    victims = {}
    for policy in ("fcfs", "fixed_priority", "sjf"):
        result = served(policy, table, max_num_seqs=2, num_blocks=20)
        preempted = result.events["row"][result.events["kind"] == EVENT_PREEMPT]
        victims[policy] = set(preempted.tolist())
    assert victims == {"fcfs": {1}, "fixed_priority": {0}, "sjf": {1}}


@pytest.mark.parametrize("policy", NAMES)
def test_each_runs_with_and_without_shedding(policy: str) -> None:
    rng = np.random.default_rng(0)
    table = RequestTable.from_columns(
        arrival_time_s=np.sort(rng.uniform(0, 3, 150)),
        prompt_tokens=rng.integers(50, 2000, 150),
        output_tokens=rng.integers(1, 200, 150),
    )
    for shed in (False, True):
        env = EnvConfig(service={"shed_hopeless": shed}, scheduler={"num_blocks": 400})
        requests = simulate(table, policy, env).requests
        assert np.isfinite(requests["finish_s"]).all()
        assert (requests["finish_reason"] == SHED).any() == shed


def longest_first(request: Any, now: float) -> float:
    return -request.prompt_tokens


def test_a_key_of_ones_own_changes_the_whole_scheduler() -> None:
    table = RequestTable.from_columns(
        arrival_time_s=[0.0, 0.001, 0.002, 0.003],
        prompt_tokens=[50, 20, 90, 60],
        output_tokens=[20, 20, 20, 20],
    )
    mine = Heuristic("longest_first", longest_first, static=True)
    assert admissions(served(mine, table)) == [0, 2, 3, 1]


def test_random_order_is_fixed_for_a_row_and_like_a_draw_between_rows(waiting: Any) -> None:
    key = resolve_policy("random")
    drawn = np.array([key(one, 0.0)[0] for one in waiting])
    assert drawn.tolist() == [key(one, 99.0)[0] for one in waiting]
    assert ((drawn >= 0) & (drawn < 1)).all()
    assert 0.3 < drawn.mean() < 0.7
    assert abs(np.corrcoef(drawn, np.arange(40))[0, 1]) < 0.4


def test_aging_bounds_how_long_a_long_job_is_passed() -> None:
    count = 1500
    table = RequestTable.from_columns(  # a long one, and short ones that take all of the server
        arrival_time_s=[0.0, 0.0, *(0.02 + 0.02 * np.arange(count))],
        prompt_tokens=np.full(count + 2, 100),
        output_tokens=[40, 60, *np.full(count, 4)],
        service_class=np.zeros(count + 2),
    )
    place = {name: admissions(served(name, table)).index(1) for name in ("sjf", "sjf_aging")}
    assert place["sjf"] == count + 1
    assert place["sjf_aging"] < 0.9 * count


def test_a_preempted_job_has_its_prefill_before_it_again() -> None:
    request = np.zeros(1, REQUEST).view(np.recarray)[0]
    request.prompt_tokens, request.lone_prefill_s, request.token_time_s = 100, 0.5, 0.01
    request.predicted_output_tokens, request.num_output_tokens = 60.0, 50
    request.num_computed_tokens = 149
    srpt, sjf = resolve_policy("srpt"), resolve_policy("sjf")
    assert srpt(request, 0.0)[0] == pytest.approx(0.5 * 0.01 + 10 * 0.01)
    assert sjf(request, 0.0)[0] == pytest.approx(0.5 + 10 * 0.01)
    request.num_computed_tokens = 0
    assert srpt(request, 0.0)[0] == pytest.approx(0.5 * 1.5 + 10 * 0.01)


def test_clairvoyance_is_privileged_and_never_run_by_accident() -> None:
    assert clairvoyant_wsrpt.privileged
    assert "clairvoyant_wsrpt" not in known_policies()
    table = RequestTable.from_columns(
        arrival_time_s=[0.0, 0.01, 0.02],
        prompt_tokens=[50, 50, 50],
        output_tokens=[50, 90, 20],
        predicted_output_tokens=[50, 10, 80],
        service_class=[0, 0, 0],
    )
    with pytest.raises(PolicyError, match="true output length"):
        simulate(table, clairvoyant_wsrpt)
    seen = simulate(
        table,
        clairvoyant_wsrpt,
        EnvConfig(scheduler={"max_num_seqs": 1}, service={"shed_hopeless": False}),
        allow_privileged=True,
        record_events=True,
    )
    assert admissions(seen) == [0, 2, 1]


@pytest.mark.parametrize("name", sorted(SWITCHED))
def test_switched_servers_differ_from_weighted_sjf_by_one_switch(name: str) -> None:
    made, base = resolve_policy(name), resolve_policy("weighted_sjf")
    assert isinstance(made, Heuristic)
    assert made.scheduler == SWITCHED[name]
    assert made.base is base
    assert pickle.loads(pickle.dumps(made)).scheduler == made.scheduler
    rng = np.random.default_rng(7)
    table = RequestTable.from_columns(
        arrival_time_s=np.sort(rng.uniform(0, 6, 200)),
        prompt_tokens=rng.integers(50, 2000, 200),
        output_tokens=rng.integers(1, 300, 200),
    )
    env = EnvConfig(scheduler={"num_blocks": 600}, service={"shed_hopeless": False})
    by_name = simulate(table, name, env, seed=1)
    by_hand = simulate(
        table,
        "weighted_sjf",
        env.replace(scheduler=env.scheduler.replace(**SWITCHED[name])),
        seed=1,
    )
    plain = simulate(table, "weighted_sjf", env, seed=1)
    assert by_name.requests.tobytes() == by_hand.requests.tobytes()
    assert by_name.requests.tobytes() != plain.requests.tobytes()


def test_virtual_token_counters_share_the_server_by_weight() -> None:
    count = 240
    table = RequestTable.from_columns(  # "low" floods the queue first; "high" comes behind it
        arrival_time_s=np.r_[np.zeros(count), np.full(count, 0.01)],
        prompt_tokens=np.full(2 * count, 60),
        output_tokens=np.full(2 * count, 30),
        service_class=np.r_[np.zeros(count), np.ones(count)],
    )
    shares = {}
    for policy in ("fcfs", "vtc"):
        order = np.array(admissions(served(policy, table, max_num_seqs=4)))
        early = order[20:140]  # while both classes wait
        shares[policy] = float((early >= count).mean())
    assert shares["fcfs"] == 0.0
    assert shares["vtc"] == pytest.approx(5 / 6, abs=0.04)  # weights 1 and 5


def test_a_class_saves_up_no_service_while_it_has_nothing_to_run() -> None:
    first, late = 150, 100
    table = RequestTable.from_columns(  # "low" alone at first, then both at once
        arrival_time_s=np.r_[np.linspace(0, 1, first), np.full(late, 30.0), np.full(late, 30.001)],
        prompt_tokens=np.full(first + 2 * late, 60),
        output_tokens=np.full(first + 2 * late, 30),
        service_class=np.r_[np.zeros(first + late), np.ones(late)],
    )
    order = np.array(admissions(served("vtc", table, max_num_seqs=4)))
    order = order[order >= first][10:70]
    # Without the lift "high" would be served alone until it has caught up with what "low" had.
    assert (order < first + late).mean() > 0.1
