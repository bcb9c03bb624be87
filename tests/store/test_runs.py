"""The run store: round trips, equal keys, weights and versions, examples, texts, and many at once."""

import json
import shutil
import threading
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from analysis import places
from analysis.commands import COMMANDS, request
from analysis.declaration.undeclared import Undeclared
from analysis.errors import BadSetting
from analysis.runs import Result, RunStore
from analysis.runs.keys import asked_now
from analysis.runs.run import Marks
from tests.made.clock import steps
from tests.made.stored_runs import ASK, PROTOCOL, put, result

OTHER = {**ASK, "model": "mine"}


def test_a_result_comes_back_bit_for_bit(store):
    original, written = result(), put(store)
    run = store.find(Undeclared("groups", ASK))
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
    with pytest.raises(BadSetting, match="no table '../manifest'; it has: pairs, tokens"):
        run.table("../manifest")
    with pytest.raises(BadSetting, match="no array 'nothing'"):
        run.array("nothing")


def test_the_key_knows_equal_requests():
    def key(arguments, verb="groups"):
        return asked_now(Undeclared(verb, arguments)).key

    arguments = {"a": 8, "b": [1, 2.5]}
    assert key(arguments) == key({"b": (1.0, np.float64(2.5)), "a": np.int64(8)}) == key({"a": 8.0, "b": [1, 2.5]})
    unlike = [{"a": 8}, {"a": 8, "b": [1, 2]}, {"a": True, "b": [1, 2.5]}, {"a": "8", "b": [1, 2.5]}]
    assert len({key(arguments), key(arguments, "pairs"), *map(key, unlike)}) == 6
    assert key({"a": 1}) != key({"a": True}) and key({"a": -0.0}) == key({"a": 0})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@given(st.dictionaries(st.text(max_size=4), json_values, max_size=4))
def test_the_key_survives_json_and_order(arguments):
    try:
        key = asked_now(Undeclared("groups", arguments)).key
    except BadSetting:
        return
    again = json.loads(json.dumps(dict(reversed(arguments.items()))))
    assert asked_now(Undeclared("groups", again)).key == key and len(key) == 12


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("groups", {"a": float("nan")}),
        ("groups", {"a": float("inf")}),
        ("groups", {"a": object()}),
        ("groups", {1: 2}),
        ("groups", {"a": {1: 2}}),
        ("groups", {"a": "x" * 20_000}),
        ("groups", {"a": "\ud800"}),
        ("groups", {"a": [[[[[[[[1]]]]]]]]}),
        ("groups", {"seed": int("9" * 3_900)}),
        ("groups", "text"),
        ("../groups", {}),
        ("Groups", {}),
        ("", {}),
        (None, {}),
    ],
)
def test_a_request_json_cannot_say_is_refused(store, verb, arguments):
    with pytest.raises(BadSetting):
        store.find(Undeclared(verb, arguments))


def test_a_run_is_found_however_its_arguments_are_spelled_and_one_from_before_by_its_own_spelling(store):
    run = put(store)
    assert store.find(request("groups", {"text": ASK["text"]})).id == run.id
    older = replace(asked_now(Undeclared("pairs", ASK)), defaults=None)
    store._own.place(older, result(), PROTOCOL, 1.0, Marks())
    assert older.key != asked_now(Undeclared("pairs", ASK)).key and store.find(Undeclared("pairs", ASK)).id == older.key


@pytest.mark.parametrize(
    "run_id", ["../../etc/pass", "", None, 7, "0123456789AB", "0123456789a", "0123456789ab\n", "." * 12]
)
def test_a_forged_id_reaches_no_path(store, run_id):
    for ask in (store.open, store.delete, store.pin, store.text):
        with pytest.raises(BadSetting):
            ask(run_id)


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
        Result({"a": int("9" * 3_900)}),
        Result({1: 2}),
        {"numbers": {}},
    ],
)
def test_what_cannot_be_stored_leaves_nothing(store, bad):
    with pytest.raises(BadSetting):
        store.put(Undeclared("groups", ASK), bad, PROTOCOL, 1.0)
    assert list((store.root / "runs").iterdir()) == [] and store.list() == []


def test_columns_are_the_table_as_lists_with_none_for_no_number(store):
    text = pd.Categorical(["the", None, "the"])
    table = pd.DataFrame({"text": text, "mass": np.array([0.5, np.nan, 2], "float32"), "far": [True, False, True]})
    columns = store.put(Undeclared("groups", ASK), Result(tables={"tokens": table}), PROTOCOL, 1.0).columns("tokens")
    assert columns == {"text": ["the", None, "the"], "mass": [0.5, None, 2.0], "far": [True, False, True]}
    assert [type(value) for value in columns["mass"]] == [float, type(None), float]


def test_an_equal_run_stored_meanwhile_stays(store):
    first = put(store, value=1.0)
    assert put(store, value=2.0).numbers["value"] == 1.0
    store.delete(first.id)
    assert put(store, value=2.0).numbers["value"] == 2.0


def test_two_stores_and_many_threads_share_a_root(store):
    second, errors = RunStore(store.root), []

    def work(own_store, offset):
        try:
            for seed in range(12):
                put(own_store, seed=(seed + offset) % 12)
                assert own_store.find(Undeclared("groups", {**ASK, "seed": (seed + offset) % 12})) is not None
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=((store, second)[n % 2], n * 3)) for n in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert errors == [] and len(store.list()) == len(second.list()) == 12
    assert len(list((store.root / "runs").iterdir())) == 12


def test_examples_answer_after_own_runs(store, tmp_path):
    run = put(store, value=3.0)
    copied = store.export_example(run.id, tmp_path / "examples")
    assert copied.name == run.id and store.export_example(run.id, tmp_path / "examples") == copied
    assert not store.find(Undeclared("groups", ASK)).example
    store.delete(run.id)
    example = store.find(Undeclared("groups", ASK))
    assert example.example and example.numbers["value"] == 3.0 and example.table("tokens").shape == (4, 3)
    assert store.open(run.id).example and store.list() == [] and store.past("groups") == []
    (copied / "manifest.json").write_text("{")
    assert store.find(Undeclared("groups", ASK)) is None and copied.exists()


def test_an_equal_request_costs_the_same_however_much_is_stored(store):
    """Counted in steps of Python, 1,000 of which take about a millisecond; the fewest of three, since a lock that is
    held elsewhere adds some."""
    put(store)

    def find():
        store.find(Undeclared("groups", ASK)).table("tokens")

    find()
    alone = min(steps(find) for _ in range(3))
    for seed in range(1, 30):
        put(store, seed=seed)
    find()
    assert min(steps(find) for _ in range(3)) == alone < 3000


# --- weights and versions -----------------------------------------------------------------------------------------


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A `models_cache` in which a model `mine` lies; returns what writes its weights."""
    monkeypatch.setattr(places, "CACHE", tmp_path / "models_cache")
    folder = tmp_path / "models_cache" / "mine"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")

    def write(weights: bytes):
        (folder / "model.safetensors").write_bytes(weights)
        return folder

    write(b"first weights")
    return write


def test_a_result_belongs_to_the_weights_that_were_read_and_stays_listed(store, models):
    first = put(store, model="mine", value=1.0)
    read = asked_now(Undeclared("groups", OTHER)).revision
    assert store.find(Undeclared("groups", OTHER)) == first and first.revision == read
    models(b"other weights!")
    assert store.find(Undeclared("groups", OTHER)) is None and [run.id for run in store.list()] == [first.id]
    late = store.put(Undeclared("groups", {**OTHER, "seed": 1}), result(), PROTOCOL, 1.0, read)
    assert late.revision == read and store.find(Undeclared("groups", {**OTHER, "seed": 1})) is None
    second = put(store, model="mine", value=2.0)
    assert second.id != first.id and store.find(Undeclared("groups", OTHER)) == second
    models(b"first weights")
    assert store.find(Undeclared("groups", OTHER)) == first
    assert store.find(Undeclared("groups", {**OTHER, "seed": 1})) == late


def test_the_other_model_of_a_comparison_counts_too(store, models):
    shutil.copytree(places.CACHE / "mine", places.CACHE / "same")
    arguments = {**ASK, "model": "same", "other_model": "mine"}
    run = store.put(Undeclared("compare", arguments), result(), PROTOCOL, 1.0)
    assert store.find(Undeclared("compare", arguments)) == run and len(run.revision) == 25
    models(b"other weights!")
    assert store.find(Undeclared("compare", arguments)) is None


def test_a_result_of_an_older_program_is_not_found_and_stays_listed(store, monkeypatch):
    old = put(store, value=1.0)
    monkeypatch.setattr(COMMANDS["groups"], "version", COMMANDS["groups"].version + 1)
    assert store.find(Undeclared("groups", ASK)) is None and store.open(old.id) == old
    assert put(store, value=2.0).id != old.id and len(store.list()) == 2
    assert store.find(Undeclared("groups", ASK)).numbers["value"] == 2.0


def test_where_no_weights_are_here_the_newest_run_answers_whatever_its_weights(store, models, tmp_path):
    first = put(store, model="mine", value=1.0)
    models(b"other weights!")
    second = put(store, model="mine", value=2.0)
    shutil.rmtree(places.CACHE / "mine")
    assert asked_now(Undeclared("groups", OTHER)).revision is None and store.find(Undeclared("groups", OTHER)) == second
    store.delete(second.id)
    assert store.find(Undeclared("groups", OTHER)) == first
    shelf = store.export_example(first.id, tmp_path / "examples").parent
    stored_elsewhere = RunStore(tmp_path / "other", examples=shelf)
    assert stored_elsewhere.find(Undeclared("groups", OTHER)).id == first.id
    assert stored_elsewhere.find(Undeclared("groups", {**OTHER, "seed": 1})) is None


def test_weights_are_read_again_only_when_their_files_changed(models, monkeypatch):
    first = places.revision("mine", places.CACHE)
    monkeypatch.setattr(places.hashlib, "sha256", lambda: pytest.fail("the files were read again"))
    assert places.revision("mine", places.CACHE) == first


@pytest.mark.parametrize("name", ["no/such", "../up", "/etc", "", "a\0b", "x" * 5000, "ü", "mine/model.safetensors"])
def test_names_without_weights_have_no_revision(models, name):
    assert places.revision(name, places.CACHE) is None
