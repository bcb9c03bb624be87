"""What stood before stays: an import pushes out nothing, texts that runs name stay, pins outlive damage."""

import io
import json

import numpy as np
import pandas as pd
import pytest

from analysis.errors import AnalysisError, BadSetting
from analysis.runs import Result, RunStore, proof, retention, texts
from analysis.runs.brought import read
from analysis.runs.run import MARKS
from tests.made.stored_runs import ASK, folder_of, put
from tests.store.test_bundles import everything, packed
from tests.store.test_bundles_hostile import edited, resealed


@pytest.fixture
def elsewhere(tmp_path):
    other = RunStore(tmp_path / "elsewhere")
    yield other
    other.close()


def ids(store):
    return {row.id for row in store.search()}


def test_an_import_pushes_out_nothing(store, elsewhere, monkeypatch):
    bundle = packed(elsewhere, *(put(elsewhere, seed=seed).id for seed in range(10, 13)))
    monkeypatch.setattr(retention, "KEPT_RUNS", 3)
    before = [put(store, seed=seed).id for seed in range(3)]
    came = store.unbundle(io.BytesIO(bundle)).new
    assert len(came) == 3 and ids(store) == {*before, *came}
    newest = put(store, seed=3).id
    assert ids(store) == {*before[1:], newest, *came}, "a run computed here takes the place of another one"


def test_an_import_without_room_is_refused_whole(store, elsewhere, monkeypatch):
    bundles = [packed(elsewhere, *(put(elsewhere, seed=seed).id for seed in seeds)) for seeds in ((1, 2), (3, 4))]
    monkeypatch.setattr(retention, "KEPT_RUNS", 3)
    store.unbundle(io.BytesIO(bundles[0]))
    before, rows = everything(store), ids(store)
    with pytest.raises(BadSetting, match="nothing was brought in"):
        store.unbundle(io.BytesIO(bundles[1]))
    assert everything(store) == before and ids(store) == rows


@pytest.mark.parametrize(
    "name",
    [
        lambda key, other: {"text": key},
        lambda key, other: {"texts": [other, key]},
        lambda key, other: {"corpus": f"{key}+{other}"},
        lambda key, other: {"deep": {"against": key}},
        lambda key, other: {"words": f"of {key}, {other}"},
    ],
    ids=["text", "list", "joined", "deep", "words"],
)
def test_a_text_that_a_run_names_in_any_form_stays(store, monkeypatch, name):
    monkeypatch.setattr(texts, "KEPT", 2)
    key, other = store.put_text("the named one", "a"), store.put_text("the other one", "b")
    run = store.put("groups", {"model": "demo", "seed": 0} | name(key, other), Result({}), {}, 1.0)
    store.discard(run.id)  # which can be brought back
    for number in range(4):
        store.put_text(f"newer text {number}", "c")
    assert store.text(key)[1] == "the named one" and len(store.texts()) <= 4
    store.empty()
    store.put_text("the newest text", "d")
    with pytest.raises(BadSetting):
        store.text(key)


def test_reading_a_folder_says_what_it_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "KEPT", 5)
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(8):
        (folder / f"{number}.txt").write_text(f"text {number}")
    found = read([str(folder)], runs=str(tmp_path / "state"))
    rows = found.numbers["rows"]
    left_out = [row["name"] for row in rows if row["refused"]]
    assert left_out == ["5.txt", "6.txt", "7.txt"] and len(found.tables["rows"]) == 5
    store = RunStore(tmp_path / "state")
    assert {key for key, *_ in store.texts()} == {row["text"] for row in rows if row["text"]}
    store.close()


@pytest.mark.parametrize("marks", [None, "[" * 9], ids=["its marks whole", "its marks damaged too"])
def test_damaged_runs_that_were_pinned_are_all_kept(store, marks):
    runs = [put(store, seed=seed) for seed in range(15)]
    for run in runs:
        store.pin(run.id)
        (folder_of(store, run) / "manifest.json").write_text("{")
        if marks:
            (folder_of(store, run) / MARKS).write_text(marks)
        assert store.find("groups", run.request) is None
    assert len(list((store.root / "runs").glob(".damaged-*/tables/tokens.parquet"))) == 15


def test_a_run_of_a_newer_program_is_said_and_kept(store):
    run = put(store)
    path = folder_of(store, run) / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 3}))
    store.close()
    again = RunStore(store.root)
    (said,) = again.damaged()
    assert run.id in said and "newer" in said and path.exists()
    with pytest.raises(BadSetting, match="newer"):
        again.open(run.id)
    assert again.find("groups", ASK) is None
    again.close()


HUGE = "9" * 3_900


@pytest.mark.parametrize(
    "change",
    [
        edited("manifest.json", seconds=int(HUGE)),
        edited("manifest.json", numbers={"value": int(HUGE)}),
        edited("manifest.json", protocol={"tokens": -int(HUGE)}),
        edited("bundle.json", made=int(HUGE)),
    ],
    ids=["seconds", "numbers", "protocol", "title"],
)
def test_a_number_of_absurd_size_is_refused(store, elsewhere, change):
    bundle = change(packed(elsewhere, put(elsewhere).id))
    with pytest.raises(AnalysisError, match="refused"):
        store.unbundle(io.BytesIO(bundle))
    assert ids(store) == set()


def test_a_request_or_result_with_such_a_number_is_refused(store):
    for ask, numbers in (({"seed": int(HUGE)}, {}), ({}, {"count": int(HUGE)})):
        with pytest.raises(BadSetting, match="digits"):
            store.put("groups", ASK | ask, Result(numbers), {}, 1.0)
    assert put(store, seed=10**27).request["seed"] == 10**27


def parquet(table):
    out = io.BytesIO()
    table.to_parquet(out, compression="zstd", index=False)
    return out.getvalue()


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"x": np.zeros(proof.MOST_CELLS + 1)}),
        pd.DataFrame({"x": ["a" * 1000] * (proof.MOST_WORDS // 1000 + 1)}),
        pd.DataFrame({"x": pd.Categorical(["a" * 10_000] * (proof.MOST_WORDS // 10_000 + 1))}),
    ],
    ids=["cells", "words", "words named once"],
)
def test_a_small_file_with_a_large_table_is_refused(store, elsewhere, table):
    data = parquet(table)
    assert len(data) < 400_000
    bundle = resealed(packed(elsewhere, put(elsewhere).id), "tables/tokens.parquet", data)
    with pytest.raises(BadSetting, match="cells|MB of text"):
        store.unbundle(io.BytesIO(bundle))
    assert ids(store) == set()
