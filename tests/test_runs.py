"""The run store: round trips, equal keys, nothing half-made, damage said and survived."""

import errno
import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from analysis.errors import AnalysisError, BadSetting, BadText, Busy
from analysis.runs import Result, Run, RunStore, folder, index, texts
from analysis.runs.price import predict

ASK = {"model": "demo", "text": "0123456789ab", "seed": 0}
PROTOCOL = {"tokens": 900, "model": "demo"}


@pytest.fixture
def store(tmp_path):
    store = RunStore(tmp_path / "state", tmp_path / "examples")
    yield store
    store.close()


def result(value=1.0):
    table = pd.DataFrame(
        {"position": np.arange(4), "piece": ["a", " b", "⟨E2⟩", None], "mass": [0.1, value, np.nan, 1e-40]}
    )
    return Result(
        {"value": value, "words": ["ü", "<script>"], "share": np.float32(0.25), "undefined": float("nan")},
        {
            "tokens": table,
            "pairs": pd.DataFrame({"layer": pd.Series([], dtype="int64"), "far": pd.Series([], dtype="bool")}),
        },
        {
            "group": np.array([[1, -2], [3, 32767]], np.int16),
            "half": np.array([1.5, np.inf, np.nan], np.float16),
            "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
            "swapped": np.arange(3, dtype=">f8"),
            "scalar": np.array(7),
            "empty": np.zeros((0, 3), np.float32),
            "mask": np.array([True, False]),
        },
    )


def put(store, value=1.0, seconds=2.0, **ask):
    return store.put("groups", {**ASK, **ask}, result(value), PROTOCOL, seconds)


def folder_of(store, run):
    return store.root / "runs" / run.id


def test_a_result_comes_back_bit_for_bit(store):
    original, written = result(), put(store)
    run = store.find("groups", ASK)
    assert run == written and run.cached and not written.cached and not run.example
    assert run.numbers == {"value": 1.0, "words": ["ü", "<script>"], "share": 0.25, "undefined": None}
    assert (run.protocol, run.seconds, run.verb, run.request) == (PROTOCOL, 2.0, "groups", ASK)
    assert sorted(run.tables) == ["pairs", "tokens"] and sorted(run.arrays) == sorted(original.arrays)
    for name, table in original.tables.items():
        pd.testing.assert_frame_equal(run.table(name), table, check_exact=True)
    for name, array in original.arrays.items():
        read = run.array(name)
        assert read.shape == array.shape and read.dtype == array.dtype.newbyteorder("=")
        assert read.tobytes() == array.astype(read.dtype).tobytes()


def test_the_key_knows_equal_requests():
    key = RunStore.key("groups", {"a": 8, "b": [1, 2.5]})
    assert key == RunStore.key("groups", {"b": (1.0, np.float64(2.5)), "a": np.int64(8)})
    assert key == RunStore.key("groups", {"a": 8.0, "b": [1, 2.5]})
    others = [{"a": 8}, {"a": 8, "b": [1, 2]}, {"a": True, "b": [1, 2.5]}, {"a": "8", "b": [1, 2.5]}]
    assert (
        len({key, RunStore.key("pairs", {"a": 8, "b": [1, 2.5]}), *(RunStore.key("groups", ask) for ask in others)})
        == 6
    )
    assert RunStore.key("groups", {"a": 1}) != RunStore.key("groups", {"a": True})
    assert RunStore.key("groups", {"a": -0.0}) == RunStore.key("groups", {"a": 0})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(max_size=4), json_values, max_size=4))
def test_the_key_survives_json_and_order(request):
    try:
        key = RunStore.key("groups", request)
    except BadSetting:
        return
    again = json.loads(json.dumps(dict(reversed(request.items()))))
    assert RunStore.key("groups", again) == key and len(key) == 12


@pytest.mark.parametrize(
    ("verb", "request_"),
    [
        ("groups", {"a": float("nan")}),
        ("groups", {"a": float("inf")}),
        ("groups", {"a": object()}),
        ("groups", {1: 2}),
        ("groups", {"a": {1: 2}}),
        ("groups", {"a": "x" * 20_000}),
        ("groups", {"a": "\ud800"}),
        ("groups", {"a": [[[[[[[[1]]]]]]]]}),
        ("groups", "text"),
        ("../groups", {}),
        ("Groups", {}),
        ("", {}),
        (None, {}),
    ],
)
def test_a_request_json_cannot_say_is_refused(store, verb, request_):
    with pytest.raises(BadSetting):
        store.find(verb, request_)


@pytest.mark.parametrize(
    "run_id", ["../../etc/pass", "", None, 7, "0123456789AB", "0123456789a", "0123456789ab\n", "." * 12]
)
def test_a_forged_id_reaches_no_path(store, run_id):
    for ask in (store.open, store.delete, store.pin, store.text):
        with pytest.raises(BadSetting):
            ask(run_id)


def test_an_unknown_table_names_those_there_are(store):
    run = put(store)
    with pytest.raises(BadSetting, match="no table '../manifest'; it has: pairs, tokens"):
        run.table("../manifest")
    with pytest.raises(BadSetting, match="no array 'nothing'"):
        run.array("nothing")
    with pytest.raises(BadSetting, match="is not stored here"):
        store.open("0" * 12)


@pytest.mark.parametrize(
    "bad",
    [
        Result({}, {"../x": pd.DataFrame()}),
        Result({}, {"x": pd.DataFrame({"a": [1, "b", object()]})}),
        Result({}, {"x": pd.DataFrame([[1, 2]], columns=["a", "a"])}),
        Result({}, {"x": [1, 2]}),
        Result({}, {}, {"X1": np.zeros(1)}),
        Result({}, {}, {"x": np.array([object()])}),
        Result({}, {}, {"x": np.zeros(1, np.complex64)}),
        Result({"a": object()}),
        Result({1: 2}),
        {"numbers": {}},
    ],
)
def test_what_cannot_be_stored_leaves_nothing(store, bad):
    with pytest.raises(BadSetting):
        store.put("groups", ASK, bad, PROTOCOL, 1.0)
    assert list((store.root / "runs").iterdir()) == [] and store.list() == []


@pytest.mark.parametrize("step", ["_write_table", "_digest"])
@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "full .* delete some runs"),
        (OSError(errno.EACCES, "Permission denied"), "cannot be used .Permission denied"),
        (KeyboardInterrupt(), None),
    ],
)
def test_a_failure_in_the_middle_leaves_nothing(store, monkeypatch, step, failure, words):
    def fail(*_):
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(folder, step, fail)
        with pytest.raises(AnalysisError if words else KeyboardInterrupt, match=words):
            put(store)
    assert store.find("groups", ASK) is None and list((store.root / "runs").iterdir()) == []
    assert put(store).table("tokens").shape == (4, 3)


def test_an_index_without_room_says_that_the_disk_is_full(store):
    store.database._connection.execute("PRAGMA max_page_count = 1")  # sqlite then answers as on a full disk
    with pytest.raises(AnalysisError, match="disk of the state folder is full .* delete some runs"):
        for _ in range(100):
            store.database.write("INSERT INTO damaged (said, at) VALUES (?, '')", ("x" * 4000,))


DAMAGES = {
    "half a manifest": lambda path: (path / "manifest.json").write_text('{"schema": 1, "id"'),
    "binary manifest": lambda path: (path / "manifest.json").write_bytes(b"\xff\x00" * 50),
    "manifest of another": lambda path: _edit(path, request={**ASK, "seed": 9}),
    "manifest a list": lambda path: (path / "manifest.json").write_text("[]"),
    "no numbers": lambda path: _edit(path, numbers=None),
    "no date": lambda path: _edit(path, created="yesterday"),
    "forged file": lambda path: _edit(path, files={"../../x.parquet": {"bytes": 1, "sha256": ""}}),
    "deep manifest": lambda path: (path / "manifest.json").write_text('{"a":' * 100_000),
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "short arrays": lambda path: (path / "arrays.safetensors").write_bytes(b"\0" * 10),
    "no table": lambda path: (path / "tables" / "tokens.parquet").unlink(),
}


def _edit(path, **changes):
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | changes))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_said_and_computed_anew(store, damage):
    kept, run = put(store, seed=1), put(store)
    DAMAGES[damage](folder_of(store, run))
    assert store.find("groups", ASK) is None
    assert len(store.damaged()) == 1 and run.id in store.damaged()[0]
    assert [other.id for other in store.list()] == [kept.id]
    again = put(store)
    assert store.find("groups", ASK) == again and store.find("groups", {**ASK, "seed": 1}) == kept
    assert len(list((store.root / "runs").glob(".damaged-*"))) == 1


def test_a_run_that_appears_while_it_is_asked_for_is_not_called_damaged(store, monkeypatch):
    """The reader finds nothing, the writer shows the run, the reader looks again: what is there now is whole."""
    made = put(store)
    folder = made.folder
    away = folder.with_name(".tmp-away")
    folder.rename(away)
    seen = Path.stat

    def stat(path, **options):
        try:
            return seen(path, **options)
        except FileNotFoundError:
            if folder in (path, path.parent) and away.exists():
                away.rename(folder)
            raise

    monkeypatch.setattr(Path, "stat", stat)
    assert store.find("groups", ASK) is None
    assert store.damaged() == [] and store.find("groups", ASK) == made


def test_columns_are_the_table_as_lists_with_none_for_no_number(store):
    text = pd.Categorical(["the", None, "the"])
    table = pd.DataFrame({"text": text, "mass": np.array([0.5, np.nan, 2], "float32"), "far": [True, False, True]})
    columns = store.put("groups", ASK, Result(tables={"tokens": table}), PROTOCOL, 1.0).columns("tokens")
    assert columns == {"text": ["the", None, "the"], "mass": [0.5, None, 2.0], "far": [True, False, True]}
    assert [type(value) for value in columns["mass"]] == [float, type(None), float]


@pytest.mark.parametrize("read", [Run.table, Run.columns])
@pytest.mark.parametrize("data", [b"", b"PAR1", b"no table at all PAR1" * 9], ids=["empty", "magic", "text"])
def test_a_table_that_is_none_is_damaged_even_when_its_checksum_is_right(store, read, data):
    run = put(store)
    folder = folder_of(store, run)
    (folder / "tables" / "tokens.parquet").write_bytes(data)
    files = json.loads((folder / "manifest.json").read_text())["files"]
    files["tables/tokens.parquet"] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    _edit(folder, files=files)
    with pytest.raises(BadSetting, match="table tokens cannot be read.*run it again"):
        read(store.find("groups", ASK), "tokens")


@pytest.mark.parametrize("read", [lambda run: run.table("tokens"), lambda run: run.array("group")])
def test_changed_bytes_of_equal_size_are_seen_when_read(store, read):
    run = put(store)
    for path in (folder_of(store, run) / "tables" / "tokens.parquet", folder_of(store, run) / "arrays.safetensors"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    found = store.find("groups", ASK)
    with pytest.raises(BadSetting, match=r"damaged .* is not what was written.*run it again"):
        read(found)
    assert store.find("groups", ASK) is None and "not what was written" in store.damaged()[0]
    assert read(put(store)) is not None


def test_a_run_deleted_under_a_reader_is_said(store):
    run = put(store)
    store.delete(run.id)
    store.delete(run.id)
    with pytest.raises(BadSetting, match="was deleted meanwhile"):
        run.table("tokens")
    assert store.damaged() == [] and store.list() == []


def test_an_equal_run_stored_meanwhile_stays(store):
    first = put(store, value=1.0)
    assert put(store, value=2.0).numbers["value"] == 1.0
    store.delete(first.id)
    assert put(store, value=2.0).numbers["value"] == 2.0


def test_two_stores_and_many_threads_share_a_root(store):
    other, errors = RunStore(store.root), []

    def work(mine, offset):
        try:
            for seed in range(12):
                put(mine, seed=(seed + offset) % 12)
                assert mine.find("groups", {**ASK, "seed": (seed + offset) % 12}) is not None
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=((store, other)[n % 2], n * 3)) for n in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert errors == [] and len(store.list()) == len(other.list()) == 12
    assert len(list((store.root / "runs").iterdir())) == 12
    other.close()


def test_a_lost_or_damaged_index_is_rebuilt_from_the_folders(store):
    run = put(store, seconds=3.0)
    key = store.put_text("some text", "a.txt")
    for damage in (lambda path: path.unlink(), lambda path: path.write_bytes(b"no database" * 1000)):
        store.close()
        damage(store.root / "focuscope.sqlite")
        for suffix in ("-wal", "-shm"):
            (store.root / f"focuscope.sqlite{suffix}").unlink(missing_ok=True)
        store = RunStore(store.root)
        assert store.list() == [run] and store.price("groups", "demo", 900).n == 1
        assert store.texts()[0][:2] == (key, "a.txt")
    assert len(list(store.root.glob("focuscope.sqlite.damaged-*"))) == 1
    store.close()


def test_an_index_damaged_while_open_is_rebuilt(store):
    run = put(store)
    store.database.read("PRAGMA wal_checkpoint(TRUNCATE)")
    path = store.root / "focuscope.sqlite"
    path.write_bytes(path.read_bytes()[:4096] + b"\xff" * (path.stat().st_size - 4096))
    store.database._connection.execute("PRAGMA cache_size = 0")
    store.database._connection.execute("PRAGMA shrink_memory")
    assert store.list() == [run]
    assert put(store, seed=4) in store.list()


def test_a_locked_index_is_said(store, monkeypatch):
    store.database._connection.execute("PRAGMA busy_timeout = 50")
    other = sqlite3.connect(store.root / "focuscope.sqlite")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(Busy, match="locked by another program"):
        put(store)
    other.rollback()
    other.close()
    assert store.find("groups", ASK) is not None and put(store) == store.list()[0]


def test_an_unusable_root_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AnalysisError, match="FOCUSCOPE_STATE"):
        RunStore(tmp_path / "file" / "state")


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


def test_forget_removes_what_a_new_router_makes_stale(store):
    stale, other = put(store, router="mine"), put(store, router="k8-top1")
    assert store.forget(model="demo", router="mine") == 1
    assert [run.id for run in store.list()] == [other.id] and not folder_of(store, stale).exists()
    with pytest.raises(BadSetting):
        store.forget()


def test_drafts_of_a_killed_process_are_swept(store):
    runs = store.root / "runs"
    for name, age in ((".tmp-old", 10_000), (".old-x", 10_000), (".tmp-new", 0)):
        (runs / name).mkdir()
        os.utime(runs / name, (1_000_000_000, 1_000_000_000) if age else None)
    RunStore(store.root).close()
    assert [path.name for path in runs.iterdir()] == [".tmp-new"]


def test_examples_answer_after_own_runs(store, tmp_path):
    run = put(store, value=3.0)
    copied = store.export_example(run.id, tmp_path / "examples")
    assert copied.name == run.id and store.export_example(run.id, tmp_path / "examples") == copied
    assert not store.find("groups", ASK).example
    store.delete(run.id)
    example = store.find("groups", ASK)
    assert example.example and example.numbers["value"] == 3.0 and example.table("tokens").shape == (4, 3)
    assert store.open(run.id).example and store.list() == [] and store.price("groups", "demo", 900).n == 0
    (copied / "manifest.json").write_text("{")
    assert store.find("groups", ASK) is None and copied.exists()


def test_texts(store):
    key = store.put_text("Ein Text\nmit 🦊", "a.txt")
    assert store.put_text("Ein Text\nmit 🦊", "b.txt") == key and store.text(key) == ("a.txt", "Ein Text\nmit 🦊")
    other = store.put_text("another", "c.txt")
    assert [row[0] for row in store.texts()] == [other, key] and store.texts()[1][2] == 17
    for bad in ("", None, "\ud800", "x" * 20_000_001):
        with pytest.raises(BadText):
            store.put_text(bad, "it")
    (store.root / "texts" / f"{key}.json").write_text('{"name": "a", "text": "forged"}')
    with pytest.raises(BadSetting, match="upload or paste it again"):
        store.text(key)
    assert store.put_text("Ein Text\nmit 🦊", "d.txt") == key and store.text(key)[1] == "Ein Text\nmit 🦊"


def test_old_texts_go_unless_a_run_names_them(store, monkeypatch):
    monkeypatch.setattr(texts, "KEPT", 2)
    keys = [store.put_text(f"text {n}", "t") for n in range(2)]
    put(store, text=keys[0])
    keys += [store.put_text(f"text {n}", "t") for n in (2, 3)]
    assert [row[0] for row in store.texts()] == [keys[3], keys[2], keys[0]]
    assert store.text(keys[0])[1] == "text 0"


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


def test_an_equal_request_costs_less_than_ten_milliseconds(store):
    put(store)
    times = []
    for _ in range(20):
        began = time.perf_counter()
        store.find("groups", ASK).table("tokens")
        times.append(time.perf_counter() - began)
    assert sorted(times)[10] < 0.010


def test_computed_shows_the_time(store):
    run = put(store)
    assert run.computed == run.created[11:16]
    _edit(folder_of(store, run), created="2020-02-03T12:03:00+00:00")
    assert store.open(run.id).computed == "2020-02-03 12:03"


def test_the_room_imports_neither_torch_nor_streamlit_nor_pandas():
    heavy = {"torch", "transformers", "streamlit", "pandas", "pyarrow", "arro3"}
    code = f"import analysis.runs, analysis.jobs, sys; print({heavy} & set(sys.modules))"
    root = Path(__file__).parents[1]
    answer = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"
