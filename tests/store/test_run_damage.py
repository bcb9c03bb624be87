"""The run store where things break: nothing half-made, damage said and survived."""

import errno
import hashlib
import json
import os

import pytest

from analysis.declaration.undeclared import Undeclared
from analysis.errors import AnalysisError, BadSetting
from analysis.runs import Run, RunStore, folder, shelf
from analysis.runs.run import MARKS
from tests.made.stored_runs import ASK, folder_of, put


@pytest.mark.parametrize("step", ["_write_table", "_digest"])
@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "full, .* delete some runs"),
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
    assert store.find(Undeclared("groups", ASK)) is None and list((store.root / "runs").iterdir()) == []
    assert put(store).table("tokens").shape == (4, 3)


def edit(path, **changes) -> None:
    """Change some of a manifest."""
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | changes))


DAMAGES = {
    "half a manifest": lambda path: (path / "manifest.json").write_text('{"schema": 1, "id"'),
    "binary manifest": lambda path: (path / "manifest.json").write_bytes(b"\xff\x00" * 50),
    "manifest of another": lambda path: edit(path, request={**ASK, "seed": 9}),
    "manifest a list": lambda path: (path / "manifest.json").write_text("[]"),
    "no numbers": lambda path: edit(path, numbers=None),
    "no date": lambda path: edit(path, created="yesterday"),
    "forged file": lambda path: edit(path, files={"../../x.parquet": {"bytes": 1, "sha256": ""}}),
    "deep manifest": lambda path: (path / "manifest.json").write_text('{"a":' * 100_000),
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "short arrays": lambda path: (path / "arrays.safetensors").write_bytes(b"\0" * 10),
    "no table": lambda path: (path / "tables" / "tokens.parquet").unlink(),
    "version 0": lambda path: edit(path, version=0),
    "version true": lambda path: edit(path, version=True),
    "version in words": lambda path: edit(path, version="1"),
    "another version": lambda path: edit(path, version=2),
    "a number as weights": lambda path: edit(path, revision=7),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_said_and_computed_anew(store, damage):
    second, run = put(store, seed=1), put(store)
    DAMAGES[damage](folder_of(store, run))
    assert store.find(Undeclared("groups", ASK)) is None
    assert len(store.damaged()) == 1 and run.id in store.damaged()[0] and RunStore(store.root).damaged()
    assert [listed.id for listed in store.list()] == [second.id]
    again = put(store)
    assert store.find(Undeclared("groups", ASK)) == again
    assert store.find(Undeclared("groups", {**ASK, "seed": 1})) == second
    assert len(list((store.root / "runs").glob(".damaged-*"))) == 1


def test_a_run_that_appears_while_it_is_asked_for_is_not_called_damaged(store, monkeypatch):
    """The reader finds nothing, the writer shows the run, the reader looks again: what is there now is whole."""
    run = put(store)
    away = run.folder.with_name(".tmp-away")
    run.folder.rename(away)
    real = os.stat

    def stat(path, **options):
        try:
            return real(path, **options)
        except FileNotFoundError:
            if str(path).startswith(str(run.folder)) and os.path.lexists(away):
                away.rename(run.folder)
            raise

    monkeypatch.setattr(os, "stat", stat)
    assert store.find(Undeclared("groups", ASK)) in (None, run)
    assert store.damaged() == [] and store.find(Undeclared("groups", ASK)) == run


@pytest.mark.parametrize("read", [Run.table, Run.columns])
@pytest.mark.parametrize("data", [b"", b"PAR1", b"no table at all PAR1" * 9], ids=["empty", "magic", "text"])
def test_a_table_that_is_none_is_damaged_even_when_its_checksum_is_right(store, read, data):
    path = folder_of(store, put(store))
    (path / "tables" / "tokens.parquet").write_bytes(data)
    files = json.loads((path / "manifest.json").read_text())["files"]
    files["tables/tokens.parquet"] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    edit(path, files=files)
    with pytest.raises(BadSetting, match="table tokens cannot be read.*run it again"):
        read(store.find(Undeclared("groups", ASK)), "tokens")


@pytest.mark.parametrize("read", [lambda run: run.table("tokens"), lambda run: run.array("group")])
def test_changed_bytes_of_equal_size_are_seen_when_read(store, read):
    path = folder_of(store, put(store))
    for file in (path / "tables" / "tokens.parquet", path / "arrays.safetensors"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    run = store.find(Undeclared("groups", ASK))
    with pytest.raises(BadSetting, match=r"damaged .* is not what was written.*run it again"):
        read(run)
    assert store.find(Undeclared("groups", ASK)) is None and "not what was written" in store.damaged()[0]
    assert read(put(store)) is not None


def test_a_run_deleted_under_a_reader_is_said(store):
    run = put(store)
    store.delete(run.id)
    store.delete(run.id)
    with pytest.raises(BadSetting, match="was deleted meanwhile"):
        run.table("tokens")
    assert store.damaged() == [] and store.list() == []


@pytest.mark.parametrize("marks", [None, "[" * 9], ids=["its marks whole", "its marks damaged too"])
def test_damaged_runs_that_were_pinned_are_all_kept(store, marks):
    runs = [put(store, seed=seed) for seed in range(15)]
    for run in runs:
        store.pin(run.id)
        (folder_of(store, run) / "manifest.json").write_text("{")
        if marks:
            (folder_of(store, run) / MARKS).write_text(marks)
        assert store.find(Undeclared("groups", run.request)) is None
    assert len(list((store.root / "runs").glob(".damaged-*/tables/tokens.parquet"))) == 15


def test_a_run_of_a_newer_program_is_said_and_kept(store):
    run = put(store)
    edit(folder_of(store, run), schema=3)
    again = RunStore(store.root)
    (sentence,) = again.damaged()
    assert run.id in sentence and "newer" in sentence and folder_of(store, run).exists()
    with pytest.raises(BadSetting, match="newer"):
        again.open(run.id)
    assert again.find(Undeclared("groups", ASK)) is None


def test_what_another_process_does_is_seen(store):
    """It deletes a run, pins one, adds one and computes one anew."""
    runs, second_store = [put(store, seed=seed) for seed in range(3)], RunStore(store.root)
    assert len(second_store.search()) == 3
    store.delete(runs[0].id)
    store.pin(runs[1].id)
    new = put(store, seed=3)
    store.delete(runs[2].id)
    again = put(store, seed=2, seconds=9.0)
    assert {(row.id, row.seconds, row.pinned) for row in second_store.search()} == {
        (runs[1].id, 2.0, True),
        (new.id, 2.0, False),
        (again.id, 9.0, False),
    }


def test_a_manifest_is_read_once_until_its_run_changes(store, monkeypatch):
    read, real = [], shelf.read_run
    monkeypatch.setattr(shelf, "read_run", lambda folder, **kwargs: read.append(folder.name) or real(folder, **kwargs))
    run = put(store)
    for _ in range(3):
        assert store.find(Undeclared("groups", ASK)) == store.open(run.id) == store.list()[0]
    assert read == [run.id]
    store.pin(run.id)
    assert store.find(Undeclared("groups", ASK)).marks.pinned and len(read) == 2


def test_an_unusable_root_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AnalysisError, match="FOCUSCOPE_STATE"):
        RunStore(tmp_path / "file" / "state")


def test_computed_shows_the_time(store):
    run = put(store)
    assert run.computed == run.created[11:16]
    edit(folder_of(store, run), created="2020-02-03T12:03:00+00:00")
    assert store.open(run.id).computed == "2020-02-03 12:03"
