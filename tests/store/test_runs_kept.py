"""What is kept of the runs and how: prices, deletion and undo, retention, search, pins, and the page that asked."""

import os

import pytest

from analysis.errors import BadSetting
from analysis.runs import RunStore, index
from analysis.runs.price import predict
from tests.made.stored_runs import ASK, PROTOCOL, folder_of, put, result


def test_the_price_counts_how_often_a_text_is_read_and_what_reads_none(store):
    for seed, methods in enumerate((["dense"], ["dense", "focus", "csa"])):
        ask = {**ASK, "seed": seed, "methods": methods}
        store.put("evaluate", ask, result(), PROTOCOL, 2.0 * (1 + len(methods)))
    asked = {"methods": ["dense"] * 9}
    assert store.price("evaluate", "demo", 900, request=asked).seconds == pytest.approx(20.0)
    for seed, seconds in enumerate((3.0, 5.0)):
        store.put("worth", {**ASK, "seed": seed}, result(), {"model": "demo"}, seconds)
    price = store.price("worth", "demo", 1_000_000)
    assert (price.seconds, price.n, price.error) == (4.0, 2, pytest.approx(0.4))


def test_a_price_says_when_it_is_too_much():
    long, large = predict([(700.0, 10)] * 3, 10), predict([(1.0, 10)] * 3, 10, bytes=8_000_000_000)
    assert "longer than 10 min" in long.over(None) and long.slow and not large.slow
    assert large.over(2_000_000_000) == "It needs about 8.0 GB of memory and 2.0 GB are free"
    assert large.over(None) is None and large.over(9_000_000_000) is None
    assert not predict([(60.0, 10)], 10).low < 60 and predict([], 10, first=200.0).slow


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
    assert store.usage().kept_runs == index.KEPT_RUNS


def test_search_finds_all_words_anywhere(store):
    key = store.put_text("Ein Text", "ferry.txt")
    run = put(store, text=key, router="k8-top1", steps=[1, 2], deep={"name": "focus", "settings": {"window": 64}})
    put(store, seed=3)
    for words in ("ferry", "FERRY groups", "k8-top1", "focus window", run.id[:6], "steps 1, 2", run.created[:10]):
        assert run.id in [row.id for row in store.search(words)], words
    assert store.search("ferry nothing") == [] and store.search("ferry", verb="pairs") == []
    assert store.search(words="<script>") == []


def test_an_index_from_before_is_made_anew_and_keeps_its_pins(store):
    run, other = put(store), put(store, seed=1)
    connection = store.database._connection
    connection.execute("UPDATE runs SET pinned = 1 WHERE id = ?", (run.id,))
    for column in ("imported", "request"):
        connection.execute(f"ALTER TABLE runs DROP COLUMN {column}")
    store.close()
    again = RunStore(store.root)
    assert [row.id for row in again.search(pinned=True)] == [run.id] and len(again.search()) == 2
    assert again.open(run.id).marks.pinned and not again.open(other.id).marks.pinned
    again.close()


@pytest.mark.parametrize(
    "link",
    [
        None, {"page": "groups"}, {"page": "../x", "controls": {}}, {"page": "", "controls": {"A": "1"}},
        {"page": "x", "controls": {"layer": 3}}, {"page": "x", "controls": {"layer": "3" * 3000}},
        {"page": "x", "controls": {f"l{'a' * n}": "1" for n in range(300)}},
    ],
)  # fmt: skip
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
    monkeypatch.setattr(index, "KEPT_RUNS", 3)
    oldest = put(store, seed=10)
    store.pin(oldest.id)
    runs = [put(store, seed=seed) for seed in range(4)]
    assert {run.id for run in store.list()} == {oldest.id, runs[1].id, runs[2].id, runs[3].id}
    assert not folder_of(store, runs[0]).exists()
    monkeypatch.setattr(index, "KEPT_BYTES", 1)
    last = put(store, seed=20)
    assert {run.id for run in store.list()} == {oldest.id, last.id}
    store.pin(oldest.id, False)
    assert [run.id for run in store.list(limit=1)] == [last.id]
    with pytest.raises(BadSetting):
        store.pin("0" * 12)


def test_drafts_of_a_killed_process_are_swept(store):
    runs = store.root / "runs"
    for name, age in ((".tmp-old", 10_000), (".old-x", 10_000), (".tmp-new", 0)):
        (runs / name).mkdir()
        os.utime(runs / name, (1_000_000_000, 1_000_000_000) if age else None)
    RunStore(store.root).close()
    assert [path.name for path in runs.iterdir()] == [".tmp-new"]


def test_the_price_is_linear_in_tokens_and_says_its_spread(store):
    for seed, seconds in enumerate((9.0, 18.0, 27.0)):
        put(store, seed=seed, seconds=seconds)
    price = store.price("groups", "demo", 1800, bytes=2_000_000)
    assert (price.seconds, price.low, price.high, price.n) == (36.0, 18.0, 54.0, 3)
    assert price.sentence == "About 36 s (18 s to 54 s, from 3 runs on this machine, so far off by 50%), 2 MB of memory"
    assert store.price("groups", "other", 1800).n == 0 and store.price("pairs", "demo", 1800).n == 0
    first = store.price("pairs", "demo", 1000)
    assert (
        first.sentence.startswith("First time on this machine: perhaps 7.0 s")
        and first.low < first.seconds < first.high
    )


def test_the_price_ignores_one_run_that_also_loaded_the_model():
    price = predict([(1.0, 1000)] * 9 + [(60.0, 1000)], 2000)
    assert price.seconds == 2.0 and price.low == pytest.approx(2.0) and price.high < 60.0 and price.n == 10


def test_short_texts_do_not_make_a_long_one_dear():
    sentence, story, page = (1.13, 55), (0.52, 534), 2700  # seconds and tokens of "start" on two cores
    assert predict([sentence], page).low == 1.13 and not predict([sentence], page).slow
    price = predict([story, sentence], page)
    assert price.n == 1 and price.seconds == pytest.approx(0.52 / 534 * page) and not price.slow
    assert not predict([story, sentence, (0.9, 60), (1.0, 50)], page).slow
    assert predict([(100.0, 2000), sentence], page).slow and predict([(30.0, 1000)] * 3, page).slow


def test_of_two_prices_one_may_have_loaded_the_model():
    assert not predict([(1.0, 1000), (60.0, 1000)], 1000).slow and predict([(25.0, 1000), (60.0, 1000)], 1000).slow
