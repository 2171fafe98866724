from __future__ import annotations

import hashlib
import json
import os
import struct

import numpy as np
import pytest
import safetensors.numpy
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sched_env.engine.layout import Layout
from sched_env.errors import PolicyError
from sched_env.policy import format as policy_format
from sched_env.policy.card import FeatureCard, ObservationSchema, WeightedSjfPrior
from sched_env.policy.format import read_policy, write_policy

FILES = ["README.md", "config.json", "policy.safetensors"]


@pytest.fixture
def folder(tmp_path, make_card, make_weights):
    card = make_card(
        prior=True,
        training={"run": "azure__seed1", "seed": 1, "loads": (0.8, 1.0)},
        metrics=({"policy": "sample", "goodput_weighted": 0.95123}, {"policy": "fcfs"}),
    )
    return write_policy(tmp_path / "policy", make_weights(card), card)


def sign(config):
    """Return the bytes of a config as an attacker who knows the format would write them."""
    unsigned = {key: value for key, value in config.items() if key != "sha256"}
    text = json.dumps(unsigned, indent=2) + "\n"
    signed = {**unsigned, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    return (json.dumps(signed, indent=2) + "\n").encode()


def refused(folder):
    with pytest.raises(PolicyError) as caught:
        read_policy(folder)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize("architecture", ["pointer", "mlp_tanh", "linear"])
@pytest.mark.parametrize("standard", [False, True])
@pytest.mark.parametrize("prior", [True, "score"])
def test_what_was_written_is_read_back(
    tmp_path, make_card, make_weights, architecture, standard, prior
):
    card = make_card(architecture, prior=prior, standard=standard, training={"seed": 7})
    weights = make_weights(card)
    write_policy(tmp_path / "policy", weights, card)
    stored = read_policy(tmp_path / "policy")
    assert stored.card == card
    assert list(stored.weights) == list(card.tensor_shapes())
    for name, tensor in weights.items():
        assert stored.weights[name].tobytes() == tensor.tobytes()
    data = (tmp_path / "policy" / "policy.safetensors").read_bytes()
    assert stored.weights_sha256 == hashlib.sha256(data).hexdigest()


def test_the_folder_holds_three_files_and_the_same_bytes_each_time(tmp_path, folder, make_weights):
    stored = read_policy(folder)
    again = write_policy(tmp_path / "again", stored.weights, stored.card)
    for place in (folder, again):
        assert sorted(os.listdir(place)) == FILES
    for name in FILES:
        assert (folder / name).read_bytes() == (again / name).read_bytes()


def test_every_changed_byte_of_the_config_is_refused(folder):
    path = folder / "config.json"
    whole = path.read_bytes()
    for index in range(len(whole)):
        changed = bytearray(whole)
        changed[index] ^= 1 << (index % 8)
        path.write_bytes(changed)
        assert "config.json" in refused(folder)


def test_changed_bytes_of_the_weights_are_refused(folder):
    path = folder / "policy.safetensors"
    whole = path.read_bytes()
    for index in [*range(64), *range(64, len(whole), 61), len(whole) - 1]:
        changed = bytearray(whole)
        changed[index] ^= 1 << (index % 8)
        path.write_bytes(changed)
        assert "policy.safetensors: its sha256 is" in refused(folder)


@pytest.mark.parametrize("name", FILES[1:])
def test_a_cut_lengthened_or_empty_file_is_refused(folder, name):
    whole = (folder / name).read_bytes()
    for content in (b"", whole[:1], whole[: len(whole) // 2], whole[:-1], whole + b"\n", whole * 2):
        (folder / name).write_bytes(content)
        assert name in refused(folder)


@pytest.mark.parametrize("name", FILES[1:])
def test_a_missing_file_or_one_that_is_no_file_is_named(folder, name):
    (folder / name).unlink()
    assert f"{name} is missing" in refused(folder)
    (folder / name).mkdir()
    assert f"{name}: is no regular file" in refused(folder)
    (folder / name).rmdir()
    os.mkfifo(folder / name)
    assert f"{name}: is no regular file" in refused(folder)


@pytest.mark.parametrize("name", FILES[1:])
def test_a_huge_file_is_refused_unread(folder, name):
    with (folder / name).open("r+b") as file:
        file.truncate(2**40)
    assert "1099511627776 bytes; at most" in refused(folder)


def test_no_folder_is_named(tmp_path):
    assert "no policy folder" in refused(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "content",
    [b"[]", b"3", b'"x"', b"null", b"{}", b"[" * 100_000, b"\xff\xfe", b"9" * 5000, b"NaN", b"{"],
)
def test_any_other_json_is_refused(folder, content):
    (folder / "config.json").write_bytes(content)
    assert "config.json" in refused(folder)


def test_a_newer_format_asks_for_an_upgrade(folder):
    config = json.loads((folder / "config.json").read_bytes())
    for number, text in ((2, "format 2 is newer .* upgrade"), (0, "format 1"), (True, "format 1")):
        (folder / "config.json").write_bytes(sign({**config, "format": number}))
        with pytest.raises(PolicyError, match=text):
            read_policy(folder)


SIGNED_FAULTS = {
    "unknown key": (("card", "pickle"), "x", "card|pickle: no such key"),
    "unknown architecture": (("card", "architecture", "kind"), "lstm", r"architecture\.kind"),
    "huge network": (("card", "architecture", "hidden_size"), 10**9, "hidden_size: 1000000000"),
    "negative size": (("card", "observation", "num_waiting_slots"), -1, "num_waiting_slots: -1"),
    "text for a size": (("card", "architecture", "hidden_size"), "8", "hidden_size: '8'"),
    "float for a size": (("card", "observation", "num_running_slots"), 3.0, "num_running_slots"),
    "no feature": (("card", "prior", "score_feature"), "wieght", "use one of present, density"),
    "prior reads no feature": (
        ("card", "prior"),
        {
            "kind": "linear_score",
            "strength": 1.5,
            "floor": -8.0,
            "size_feature": "blocks",
            "free_feature": "free_blocks",
        },
        "prior.free_feature 'free_blocks' is no global feature",
    ),
    "infinite prior": (("card", "prior", "strength"), float("inf"), "strength"),
    "wrong env": (("card", "env_id"), "../../etc", "env_id"),
    "wrong schema hash": (("observation_sha256",), "0" * 64, "observation_sha256 is not that"),
    "wrong weights hash": (("weights_sha256",), 7, "policy.safetensors: its sha256 is"),
    "lone surrogate": (("card", "name"), "\ud800", r"config\.json"),
    "line break": (("card", "name"), "a\nb", "name"),
}


@pytest.mark.parametrize("fault", SIGNED_FAULTS)
def test_a_well_signed_config_is_still_validated(folder, fault):
    keys, value, message = SIGNED_FAULTS[fault]
    config = json.loads((folder / "config.json").read_bytes())
    place = config
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    (folder / "config.json").write_bytes(sign(config))
    with pytest.raises(PolicyError, match=message):
        read_policy(folder)
    refused(folder)


def leaves(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, inner in items:
        yield from leaves(inner, (*path, key))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_signed_config_raises_anything_but_a_policy_error(
    tmp_path, make_card, make_weights, data
):
    card = make_card(prior=True)
    folder = write_policy(tmp_path / "signed", make_weights(card), card)
    config = json.loads((folder / "config.json").read_bytes())
    path = data.draw(st.sampled_from(list(leaves(config))[1:]))
    place = config
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = data.draw(json_values)
    (folder / "config.json").write_bytes(sign(config))
    try:
        stored = read_policy(folder)
    except PolicyError as fault:
        assert "config.json" in str(fault) or "policy.safetensors" in str(fault)  # noqa: PT017
    else:
        assert {n: t.shape for n, t in stored.weights.items()} == stored.card.tensor_shapes()


def replace_weights(folder, content):
    """Put other weights into a folder, with a config that vouches for them."""
    config = json.loads((folder / "config.json").read_bytes())
    config["weights_sha256"] = hashlib.sha256(content).hexdigest()
    (folder / "config.json").write_bytes(sign(config))
    (folder / "policy.safetensors").write_bytes(content)


def test_vouched_weights_are_still_checked(folder):
    whole = (folder / "policy.safetensors").read_bytes()
    good = dict(read_policy(folder).weights)
    tensors = good.copy()
    tensors["slot.wieght"] = tensors.pop("slot.weight")
    replace_weights(folder, safetensors.numpy.save(tensors))
    assert "no tensor 'slot.wieght' in this architecture. Did you mean 'slot.weight'" in refused(
        folder
    )
    replace_weights(folder, safetensors.numpy.save({**good, "more": np.zeros(3, np.float32)}))
    assert "bytes of weights, the architecture" in refused(folder)
    swapped = {**good, "embed.bias_waiting": good["embed.bias_waiting"].reshape(2, 4)}
    replace_weights(folder, safetensors.numpy.save(swapped))
    assert "'embed.bias_waiting' is float32 (2, 4); it must be float32 (8,)" in refused(folder)
    integers = {**good, "embed.bias_waiting": np.zeros(8, np.int32)}
    replace_weights(folder, safetensors.numpy.save(integers))
    assert "'embed.bias_waiting' is int32 (8,)" in refused(folder)
    for bad in (np.nan, np.inf):
        not_finite = {**good, "admit.bias": np.array([bad], np.float32)}
        replace_weights(folder, safetensors.numpy.save(not_finite))
        assert "'admit.bias' holds a value that is not finite" in refused(folder)
    replace_weights(folder, struct.pack("<Q", 2**62) + whole[8:])
    assert "header of 4611686018427387904 bytes" in refused(folder)
    replace_weights(folder, whole[:5])
    assert "policy.safetensors" in refused(folder)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_vouched_header_raises_anything_but_a_policy_error(
    tmp_path, make_card, make_weights, data
):
    card = make_card()
    folder = write_policy(tmp_path / "vouched", make_weights(card), card)
    content = bytearray((folder / "policy.safetensors").read_bytes())
    size = 8 + int.from_bytes(content[:8], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, size - 1))] = data.draw(st.integers(0, 255))
    replace_weights(folder, bytes(content))
    try:
        stored = read_policy(folder)
    except PolicyError as fault:
        assert len(str(fault).splitlines()) == 1  # noqa: PT017
    else:
        assert all(np.isfinite(tensor).all() for tensor in stored.weights.values())


def test_wrong_weights_are_refused_when_written(tmp_path, make_card, make_weights):
    card = make_card()
    weights = make_weights(card)
    faults = {
        "'slot.weight' of shape (8, 8) is missing": {
            k: v for k, v in weights.items() if k != "slot.weight"
        },
        "no tensor 'value.weight'": {**weights, "value.weight": np.zeros(3, np.float32)},
        "float64 (1,); it must be float32 (1,)": {**weights, "admit.bias": np.zeros(1)},
        "not finite": {**weights, "admit.bias": np.array([np.nan], np.float32)},
    }
    for message, wrong in faults.items():
        with pytest.raises(PolicyError) as caught:
            write_policy(tmp_path / "policy", wrong, card)
        assert message in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_a_policy_folder_is_replaced_and_anything_else_is_kept(folder, make_card, make_weights):
    card = make_card("linear")
    (folder / "policy.onnx").write_bytes(b"of the former policy")
    write_policy(folder, make_weights(card), card)
    assert sorted(os.listdir(folder)) == FILES
    assert read_policy(folder).card == card
    assert os.listdir(folder.parent) == ["policy"]
    notes = folder.parent / "notes"
    notes.mkdir()
    (notes / "diary.txt").write_text("dear diary")
    for place in (notes, notes / "diary.txt"):
        with pytest.raises(PolicyError, match="exists and is no policy folder"):
            write_policy(place, make_weights(card), card)
    assert os.listdir(notes) == ["diary.txt"]
    (folder.parent / "empty").mkdir()
    assert read_policy(write_policy(folder.parent / "empty", make_weights(card), card))


@pytest.mark.parametrize("name", FILES)
def test_a_failed_write_leaves_the_former_policy_and_no_half_folder(
    folder, make_card, make_weights, monkeypatch, name
):
    before = {file: (folder / file).read_bytes() for file in FILES}
    write_bytes = policy_format._write_bytes

    def fail_at(path, content):
        if path.name == name:
            raise OSError("disk full")
        write_bytes(path, content)

    monkeypatch.setattr(policy_format, "_write_bytes", fail_at)
    card = make_card("linear")
    for place in (folder, folder.parent / "new"):
        with pytest.raises(OSError, match="disk full"):
            write_policy(place, make_weights(card), card)
    assert os.listdir(folder.parent) == ["policy"]
    assert {file: (folder / file).read_bytes() for file in FILES} == before


def test_a_failed_rename_brings_the_former_policy_back(
    folder, make_card, make_weights, monkeypatch
):
    before = (folder / "config.json").read_bytes()
    rename = type(folder).rename

    def fail_for_new(self, target):
        if self.name == "new":
            raise OSError("busy")
        return rename(self, target)

    monkeypatch.setattr(type(folder), "rename", fail_for_new)
    card = make_card("linear")
    with pytest.raises(OSError, match="busy"):
        write_policy(folder, make_weights(card), card)
    assert (folder / "config.json").read_bytes() == before
    assert os.listdir(folder.parent) == ["policy"]


def test_the_readme_is_a_model_card(folder):
    text = (folder / "README.md").read_text()
    _, front, body = text.split("---\n", 2)
    matter = yaml.safe_load(front)
    assert matter["library_name"] == "sched-env"
    assert "reinforcement-learning" in matter["tags"]
    assert "| policy | goodput_weighted |" in body
    assert "| sample | 0.95123 |" in body
    assert "| fcfs | – |" in body
    assert "| loads | 0.8, 1.0 |" in body
    assert "| slot | density | 1 | x / 2 |" in body


def test_text_of_a_card_cannot_break_the_readme(tmp_path, make_card, make_weights):
    card = make_card(training={"note": "a | b\n# c <script>"})
    write_policy(tmp_path / "policy", make_weights(card), card)
    text = (tmp_path / "policy" / "README.md").read_text()
    assert r"| note | a \| b # c &lt;script> |" in text


def test_the_schema_is_that_of_the_environments_layout():
    layout = Layout(24, 8)
    schema = ObservationSchema.from_layout(layout)
    assert schema.sha256() == layout.schema_hash()
    assert schema.observation_size == layout.public_size
    assert schema.num_actions == layout.num_actions
    assert ObservationSchema.from_layout(Layout(24, 8, privileged=True)) == schema
    assert ObservationSchema.from_layout(Layout(23, 8)).sha256() != schema.sha256()


class OtherLayout:
    """A layout with one thing changed."""

    def __init__(self, schema, **changes):
        for name in ObservationSchema.model_fields:
            setattr(self, name, changes.get(name, getattr(schema, name)))


def test_a_mismatch_names_the_first_feature_that_differs(make_policy):
    policy = make_policy()
    schema = policy.card.observation
    policy.check_layout(OtherLayout(schema))
    slots = schema.slot_features
    renamed = (*slots[:2], FeatureCard(name="age", unit="s", scale="x / 3"), *slots[3:])
    cases = {
        "num_running_slots is 3 here and 4 there": {"num_running_slots": 4},
        "prefill_levels is (0.0, 0.5, 1.0) here and (0.0, 1.0) there": {
            "prefill_levels": (0.0, 1.0)
        },
        "slot feature 2 is 'wait' [1] scaled 'x / 2' here and 'age' [s] scaled 'x / 3' there": {
            "slot_features": renamed
        },
        "slot feature 3 is 'blocks' [1] scaled 'x / 2' here and missing there": {
            "slot_features": slots[:3]
        },
        "global feature 2 is missing here and 'free_kv'": {
            "global_features": (*schema.global_features, schema.global_features[0])
        },
        "global feature 0 is 'free_kv' [1] scaled 'x / 2' here and 'running'": {
            "global_features": schema.global_features[::-1]
        },
    }
    for message, change in cases.items():
        with pytest.raises(PolicyError) as caught:
            policy.check_layout(OtherLayout(schema, **change))
        assert message in str(caught.value)
        assert "'sample' does not fit this environment" in str(caught.value)


def test_two_features_of_one_name_are_refused(make_card):
    card = make_card()
    schema = card.observation
    twice = schema.model_copy(update={"global_features": schema.global_features[:1] * 2})
    with pytest.raises(PolicyError, match="two global features have the same name"):
        type(card)(**{**dict(card), "observation": twice})


def test_a_prior_tells_what_it_adds_to_holding_all_prefill():
    with pytest.raises(PolicyError, match="hold_prefill: a value is required"):
        WeightedSjfPrior(strength=1.0)
