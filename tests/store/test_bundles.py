"""Bundles: what goes out comes in elsewhere as it was, and whatever is not a bundle is refused in one sentence, with
nothing of it written."""

import hashlib
import io
import json
import os
import stat
import struct
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

from analysis.__main__ import main
from analysis.declaration.undeclared import Undeclared
from analysis.errors import AnalysisError, BadSetting
from analysis.runs import Result, RunStore, archive, bundle, proof, retention, texts
from tests.made.stored_runs import PROTOCOL, result

ROOT = Path(__file__).resolve().parents[2]
LINK = {"page": "token-groups", "controls": {"layer": "2", "text": "0123456789ab"}}


def put(store, seed=0):
    text = store.put_text("Old Marguerite kept the ferry.", "ferry.txt")
    ask = {"model": "demo", "text": text, "router": "k8-top1", "seed": seed}
    table = pd.DataFrame({"position": [0, 1, 2], "piece": ["Old", None, "<b>"], "mass": [0.5, np.nan, 0.25]})
    arrays = {"group": np.arange(6, dtype=np.int16).reshape(2, 3)}
    made = Result({"sentence": "Groups are purer.", "share": 0.5}, {"tokens": table}, arrays)
    store.remember(Undeclared("groups", ask), LINK)
    return store.put(Undeclared("groups", ask), made, {"tokens": 900, "model": "demo"}, 2.0)


def packed(store, *ids) -> bytes:
    out = io.BytesIO()
    store.bundle(ids, out)
    return out.getvalue()


def everything(store) -> list[str]:
    """Every file and folder of a state folder."""
    return sorted(str(path.relative_to(store.root)) for path in store.root.rglob("*"))


def ids(store) -> set[str]:
    return {row.id for row in store.search()}


@pytest.mark.slow
def test_a_bundle_comes_in_elsewhere_as_it_was(here, there):
    first, second = put(here), put(here, seed=1)
    arrived = there.unbundle(io.BytesIO(packed(here, first.id, second.id)))
    assert (arrived.new, arrived.known) == ([first.id, second.id], [])
    run = there.find(Undeclared("groups", first.request))
    assert replace(run, folder=first.folder) == first and run.table("tokens").equals(first.table("tokens"))
    assert (run.array("group") == first.array("group")).all()
    assert run.marks.imported and run.marks.link == LINK and not run.marks.pinned
    assert there.text(first.request["text"]) == ("ferry.txt", "Old Marguerite kept the ferry.")
    assert there.past("groups") == [] and len(here.past("groups")) == 2, "what it took elsewhere is no price here"
    again = there.unbundle(io.BytesIO(packed(here, first.id)))
    assert (again.new, again.known) == ([], [first.id])
    there.pin(first.id)
    (row,) = RunStore(there.root).search(pinned=True)
    assert row.imported and row.text == "ferry.txt"


def test_a_damaged_run_does_not_travel(here):
    run = put(here)
    (run.folder / "arrays.safetensors").write_bytes(b"\0" * (run.folder / "arrays.safetensors").stat().st_size)
    with pytest.raises(BadSetting, match="damaged"):
        packed(here, run.id)
    with pytest.raises(BadSetting, match="0 runs were chosen"):
        packed(here)


def test_texts_are_found_wherever_a_request_names_them():
    keys = [f"{number:012x}" for number in range(5)]
    request = {"text": keys[0], "texts": keys[1:3], "corpus": f"{keys[3]}+{keys[4]}", "router": "k8-top1", "seed": 3}
    assert bundle.named_texts(request) == keys


def test_a_failure_in_the_middle_takes_back_what_was_shown(here, there, monkeypatch):
    runs = [put(here, seed=seed).id for seed in range(3)]
    take = there.take

    def failing(folder):
        if folder.name == runs[2]:
            raise OSError(28, "No space left on device")
        take(folder)

    monkeypatch.setattr(there, "take", failing)
    with pytest.raises(AnalysisError, match="disk of the state folder is full"):
        there.unbundle(io.BytesIO(packed(here, *runs)))
    assert there.search() == [] and everything(there) == ["runs"]


def test_a_card_from_a_bundle_is_listed_and_makes_no_control(here, there, tmp_path):
    card = here.put(Undeclared("model", {"model": "demo"}), result(9.0), PROTOCOL, 1.0)
    cards = packed(here, card.id)
    assert there.unbundle(io.BytesIO(cards)).new == [card.id] and there.open(card.id).marks.imported
    assert there.find(Undeclared("model", {"model": "demo"})) is None
    own = there.put(Undeclared("model", {"model": "demo"}), result(1.0), PROTOCOL, 1.0)
    assert own.id == card.id and there.find(Undeclared("model", {"model": "demo"})).numbers["value"] == 1.0
    assert [gone.numbers["value"] for gone in there.deleted()] == [9.0]
    worker = RunStore(tmp_path / "worker")
    worker.unbundle(io.BytesIO(cards), own=True)
    assert worker.find(Undeclared("model", {"model": "demo"})).numbers["value"] == 9.0, "a worker of ours computed it"


def test_a_bundle_goes_from_one_installation_to_another_by_the_command_line(here, tmp_path, capsys):
    run = put(here)
    path, other = tmp_path / "out.zip", tmp_path / "other"
    assert main(["runs", "marguerite", "--runs", str(here.root)]) == 0 and run.id not in capsys.readouterr().out
    assert main(["runs", "ferry", "k8-top1", "--runs", str(here.root), "--json"]) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)["rows"]] == [run.id]
    assert main(["bundle-out", run.id, "-o", str(path), "--runs", str(here.root)]) == 0
    assert main(["bundle-out", run.id, "-o", str(path), "--runs", str(here.root)]) == 2
    assert "is there already" in capsys.readouterr().err
    command = [sys.executable, "-m", "analysis", "bundle-in", str(path), "--json"]
    environment = {**os.environ, "FOCUSCOPE_STATE": str(other)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(done.stdout)["new"] == [run.id]
    assert RunStore(other).find(Undeclared("groups", run.request)).numbers == run.numbers
    path.write_bytes(b"no zip")
    assert main([*command[3:], "--runs", str(other)]) == 2 and "no zip file" in capsys.readouterr().err


def test_reading_a_folder_says_what_it_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(texts, "KEPT", 5)
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(8):
        (folder / f"{number}.txt").write_text(f"text {number}")
    assert main(["read", str(folder), "--runs", str(tmp_path / "state"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in answer["rows"] if row["refused"]] == ["5.txt", "6.txt", "7.txt"]
    kept = {key for key, *_ in RunStore(tmp_path / "state").texts()}
    assert kept == {row["text"] for row in answer["rows"] if row["text"]} and len(answer["notes"]) == 3


def test_an_import_pushes_out_nothing(here, there, monkeypatch):
    brought = packed(there, *(put(there, seed=seed).id for seed in range(10, 13)))
    monkeypatch.setattr(retention, "KEPT_RUNS", 3)
    before = [put(here, seed=seed).id for seed in range(3)]
    came = here.unbundle(io.BytesIO(brought)).new
    assert len(came) == 3 and ids(here) == {*before, *came}
    newest = put(here, seed=3).id
    assert ids(here) == {*before[1:], newest, *came}, "a run computed here takes the place of another one"
    more = packed(there, put(there, seed=20).id)
    files = everything(here)
    with pytest.raises(BadSetting, match="nothing was brought in"):
        here.unbundle(io.BytesIO(more))
    assert everything(here) == files and ids(here) == {*before[1:], newest, *came}


# --- hostile ------------------------------------------------------------------------------------------------------


def rebuilt(data: bytes, change) -> bytes:
    """The zip with `change(name, content)` -> list of (name, content) applied to each of its files."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            for name, content in change(entry.filename, old.read(entry)):
                new.writestr(name, content)
    return out.getvalue()


def more(name, content=b"x"):
    """Adds one more file."""
    return lambda data: rebuilt(
        data, lambda own, held: [(own, held), *([(name, content)] if own == "bundle.json" else [])]
    )


def edited(ending, **changes):
    """Changes one JSON file of the bundle."""

    def change(name, content):
        return [(name, json.dumps(json.loads(content) | changes) if name.endswith(ending) else content)]

    return lambda data: rebuilt(data, change)


def without(ending):
    return lambda data: rebuilt(data, lambda name, held: [] if name.endswith(ending) else [(name, held)])


def other_content(ending, content):
    return lambda data: rebuilt(data, lambda name, held: [(name, content if name.endswith(ending) else held)])


def link_entry(data):
    entry = zipfile.ZipInfo("texts/0123456789ab.json")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return more(entry, b"/etc/passwd")(data)


def encrypted(data):
    """The flag of an encrypted file, in both places."""
    data = bytearray(data)
    for sign, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.index(sign)
        data[place + at] |= 1
    return bytes(data)


def lying_size(data):
    """A file that says it is small and is not."""
    data = bytearray(data)
    for sign, at in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        place = data.index(sign)
        data[place + at : place + at + 4] = struct.pack("<L", 10)
    return bytes(data)


def many(data):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for number in range(6_000):
            file.writestr(f"texts/{number:012x}.json", b"")
    return out.getvalue()


def zeros(data):
    """Ten megabytes of zip that say 10 GB."""
    return more("texts/0123456789ab.json", b"\0" * 40_000_000)(data)


def moved(data):
    """The run under another id than its request has."""

    def change(name, content):
        return [(name.replace(run_id(data), "0" * 12), content.replace(run_id(data).encode(), b"0" * 12))]

    return rebuilt(data, change)


def run_id(data) -> str:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return json.loads(file.read("bundle.json"))["runs"][0]


def bad_table(data):
    """A table whose checksum is right and which is none."""
    return resealed(data, "tables/tokens.parquet", b"PAR1 is no table PAR1")


def with_table(make):
    """Another table, with a right checksum, that takes some kilobytes."""

    def change(data):
        out, table = io.BytesIO(), make()
        table = pyarrow.Table.from_pandas(table) if isinstance(table, pd.DataFrame) else table
        pyarrow.parquet.write_table(table, out, compression="zstd")
        assert len(out.getvalue()) < 400_000
        return resealed(data, "tables/tokens.parquet", out.getvalue())

    return change


def wide_table():
    """A few kilobytes that unpack to half a billion cells."""
    cells = pyarrow.array(np.zeros(1_000_000, np.int8))
    return pyarrow.table({f"c{number}": cells for number in range(60)})


def resealed(data, name, content):
    """Another content for one file, with the size and checksum that the manifest needs."""

    def change(own, held):
        if own.endswith(name):
            return [(own, content)]
        if own.endswith("manifest.json"):
            manifest = json.loads(held)
            manifest["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            return [(own, json.dumps(manifest))]
        return [(own, held)]

    return rebuilt(data, change)


HUGE = "9" * 3_900
HOSTILE = {
    "no zip": (lambda data: b"<script>alert(1)</script>", "no zip file"),
    "empty": (lambda data: b"", "no zip file"),
    "half of it": (lambda data: data[: len(data) // 2], "no zip file"),
    "parent folder": (more("../evil.json"), "a name no bundle has"),
    "absolute": (more("/tmp/evil.json"), "a name no bundle has"),
    "deep parent": (more("runs/0123456789ab/../../../evil"), "a name no bundle has"),
    "backslash": (more("runs\\evil"), "a name no bundle has"),
    "drive": (more("C:/evil"), "a name no bundle has"),
    "folder": (more("texts/0123456789ab/", b""), "a name no bundle has"),
    "marks": (more("runs/0123456789ab/marks.json", b"{}"), "a name no bundle has"),
    "markup": (more("<img src=x onerror=alert(1)>"), "a name no bundle has"),
    "link": (link_entry, "a link or a device"),
    "twice": (lambda data: more("bundle.json", b"{}")(data), "twice"),
    "encrypted": (encrypted, "encrypted"),
    "lzma": (lambda data: packed_otherwise(data), "packed in a way"),
    "too many": (many, "lists 6,000 files"),
    "bomb": (zeros, "unpacks to"),
    "lying size": (lying_size, "no sound zip|cannot be read"),
    "flipped byte": (lambda data: flipped(data), "no sound zip"),
    "no title": (without("bundle.json"), "has no bundle.json"),
    "title a list": (other_content("bundle.json", b"[]"), "cannot be read"),
    "title deep": (other_content("bundle.json", b"[" * 100_000), "cannot be read"),
    "other format": (edited("bundle.json", format=2), "format 2"),
    "other schema": (edited("bundle.json", schema=7), "schema 7"),
    "run of another schema": (edited("manifest.json", schema=7), "schema 7"),
    "other runs": (edited("bundle.json", runs=["0" * 12]), "other runs or texts"),
    "ids of paths": (edited("bundle.json", runs=["../../etc"]), "other runs or texts"),
    "ids that are lists": (edited("bundle.json", runs=[["a"]]), "cannot be read"),
    "no manifest": (without("manifest.json"), "cannot be read"),
    "missing table": (without("tokens.parquet"), "is missing"),
    "unnamed table": (lambda data: more(f"runs/{run_id(data)}/tables/extra.parquet")(data), "does not name"),
    "wrong id": (moved, "belongs to another request"),
    "no number": (other_content("manifest.json", b'{"schema": 1, "seconds": NaN}'), "cannot be read"),
    "naive date": (edited("manifest.json", created="2026-01-01T00:00:00"), "does not say when"),
    "half a character": (edited("manifest.json", protocol={"x": "\ud800"}), "cannot be read"),
    "wrong checksum": (other_content("arrays.safetensors", b"\0" * 100), "another size|not what was written"),
    "wrong text": (other_content("f4.json", b"{}"), "text"),
    "table that is none": (bad_table, "cannot be opened"),
    "table of lists": (with_table(lambda: pyarrow.table({"a": [[1], [2, 3]]})), "column of type list"),
    "table too wide": (with_table(wide_table), "60,000,000 cells"),
    "table too long": (with_table(lambda: pd.DataFrame({"x": np.zeros(proof.MOST_CELLS + 1)})), "cells"),
    "too many words": (
        with_table(lambda: pd.DataFrame({"x": ["a" * 1000] * (proof.MOST_WORDS // 1000 + 1)})),
        "MB of text",
    ),
    "words named once": (
        with_table(lambda: pd.DataFrame({"x": pd.Categorical(["a" * 10_000] * (proof.MOST_WORDS // 10_000 + 1))})),
        "MB of text",
    ),
    "huge seconds": (edited("manifest.json", seconds=int(HUGE)), "cannot be read"),
    "huge number": (edited("manifest.json", numbers={"value": int(HUGE)}), "cannot be read"),
    "huge protocol": (edited("manifest.json", protocol={"tokens": -int(HUGE)}), "cannot be read"),
    "huge title": (edited("bundle.json", made=int(HUGE)), "cannot be read"),
}


def packed_otherwise(data):
    entry = zipfile.ZipInfo("texts/0123456789ab.json")
    entry.compress_type = zipfile.ZIP_LZMA
    out = io.BytesIO(data)
    with zipfile.ZipFile(out, "a") as file:
        file.writestr(entry, b"{}", zipfile.ZIP_LZMA)
    return out.getvalue()


def flipped(data):
    """One byte of the packed arrays changed."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        entry = next(entry for entry in file.infolist() if entry.filename.endswith("safetensors"))
    data = bytearray(data)
    data[entry.header_offset + 30 + len(entry.filename) + entry.compress_size // 2] ^= 255
    return bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_hostile_bundle_is_refused_and_nothing_is_written(here, there, tmp_path, monkeypatch, name):
    change, words = HOSTILE[name]
    monkeypatch.setattr(archive, "MOST_BYTES", 20_000_000)
    run = put(here)
    text = run.request["text"]
    if name == "wrong text":
        change = other_content(f"texts/{text}.json", json.dumps({"name": "a", "text": "other"}).encode())
    before, outside = everything(there), sorted(tmp_path.iterdir())
    with pytest.raises(AnalysisError, match=words) as refused:
        there.unbundle(io.BytesIO(change(packed(here, run.id))))
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 400
    assert everything(there) == before and sorted(tmp_path.iterdir()) == outside
    assert there.search() == [] and there.texts() == []
