"""Bundles: what goes out comes in elsewhere as it was, in a browser's store or from the command line."""

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.__main__ import main
from analysis.errors import AnalysisError, BadSetting
from analysis.runs import Result, RunStore
from analysis.runs.bundle import named_texts

ROOT = Path(__file__).resolve().parents[2]
LINK = {"page": "token-groups", "controls": {"layer": "2", "text": "0123456789ab"}}


@pytest.fixture
def here(tmp_path):
    store = RunStore(tmp_path / "here")
    yield store
    store.close()


@pytest.fixture
def there(tmp_path):
    store = RunStore(tmp_path / "there")
    yield store
    store.close()


def put(store, seed=0, seconds=2.0, **more):
    text = store.put_text("Old Marguerite kept the ferry.", "ferry.txt")
    ask = {"model": "demo", "text": text, "router": "k8-top1", "seed": seed}
    table = pd.DataFrame({"position": [0, 1, 2], "piece": ["Old", None, "<b>"], "mass": [0.5, np.nan, 0.25]})
    arrays = {"group": np.arange(6, dtype=np.int16).reshape(2, 3)}
    made = Result({"sentence": "Groups are purer.", "share": 0.5}, {"tokens": table}, arrays)
    store.remember("groups", ask | more, LINK)
    return store.put("groups", ask | more, made, {"tokens": 900, "model": "demo"}, seconds)


def packed(store, *ids) -> bytes:
    out = io.BytesIO()
    store.bundle(ids, out)
    return out.getvalue()


def everything(store) -> list[str]:
    """Every file and folder of a state folder, but for the lists that may be lost."""
    lists = ("runs.json", "texts.json")
    return sorted(str(path.relative_to(store.root)) for path in store.root.rglob("*") if path.name not in lists)


def test_a_bundle_comes_in_elsewhere_as_it_was(here, there):
    first, second = put(here), put(here, seed=1)
    arrived = there.unbundle(io.BytesIO(packed(here, first.id, second.id)))
    assert (arrived.new, arrived.known) == ([first.id, second.id], [])
    run = there.find("groups", first.request)
    assert replace(run, folder=first.folder) == first and run.table("tokens").equals(first.table("tokens"))
    assert (run.array("group") == first.array("group")).all()
    assert run.marks.imported and run.marks.link == LINK and not run.marks.pinned
    assert there.text(first.request["text"]) == ("ferry.txt", "Old Marguerite kept the ferry.")
    assert there.price("groups", "demo", 900).n == 0 and here.price("groups", "demo", 900).n == 2
    again = there.unbundle(io.BytesIO(packed(here, first.id)))
    assert (again.new, again.known) == ([], [first.id])


def test_what_is_known_of_an_import_outlives_the_index(here, there):
    run = put(here)
    there.unbundle(io.BytesIO(packed(here, run.id)))
    there.pin(run.id)
    there.close()
    (there.root / "runs.json").unlink(missing_ok=True)
    store = RunStore(there.root)
    (row,) = store.search()
    assert row.pinned and row.imported and row.text == "ferry.txt" and store.price("groups", "demo", 900).n == 0
    store.close()


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
    assert named_texts(request) == keys


def test_a_failure_in_the_middle_takes_back_what_was_shown(here, there, monkeypatch):
    ids = [put(here, seed=seed).id for seed in range(3)]
    taken = there.take

    def take(folder):
        if folder.name == ids[2]:
            raise OSError(28, "No space left on device")
        taken(folder)

    monkeypatch.setattr(there, "take", take)
    with pytest.raises(AnalysisError, match="disk of the state folder is full"):
        there.unbundle(io.BytesIO(packed(here, *ids)))
    assert there.search() == [] and everything(there) == ["runs"]


def test_a_bundle_goes_from_one_installation_to_another_by_the_command_line(here, tmp_path, capsys):
    run = put(here)
    here.close()
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
    store = RunStore(other)
    assert store.find("groups", run.request).numbers == run.numbers
    store.close()
    path.write_bytes(b"no zip")
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "no zip file" in done.stderr
