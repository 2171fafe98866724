"""The teaching environment: what may be done, what is paid, and that it is the teaching machine."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_env import DecodeSchedulerSim, DecodeSchedulingEnv, DecodeSchedulingVectorEnv
from sched_env.errors import ConfigError, SchedEnvError
from tests.env.rollouts import assert_equal, episode, legal_action

ID = "sched_env/DecodeScheduling-v0"
POLICIES = ("fixed_priority", "aging", "deadline")
TIGHT = {
    "free_kv_blocks": 4,
    "workload": {"num_requests": [3, 6], "arrival_gap_steps": [0, 5], "priority": [-2, 3]},
}


def instance(*requests: dict[str, Any], **sections: Any) -> DecodeSchedulingEnv:
    """Return an environment that plays the given requests; ids count from 0."""
    rows = [{"request_id": row, "prompt_len": 4, **one} for row, one in enumerate(requests)]
    return DecodeSchedulingEnv({"requests": rows, **sections})


def legal(info: dict[str, Any]) -> list[int]:
    return np.flatnonzero(info["action_mask"]).tolist()


def requests_of(env: Any) -> Any:
    return env.world.requests(0)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("interval", [1, 4])
def test_a_policy_plays_it_as_the_machine_for_scripts_does(policy: str, interval: int) -> None:
    env = DecodeSchedulingEnv({**TIGHT, "aging_interval": interval})
    preemptions = 0
    for seed in range(25):
        env.reset(seed=seed)
        sim = DecodeSchedulerSim(policy, free_kv_blocks=4, aging_interval=interval)
        drawn, added, is_over = copy.deepcopy(requests_of(env)), 0, False
        while not is_over:
            while added < len(drawn) and drawn["arrival_step"][added] <= sim.clock:
                add(sim, drawn[added])
                added += 1
            event = sim.step()
            if event is None:
                sim.clock = int(drawn["arrival_step"][added])
                continue
            victim, chosen, is_over = play_step(env, policy)
            assert (victim, chosen) == (event["preempted_request_id"], event["request_id"])
            assert env.world.state["free_kv_blocks"][0] == sim.free_kv_blocks
        preemptions += int(env.world.state["num_preemptions"][0])
        assert requests_of(env)["wait_steps"].tolist() == [one.wait_steps for one in sim.queue]
        assert sim.step() is None
    assert preemptions > 3


def add(sim: DecodeSchedulerSim, request: Any) -> None:
    names = ("request_id", "prompt_len", "max_new_tokens", "priority", "required_blocks")
    values = {name: int(request[name]) for name in names}
    values["deadline_step"] = int(request["deadline_step"]) if request["has_deadline"] else None
    flags = {name: bool(request[name]) for name in ("cache_hit", "preemptible")}
    sim.enqueue(**values, **flags)


def play_step(env: DecodeSchedulingEnv, policy: str) -> tuple[int | None, int, bool]:
    """Play a policy up to the next step; return who was preempted, who was served, and the end."""
    victim = None
    for _ in range(2):
        slots = env.world.arrays.slots[0].copy()
        action = env.policy_action(policy)
        is_over, info = env.step(action)[2::2]
        assert not info["invalid_action"]
        served = int(requests_of(env)["request_id"][slots[action % len(slots)]])
        if action < len(slots):
            return victim, served, is_over
        victim = served
    raise AssertionError("two preemptions before a step")


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_vector_rollout_equals_scalar_rollouts(mode: AutoresetMode) -> None:
    vector = DecodeSchedulingVectorEnv(3, TIGHT, autoreset_mode=mode)
    scalars = gym.make_vec(
        ID,
        3,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
        config=TIGHT,
    )
    (first, infos), (expected, expected_infos) = vector.reset(seed=5), scalars.reset(seed=5)
    assert_equal(first, expected)
    rng = np.random.default_rng(0)
    ends = np.zeros(3, np.int64)
    names = ("action_mask", "elapsed_steps", "discount", "invalid_action")
    while ends.min() < 4:
        assert_equal(infos["action_mask"], expected_infos["action_mask"])
        actions = np.array([legal_action(rng, mask) for mask in infos["action_mask"]])
        *step, infos = vector.step(actions)
        *expected_step, expected_infos = scalars.step(actions)
        assert_equal(step, expected_step)
        ended = step[2] | step[3]
        ends += ended
        if mode is AutoresetMode.NEXT_STEP:
            assert_equal([infos[name] for name in names], [expected_infos[name] for name in names])
            for row in np.flatnonzero(ended):
                assert infos["makespan_steps"][row] == expected_infos["makespan_steps"][row]
        elif ended.any():
            for row in np.flatnonzero(ended):
                assert_equal(infos["final_obs"][row], expected_infos["final_obs"][row])


def test_seeds_decide_everything() -> None:
    env, other = DecodeSchedulingEnv(), gym.make(ID).unwrapped
    assert_equal(episode(env, 3), episode(other, 3))
    assert_equal(episode(env, None), episode(other, None))
    again = episode(env, 3)
    assert_equal(again, episode(other, 3))
    assert not np.array_equal(again[0][0], env.reset(seed=4)[0])


def test_the_workload_keeps_to_its_ranges() -> None:
    env = DecodeSchedulingEnv({"workload": {"deadline_factor": [2, 3], "priority": [-4, -1]}})
    seen = []
    for seed in range(60):
        env.reset(seed=seed)
        seen.append(copy.deepcopy(requests_of(env)))
    everything = np.concatenate(seen)
    assert {len(one) for one in seen} == {4, 5, 6}
    for name, low, high in (
        ("prompt_len", 1, 16),
        ("max_new_tokens", 1, 6),
        ("priority", -4, -1),
        ("required_blocks", 1, 4),
    ):
        assert set(everything[name]) == set(range(low, high + 1))
    gaps = np.concatenate([np.diff(one["arrival_step"]) for one in seen])
    assert set(gaps) == set(range(5))
    lone = everything["max_new_tokens"] + 1
    factor = (everything["deadline_step"] - everything["arrival_step"]) / lone
    assert ((factor >= 2) & (factor < 3.5)).all()
    for name, share in (("cache_hit", 0.3), ("preemptible", 0.8), ("has_deadline", 0.8)):
        assert abs(everything[name].mean() - share) < 0.1


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), num_slots=st.integers(1, 6), blocks=st.integers(4, 7))
def test_invariants_hold_whatever_is_played(seed: int, num_slots: int, blocks: int) -> None:
    env = DecodeSchedulingEnv({**TIGHT, "free_kv_blocks": blocks, "num_slots": num_slots})
    _, info = env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    steps, is_over = 0, False
    while not is_over:
        before = copy.deepcopy(requests_of(env))
        clock = int(env.world.state["clock"][0])
        mask = info["action_mask"]
        action = legal_action(rng, mask)
        observation, _, is_over, _, info = env.step(action)
        assert observation in env.observation_space
        check_transition(before, requests_of(env), action < num_slots)
        steps += action < num_slots
        passed = int(env.world.state["clock"][0]) - clock
        assert passed == info["elapsed_steps"]
        assert passed >= 1 if action < num_slots else passed == 0
        if action >= num_slots:
            assert mask[:num_slots].any() or not is_over
            assert not info["action_mask"][num_slots:].any()
        check_blocks(env, blocks)
    done = requests_of(env)
    assert (done["status"] == 3).all()
    assert steps == (1 + done["max_new_tokens"]).sum()


def check_transition(before: Any, after: Any, is_step: bool) -> None:
    """A step moves one request by one and lets the others wait; a preemption moves nobody."""
    moved = after["generated_len"] - before["generated_len"] + after["phase"] - before["phase"]
    assert sorted(moved)[-1] == moved.sum() == is_step
    lost = after["preemptions"] - before["preemptions"]
    assert lost.sum() == (not is_step)
    assert before["preemptible"][lost == 1].all()
    assert (after["wait_steps"] >= before["wait_steps"]).all()
    assert (after["wait_steps"] - before["wait_steps"])[moved == 1].sum() == 0


def check_blocks(env: Any, blocks: int) -> None:
    requests = requests_of(env)
    free = int(env.world.state["free_kv_blocks"][0])
    held = int(requests["required_blocks"][requests["admitted"] == 1].sum())
    assert free >= 0
    assert free + held == blocks


def test_one_of_those_that_a_preemption_made_fit_gets_the_step() -> None:
    env = instance(
        {"max_new_tokens": 3, "required_blocks": 3},
        {"max_new_tokens": 3, "required_blocks": 1, "preemptible": False},
        {"required_blocks": 3},
        {"required_blocks": 2},
        {"required_blocks": 1},
        free_kv_blocks=5,
    )
    _, info = env.reset(seed=0)
    assert legal(info) == [0, 1, 2, 3, 4]
    for action in (0, 1):
        info = env.step(action)[4]
    assert legal(info) == [0, 1, 4, 6]
    assert info["elapsed_steps"] == 1
    info = env.step(6)[4]
    assert info["elapsed_steps"] == 0
    assert legal(info) == [2, 3]
    info = env.step(3)[4]
    assert requests_of(env)["status"].tolist() == [2, 1, 0, 1, 0]
    assert legal(info) == [1, 3, 4, 9]
    assert requests_of(env)["wait_steps"].tolist() == [2, 2, 3, 2, 3]


def test_rewards_are_what_the_documents_say() -> None:
    env = instance(
        {"max_new_tokens": 1, "priority": 2, "required_blocks": 2, "deadline_step": 3},
        {"max_new_tokens": 1, "priority": -5, "required_blocks": 2, "deadline_step": 4},
        {"max_new_tokens": 1, "arrival_step": 7},
        free_kv_blocks=2,
        reward={"goodput": 1.0, "miss": 0.25, "latency": 0.1, "preemption": 0.125},
        episode={"discount": 0.5},
    )
    env.reset(seed=0)
    weights = np.array([3.0, 1.0, 1.0]) / 5
    both = -0.1 * (weights[0] + weights[1])
    paid = [env.step(action) for action in (1, 7, 0, 0, 0, 0, 0)]
    assert [step[1] for step in paid] == pytest.approx(
        [
            both,
            -0.125,
            both,  # the prefill of request 0
            both + weights[0],  # done at 3, in time; the other one can still be done at 4
            -0.1 * weights[1] + weights[1],
            -0.1 * weights[2],
            -0.1 * weights[2] + weights[2],
        ]
    )
    assert [step[4]["elapsed_steps"] for step in paid] == [1, 0, 1, 1, 4, 1, 1]
    assert [step[4]["discount"] for step in paid] == [0.5, 1, 0.5, 0.5, 0.0625, 0.5, 0.5]
    info = paid[-1][4]
    assert (info["goodput_weighted"], info["num_preemptions"], info["makespan_steps"]) == (1, 1, 9)
    assert info["mean_wait_steps"] == pytest.approx((1 + 2 + 0) / 3)
    assert info["is_success"] is True


def test_a_miss_is_paid_once_and_when_it_is_certain() -> None:
    env = instance(
        {"max_new_tokens": 2},
        {"max_new_tokens": 1, "deadline_step": 3},
        reward={"goodput": 0.0, "miss": 1.0, "latency": 0.0},
    )
    env.reset(seed=0)
    steps = [env.step(action) for action in (0, 0, 0, 0, 0)]
    assert [step[1] for step in steps] == [0, -0.5, 0, 0, 0]
    assert steps[-1][4]["slo_attainment"] == 0.5


def test_illegal_actions_are_replaced_or_refused() -> None:
    rows = [{"required_blocks": 2, "max_new_tokens": 2}, {"required_blocks": 2}]
    env = instance(*rows, free_kv_blocks=2)
    env.reset(seed=0)
    for action in (5, -1, 99, 2**70):
        env.reset(seed=0)
        info = env.step(action)[4]
        assert info["invalid_action"] is True
        assert requests_of(env)["phase"].tolist() == [1, 0]
    strict = instance(*rows, free_kv_blocks=2, episode={"invalid_action": "raise"})
    strict.reset(seed=0)
    strict.step(0)
    with pytest.raises(ConfigError, match=r"action 1 \(step slot 1\) is illegal.*legal are 0, 6"):
        strict.step(1)
    with pytest.raises(ConfigError, match=r"action 12 \(outside the action space\)"):
        strict.step(12)


def test_admitted_requests_are_shown_before_those_that_wait() -> None:
    rows = [{"required_blocks": 1} for _ in range(4)]
    env = instance(*rows, num_slots=2)
    env.reset(seed=0)
    assert env.world.arrays.slots[0].tolist() == [0, 1]
    env.step(1)
    assert env.world.arrays.slots[0].tolist() == [0, 1]
    for _ in range(2):
        env.step(1)
    assert env.world.arrays.slots[0].tolist() == [0, 2]
    layout = env.layout
    observation = env.step(0)[0]
    slots, rest, none = layout.split(observation)
    assert slots[:, 0].tolist() == [1, 1]
    assert rest[3] == pytest.approx(1 / 5)
    assert none.size == 0


def test_an_instance_is_served_in_order_of_arrival() -> None:
    env = instance({"arrival_step": 9}, {"arrival_step": 5}, {"arrival_step": 5})
    env.reset(seed=0)
    assert requests_of(env)["request_id"].tolist() == [1, 2, 0]
    assert env.world.state["clock"][0] == 5
    first = episode(env, 1)
    assert_equal(first, episode(env, 2))


def test_the_documented_features_are_those_of_the_layout() -> None:
    env = DecodeSchedulingEnv()
    rows = re.findall(r"\| (\d+) \| (\w+) \| (\w+) \| (.+) \| (-?\d) \| (-?\d) \|", env.__doc__)
    features = [*env.layout.slot_features, *env.layout.global_features]
    expected = [
        (name, unit, scale.replace("|x|", "abs(x)"), f"{low:g}", f"{high:g}")
        for name, unit, scale, low, high in features
    ]
    assert [row[1:] for row in rows] == expected
    assert env.observation_space.shape == (env.layout.size,)


def test_observations_tell_what_stands_in_the_requests() -> None:
    env = instance(
        {"priority": 2, "max_new_tokens": 7, "required_blocks": 3, "deadline_step": 20},
        {"priority": -2, "cache_hit": True, "preemptible": False, "prompt_len": 16},
    )
    env.reset(seed=0)
    env.step(0)
    slots, rest, _ = env.layout.split(env.step(0)[0])
    named = [
        dict(zip([one.name for one in env.layout.slot_features], slot.tolist(), strict=True))
        for slot in slots
    ]
    first = {"present": 1, "can_step": 1, "admitted": 1, "is_decode": 1, "preemptible": 1}
    first |= {"priority": 0.5, "remaining": 6 / 14, "prompt_len": 0.2, "generated": 1 / 9}
    first |= {"required_blocks": 0.5, "has_deadline": 1, "slack": 12 / 16, "weight": 0.75}
    assert {name: value for name, value in named[0].items() if value} == pytest.approx(first)
    second = {"present": 1, "can_step": 1, "cache_hit": 1, "priority": -0.5, "slack": 1}
    second |= {"remaining": 3 / 11, "prompt_len": 0.5, "required_blocks": 1 / 6, "wait": 0.2}
    assert {name: value for name, value in named[1].items() if value} == pytest.approx(
        {**second, "weight": 0.25}
    )
    assert not slots[2:].any()
    assert rest.tolist() == pytest.approx([0.5, 2 / 34, 2 / 6, 0, 0])


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_states_and_copies_go_on_exactly(duplicate: Any) -> None:
    env = DecodeSchedulingEnv(TIGHT)
    _, info = env.reset(seed=2)
    for _ in range(4):
        info = env.step(legal(info)[-1])[4]
    saved, other = env.get_state(), duplicate(env)
    fresh = DecodeSchedulingEnv(TIGHT)
    fresh.set_state(saved)
    runs = []
    for one in (env, other, fresh):
        mask = one.action_masks()
        rng = np.random.default_rng(0)
        steps = [one.step(legal_action(rng, mask))]
        while not steps[-1][2]:
            steps.append(one.step(legal_action(rng, steps[-1][4]["action_mask"])))
        runs.append([*steps, one.reset()])
    assert_equal(runs[0], runs[1])
    assert_equal(runs[0], runs[2])


def test_pictures_show_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    env = gym.make(ID, render_mode="ansi")
    env.reset(seed=0)
    env.step(0)
    assert "#0" in str(env.render())
    picture = DecodeSchedulingEnv(render_mode="rgb_array")
    picture.reset(seed=0)
    before = picture.render()
    picture.step(0)
    assert before.dtype == np.uint8
    assert before.shape == picture.render().shape == (72, 84, 3)
    assert not np.array_equal(before, picture.render())
    human = DecodeSchedulingEnv(render_mode="human")
    human.reset(seed=0)
    human.step(0)
    assert "clock 1" in capsys.readouterr().out


REQUEST = {"request_id": 1, "prompt_len": 2}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"workloads": {}}, "workloads.*Did you mean 'workload'"),
        ({"workload": {"num_requests": [6, 4]}}, "6 down to 4"),
        ({"workload": {"num_requests": 0}}, "num_requests"),
        ({"workload": {"cache_hit": 1.5}}, "cache_hit"),
        ({"workload": {"deadline_factor": 1e300}}, "deadline_factor.*1000000 or less"),
        ({"free_kv_blocks": 3}, "up to 4, which 3 free_kv_blocks can never hold"),
        ({"requests": [{**REQUEST, "required_blocks": 9}]}, "up to 9, which 6"),
        ({"requests": []}, "requests is empty"),
        ({"requests": [REQUEST, REQUEST]}, "request_id 1 is given twice"),
        ({"requests": [{"prompt_len": 2}]}, "request_id"),
        ({"requests": [{**REQUEST, "deadline_step": 3, "arrival_step": 3}]}, "not after arrival"),
        ({"requests": [{**REQUEST, "priority": 2**40}]}, "priority"),
        ({"episode": {"discount": 0.0}}, "discount"),
        ({"reward": {"goodput": -1.0}}, "goodput"),
        ({"workload": {"num_requests": 2**31 - 1}}, "GiB of memory"),
        ("decode_schedulin", "no configuration.*Did you mean 'env/decode_scheduling'"),
        (7, "config is 7"),
    ],
)
def test_wrong_configurations_are_refused(config: Any, message: str) -> None:
    with pytest.raises(SchedEnvError, match=message):
        DecodeSchedulingEnv(config)


def test_wrong_arguments_are_refused() -> None:
    env = DecodeSchedulingEnv()
    with pytest.raises(ConfigError, match="before the first reset"):
        env.step(0)
    with pytest.raises(ConfigError, match="has none"):
        env.reset(options={"warmup_s": 3})
    env.reset(seed=0)
    with pytest.raises(SchedEnvError, match="no policy 'edf'"):
        env.policy_action("edf")
    with pytest.raises(ConfigError, match=r"gymnasium.make\(\"sched_env/DecodeScheduling-v0\""):
        DecodeSchedulingVectorEnv(2, render_mode="human")


def test_the_shipped_configuration_is_the_default() -> None:
    assert DecodeSchedulingEnv("decode_scheduling").config == DecodeSchedulingEnv().config
