"""What a run answers: equal arguments to the same version of a verb about the same weights; others stay readable."""

import json
import shutil

import pytest

from analysis import places
from analysis.commands import COMMANDS
from analysis.runs import RunStore
from analysis.runs.keys import asked_now, request_key
from tests.made.stored_runs import ASK, PROTOCOL, folder_of, put, result

OTHER = {**ASK, "model": "mine"}


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


def test_a_result_of_other_weights_is_not_found_and_stays_listed(store, models):
    first = put(store, model="mine", value=1.0)
    assert store.find("groups", OTHER) == first
    models(b"other weights!")
    assert store.find("groups", OTHER) is None and [run.id for run in store.list()] == [first.id]
    second = put(store, model="mine", value=2.0)
    assert second.id != first.id and store.find("groups", OTHER) == second
    models(b"first weights")
    assert store.find("groups", OTHER).numbers["value"] == 1.0 and store.open(second.id).revision != first.revision


def test_a_result_belongs_to_the_weights_that_were_read(store, models):
    read = asked_now("groups", OTHER).revision
    models(b"other weights!")
    run = store.put("groups", OTHER, result(), PROTOCOL, 1.0, read)
    assert run.revision == read and store.find("groups", OTHER) is None
    models(b"first weights")
    assert store.find("groups", OTHER) == run


def test_the_other_model_of_a_comparison_counts_too(store, models):
    shutil.copytree(places.CACHE / "mine", places.CACHE / "same")
    asked = {**ASK, "model": "same", "other_model": "mine"}
    run = store.put("compare", asked, result(), PROTOCOL, 1.0)
    assert store.find("compare", asked) == run and len(run.revision) == 25
    models(b"other weights!")
    assert store.find("compare", asked) is None


def test_a_result_of_an_older_program_is_not_found_and_stays_listed(store, monkeypatch):
    old = put(store, value=1.0)
    monkeypatch.setattr(COMMANDS["groups"], "version", COMMANDS["groups"].version + 1)
    assert store.find("groups", ASK) is None and store.open(old.id) == old
    assert put(store, value=2.0).id != old.id and len(store.list()) == 2
    assert store.find("groups", ASK).numbers["value"] == 2.0


def test_where_no_weights_are_here_the_newest_run_answers_whatever_its_weights(store, models, tmp_path):
    first = put(store, model="mine", value=1.0)
    models(b"other weights!")
    second = put(store, model="mine", value=2.0)
    shutil.rmtree(places.CACHE / "mine")
    assert asked_now("groups", OTHER).revision is None and store.find("groups", OTHER) == second
    store.delete(second.id)
    assert store.find("groups", OTHER) == first
    shelf = store.export_example(first.id, tmp_path / "examples").parent
    other = RunStore(tmp_path / "other", examples=shelf)
    assert other.find("groups", OTHER).id == first.id and other.find("groups", {**OTHER, "seed": 1}) is None
    other.close()


def test_weights_are_read_again_only_when_their_files_changed(models, monkeypatch):
    first = places.revision("mine", places.CACHE)
    monkeypatch.setattr(places.hashlib, "sha256", lambda: pytest.fail("the files were read again"))
    assert places.revision("mine", places.CACHE) == first


@pytest.mark.parametrize("name", ["no/such", "../up", "/etc", "", "a\0b", "x" * 5000, "ü", "mine/model.safetensors"])
def test_names_without_weights_have_no_revision(models, name):
    assert places.revision(name, places.CACHE) is None


def test_a_run_of_before_versions_is_listed_opened_and_bundled_and_never_found(store, tmp_path):
    run = put(store)
    manifest = json.loads((folder_of(store, run) / "manifest.json").read_text())
    old = request_key("groups", ASK, 0)
    manifest = {name: value for name, value in manifest.items() if name not in ("version", "revision")}
    folder = folder_of(store, run).rename(store.root / "runs" / old)
    (folder / "manifest.json").write_text(json.dumps(manifest | {"schema": 1, "id": old}))
    store.close()
    (store.root / "runs.json").unlink(missing_ok=True)
    again = RunStore(store.root)
    with open(tmp_path / "old.zip", "wb") as file:
        again.bundle([old], file)
    assert [row.id for row in again.search()] == [old] and again.find("groups", ASK) is None
    assert again.open(old).version == 0 and again.open(old).table("tokens").shape == (4, 3)
    assert put(again).id != old and len(again.list()) == 2 and again.damaged() == []
    again.close()
    there = RunStore(tmp_path / "there")
    assert there.unbundle(tmp_path / "old.zip").new == [old] and there.find("groups", ASK) is None
    there.close()


@pytest.mark.parametrize(
    "forged", [{"version": 0}, {"version": True}, {"version": "1"}, {"revision": 7}, {"version": 2}]
)
def test_a_forged_version_is_damage(store, forged):
    run = put(store)
    path = folder_of(store, run) / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | forged))
    assert store.find("groups", ASK) is None and len(store.damaged()) == 1


def test_a_card_from_a_bundle_is_listed_and_makes_no_control(store, tmp_path):
    other = RunStore(tmp_path / "other")
    card = other.put("model", {"model": "demo"}, result(9.0), PROTOCOL, 1.0)
    with open(tmp_path / "b.zip", "wb") as file:
        other.bundle([card.id], file)
    other.close()
    assert store.unbundle(tmp_path / "b.zip").new == [card.id] and store.open(card.id).marks.imported
    assert store.find("model", {"model": "demo"}) is None
    own = store.put("model", {"model": "demo"}, result(1.0), PROTOCOL, 1.0)
    assert own.id == card.id and store.find("model", {"model": "demo"}).numbers["value"] == 1.0
    assert [gone.numbers["value"] for gone in store.deleted()] == [9.0]
    worker = RunStore(tmp_path / "worker")
    worker.unbundle(tmp_path / "b.zip", own=True)
    assert worker.find("model", {"model": "demo"}).numbers["value"] == 9.0, "a worker of ours computed it"
    worker.close()
