"""What is kept of the runs and how: deletion and undo, retention, search, pins, and the page that asked."""

import contextlib
import os
import sqlite3

import pytest

from analysis.errors import BadSetting
from analysis.files import draft
from analysis.runs import RunStore, retention
from tests.made.stored_runs import ASK, folder_of, put


def test_a_deleted_run_comes_back_until_it_is_gone_for_good(store):
    run, other = put(store), put(store, seed=1)
    store.pin(run.id)
    store.discard(run.id)
    assert [row.id for row in store.search()] == [other.id] and store.find("groups", ASK) is None
    assert [gone.id for gone in store.deleted()] == [run.id] and store.usage().deleted == 1
    store.restore(run.id)
    assert store.find("groups", ASK) == run and [row.id for row in store.search(pinned=True)] == [run.id]
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
    assert store.find("groups", ASK).numbers["value"] == 2.0 and store.deleted() == []


def test_deleted_runs_go_after_a_week(store):
    old, new = put(store), put(store, seed=1)
    store.discard(old.id)
    os.utime(store.root / "deleted" / old.id, (1_000_000_000, 1_000_000_000))
    store.discard(new.id)
    assert [gone.id for gone in store.deleted()] == [new.id]


def test_retention_can_be_chosen_and_is_kept(store):
    runs = [put(store, seed=seed) for seed in range(4)]
    store.pin(runs[0].id)
    store.keep(2, 10**9)
    assert {row.id for row in store.search()} == {runs[0].id, runs[2].id, runs[3].id}
    other = RunStore(store.root)
    assert (other.usage().kept_runs, other.usage().kept_bytes, other.usage().pinned) == (2, 10**9, 1)
    other.close()
    for bad in ((0, 1), (1, 0), (1.5, 10), (True, 10), ("1", 10), (10, 10**20)):
        with pytest.raises(BadSetting):
            store.keep(*bad)
    (store.root / "retention.json").write_text("[")
    assert store.usage().kept_runs == retention.KEPT_RUNS


def test_search_finds_all_words_anywhere(store):
    key = store.put_text("Ein Text", "ferry.txt")
    run = put(store, text=key, router="k8-top1", steps=[1, 2], deep={"name": "focus", "settings": {"window": 64}})
    put(store, seed=3)
    for words in ("ferry", "FERRY groups", "k8-top1", "focus window", run.id[:6], "steps 1, 2", run.created[:10]):
        assert run.id in [row.id for row in store.search(words)], words
    assert store.search("ferry nothing") == [] and store.search("ferry", verb="pairs") == []
    assert store.search(words="<script>") == []


def test_what_an_index_of_before_had_pinned_stays_pinned(store):
    run, other = put(store), put(store, seed=1)
    with contextlib.closing(sqlite3.connect(store.root / "focuscope.sqlite")) as index:
        index.execute("CREATE TABLE runs (seq INTEGER PRIMARY KEY, id TEXT, verb TEXT, pinned INTEGER)")
        index.executemany("INSERT INTO runs (id, verb, pinned) VALUES (?, 'groups', ?)", [(run.id, 1), (other.id, 0)])
        index.commit()
    again = RunStore(store.root)
    assert [row.id for row in again.search(pinned=True)] == [run.id] and not list(store.root.glob("*.sqlite*"))
    assert again.open(run.id).marks.pinned and not again.open(other.id).marks.pinned


@pytest.mark.parametrize("theirs", [b"no database", None])
def test_a_database_that_is_not_ours_is_left_alone(store, theirs):
    path = store.root / "focuscope.sqlite"
    if theirs:
        path.write_bytes(theirs)
    else:
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE runs (name TEXT)")
    before = path.read_bytes()
    assert RunStore(store.root).list() == [] and path.read_bytes() == before


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
    store.remember("groups", ASK, link)
    assert put(store).marks.link is None


def test_the_page_that_asked_is_noted_beside_the_run(store):
    link = {"page": "token-groups", "controls": {"layer": "3"}}
    store.remember("groups", ASK, link)
    run = put(store)
    assert run.marks.link == link and store.find("groups", ASK).marks.link == link
    (folder_of(store, run) / "marks.json").write_text("[" * 9)
    assert store.find("groups", ASK).marks.link is None and store.damaged() == []


def test_retention_keeps_the_newest_and_the_pinned(store, monkeypatch):
    monkeypatch.setattr(retention, "KEPT_RUNS", 3)
    oldest = put(store, seed=10)
    store.pin(oldest.id)
    runs = [put(store, seed=seed) for seed in range(4)]
    assert {run.id for run in store.list()} == {oldest.id, runs[1].id, runs[2].id, runs[3].id}
    assert not folder_of(store, runs[0]).exists()
    monkeypatch.setattr(retention, "KEPT_BYTES", 1)
    last = put(store, seed=20)
    assert {run.id for run in store.list()} == {oldest.id, last.id}
    store.pin(oldest.id, False)
    assert [run.id for run in store.list(limit=1)] == [last.id]
    with pytest.raises(BadSetting):
        store.pin("0" * 12)


def test_drafts_of_a_killed_process_are_swept(store):
    runs = store.root / "runs"
    for name in (".tmp-dead", ".old-dead"):
        (runs / name).mkdir()
    with draft(runs, "living") as living:  # whoever lives holds its lock, whatever the clocks say
        os.utime(living, (1_000_000_000, 1_000_000_000))
        RunStore(store.root).close()
        assert list(runs.iterdir()) == [living]
