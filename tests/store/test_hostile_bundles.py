"""Whatever is not a bundle is refused in one sentence, with nothing of it written."""

import hashlib
import io
import json
import stat
import struct
import zipfile

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

from analysis.errors import AnalysisError
from analysis.runs import archive, proof
from tests.made.stored_runs import packed
from tests.store.test_bundles import everything, put


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
        data, lambda entry, unchanged: [(entry, unchanged), *([(name, content)] if entry == "bundle.json" else [])]
    )


def edited(ending, **changes):
    """Changes one JSON file of the bundle."""

    def change(name, content):
        return [(name, json.dumps(json.loads(content) | changes) if name.endswith(ending) else content)]

    return lambda data: rebuilt(data, change)


def without(ending):
    return lambda data: rebuilt(data, lambda name, content: [] if name.endswith(ending) else [(name, content)])


def other_content(ending, content):
    return lambda data: rebuilt(data, lambda name, before: [(name, content if name.endswith(ending) else before)])


def link_entry(data):
    entry = zipfile.ZipInfo("texts/0123456789ab.json")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return more(entry, b"/etc/passwd")(data)


def encrypted(data):
    """The flag of an encrypted file, in both places."""
    data = bytearray(data)
    for sign, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.index(sign)
        data[place + offset] |= 1
    return bytes(data)


def lying_size(data):
    """A file that says it is small and is not."""
    data = bytearray(data)
    for sign, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        place = data.index(sign)
        data[place + offset : place + offset + 4] = struct.pack("<L", 10)
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

    def change(entry, before):
        if entry.endswith(name):
            return [(entry, content)]
        if entry.endswith("manifest.json"):
            manifest = json.loads(before)
            manifest["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            return [(entry, json.dumps(manifest))]
        return [(entry, before)]

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
def test_a_hostile_bundle_is_refused_and_nothing_is_written(source, target, tmp_path, monkeypatch, name):
    change, words = HOSTILE[name]
    monkeypatch.setattr(archive, "MOST_BYTES", 20_000_000)
    run = put(source)
    text = run.request["text"]
    if name == "wrong text":
        change = other_content(f"texts/{text}.json", json.dumps({"name": "a", "text": "other"}).encode())
    before, outside = everything(target), sorted(tmp_path.iterdir())
    with pytest.raises(AnalysisError, match=words) as refused:
        target.unbundle(io.BytesIO(change(packed(source, run.id))))
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 400
    assert everything(target) == before and sorted(tmp_path.iterdir()) == outside
    assert target.search() == [] and target.texts() == []
