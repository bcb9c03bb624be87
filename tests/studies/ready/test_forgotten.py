"""What a study forgets when it makes a router or a policy anew, by name or because a request names none."""

import pytest

from analysis.declaration.undeclared import Undeclared
from analysis.runs import Result, RunStore
from analysis.studies import STUDIES
from analysis.studies.context import Context
from tests.made.evaluating import tiny_models

LAYERS, HEADS = 3, 4


@pytest.fixture
def store(tmp_path):
    store = RunStore(tmp_path / "store")
    yield store


@pytest.fixture
def runs_of_model(store, tmp_path):
    """(context, model, runs): what was asked about a tiny model, one run of each, by a word."""
    model = str(tiny_models(tmp_path) / "tiny")
    requests = {
        "groups, by default": ("groups", {}),
        "groups, other router": ("groups", {"router": "k3-top1"}),
        "all methods": ("evaluate", {}),
        "dense": ("evaluate", {"methods": [{"name": "dense"}]}),
        "focus, by default": ("evaluate", {"methods": [{"name": "dense"}, {"name": "focus"}]}),
        "focus, other router": ("evaluate", {"methods": [{"name": "focus", "router": "k3-top1"}]}),
        "csa, by default": ("evaluate", {"methods": [{"name": "csa"}]}),
        "csa, other policy": ("time-method", {"method": {"name": "csa", "policy": {"name": "mine", "cap": 9}}}),
        "budgets, by default": ("budgets", {"policy": {"cap": 9}}),
        "budgets, in half precision": ("budgets", {"policy": {"cap": 9}, "model": f"{model}@bfloat16"}),
        "bench, no router": ("bench", {"what": "attention"}),
        "statistics": ("statistics", {}),
    }
    empty = Result({"protocol": {}})
    runs = {
        word: store.put(Undeclared(verb, {"model": model} | request), empty, {}, 1.0).id
        for word, (verb, request) in requests.items()
    }
    return Context(store=store, browser=False), model, runs


@pytest.mark.slow
def test_a_router_made_anew_forgets_what_used_it_and_says_so(runs_of_model, store):
    context, model, runs = runs_of_model
    assert STUDIES["fit-router"](model=model, groups=2, context=context).numbers["notes"] == []
    assert store.deleted() == []
    for groups, gone in (
        (3, {"groups, other router", "focus, other router"}),
        (8, {"groups, by default", "focus, by default", "all methods"}),
    ):
        (note,) = STUDIES["fit-router"](model=model, groups=groups, context=context).numbers["notes"]
        moved = {run.id for run in store.deleted()}
        assert moved == {runs[word] for word in gone} and note.startswith(f"{len(gone)} runs that used the router")
        store.empty()


def test_a_policy_stored_anew_forgets_what_used_it_and_says_so(runs_of_model, store):
    context, model, runs = runs_of_model
    policy = {"layers": LAYERS, "heads": HEADS, "policy": [32] * (LAYERS * HEADS) + [64]}
    for name, gone in (
        ("short", set()),
        ("mine", {"csa, other policy"}),
        ("policy", {"csa, by default", "budgets, by default", "budgets, in half precision", "all methods"}),
    ):
        notes = STUDIES["import-policy"](model=model, name=name, policy=policy, context=context).numbers["notes"]
        assert {run.id for run in store.deleted()} == {runs[word] for word in gone} and len(notes) == bool(gone)
        store.empty()
