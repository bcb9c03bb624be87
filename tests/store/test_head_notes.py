"""Names and notes of heads: kept per model and revision, within bounds, carried by bundles of that model's runs."""

import io

import pytest

from analysis.declaration.undeclared import Undeclared
from analysis.errors import BadSetting
from analysis.runs import RunStore
from analysis.runs.head_notes import LONGEST, file_name, note_head, notes_of
from tests.made.stored_runs import PROTOCOL, packed, result
from tests.store.test_hostile_bundles import edited

MODEL, REVISION = "owner/model@bfloat16", "abc123"


def run_of(store) -> str:
    asks = Undeclared("groups", {"model": MODEL, "seed": 0})
    return store.put(asks, result(), PROTOCOL | {"revision": REVISION}, 1.0).id


def test_a_head_is_named_and_noted_for_its_model_at_its_revision(source):
    note_head(source.root, MODEL, REVISION, "4.4", name="names  again ")
    note_head(source.root, MODEL, REVISION, "4.4", note="copies\nsurnames")
    assert notes_of(source.root, "owner/model", REVISION) == {"4.4": {"name": "names again", "note": "copies surnames"}}
    assert notes_of(source.root, MODEL, "other") == notes_of(source.root, "demo", REVISION) == {}
    with pytest.raises(BadSetting, match="at most 40 characters"):
        note_head(source.root, MODEL, REVISION, "4.4", name="x" * (LONGEST["name"] + 1))
    note_head(source.root, MODEL, REVISION, "4.4", name="", note=" ")
    assert notes_of(source.root, MODEL, REVISION) == {}


def test_a_bundle_carries_the_notes_of_its_models_and_what_is_written_here_stays(source, target):
    note_head(source.root, MODEL, REVISION, "4.4", name="brought", note="brought too")
    note_head(source.root, MODEL, REVISION, "1.0", note="brought")
    note_head(source.root, "demo", REVISION, "0.0", name="of a model that has no run in it")
    data = packed(source, run_of(source))
    note_head(target.root, MODEL, REVISION, "4.4", name="written here")
    target.unbundle(io.BytesIO(data))
    notes = {"4.4": {"name": "written here", "note": "brought too"}, "1.0": {"note": "brought"}}
    assert notes_of(target.root, MODEL, REVISION) == notes and notes_of(target.root, "demo", REVISION) == {}


@pytest.mark.parametrize(
    "heads",
    [
        [],
        {"../x": {}},
        {"..": {}},
        {"a": {"4": {"name": "x"}}},
        {"a": {"4.4": {"name": "x" * 99}}},
        {"a": {"4.4": {"b": "c"}}},
    ],
)
def test_notes_that_no_store_writes_are_refused_with_their_bundle(source, target, heads):
    data = edited("bundle.json", heads=heads)(packed(source, run_of(source)))
    with pytest.raises(BadSetting, match="cannot be read"):
        target.unbundle(io.BytesIO(data))
    assert not target.list() and not (target.root / "heads").exists()


def test_an_import_that_was_killed_leaves_the_notes_as_they_were(source, target, monkeypatch):
    note_head(source.root, MODEL, REVISION, "4.4", name="brought")
    note_head(target.root, MODEL, REVISION, "4.4", note="before")
    data = packed(source, run_of(source))
    # The process ends when all is moved and the journal is still there.
    monkeypatch.setattr("analysis.runs.bundle.clear", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
    monkeypatch.setattr("analysis.files.clear", lambda path: None)
    with pytest.raises(KeyboardInterrupt):
        target.unbundle(io.BytesIO(data))
    monkeypatch.undo()
    again = RunStore(target.root)
    assert notes_of(again.root, MODEL, REVISION) == {"4.4": {"note": "before"}} and not again.list()
    assert file_name(MODEL, REVISION) == "owner--model-abc123"
