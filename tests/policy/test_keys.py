from __future__ import annotations

import copy
import os
import pickle
import sys

import numpy as np
import pytest

from sched_env.baselines import weighted_sjf
from sched_env.compiled import compiled
from sched_env.config.scheduler import SchedulerConfig
from sched_env.engine.keycall import key_at
from sched_env.engine.records import REQUEST
from sched_env.errors import ConfigError, PolicyError
from sched_env.policy.keys import HIDDEN_FIELDS, Heuristic, heuristic
from sched_env.policy.protocol import Policy
from sched_env.policy.registry import resolve_policy

IS_PLAIN = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"

needs_compiler = pytest.mark.skipif(IS_PLAIN, reason="it is about what the compiler does")


_this_module = sys.modules[__name__]


@compiled
def _call(wrapper_address, jit_address, requests, now_s):
    return key_at(wrapper_address, jit_address)(requests[0], now_s)


@compiled
def _true_work(request):
    return request.prompt_tokens + request.stop_at_tokens


def call_in_core(policy, now_s=10.0, **fields):
    """Return the key of one request as compiled code computes it."""
    requests = np.zeros(1, REQUEST)
    for name, value in fields.items():
        requests[name] = value
    if IS_PLAIN:
        requests = requests.view(np.recarray)
    wrapper_address, jit_address = policy.addresses
    from_core = _call(wrapper_address, jit_address, requests, now_s)
    assert from_core == policy(requests.view(np.recarray)[0], now_s)
    return from_core


def test_a_key_of_two_floats_runs_in_the_core():
    def key(request, now):
        return now - request.arrival_time_s, -request.priority

    policy = Heuristic("oldest", key)
    assert call_in_core(policy, arrival_time_s=4.0, priority=2.0) == (6.0, -2.0)


def test_a_key_of_one_float_gets_zero_as_the_second():
    def key(request, now):
        return request.predicted_output_tokens

    policy = Heuristic("shortest", key, static=True)
    assert call_in_core(policy, predicted_output_tokens=7.5) == (7.5, 0.0)


def test_a_key_of_integers_is_taken_as_floats():
    def key(request, now):
        return request.prompt_tokens, request.row

    key_of_core = call_in_core(Heuristic("short_prompt", key), prompt_tokens=12, row=3)
    assert key_of_core == (12.0, 3.0)
    assert all(isinstance(value, float) for value in key_of_core)


def test_two_heuristics_keep_their_own_addresses():
    def smaller(request, now):
        return request.arrival_time_s, 0.0

    def larger(request, now):
        return -request.arrival_time_s, 0.0

    first, second = Heuristic("first", smaller), Heuristic("second", larger)
    assert first.addresses != second.addresses
    assert first.addresses == first.addresses
    assert call_in_core(first, arrival_time_s=3.0) == (3.0, 0.0)
    assert call_in_core(second, arrival_time_s=3.0) == (-3.0, 0.0)


def test_a_key_may_close_over_constants_and_call_compiled_functions():
    @compiled
    def squared(x):
        return x * x

    def with_interval(interval_s):
        def key(request, now):
            return squared(request.arrival_time_s) / interval_s, 0.0

        return Heuristic("squared", key, parameters={"interval_s": interval_s})

    assert call_in_core(with_interval(2.0), arrival_time_s=4.0) == (8.0, 0.0)
    assert call_in_core(with_interval(4.0), arrival_time_s=4.0) == (4.0, 0.0)


@needs_compiler
def test_division_by_zero_in_a_key_is_infinite_and_stops_nothing():
    def key(request, now):
        return 1.0 / request.weight, 0.0

    wrapper_address, jit_address = Heuristic("inverse", key).addresses
    assert _call(wrapper_address, jit_address, np.zeros(1, REQUEST), 0.0) == (np.inf, 0.0)


@pytest.mark.usefixtures("own_registry")
def test_the_decorator_registers_and_returns_a_policy():
    @heuristic("by_row", static=True, reference="A test", parameters={"scale": 1.0})
    def by_row(request, now):
        return request.row

    assert isinstance(by_row, Heuristic)
    assert isinstance(by_row, Policy)
    assert resolve_policy("by_row") is by_row
    assert (by_row.kind, by_row.static, by_row.reference) == ("heuristic", True, "A test")
    assert by_row.parameters == {"scale": 1.0}
    assert not by_row.privileged


@pytest.mark.usefixtures("own_registry")
def test_a_key_that_numba_has_compiled_already_is_accepted():
    @heuristic("compiled_before")
    @compiled
    def key(request, now):
        return request.weight, 0.0

    assert call_in_core(key, weight=4.0) == (4.0, 0.0)


def _reads_directly(request, now):
    return request.stop_at_tokens


def _reads_through_a_callee(request, now):
    return _true_work(request), 0.0


def _reads_through_a_module(request, now):
    return _this_module._true_work(request), np.maximum(now, 0.0)


def _reads_by_index(request, now):
    return request["output_tokens"]


def _reads_in_a_nested_function(request, now):
    def work():
        return request.output_tokens

    return work()


@pytest.mark.parametrize(
    "key",
    [
        _reads_directly,
        _reads_through_a_callee,
        _reads_through_a_module,
        _reads_by_index,
        _reads_in_a_nested_function,
    ],
)
def test_a_key_that_reads_the_hidden_length_is_privileged_and_refused(key):
    policy = Heuristic("oracle", key)
    assert policy.privileged
    with pytest.raises(PolicyError, match="'oracle' reads the true output length"):
        resolve_policy(policy)
    assert resolve_policy(policy, allow_privileged=True) is policy


def test_what_a_server_may_know_is_not_privileged():
    def key(request, now):
        return request.predicted_output_tokens - request.num_output_tokens, 0.0

    assert not Heuristic("predicted", key).privileged
    assert set(HIDDEN_FIELDS) <= set(REQUEST.names or ())


def test_a_static_key_must_not_read_the_clock():
    def waited(request, now):
        return request.arrival_time_s - now, 0.0

    assert not Heuristic("waited", waited).static
    with pytest.raises(PolicyError, match="reads the clock and is declared static=True"):
        Heuristic("waited", waited, static=True)


@needs_compiler
def test_an_unknown_field_is_named_with_the_nearest():
    def key(request, now):
        return request.arival_time_s, 0.0

    with pytest.raises(PolicyError, match=r"request\.arival_time_s.*Did you mean 'arrival_time_s'"):
        _ = Heuristic("typing_slip", key).addresses


@needs_compiler
@pytest.mark.parametrize("returned", ["text", (1.0, 2.0, 3.0), None])
def test_a_key_of_another_type_is_refused(returned):
    def key(request, now):
        return returned

    with pytest.raises(PolicyError, match="one or two floats") as caught:
        _ = Heuristic("odd", key).addresses
    assert "\n" not in str(caught.value)


def _one_argument(request):
    return 0.0


def _keyword_only(request, *, now):
    return 0.0


@pytest.mark.parametrize("function", [_one_argument, _keyword_only, 3.0, max])
def test_a_key_must_be_a_function_of_request_and_now(function):
    with pytest.raises(PolicyError, match=r"two values|must take"):
        Heuristic("odd", function)


@pytest.mark.parametrize("name", ["", "Upper", "with space", "a/b", "a\nb", "ünder"])
def test_a_name_is_lower_case_letters_digits_and_underscores(name):
    with pytest.raises(PolicyError, match="is not allowed"):
        Heuristic(name, _reads_directly)


def _by_age(request, now):
    return request.arrival_time_s


@pytest.mark.parametrize("made", [weighted_sjf, Heuristic("by_age", _by_age)])
def test_copies_hold_no_addresses_of_another_process(made):
    assert made.addresses  # compiled before it is copied
    assert copy.deepcopy(made) is made
    restored = pickle.loads(pickle.dumps(made))
    assert (restored.name, restored.function) == (made.name, made.function)
    assert restored is made or "addresses" not in vars(restored)


def test_a_heuristic_may_set_switches_of_the_server_and_no_budget():
    made = Heuristic("resumes", _by_age, scheduler={"readmit_after_preemption": True})
    server = SchedulerConfig(num_blocks=77)
    assert made.on_server(server) == SchedulerConfig(num_blocks=77, readmit_after_preemption=True)
    assert Heuristic("plain", _by_age).on_server(server) is server
    assert pickle.loads(pickle.dumps(made)).scheduler == {"readmit_after_preemption": True}
    for budget in ("num_blocks", "max_num_seqs", "max_num_batched_tokens"):
        with pytest.raises(PolicyError, match=f"sets {budget}: budgets are the server's"):
            Heuristic("greedy", _by_age, scheduler={budget: 10_000})
    with pytest.raises(PolicyError, match=r"'polcy'.*Did you mean 'policy'"):
        Heuristic("typing_slip", _by_age, scheduler={"polcy": "fcfs"})
    with pytest.raises(ConfigError, match="policy"):
        Heuristic("wrong_value", _by_age, scheduler={"policy": "oldest"})


def _class_lane(request, now):
    return request.service_class, 0.0


def test_lanes_are_kept_by_copies_pickles_and_switches():
    policy = Heuristic("by_class", _by_age, lane=_class_lane)
    assert policy.lane_addresses is not None
    assert Heuristic("by_age", _by_age).lane_addresses is None
    for again in (
        pickle.loads(pickle.dumps(policy)),
        policy.with_switches("kept", "", skip_ahead=1),
    ):
        assert again.lane is _class_lane


def test_lanes_that_cannot_be_are_refused():
    def late(request, now):
        return now, 0.0

    with pytest.raises(PolicyError, match="reads the clock"):
        Heuristic("late", _by_age, lane=late)
    with pytest.raises(PolicyError, match="leave the lanes out"):
        Heuristic("fixed", _by_age, static=True, lane=_class_lane)
    with pytest.raises(PolicyError, match="lane"):
        Heuristic("odd", _by_age, lane=lambda request: 0.0)
