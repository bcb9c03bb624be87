"""What is kept of the runs and how: deletion and undo, retention, search, pins, and the page that asked; what is
forgotten when a router, a policy or a method is made anew."""

import io
import os

import pytest

from analysis.declaration.undeclared import Undeclared
from analysis.errors import BadSetting
from analysis.files import draft
from analysis.runs import RunStore, retention
from analysis.runs.search import named
from tests.made.stored_runs import ASK, PROTOCOL, folder_of, ids, put, result

FOCUS, CSA = {"name": "focus", "settings": {}, "router": "k8-top1"}, {"name": "csa", "settings": {}}
LINK = {"page": "token-groups", "controls": {"layer": "3"}}


def quality(store, *methods, model="demo"):
    return store.put(Undeclared("evaluate", {"model": model, "methods": list(methods)}), result(), PROTOCOL, 1.0)


# --- deletion, retention, search ----------------------------------------------------------------------------------


def test_a_deleted_run_comes_back_until_it_is_gone_for_good(store):
    run, second = put(store), put(store, seed=1)
    store.pin(run.id)
    store.discard(run.id)
    assert ids(store) == {second.id} and store.find(Undeclared("groups", ASK)) is None
    assert [gone.id for gone in store.deleted()] == [run.id] and store.usage().deleted == 1
    store.restore(run.id)
    assert store.find(Undeclared("groups", ASK)) == run and [row.id for row in store.search(pinned=True)] == [run.id]
    assert store.open(run.id).table("tokens").shape == (4, 3) and store.deleted() == []
    store.discard(run.id)
    store.discard(run.id)
    store.empty()
    with pytest.raises(BadSetting, match="no longer be brought back"):
        store.restore(run.id)


def test_a_run_computed_anew_stays_when_the_deleted_one_is_brought_back(store):
    store.discard(put(store, value=1.0).id)
    again = put(store, value=2.0)
    store.restore(again.id)
    assert store.find(Undeclared("groups", ASK)).numbers["value"] == 2.0 and store.deleted() == []


def test_deleted_runs_go_after_a_week(store):
    old, new = put(store), put(store, seed=1)
    store.discard(old.id)
    os.utime(store.root / "deleted" / old.id, (1_000_000_000, 1_000_000_000))
    store.discard(new.id)
    assert [gone.id for gone in store.deleted()] == [new.id]


def test_retention_keeps_the_newest_and_the_pinned_and_can_be_chosen(store):
    runs = [put(store, seed=seed) for seed in range(4)]
    store.pin(runs[0].id)
    store.keep(2, 10**9)
    assert ids(store) == {runs[0].id, runs[2].id, runs[3].id} and not folder_of(store, runs[1]).exists()
    usage = RunStore(store.root).usage()
    assert (usage.kept_runs, usage.kept_bytes, usage.pinned) == (2, 10**9, 1)
    store.keep(9, 1)
    last = put(store, seed=20)
    assert ids(store) == {runs[0].id, last.id}
    store.pin(runs[0].id, False)
    assert ids(store) == {runs[0].id, last.id}, "it goes with the next run that needs room"
    for bad in ((0, 1), (1, 0), (1.5, 10), (True, 10), ("1", 10), (10, 10**20)):
        with pytest.raises(BadSetting):
            store.keep(*bad)
    (store.root / "retention.json").write_text("[")
    assert store.usage().kept_runs == retention.KEPT_RUNS
    with pytest.raises(BadSetting):
        store.pin("0" * 12)


def test_search_finds_all_words_anywhere(store):
    key = store.put_text("Ein Text", "ferry.txt")
    run = put(store, text=key, router="k8-top1", steps=[1, 2], deep={"name": "focus", "settings": {"window": 64}})
    put(store, seed=3)
    for words in ("ferry", "FERRY groups", "k8-top1", "focus window", run.id[:6], "steps 1, 2", run.created[:10]):
        assert run.id in [row.id for row in store.search(words)], words
    assert store.search("ferry nothing") == [] and store.search("ferry", verb="pairs") == []
    assert store.search(words="<script>") == []


@pytest.mark.parametrize(
    "link",
    [
        None,
        {"page": "groups"},
        {"page": "../x", "controls": {}},
        {"page": "", "controls": {"A": "1"}},
        {"page": "x", "controls": {"layer": 3}},
        {"page": "x", "controls": {"layer": "3" * 3000}},
        {"page": "x", "controls": {f"l{'a' * n}": "1" for n in range(300)}},
    ],
)
def test_a_link_that_is_none_is_not_kept(store, link):
    store.remember(Undeclared("groups", ASK), link)
    assert put(store).marks.link is None


def test_the_page_that_asked_is_noted_beside_the_run(store):
    store.remember(Undeclared("groups", ASK), LINK)
    run = put(store)
    assert run.marks.link == LINK and store.find(Undeclared("groups", ASK)).marks.link == LINK
    (folder_of(store, run) / "marks.json").write_text("[" * 9)
    assert store.find(Undeclared("groups", ASK)).marks.link is None and store.damaged() == []


def test_drafts_of_a_killed_process_are_swept(store):
    runs = store.root / "runs"
    for name in (".tmp-dead", ".old-dead"):
        (runs / name).mkdir()
    # Whoever lives holds its lock, whatever the clocks say.
    with draft(runs, "living") as living:
        os.utime(living, (1_000_000_000, 1_000_000_000))
        RunStore(store.root)
        assert list(runs.iterdir()) == [living]


# --- forgotten ----------------------------------------------------------------------------------------------------


def test_a_router_of_a_new_name_removes_nothing(store):
    before = {put(store, router="k8-top1").id, quality(store, FOCUS).id, quality(store, CSA | {"policy": "mine"}).id}
    for kind, name in (("router", "k4-top1"), ("policy", "short"), ("method", "magicpig")):
        gone = store.forget(kind, name, "demo")
        assert (gone.moved, gone.pinned, gone.sentences) == ([], 0, []) and ids(store) == before
    assert store.deleted() == []


def test_what_used_the_router_moves_to_the_trash_and_comes_back(store):
    used = [put(store, router="k8-top1"), quality(store, {"name": "dense"}, FOCUS), put(store, other="k8-top1")]
    unused = [put(store, router="k4-top1"), put(store, text="k8-top1"), quality(store, FOCUS, model="owner/tiny")]
    gone = store.forget("router", "k8-top1", "demo")
    assert set(gone.moved) == {run.id for run in used} and ids(store) == {run.id for run in unused}
    assert gone.sentences[0].startswith("3 runs that used the router k8-top1")
    assert {run.id for run in store.deleted()} == set(gone.moved)
    store.restore(used[0].id)
    assert store.open(used[0].id).numbers == used[0].numbers and not folder_of(store, used[1]).exists()


def test_a_forgotten_run_that_came_back_is_shown_and_answers_nothing(store):
    run = put(store, value=1.0, router="mine")
    store.forget("router", "mine", "demo")
    store.restore(run.id)
    assert ids(store) == {run.id} and store.find(Undeclared("groups", ASK | {"router": "mine"})) is None
    again = put(store, value=2.0, router="mine")
    assert again.id == run.id and store.find(Undeclared("groups", ASK | {"router": "mine"})).numbers["value"] == 2.0
    assert [gone.numbers["value"] for gone in store.deleted()] == [1.0]


def test_an_example_of_the_earlier_router_answers_no_more(store, tmp_path):
    shelf = store.export_example(put(store, router="mine").id, tmp_path / "examples").parent
    fresh = RunStore(tmp_path / "fresh", examples=shelf)
    assert fresh.find(Undeclared("groups", ASK | {"router": "mine"})).example
    assert fresh.forget("router", "mine", "demo").moved == []
    assert fresh.find(Undeclared("groups", ASK | {"router": "mine"})) is None
    assert [row.example for row in fresh.search()] == [True]
    assert put(fresh, router="mine") == fresh.find(Undeclared("groups", ASK | {"router": "mine"}))


def test_what_a_worker_elsewhere_computes_anew_answers_again(store):
    packed = io.BytesIO()
    store.bundle([put(store, router="mine").id], packed)
    store.forget("router", "mine", "demo")
    store.unbundle(packed)
    assert store.find(Undeclared("groups", ASK | {"router": "mine"})) is None, "somebody else's is as old as it was"
    store.discard(store.list()[0].id)
    store.unbundle(packed, own=True)
    assert store.find(Undeclared("groups", ASK | {"router": "mine"})) is not None


def test_pinned_runs_stay_and_what_uses_it_by_default_goes(store):
    pinned, by_default, unlike = (
        put(store, router="mine"),
        put(store),
        store.put(Undeclared("pairs", ASK), result(), PROTOCOL, 1.0),
    )
    store.pin(pinned.id)
    gone = store.forget("router", "mine", "demo", lambda verb, request: verb == "groups" and "router" not in request)
    assert (gone.moved, gone.pinned) == ([by_default.id], 1) and "1 pinned run" in gone.sentences[1]
    assert store.find(Undeclared("groups", ASK | {"router": "mine"})) == pinned and ids(store) == {pinned.id, unlike.id}


def test_the_card_lists_the_routers_and_is_made_anew(store):
    card = store.put(Undeclared("model", {"model": "demo"}), result(), PROTOCOL, 1.0)
    assert store.forget("policy", "mine", "demo").moved == []
    assert store.find(Undeclared("model", {"model": "demo"})) == card
    assert store.forget("router", "mine", "demo").moved == []
    assert store.find(Undeclared("model", {"model": "demo"})) is None and store.deleted() == []
    assert store.put(Undeclared("model", {"model": "demo"}), result(2.0), PROTOCOL, 1.0).id == card.id
    assert store.find(Undeclared("model", {"model": "demo"})).numbers["value"] == 2.0


@pytest.mark.parametrize(
    ("kind", "arguments", "names"),
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
def test_names_are_found_at_any_depth(kind, arguments, names):
    assert named(kind, arguments) >= names and "x" not in named(kind, arguments) - names


def test_the_readers_own_words_are_found_and_go_along_in_a_bundle(store, tmp_path):
    run = put(store)
    store.describe(run.id, " my  best\nrun ", "after the fix ", "sinks, thesis sinks")
    marks = store.open(run.id).marks
    assert (marks.name, marks.note, marks.tags) == ("my best run", "after the fix", ("sinks", "thesis"))
    assert [row.id for row in store.search("thesis fix")] == [run.id] and not store.search("thesis nothing")
    receiver, file = RunStore(tmp_path / "other"), io.BytesIO()
    store.bundle([run.id], file)
    receiver.unbundle(file)
    arrived = receiver.open(run.id).marks
    assert (arrived.words, arrived.imported is None) == (marks.words, False)
    store.describe(run.id, "", "", "")
    assert store.open(run.id).marks.words == {}
