"""The stored routing study on a tiny model: its table, a part that comes again, and going on where it was stopped."""

import json

import pytest

from analysis.errors import BadSetting
from analysis.places import CACHE
from analysis.routers import ROUTERS
from analysis.routers.mlp import SaapMLP
from analysis.studies import STUDIES
from analysis.studies.context import Context
from analysis.studies.routing.fit import ABLATIONS
from lab.routing import Routing
from tests.made.routed import SMALL, routed_home
from tests.made.studied import part_again
from tests.made.tiny_tokenizer import save_model


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a tiny model and a corpus."""
    return routed_home(tmp_path_factory.mktemp("route"))


def test_the_study_stores_its_table_and_a_part_comes_again(home, tmp_path):
    folder, texts = Context(state=tmp_path, browser=False), str(home / "corpus")
    with pytest.raises(BadSetting, match="no key lies|minimum distance is 64"):
        Routing.run(corpus=texts, model=str(home / "tiny"), context=folder)  # the tiny model reads 64 tokens
    longer = save_model(tmp_path / "longer", max_position_embeddings=160)
    for number, path in enumerate(sorted((home / "corpus").rglob("*.txt"))):
        assert number < 8 and path.stat().st_size >= 1000
    result = Routing.run(corpus=texts, model=str(longer), prompts=3, context=folder)
    study = json.loads((tmp_path / "studies" / "routing.json").read_text(), parse_constant=pytest.fail)
    assert result.numbers["path"].endswith("routing.json") and "rows" not in study
    assert str(tmp_path) not in json.dumps({**study, "protocol": {**study["protocol"], "model": ""}}).replace(
        str(longer), ""
    )
    assert {(c["min_distance"], c["sinks"]) for c in study["cells"]} == {(64, 0), (16, 0), (16, 4), (64, 4)}
    assert study["sentence"] == Routing.shown(study)["sentence"] and "by SGD" in study["sentence"]
    assert part_again(Routing.run, study, home, state=tmp_path)
    assert set(study["check"]) == set(ROUTERS) - set(ABLATIONS), "what is stored for use"
    assert {row["router"] for row in study["curve"]} == {row["router"] for row in study["sgd"]["curve"]} == set(ROUTERS)
    by_adam, by_sgd = (
        {row["router"]: row["recall"] for row in table["curve"] if row["l"] == study["l"]}
        for table in (study, study["sgd"])
    )
    assert by_adam["kmeans"] == by_sgd["kmeans"] and by_adam["mlp"] != by_sgd["mlp"], "steps train the MLP alone"
    names = {path.name for path in (tmp_path / "routing").iterdir()}
    assert {"c5-d64-s0.safetensors", "c5-d64-s4.json", "curves.safetensors", "curves.json"} <= names


def test_a_stopped_run_goes_on_from_the_routers_that_are_trained(home, tmp_path, monkeypatch):
    arguments = {"corpus": str(home / "corpus"), "model": str(home / "tiny"), "work": str(tmp_path / "work"), **SMALL}
    context, trained = Context(state=tmp_path, browser=False), []
    fit = SaapMLP.fit

    def counted(self, queries, mass, **options):
        trained.append(len(trained))
        if len(trained) == 3 and not list(tmp_path.glob("go on")):
            raise KeyboardInterrupt
        return fit(self, queries, mass, **options)

    monkeypatch.setattr(SaapMLP, "fit", counted)
    with pytest.raises(KeyboardInterrupt):
        STUDIES["route"](**arguments, context=context)
    assert len(list((tmp_path / "work").glob("*.safetensors"))) == 2, "one for each router of a layer that was trained"
    (tmp_path / "go on").touch()
    again = STUDIES["route"](**arguments, context=context).numbers
    assert len(trained) == 3 + 7 and not list((tmp_path / "work").iterdir()), "the third anew, and no more"
    monkeypatch.undo()
    straight = STUDIES["route"](**arguments | {"work": None}, context=context).numbers
    assert again["rows"] == straight["rows"]
    with pytest.raises(BadSetting, match="stored from the command line"):
        STUDIES["route"](**arguments, context=Context(state=tmp_path))


def test_what_is_stored_of_the_bundled_model_can_be():
    """Chance lies in random's interval, nothing beats the oracle, more buckets find more."""
    stored = json.loads((CACHE / "demo" / "studies" / "routing.json").read_text())
    for row in (row for row in stored["curve"] if row["router"] == "random"):
        points = row.get("recall_points") or [row["recall_low"], row["recall_high"]]
        assert min(points) <= row["share"] <= max(points)
    recalls = {(row["router"], row["l"]): row["recall"] for row in stored["curve"]}
    steps = sorted({visited for _, visited in recalls})
    for router in {router for router, _ in recalls}:
        own_recalls = [recalls[router, visited] for visited in steps]
        assert own_recalls == sorted(own_recalls)
        assert all(recall <= recalls["oracle", visited] for recall, visited in zip(own_recalls, steps, strict=True))
