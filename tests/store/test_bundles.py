"""Bundles: what goes out comes in elsewhere as it was, and whatever is not a bundle is refused in one sentence, with
nothing of it written."""

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
from analysis.declaration.undeclared import Undeclared
from analysis.errors import AnalysisError, BadSetting
from analysis.runs import Result, RunStore, bundle, retention, texts
from tests.made.stored_runs import PROTOCOL, ids, packed, result

ROOT = Path(__file__).resolve().parents[2]
LINK = {"page": "token-groups", "controls": {"layer": "2", "text": "0123456789ab"}}


def put(store, seed=0):
    text = store.put_text("Old Marguerite kept the ferry.", "ferry.txt")
    ask = {"model": "demo", "text": text, "router": "k8-top1", "seed": seed}
    table = pd.DataFrame({"position": [0, 1, 2], "piece": ["Old", None, "<b>"], "mass": [0.5, np.nan, 0.25]})
    arrays = {"group": np.arange(6, dtype=np.int16).reshape(2, 3)}
    answer = Result({"sentence": "Groups are purer.", "share": 0.5}, {"tokens": table}, arrays)
    store.remember(Undeclared("groups", ask), LINK)
    return store.put(Undeclared("groups", ask), answer, {"tokens": 900, "model": "demo"}, 2.0)


def everything(store) -> list[str]:
    """Every file and folder of a state folder."""
    return sorted(str(path.relative_to(store.root)) for path in store.root.rglob("*"))


@pytest.mark.slow
def test_a_bundle_comes_in_elsewhere_as_it_was(source, target):
    first, second = put(source), put(source, seed=1)
    arrived = target.unbundle(io.BytesIO(packed(source, first.id, second.id)))
    assert (arrived.new, arrived.known) == ([first.id, second.id], [])
    run = target.find(Undeclared("groups", first.request))
    assert replace(run, folder=first.folder) == first and run.table("tokens").equals(first.table("tokens"))
    assert (run.array("group") == first.array("group")).all()
    assert run.marks.imported and run.marks.link == LINK and not run.marks.pinned
    assert target.text(first.request["text"]) == ("ferry.txt", "Old Marguerite kept the ferry.")
    assert target.past("groups") == [] and len(source.past("groups")) == 2, "what it took elsewhere is no price here"
    again = target.unbundle(io.BytesIO(packed(source, first.id)))
    assert (again.new, again.known) == ([], [first.id])
    target.pin(first.id)
    (row,) = RunStore(target.root).search(pinned=True)
    assert row.imported and row.text == "ferry.txt"


def test_a_damaged_run_does_not_travel(source):
    run = put(source)
    (run.folder / "arrays.safetensors").write_bytes(b"\0" * (run.folder / "arrays.safetensors").stat().st_size)
    with pytest.raises(BadSetting, match="damaged"):
        packed(source, run.id)
    with pytest.raises(BadSetting, match="0 runs were chosen"):
        packed(source)


def test_texts_are_found_wherever_a_request_names_them():
    keys = [f"{number:012x}" for number in range(5)]
    request = {"text": keys[0], "texts": keys[1:3], "corpus": f"{keys[3]}+{keys[4]}", "router": "k8-top1", "seed": 3}
    assert bundle.named_texts(request) == keys


def test_a_failure_in_the_middle_takes_back_what_was_shown(source, target, monkeypatch):
    runs = [put(source, seed=seed).id for seed in range(3)]
    take = target.take

    def failing(folder):
        if folder.name == runs[2]:
            raise OSError(28, "No space left on device")
        take(folder)

    monkeypatch.setattr(target, "take", failing)
    with pytest.raises(AnalysisError, match="disk of the state folder is full"):
        target.unbundle(io.BytesIO(packed(source, *runs)))
    assert target.search() == [] and everything(target) == ["runs"]


def test_a_card_from_a_bundle_is_listed_and_makes_no_control(source, target, tmp_path):
    card = source.put(Undeclared("model", {"model": "demo"}), result(9.0), PROTOCOL, 1.0)
    cards = packed(source, card.id)
    assert target.unbundle(io.BytesIO(cards)).new == [card.id] and target.open(card.id).marks.imported
    assert target.find(Undeclared("model", {"model": "demo"})) is None
    computed = target.put(Undeclared("model", {"model": "demo"}), result(1.0), PROTOCOL, 1.0)
    assert computed.id == card.id and target.find(Undeclared("model", {"model": "demo"})).numbers["value"] == 1.0
    assert [gone.numbers["value"] for gone in target.deleted()] == [9.0]
    worker = RunStore(tmp_path / "worker")
    worker.unbundle(io.BytesIO(cards), own=True)
    assert worker.find(Undeclared("model", {"model": "demo"})).numbers["value"] == 9.0, "a worker of ours computed it"


def test_a_bundle_goes_from_one_installation_to_another_by_the_command_line(source, tmp_path, capsys):
    run = put(source)
    path, elsewhere = tmp_path / "out.zip", tmp_path / "other"
    assert main(["runs", "marguerite", "--runs", str(source.root)]) == 0 and run.id not in capsys.readouterr().out
    assert main(["runs", "ferry", "k8-top1", "--runs", str(source.root), "--json"]) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)["rows"]] == [run.id]
    assert main(["bundle-out", run.id, "-o", str(path), "--runs", str(source.root)]) == 0
    assert main(["bundle-out", run.id, "-o", str(path), "--runs", str(source.root)]) == 2
    assert "is there already" in capsys.readouterr().err
    command = [sys.executable, "-m", "analysis", "bundle-in", str(path), "--json"]
    environment = {**os.environ, "FOCUSCOPE_STATE": str(elsewhere)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(done.stdout)["new"] == [run.id]
    assert RunStore(elsewhere).find(Undeclared("groups", run.request)).numbers == run.numbers
    path.write_bytes(b"no zip")
    assert main([*command[3:], "--runs", str(elsewhere)]) == 2 and "no zip file" in capsys.readouterr().err


def test_reading_a_folder_says_what_it_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(texts, "KEPT", 5)
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(8):
        (folder / f"{number}.txt").write_text(f"text {number}")
    assert main(["read", str(folder), "--runs", str(tmp_path / "state"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in answer["rows"] if row["refused"]] == ["5.txt", "6.txt", "7.txt"]
    keys = {key for key, *_ in RunStore(tmp_path / "state").texts()}
    assert keys == {row["text"] for row in answer["rows"] if row["text"]} and len(answer["notes"]) == 3


def test_an_import_pushes_out_nothing(source, target, monkeypatch):
    brought = packed(target, *(put(target, seed=seed).id for seed in range(10, 13)))
    monkeypatch.setattr(retention, "KEPT_RUNS", 3)
    before = [put(source, seed=seed).id for seed in range(3)]
    came = source.unbundle(io.BytesIO(brought)).new
    assert len(came) == 3 and ids(source) == {*before, *came}
    newest = put(source, seed=3).id
    assert ids(source) == {*before[1:], newest, *came}, "a run computed here takes the place of another one"
    twentieth = packed(target, put(target, seed=20).id)
    files = everything(source)
    with pytest.raises(BadSetting, match="nothing was brought in"):
        source.unbundle(io.BytesIO(twentieth))
    assert everything(source) == files and ids(source) == {*before[1:], newest, *came}
