"""Loading: names and paths, extends, overrides, hostile YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from sched_env.config import (
    AffineCost,
    AgentConfig,
    ArenaConfig,
    DecodeSchedulingConfig,
    EnvConfig,
    ExperimentConfig,
    TwoRegimeCost,
    list_configs,
    load_config,
    to_yaml,
)
from sched_env.errors import ConfigError, UnknownNameError

_MODELS = {
    "agent": AgentConfig,
    "arena": ArenaConfig,
    "env": EnvConfig,
    "experiment": ExperimentConfig,
}


@pytest.mark.parametrize("name", sorted(list_configs()))
def test_every_shipped_file_is_valid(name: str) -> None:
    kind = name.split("/")[0]
    if kind == "cost":
        experiment = load_config(EnvConfig, "h100_8b_small_kv", [f"cost.extends={name}"])
        assert isinstance(experiment.cost, TwoRegimeCost | AffineCost)
    elif kind == "trace":
        assert load_config(EnvConfig, "h100_8b_small_kv", [f"extends={name}"]).trace
    elif kind == "objective":
        assert load_config(ExperimentConfig, "azure_conv", [f"extends={name}"]).objective
    elif name == "env/decode_scheduling":
        assert load_config(DecodeSchedulingConfig, name)
    else:
        assert load_config(_MODELS[kind], name)


def test_shipped_standard_server_equals_the_defaults() -> None:
    assert load_config(EnvConfig, "h100_8b_small_kv") == EnvConfig()


def test_names_with_and_without_kind_and_paths_are_the_same() -> None:
    short = load_config(ExperimentConfig, "azure_code")
    assert load_config(ExperimentConfig, "experiment/azure_code") == short
    assert load_config(ExperimentConfig, list_configs()["experiment/azure_code"]) == short
    assert short.env.trace == ("azure_code",)
    assert short.name == "azure_code"


def test_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'experiment/azure_conv'"):
        load_config(ExperimentConfig, "azure_con")


@pytest.mark.parametrize(
    "name", ["./none.yaml", "none.yaml", "/no/where", "./" + "n" * 300, "n" * 300 + ".yaml"]
)
def test_missing_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="no configuration file at"):
        load_config(EnvConfig, name)


def test_names_that_no_file_can_have_and_homes_of_nobody_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="no configuration"):
        load_config(EnvConfig, "n" * 300)
    with pytest.raises(ConfigError, match=r"~nosuchuser/x\.yaml: .*home.* write the folder out"):
        load_config(EnvConfig, "~nosuchuser/x.yaml")


def test_a_file_of_another_kind_is_told_from_a_damaged_one() -> None:
    with pytest.raises(ConfigError, match=r"env/h100_8b_small_kv is of the kind 'env', not 'exper"):
        load_config(ExperimentConfig, "env/h100_8b_small_kv")
    with pytest.raises(ConfigError, match=r"not 'env': give env/decode_scheduling, env/h100"):
        load_config(EnvConfig, "agent/mlp")


def test_overrides_are_yaml_and_the_last_one_wins() -> None:
    config = load_config(
        ExperimentConfig,
        "demo",
        [
            "env.scheduler.num_blocks=76",
            "env.scheduler.num_blocks=77",
            "env.service.request_timeout_s=1e1",
            "env.trace=[azure_conv, azure_code]",
            "env.scheduler.max_model_len=",
            "env.cost.kind=affine",
            "env.cost={base_s: 1, per_decode_s: 0, per_prefill_token_s: 1e-3}",
            "agent.extends=agent/mlp",
        ],
    )
    assert config.env.scheduler.num_blocks == 77
    assert config.env.service.request_timeout_s == 10.0
    assert config.env.trace == ("azure_conv", "azure_code")
    assert config.env.scheduler.max_model_len is None
    assert config.env.cost == AffineCost(base_s=1, per_decode_s=0, per_prefill_token_s=1e-3)
    assert config.agent.network == "mlp"


def test_an_empty_mapping_leaves_nothing() -> None:
    assert load_config(ArenaConfig, "quick", ["bursts={}"]).bursts == {}
    with pytest.raises(ConfigError, match="kv_pools"):
        load_config(ArenaConfig, "quick", ["kv_pools={}"])
    with pytest.raises(ConfigError, match="no traces: give some"):
        load_config(ArenaConfig, "quick", ["traces={}", "bursts={}"])


@pytest.mark.parametrize("name", ["a:0", "", "-a", "a" * 41, "a/b", "a\n"])
def test_a_name_that_is_no_part_of_a_folders_name_is_refused_in_words(name: str) -> None:
    with pytest.raises(ConfigError, match="use up to 40 letters") as caught:
        ArenaConfig.from_mapping({"kv_pools": {name: 500}})
    assert "pattern" not in str(caught.value)
    assert "[key]" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"name: .* use up to 40 letters"):
        load_config(ArenaConfig, "quick").replace(name=name)


@pytest.mark.parametrize(
    ("kv_pools", "slo_factors"),
    [({"a_kv_b": 900, "a": 800}, {"c": 1.0, "b_kv_c": 0.5}), ({"a": 900, "A": 800}, {"c": 1.0})],
)
def test_conditions_of_an_arena_that_would_share_a_folder_are_refused(
    kv_pools: dict[str, int], slo_factors: dict[str, float]
) -> None:
    arena = load_config(ArenaConfig, "quick")
    with pytest.raises(ConfigError, match=r"would share the folder .*rename one of the labels"):
        arena.replace(kv_pools=kv_pools, slo_factors=slo_factors)


def test_override_of_an_entry_of_a_list_that_no_file_writes() -> None:
    env = load_config(EnvConfig, "h100_8b_small_kv", ["service.classes.1.weight=7.5"])
    plain = load_config(EnvConfig, "h100_8b_small_kv")
    weights = [one.weight for one in plain.service.classes]
    assert [one.weight for one in env.service.classes] == [weights[0], 7.5, weights[2]]
    shares = [
        f"service.classes.{index}.share={share}" for index, share in enumerate((0.5, 0.2, 0.3))
    ]
    env = load_config(EnvConfig, "h100_8b_small_kv", shares)
    assert [one.share for one in env.service.classes] == [0.5, 0.2, 0.3]


def test_override_of_a_list_entry(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("trace: [a, b]\n")
    assert load_config(EnvConfig, path, ["trace.1=c"]).trace == ("a", "c")
    with pytest.raises(ConfigError, match="'2' is no entry of a list of 2"):
        load_config(EnvConfig, path, ["trace.2=c"])


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "env.scheduler.num_block=3",
            "env.scheduler.num_block: no such key. Did you mean 'num_blocks'",
        ),
        (
            "env.scheduler.num_blocks=x",
            "env.scheduler.num_blocks: 'x' is not allowed; use an integer",
        ),
        ("env.scheduler.num_blocks", "use key=value"),
        ("=3", "use key=value"),
        ("env..a=3", "use key=value"),
        ("env.split.x=3", "leads into|no such key|is not allowed"),
        ("env.scheduler=[", "override 'env.scheduler=\\['"),
        ("name.x=1", "'x' leads into 'demo'"),
        ("agent.extends=agent/ponter", "Did you mean 'agent/pointer'"),
    ],
)
def test_wrong_overrides(override: str, words: str) -> None:
    with pytest.raises((ConfigError, UnknownNameError), match=words) as caught:
        load_config(ExperimentConfig, "demo", [override])
    assert len(str(caught.value).splitlines()) == 1


def test_extends_merges_mappings_and_replaces_the_rest(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "trace: [a, b]\nscheduler: {num_blocks: 5, block_size: 8}\n"
        "cost: {kind: two_regime, preset: p}\n"
    )
    (tmp_path / "more.yaml").write_text("split: all\n")
    (tmp_path / "top.yaml").write_text(
        "extends: [base.yaml, more.yaml]\ntrace: [c]\nscheduler: {num_blocks: 6}\n"
        "cost: {kind: affine, base_s: 1, per_decode_s: 0, per_prefill_token_s: 0}\n"
    )
    config = load_config(EnvConfig, tmp_path / "top.yaml")
    assert config.trace == ("c",)
    assert config.split == "all"
    assert (config.scheduler.num_blocks, config.scheduler.block_size) == (6, 8)
    assert isinstance(config.cost, AffineCost)


def test_extends_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("scheduler: {extends: a.yaml}\n")
    with pytest.raises(ConfigError, match="extends goes round in a circle"):
        load_config(EnvConfig, tmp_path / "a.yaml")


_BOMB = "\n".join(
    ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds nothing"),
        ("# only a comment\n", "holds nothing"),
        ("- 1\n- 2\n", "holds a list"),
        ("seven\n", "holds a str"),
        ("trace: a\ntrace: b\n", r":2: the key 'trace' stands twice"),
        (
            "scheduler:\n  num_blocks: 1\n  num_blocks: 1\n",
            r":3: the key 'num_blocks' stands twice",
        ),
        ("1: a\n", r":1: the key '1' is no text"),
        ("[1, 2]: a\n", r":1: the key"),
        ("true: a\n", r":1: the key 'true' is no text"),
        (_BOMB, "more than 20,000 values"),
        ("trace: &a [*a]\n", "an alias contains itself"),
        ("scheduler: &a {num_blocks: *a}\n", "an alias contains itself"),
        ("a: " + "[" * 60 + "]" * 60, "nested too deeply"),
        ("a: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("a: *nowhere\n", "undefined alias"),
        ("a: [1\n", ":2: "),
        ("a: !!python/object/apply:os.system [echo]\n", "could not determine a constructor"),
        ("a: 1\n---\nb: 2\n", "but found another document"),
        ("a: \x00\n", "no valid YAML"),
        ("a: " + "9" * 5000, "too many digits"),
        ("extends: 3\n", "3 is no name"),
        ("extends: [[a]]\n", "is no name"),
        ("extends: env/nothing\n", "no configuration 'env/nothing'"),
    ],
)
def test_hostile_files(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises((ConfigError, UnknownNameError), match=words) as caught:
        load_config(EnvConfig, path)
    assert len(str(caught.value).splitlines()) == 1


def test_folder_binary_and_large_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder"):
        load_config(EnvConfig, tmp_path)
    path = tmp_path / "bad.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="no UTF-8 text"):
        load_config(EnvConfig, path)
    path.write_bytes(b"# " + b"x" * 1_000_000)
    with pytest.raises(ConfigError, match="larger than"):
        load_config(EnvConfig, path)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 1e-3), ("1E3", 1000.0), (".5", 0.5), ("7", 7.0), ("+2.", 2.0), ("0x10", 16.0)],
)
def test_numbers_are_read_as_they_are_meant(text: str, value: float, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"episode: {{horizon_s: {text}}}\n")
    assert load_config(EnvConfig, path).episode.horizon_s == value


def test_words_of_yaml_1_1_stay_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("trace: [on, yes, 12:30, 2024-01-01, 1_000]\n")
    assert load_config(EnvConfig, path).trace == ("on", "yes", "12:30", "2024-01-01", "1_000")


def test_written_configuration_reads_back_equal(tmp_path: Path) -> None:
    config = load_config(ExperimentConfig, "demo", ["env.service.slo_factor=1e-7", "name='on'"])
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(config), encoding="utf-8")
    assert load_config(ExperimentConfig, path) == config
