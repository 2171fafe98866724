"""Configuration models: defaults, strict values, messages, round trips."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sched_env.config import (
    AffineCost,
    AgentConfig,
    ArenaConfig,
    EnvConfig,
    EpisodeConfig,
    ExperimentConfig,
    SchedulerConfig,
    ServiceClass,
    ServiceConfig,
    TuningConfig,
    TwoRegimeCost,
)
from sched_env.config.decode_env import (
    DecodeEpisodeConfig,
    DecodeRequestConfig,
    DecodeWorkloadConfig,
)
from sched_env.config.meanings import meanings
from sched_env.errors import ConfigError, SchedEnvError


def test_standard_server_is_the_default() -> None:
    config = EnvConfig()
    assert config.scheduler == SchedulerConfig(
        max_num_batched_tokens=2048, max_num_seqs=64, num_blocks=4000, block_size=16, rules="vllm"
    )
    assert isinstance(config.cost, TwoRegimeCost)
    assert config.cost.preset == "h100-sxm/llama-3.1-8b"
    classes = {one.name: one for one in config.service.classes}
    assert classes["interactive"].model_dump() == {
        "name": "interactive",
        "share": 0.3,
        "weight": 4.0,
        "ttft_slo_s": 0.8,
        "tpot_slo_s": 0.05,
    }
    assert [one.weight for one in config.service.classes] == [4.0, 2.0, 1.0]
    assert config.service.shed_hopeless is True
    assert config.episode.load == (0.7, 1.5)


@pytest.mark.parametrize(
    ("rules", "reserve", "readmit"), [("vllm", True, False), ("p07", False, True)]
)
def test_switches_follow_the_rules_unless_given(rules: Any, reserve: bool, readmit: bool) -> None:
    config = SchedulerConfig(rules=rules)
    assert (config.reserve_full_isl, config.readmit_after_preemption) == (reserve, readmit)
    assert (
        SchedulerConfig(rules=rules, reserve_full_isl=not reserve).reserve_full_isl is not reserve
    )


def test_replace_lets_defaults_follow_and_keeps_what_was_given() -> None:
    config = SchedulerConfig(num_blocks=7, reserve_full_isl=True)
    changed = config.replace(rules="p07")
    assert changed.num_blocks == 7
    assert changed.reserve_full_isl is True
    assert changed.readmit_after_preemption is True
    assert config.rules == "vllm"


def test_budget_below_the_number_of_sequences_is_legal() -> None:
    assert SchedulerConfig(max_num_batched_tokens=2, max_num_seqs=8).max_num_batched_tokens == 2


@pytest.mark.parametrize(
    "value",
    [0, -1, True, False, "8", 8.0, 1.5, float("nan"), float("inf"), None, [8], 2**31, 2**80],
)
def test_a_size_is_an_integer_from_one(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^num_blocks: ") as caught:
        SchedulerConfig(num_blocks=value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, SchedEnvError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["60", True, float("nan"), float("inf"), 0, -1.0, None, [1.0]])
def test_a_time_is_a_finite_number_above_zero(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^horizon_s: "):
        EpisodeConfig(horizon_s=value)


@pytest.mark.parametrize("value", [1, 0, "true", "yes", None, 1.0])
def test_a_switch_is_true_or_false(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"shed_hopeless: .* use true or false"):
        ServiceConfig(shed_hopeless=value)


NO_TIME = {
    "dec": {"a": 0, "b": 0, "d": 0},
    "mix": {"o": 0, "g": 0, "Tk": 1, "p": 1, "b": 0, "d": 0, "e": 0},
}


def test_numpy_numbers_are_numbers() -> None:
    config = SchedulerConfig(num_blocks=np.int32(7), max_num_seqs=np.int64(3))  # type: ignore
    assert (type(config.num_blocks), config.num_blocks) == (int, 7)
    assert EpisodeConfig(load=np.float32(0.5)).load == (0.5, 0.5)  # type: ignore
    drawn = DecodeWorkloadConfig(prompt_len=np.int64(5), priority=np.int8(-2))  # type: ignore
    assert (drawn.prompt_len, drawn.priority) == ((5, 5), (-2, -2))
    assert DecodeRequestConfig(request_id=np.int64(5), prompt_len=1).request_id == 5  # type: ignore
    assert DecodeEpisodeConfig(discount=np.float32(0.5)).discount == 0.5  # type: ignore
    episode = EpisodeConfig(horizon_s=np.float32(1.5))  # type: ignore
    assert (type(episode.horizon_s), episode.horizon_s) == (float, 1.5)


def test_message_names_key_value_and_remedy() -> None:
    with pytest.raises(ConfigError) as caught:
        EnvConfig.from_mapping({"scheduler": {"rules": "vlm"}}, source="my.yaml")
    assert str(caught.value) == (
        "my.yaml: scheduler.rules: 'vlm' is not allowed; use 'vllm' or 'p07'. Did you mean 'vllm'?"
    )


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"scheduler": {"num_block": 3}}, ["scheduler.num_block: no such key", "'num_blocks'"]),
        ({"schedular": {}}, ["schedular: no such key", "'scheduler'"]),
        ({"cost": {"presett": "x"}}, ["cost.presett: no such key", "'preset'"]),
        ({"cost": {"kind": "affin"}}, ["cost.kind: 'affin'", "'affine'"]),
        ({"cost": {"kind": "affine"}}, ["cost.base_s: a value is required"]),
        ({"cost": 3}, ["cost: 3 is not allowed"]),
        ({"cost": {"kind": "two_regime"}}, ["cost: give either preset or parameters"]),
        ({"scheduler": 3}, ["scheduler: 3 is not allowed; use a mapping"]),
        ({"trace": []}, ["trace: [] is not allowed; use at least 1"]),
        ({"trace": [1]}, ["trace.0: 1 is not allowed; use a text"]),
        ({"trace": ""}, ["trace.0: '' is not allowed"]),
        (
            {"service": {"classes": [{"name": "a"}]}},
            ["service.classes.0.share: a value is required"],
        ),
        ({"episode": {"load": [1.5, 0.7]}}, ["episode.load: goes from 1.5 down to 0.7"]),
        ({"cost": {"parameters": NO_TIME}}, ["cost.parameters: a step that takes no time never"]),
        ({"episode": {"load": [1.0]}}, ["episode.load"]),
        ({1: 2}, ["1: "]),
    ],
)
def test_nested_faults_name_the_dotted_key(values: Any, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        EnvConfig.from_mapping(values)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("model", "values", "start"),
    [
        (ExperimentConfig, {"name": "a", "cloning": {"hidden_size": 1}}, "a.yaml: experiment: c"),
        (ArenaConfig, {"name": "a", "policies": ["fcfs"]}, "a.yaml: arena: no traces"),
    ],
)
def test_a_fault_of_the_whole_is_told_of_what_the_user_gave(
    model: Any, values: dict[str, Any], start: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{start}"):
        model.from_mapping(values, source="a.yaml")


def test_union_tags_are_no_part_of_the_key() -> None:
    with pytest.raises(ConfigError, match=r"^cost\.base_s: -1"):
        EnvConfig.from_mapping(
            {"cost": {"kind": "affine", "base_s": -1, "per_decode_s": 0, "per_prefill_token_s": 0}}
        )


def test_many_faults_stay_on_one_short_line() -> None:
    values = {f"key{number}": "x" * 500 for number in range(40)}
    with pytest.raises(ConfigError, match=r"and 35 more$") as caught:
        EnvConfig.from_mapping(values)
    assert "\n" not in str(caught.value)


def test_values_are_given_by_name() -> None:
    message = r"takes values by name, and .* give name=value\. Known: max_num_batched_tokens"
    for places in ((3,), ({"num_blocks": 3},), (3, 4)):
        with pytest.raises(ConfigError, match=message):
            SchedulerConfig(*places)  # type: ignore[misc]


def test_values_cannot_be_changed() -> None:
    config = SchedulerConfig()
    with pytest.raises(ConfigError, match=r"\.replace\(num_blocks=\.\.\.\)"):
        config.num_blocks = 3  # type: ignore
    assert config.num_blocks == 4000


def test_shares_add_up_and_names_differ() -> None:
    one = ServiceClass(name="a", share=0.5, weight=1.0, ttft_slo_s=1.0, tpot_slo_s=0.1)
    with pytest.raises(ConfigError, match=r"add up to 0\.5"):
        ServiceConfig(classes=(one,))
    with pytest.raises(ConfigError, match="two classes are called 'a'"):
        ServiceConfig(classes=(one, one))
    assert ServiceConfig(classes=(one, one.replace(name="b"))).classes[1].name == "b"


def test_a_step_takes_time() -> None:
    with pytest.raises(ConfigError, match="make one of the three above 0"):
        AffineCost(base_s=0, per_decode_s=0, per_prefill_token_s=0)


def test_short_forms() -> None:
    config = EnvConfig.from_mapping(
        {
            "trace": "azure_code",
            "cost": "h100-sxm/llama-3.1-8b",
            "episode": {"load": 1},
            "service": {"length_prediction": "oracle"},
        }
    )
    assert config.trace == ("azure_code",)
    assert config.cost == TwoRegimeCost(preset="h100-sxm/llama-3.1-8b")
    assert config.episode.load == (1.0, 1.0)
    assert config.service.length_prediction.kind == "oracle"


def test_round_trips_keep_every_value() -> None:
    config = ExperimentConfig(name="x", env=EnvConfig(trace=("azure_code", "a.csv")), seed=2**40)
    as_json = json.loads(json.dumps(config.to_dict()))
    assert ExperimentConfig.from_mapping(as_json) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert hash(ExperimentConfig.from_mapping(as_json)) == hash(config)


_KEYS = st.sampled_from(
    [
        "env",
        "scheduler",
        "num_blocks",
        "cost",
        "kind",
        "service",
        "classes",
        "load",
        "name",
        "trace",
    ]
) | st.text(max_size=5)
_PLAIN_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(_KEYS, _PLAIN_VALUES, max_size=4))
def test_anything_is_either_valid_or_a_one_line_error(values: dict[str, Any]) -> None:
    for model in (EnvConfig, SchedulerConfig, ServiceConfig, ExperimentConfig):
        try:
            config = model.from_mapping(values)
        except ConfigError as error:
            assert len(str(error).splitlines()) == 1  # noqa: PT017 - valid values raise nothing
        else:
            assert model.from_mapping(config.to_dict()) == config


def test_every_field_of_a_configuration_has_a_meaning_that_its_help_can_show() -> None:
    for model in (EnvConfig, SchedulerConfig, AgentConfig, ServiceConfig):
        told = meanings(model)
        assert set(told) == set(model.model_fields)
        assert all(told.values())


def test_a_meaning_is_inherited_with_its_field() -> None:
    class Wider(SchedulerConfig):
        """A scheduler with one thing more."""

        more: bool = False
        """What is more."""

    told = meanings(Wider)
    assert told["more"] == "What is more."
    assert told["num_blocks"] == meanings(SchedulerConfig)["num_blocks"]


def test_a_search_beyond_what_can_be_searched_is_refused() -> None:
    beyond = ({"step_size": 1e40}, {"slo_factors": (1e308,)})
    for values in ({"population": 3}, {"requests_per_scenario": 1}, *beyond):
        with pytest.raises(ConfigError, match="is not allowed; use a number of"):
            TuningConfig(**values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"minibatch_size": 1}, ["minibatch_size", "1", "2 or more"]),
        ({"num_envs": 1, "num_steps": 1, "minibatch_size": 2}, ["one decision an update", "raise"]),
        ({"num_envs": 2, "num_steps": 4, "minibatch_size": 9}, ["9", "8 decisions", "lower it"]),
    ],
)
def test_an_update_that_has_nothing_to_compare_is_refused(values: Any, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        AgentConfig(**values)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("name", ["n" * 41, "a/b", "../a", "", "a\n"])
def test_an_experiment_has_a_name_that_a_folder_and_a_policy_can_have(name: str) -> None:
    with pytest.raises(ConfigError, match=r"name: .*use up to 40 letters"):
        ExperimentConfig(name=name)
    assert ExperimentConfig(name="n" * 40).name == "n" * 40


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"polish_step_size": 1e40}, "polish_step_size: 1e.40 is not allowed; use .* 1000 or less"),
        ({"conditions": {"slo_factors": (1e308,)}}, "slo_factors.0: 1e.308 .* 1000000 or less"),
        ({"env": {"service": {"slo_factor": 1e308}}}, "env.service.slo_factor: 1e.308 .* or less"),
    ],
)
def test_a_number_that_would_overflow_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ExperimentConfig(name="large", **values)


def test_an_slo_that_would_overflow_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"ttft_slo_s: 1e\+308 .* 1000000000 or less"):
        ServiceClass(name="a", share=1.0, weight=1.0, ttft_slo_s=1e308, tpot_slo_s=0.1)


@pytest.mark.parametrize("part", ["agent", "cloning"])
def test_a_network_wider_than_a_policy_may_be_is_refused(part: str) -> None:
    with pytest.raises(ConfigError, match=f"{part}.hidden_size: 1025 .* 1024 or less"):
        ExperimentConfig(name="wide", **{part: {"hidden_size": 1025}})


@pytest.mark.parametrize(
    ("values", "is_searched"),
    [
        ({}, False),
        ({"polish_iterations": 1}, True),
        ({"cloning": {"pieces": 1}}, False),
        ({"cloning": {"pieces": 1, "polish_iterations": 1}}, True),
        ({"cloning": {"polish_iterations": 1}}, False),
    ],
)
def test_the_polish_of_a_cloning_is_a_search_only_if_there_is_one(
    values: dict[str, Any], is_searched: bool
) -> None:
    assert ExperimentConfig(name="searches", **values).is_searched == is_searched


def test_waits_that_cost_beyond_all_numbers_are_worth_nothing() -> None:
    objective = ExperimentConfig(name="dear", objective={"p95_ttft_weight": 1e308}).objective
    assert objective.worth(0.9, 1.0) == pytest.approx(-1e308)
    assert objective.worth(0.9, 2.0) == -np.inf
    assert objective.worth(0.9, np.nan) == 0.9
