"""What is forgotten when a router, a policy or a method is made anew: what used it, through the trash."""

import pytest

from analysis.runs import RunStore
from analysis.runs.search import named
from tests.made.stored_runs import ASK, PROTOCOL, folder_of, put, result

FOCUS, CSA = {"name": "focus", "settings": {}, "router": "k8-top1"}, {"name": "csa", "settings": {}}


def quality(store, *methods, model="demo"):
    return store.put("evaluate", {"model": model, "methods": list(methods)}, result(), PROTOCOL, 1.0)


def ids(store):
    return {run.id for run in store.list()}


def test_a_router_of_a_new_name_removes_nothing(store):
    kept = {put(store, router="k8-top1").id, quality(store, FOCUS).id, quality(store, CSA | {"policy": "mine"}).id}
    for kind, name in (("router", "k4-top1"), ("policy", "short"), ("method", "magicpig")):
        gone = store.forget(kind, name, "demo")
        assert (gone.moved, gone.pinned, gone.sentences) == ([], 0, []) and ids(store) == kept
    assert store.deleted() == []


def test_what_used_the_router_moves_to_the_trash_and_comes_back(store):
    used = [put(store, router="k8-top1"), quality(store, {"name": "dense"}, FOCUS), put(store, other="k8-top1")]
    others = [put(store, router="k4-top1"), put(store, text="k8-top1"), quality(store, FOCUS, model="owner/tiny")]
    gone = store.forget("router", "k8-top1", "demo")
    assert set(gone.moved) == {run.id for run in used} and ids(store) == {run.id for run in others}
    assert gone.sentences[0].startswith("3 runs that used the router k8-top1 moved to the trash")
    assert {run.id for run in store.deleted()} == set(gone.moved)
    store.restore(used[0].id)
    assert store.open(used[0].id).numbers == used[0].numbers and not folder_of(store, used[1]).exists()


def test_a_forgotten_run_that_came_back_is_shown_and_answers_nothing(store):
    run = put(store, value=1.0, router="mine")
    store.forget("router", "mine", "demo")
    store.restore(run.id)
    assert ids(store) == {run.id} and store.find("groups", ASK | {"router": "mine"}) is None
    again = put(store, value=2.0, router="mine")
    assert again.id == run.id and store.find("groups", ASK | {"router": "mine"}).numbers["value"] == 2.0
    assert [gone.numbers["value"] for gone in store.deleted()] == [1.0]


def test_an_example_of_the_earlier_router_answers_no_more(store, tmp_path):
    shelf = store.export_example(put(store, router="mine").id, tmp_path / "examples").parent
    fresh = RunStore(tmp_path / "fresh", examples=shelf)
    assert fresh.find("groups", ASK | {"router": "mine"}).example
    assert fresh.forget("router", "mine", "demo").moved == [] and fresh.find("groups", ASK | {"router": "mine"}) is None
    assert [row.example for row in fresh.search()] == [True]
    assert put(fresh, router="mine") == fresh.find("groups", ASK | {"router": "mine"})
    fresh.close()


def test_what_a_worker_elsewhere_computes_anew_answers_again(store, tmp_path):
    with open(tmp_path / "b.zip", "wb") as file:
        store.bundle([put(store, router="mine").id], file)
    store.forget("router", "mine", "demo")
    store.unbundle(tmp_path / "b.zip")
    assert store.find("groups", ASK | {"router": "mine"}) is None, "somebody else's is as old as it was"
    store.discard(store.list()[0].id)
    store.unbundle(tmp_path / "b.zip", own=True)
    assert store.find("groups", ASK | {"router": "mine"}) is not None


def test_pinned_runs_stay_and_are_counted(store):
    run = put(store, router="mine")
    store.pin(run.id)
    gone = store.forget("router", "mine", "demo")
    assert (gone.moved, gone.pinned) == ([], 1) and store.find("groups", ASK | {"router": "mine"}) == run
    assert "1 pinned run" in gone.sentences[0]


def test_what_uses_it_by_default_is_asked_of_whoever_knows_the_studies(store):
    run, other = put(store), store.put("pairs", ASK, result(), PROTOCOL, 1.0)
    gone = store.forget("router", "mine", "demo", lambda verb, request: verb == "groups" and "router" not in request)
    assert gone.moved == [run.id] and ids(store) == {other.id}


def test_the_card_lists_the_routers_and_is_made_anew(store):
    card = store.put("model", {"model": "demo"}, result(), PROTOCOL, 1.0)
    assert store.forget("policy", "mine", "demo").moved == [] and store.find("model", {"model": "demo"}) == card
    assert store.forget("router", "mine", "demo").moved == []
    assert store.find("model", {"model": "demo"}) is None and store.deleted() == []
    assert store.put("model", {"model": "demo"}, result(2.0), PROTOCOL, 1.0).id == card.id
    assert store.find("model", {"model": "demo"}).numbers["value"] == 2.0


@pytest.mark.parametrize(
    ("kind", "request_", "names"),
    [
        ("router", {"router": "a", "other": "b", "text": "c"}, {"a", "b"}),
        ("router", {"methods": [FOCUS, CSA, "x"]}, {"k8-top1"}),
        ("policy", {"policy": {"name": "a", "edits": [{"name": "x"}]}, "methods": [CSA | {"policy": "b"}]}, {"a", "b"}),
        ("policy", {"policy": {"total": 500}, "router": "a"}, set()),
        ("method", {"methods": [FOCUS, CSA]}, {"focus", "csa"}),
        ("method", {"method": {"name": "quest", "settings": {"name": "x"}}}, {"quest"}),
        ("method", {"method": "magicpig", "name": "x"}, {"magicpig"}),
    ],
)
def test_names_are_found_at_any_depth(kind, request_, names):
    assert named(kind, request_) >= names and "x" not in named(kind, request_) - names
