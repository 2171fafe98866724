from __future__ import annotations

import contextlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sched_env.errors import PolicyError, SchedEnvError, UnknownNameError
from sched_env.policy.format import write_policy
from sched_env.policy.keys import Heuristic, heuristic
from sched_env.policy.names import known_policies, register
from sched_env.policy.registry import pretrained_policies, resolve_policy
from sched_env.policy.runtime import ExportedPolicy

USER_MODULE = """
from sched_env.policy.keys import heuristic

def mine(request, now):
    return request.arrival_time_s

@heuristic("mine_registered")
def registered(request, now):
    return request.arrival_time_s

number = 3
"""


def _by_arrival(request, now):
    return request.arrival_time_s


def _by_priority(request, now):
    return -request.priority


@pytest.fixture
def named(own_registry):
    for name in ("fcfs", "aging", "deadline"):
        heuristic(name)(_by_arrival)


@pytest.fixture
def user_module(tmp_path, monkeypatch):
    (tmp_path / "users_heuristics.py").write_text(USER_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "users_heuristics"
    sys.modules.pop("users_heuristics", None)


@pytest.fixture
def policy_folder(tmp_path, make_card, make_weights):
    card = make_card()
    return write_policy(tmp_path / "run" / "policy", make_weights(card), card)


@pytest.mark.usefixtures("named")
def test_names_resolve_and_are_listed_sorted():
    assert known_policies() == ("aging", "deadline", "fcfs")
    assert resolve_policy("aging").name == "aging"


@pytest.mark.usefixtures("named")
def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(
        UnknownNameError, match=r"no policy 'agng'\. Did you mean 'aging'\? Known: ag"
    ):
        resolve_policy("agng")


@pytest.mark.usefixtures("own_registry")
def test_registering_again_replaces_only_the_same_function():
    again = Heuristic("fcfs", _by_arrival, static=True)
    register(Heuristic("fcfs", _by_arrival))
    register(again)
    assert resolve_policy("fcfs") is again
    with pytest.raises(PolicyError, match=r"'fcfs' is taken by .*_by_arrival: give .*_by_priority"):
        register(Heuristic("fcfs", _by_priority))
    assert resolve_policy("fcfs") is again


def test_a_policy_resolves_to_itself(make_policy):
    for policy in (Heuristic("fcfs", _by_arrival), make_policy()):
        assert resolve_policy(policy) is policy


def test_a_policy_folder_and_its_run_folder_resolve(policy_folder):
    for place in (policy_folder, str(policy_folder), policy_folder.parent):
        policy = resolve_policy(place)
        assert isinstance(policy, ExportedPolicy)
        assert policy.folder == policy_folder


def test_a_name_wins_over_a_folder_of_that_name(named, policy_folder, monkeypatch):
    policy_folder.rename(policy_folder.parent / "fcfs")
    monkeypatch.chdir(policy_folder.parent)
    assert isinstance(resolve_policy("fcfs"), Heuristic)
    assert isinstance(resolve_policy("./fcfs"), ExportedPolicy)


def test_places_without_a_policy_are_named(tmp_path, policy_folder):
    with pytest.raises(PolicyError, match=r"no folder '.*nowhere'"):
        resolve_policy(tmp_path / "nowhere")
    with pytest.raises(PolicyError, match=r"policy\.safetensors is a file: give the folder"):
        resolve_policy(policy_folder / "policy.safetensors")
    (tmp_path / "empty").mkdir()
    with pytest.raises(PolicyError, match=r"config\.json is missing"):
        resolve_policy(tmp_path / "empty")


def test_a_run_whose_weights_are_missing_is_an_error(policy_folder):
    (policy_folder / "policy.safetensors").unlink()
    with pytest.raises(PolicyError, match=r"policy\.safetensors is missing"):
        resolve_policy(policy_folder.parent)


def test_module_and_function_resolve(own_registry, user_module):
    plain = resolve_policy(f"{user_module}:mine")
    assert isinstance(plain, Heuristic)
    assert plain.name == "users_heuristics:mine"
    assert not plain.static
    registered = resolve_policy(f"{user_module}:registered")
    assert registered.name == "mine_registered"
    assert resolve_policy("mine_registered") is registered


def test_faults_of_module_and_function_are_named(own_registry, user_module):
    with pytest.raises(UnknownNameError, match=r"'mne'\. Did you mean 'mine'"):
        resolve_policy(f"{user_module}:mne")
    with pytest.raises(UnknownNameError, match="no function of module users_heuristics 'number'"):
        resolve_policy(f"{user_module}:number")
    with pytest.raises(PolicyError, match=r"no module 'users_heuristic' .* PYTHONPATH"):
        resolve_policy("users_heuristic:mine")


def test_an_import_that_fails_inside_a_users_module_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "users_broken.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        resolve_policy("users_broken:key")


@given(st.text())
def test_any_text_resolves_or_is_refused(text):
    with contextlib.suppress(SchedEnvError):
        assert resolve_policy(text).name


@given(st.text(alphabet="ab./:\\~\0 \n", max_size=12))
def test_any_path_like_text_is_refused_in_one_line(text):
    with pytest.raises(SchedEnvError) as caught:
        resolve_policy(text)
    assert len(str(caught.value).splitlines()) == 1


def test_a_name_too_long_for_a_file_system_is_refused():
    for text in ("x" * 100_000, "/".join(["y" * 300] * 20)):
        with pytest.raises(SchedEnvError):
            resolve_policy(text)


def test_pretrained_policies_resolve_by_name_and_ship_with_the_package():
    assert "tuned_linear" in pretrained_policies()
    for name in pretrained_policies():
        policy = resolve_policy(f"pretrained/{name}")
        assert policy.folder.name == name
        assert policy.card.training["split"] == "train"
        assert resolve_policy(f"pretrained/{name}/").weights_sha256 == policy.weights_sha256


@pytest.mark.parametrize("name", ["", "tuned_liner", "../pretrained/tuned_linear", "."])
def test_what_is_not_pretrained_is_refused_with_what_there_is(name):
    with pytest.raises(UnknownNameError, match=r"no pretrained policy .*tuned_linear"):
        resolve_policy(f"pretrained/{name}")
