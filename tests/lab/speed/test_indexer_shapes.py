"""What fitting indexers to a large shape takes: the study itself on the bundled one, and what is said before."""

from types import SimpleNamespace

import pytest

from analysis import places
from analysis.commands.routing import Route
from analysis.files import read_json
from analysis.runs.memory import held
from analysis.studies.context import Context
from analysis.studies.routing.indexers import TRAINING
from lab.speed import indexer_shapes
from lab.speed.indexer_shapes import KINDS, IndexerShapes


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


def test_what_indexers_learn_from_is_said():
    card = {"width": 64, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 16, "dtype": "float32", "vocabulary": 100}
    card |= {"inner": 128, "max_positions": 4096}
    about = {"prompts": 5, "length": 1000}
    alone = held(Route, about, 10_000, card)
    of_states = 4 * 5 * 1000 * 2 * 64
    assert held(Route, about | {"kinds": ["dsa", "qsa", "m3"]}, 10_000, card) - alone == of_states
    assert held(Route, about | {"kinds": ["seer"]}, 10_000, card) - alone == 4 * 5 * 1000 * 2 * 32
    assert held(Route, about | {"kinds": ["low_rank"]}, 10_000, card) - alone == 4 * 3 * 8 * 64 * 64


def test_what_was_stored_took_no_more_than_twice_what_was_said():
    stored = read_json(places.CACHE / "demo" / "studies" / "indexer-shapes.json")
    assert stored["layers"] == 24 and stored["protocol"]["sizes"]["length"] == 2048
    assert 0.5 < stored["taken"]["bytes"] / stored["said"]["bytes"] < 2
