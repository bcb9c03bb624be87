"""Stored studies of speed: what that of the kernels asks for, how its rows and its sentence are made, what comes again;
what fitting indexers to a large shape takes, on the bundled one."""

from types import SimpleNamespace

import pytest

from analysis import places
from analysis.commands.routing import Route
from analysis.files import read_json
from analysis.runs.memory import held
from analysis.studies.context import Context
from analysis.studies.routing.indexers import TRAINING
from analysis.studies.speed.bench import TARGETS
from lab.speed import indexer_shapes, kernels as study
from lab.speed.indexer_shapes import KINDS, IndexerShapes


def row(work, length, ratio, dtype="bfloat16", **changes):
    """A row of `bench`."""
    times = {"dense_ms": 2.0, "sparse_ms": 2.0 / ratio, "bound": 4.0, "target": None, **changes}
    conditions = {"dtype": dtype, "length": length, "batch": 1, "dense_kernel": "torch flash", "kernel": "groups"}
    return conditions | times | {f"speedup{end}": ratio for end in ("", "_low", "_high")}


def test_all_lengths_types_and_batches_are_asked_for_up_to_the_longest(monkeypatch, tmp_path):
    calls = []

    def bench(request, *, context):
        calls.append((request.what, request.dtype, request.lengths, request.batch))
        aims = {1024: 1.0}
        lengths = request.lengths or [500]
        rows = [row(request.what, n, 2.0, request.dtype, target=aims.get(n)) for n in lengths]
        if request.what == "inference":
            pair = {"dense": 4.0, "sparse": 8.0}
            rows = [row_of | {"prefill_ms": pair, "ms_per_token": pair, "target": 1.0} for row_of in rows]
            rows = [row_of | {f"speedup_per_token{end}": 0.5 for end in ("", "_low", "_high")} for row_of in rows]
        return SimpleNamespace(numbers={"rows": rows})

    monkeypatch.setattr(study, "bench", bench)
    context = SimpleNamespace(part=lambda folder, name, decides, make: make(None), progress=lambda done, stage: None)
    lm = SimpleNamespace(revision="r", device="cpu")
    setting = SimpleNamespace(context=context, lm=lm, sizes=study.Kernels(longest=4096, repeats=2), work=tmp_path)
    numbers = setting.sizes.measure(setting)
    assert ("attention", "float32", [1024, 4096], 1) in calls and ("decode", "bfloat16", [2048], 1) in calls
    assert [batch for *_, batch in calls if batch > 1] == [2, 4, 8] and calls[-1][0] == "inference"
    prompt, token = numbers["rows"][-2:]
    assert (prompt["what"], prompt["speedup"], prompt["met"]) == ("prompt", 2.0, True)
    assert (token["what"], token["speedup"], token["dense_ms"], token["met"]) == ("token", 0.5, 4.0, False)

    summary = study.Kernels.shown(numbers | {"protocol": {"repeats": 2, "device": "cpu"}})
    assert "3 of 4 aims are reached" in summary["sentence"] and "a token of the model" in summary["sentence"]
    assert "Not measured on a GPU." in summary["notes"]
    assert (
        "Not measured on a GPU."
        not in study.Kernels.shown(numbers | {"protocol": {"repeats": 2, "device": "cuda"}})["notes"]
    )
    (panel,) = summary["panels"]
    assert panel["x_values"] == [1024, 4096] and [line["name"] for line in panel["series"]][:2] == study.KINDS


def test_what_the_pairs_allow_at_the_shortest_length_comes_again():
    """1,024 tokens, 8 groups of about 128, a window of 128: the bound by hand is near 3."""
    bound = study.Kernels().sample(SimpleNamespace(), {})
    assert bound["bound"] == pytest.approx(3.03, abs=0.05) and min(TARGETS["attention"]) == 1024


@pytest.mark.slow
def test_the_command_is_timed_on_the_shape_that_is_made(tmp_path, monkeypatch):
    monkeypatch.setitem(TRAINING, "steps", 2)
    shape = SimpleNamespace(path=str(places.CACHE / "demo"))
    monkeypatch.setattr(indexer_shapes, "make_shape", lambda *about: shape)
    context = Context(state=tmp_path / "state", browser=False)
    numbers = IndexerShapes(length=128, prompts=3).of_shape(context)
    assert {row["kind"] for row in numbers["rows"]} == set(KINDS)
    measured, predicted = numbers["taken"], numbers["said"]
    assert 0 < sum(row["seconds"] for row in numbers["rows"]) < measured["seconds"] and measured["bytes"] > 0
    assert predicted["low"] < predicted["seconds"] < predicted["high"] and predicted["bytes"] > 0
    assert context.kept == {} and context._model is None, "nothing of it stays"


def test_what_indexers_learn_from_is_said_and_what_was_stored_took_no_more_than_twice_as_much():
    card = {"width": 64, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 16, "dtype": "float32", "vocabulary": 100}
    card |= {"inner": 128, "max_positions": 4096}
    about = {"prompts": 5, "length": 1000}
    alone = held(Route, about, 10_000, card)
    of_states = 4 * 5 * 1000 * 2 * 64
    assert held(Route, about | {"kinds": ["dsa", "qsa", "m3"]}, 10_000, card) - alone == of_states
    assert held(Route, about | {"kinds": ["seer"]}, 10_000, card) - alone == 4 * 5 * 1000 * 2 * 32
    assert held(Route, about | {"kinds": ["low_rank"]}, 10_000, card) - alone == 4 * 3 * 8 * 64 * 64
    stored = read_json(places.CACHE / "demo" / "studies" / "indexer-shapes.json")
    assert stored["layers"] == 24 and stored["protocol"]["sizes"]["length"] == 2048
    assert 0.5 < stored["taken"]["bytes"] / stored["said"]["bytes"] < 2
