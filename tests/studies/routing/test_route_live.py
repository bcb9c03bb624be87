"""Stored routing: any budget at once, a reader's text, what one query visits, the study, the method's routers."""

import json

import numpy as np
import pytest
import torch

from analysis.__main__ import main
from analysis.corpus import sample_texts
from analysis.errors import BadSetting, BadText, NotFitted
from analysis.methods import METHODS
from analysis.metrics.routing import bucket_recall
from analysis.routers import ROUTERS
from analysis.routers.routing_state import RoutingState
from analysis.seam.attention import apply
from analysis.statistics import forward
from analysis.studies import STUDIES
from analysis.studies.context import Context
from analysis.studies.ready.candidates import candidates
from analysis.studies.routing.cells import ALL, FAR, Cell
from analysis.studies.routing.live import from_state
from analysis.studies.routing.passes import read_prompt
from analysis.studies.routing.rows import at_budget
from analysis.studies.routing.score import score_routers
from analysis.studies.routing.states import fit_on_samples, state_near
from analysis.studies.routing.texts import Prompt
from tests.made.routed import BUCKETS, DISTANCE

pytestmark = pytest.mark.usefixtures("stored")


@pytest.fixture
def own_text(context):
    return context.add_text("mine", sample_texts()["story"][1][3000:3500])


@pytest.mark.parametrize("recall_of", [FAR, ALL])
def test_recall_equals_a_loop_over_the_whole_attention(home, context, recall_of):
    """One prompt, one layer: dense attention in full, masses added key by key, against what was streamed; as shares of
    the far attention, and as they are, which is equation 1 of GWR."""
    model, cell = context.model(str(home / "tiny")), Cell(DISTANCE, 0, recall_of=recall_of)
    ids = np.arange(3, 51)
    state = state_near(context, model, cell)
    curves, _, _ = score_routers(context, model, [Prompt(0, ids)], from_state(model, state, cell))
    attention, vectors = {}, {}
    read_prompt(model, ids, state.settings.rotated, lambda layer, q, k: vectors.update({layer: (q, k)}))
    with apply(model, METHODS["dense"](), watch=lambda b, p: attention.setdefault(b.layer, p[0])), torch.no_grad():
        forward(model, ids)
    for layer, head in ((0, 0), (2, 3)):
        queries, keys = vectors[layer]
        labels = (keys[head // 2] @ state.centroids(layer)[head // 2].T).argmax(-1)
        mass, counts = torch.zeros(48 - DISTANCE, BUCKETS), torch.zeros(48 - DISTANCE, BUCKETS)
        for row, i in enumerate(range(DISTANCE, 48)):
            for j in range(i - DISTANCE + 1):
                mass[row, labels[j]] += attention[layer][head, i, j]
                counts[row, labels[j]] += 1
        chosen = state.router("gwr_linear", layer, 4).scores(queries)[head, DISTANCE:].topk(2).indices
        place = curves.heads.index((layer, head))
        for streamed, amounts in ((curves.recall, mass), (curves.selectivity, counts)):
            plain = recall_of == ALL and amounts is mass
            wanted = bucket_recall(amounts if plain else amounts / amounts.sum(1, keepdim=True), chosen)
            assert at_budget(streamed[cell]["gwr_linear"][0, place], curves.points, 2) == pytest.approx(
                wanted, abs=1e-4
            )


def test_a_slider_reads_the_stored_curves(ask, stored):
    def recalls(visited, **options):
        return [row["recall"] for row in ask(STUDIES["route-at"], visited=visited, **options).numbers["means"]]

    at_one, half, two = (recalls(visited, min_distance=DISTANCE) for visited in (1.0, 1.5, 2.0))
    assert at_one == pytest.approx([row["recall"] for row in stored[0].numbers["means"]], abs=1e-3)
    assert half == pytest.approx([(a + b) / 2 for a, b in zip(at_one, two, strict=True)])
    assert recalls(2.0, min_distance=DISTANCE, partition="whitening")[1] > 0
    for wrong, message in (
        ({"min_distance": 9}, "no curves for d9 s0: choose one of d8 s0"),
        ({"visited": 7}, "1 and 6"),
    ):
        with pytest.raises(BadSetting, match=message):
            ask(STUDIES["route-at"], **wrong)
    result = ask(STUDIES["route-at"])
    numbers = result.numbers
    assert len(result.tables["rows"]) == 12 * len(ROUTERS) and numbers["buckets"] == BUCKETS
    setting = [numbers[name] for name in ("min_distance", "sinks", "partition", "l")]
    assert setting == [DISTANCE, 0, "raw keys", 1.0] and numbers["lines"]["oracle"]["l"] == list(range(1, BUCKETS + 1))
    budgets = stored[0].numbers["budgets"]
    assert budgets == sorted({row["l"] for row in numbers["curve"]}) == sorted({r["l"] for r in numbers["closures"]})
    assert {row["router"] for row in numbers["timings"]} == {*ROUTERS, "buckets"} and numbers["paper"]
    assert {row["side"] for row in numbers["balance"]} == {"calibration", "test"} and numbers["notes"]


def test_a_readers_text_is_the_test(ask, context, own_text, monkeypatch):
    far = ask(STUDIES["route-at"], visited=2.0, min_distance=16, sinks=2, text=own_text).numbers
    assert any("fitted for keys at least 8 back, the first 0 left out" in note for note in far["notes"])
    means = {row["router"]: row["recall"] for row in far["means"]}
    assert max(means.values()) == means["oracle"] and {row["side"] for row in far["balance"]} == {"test"}
    visit = ask(STUDIES["route-visit"], text=own_text, min_distance=16).numbers
    assert any("are tried here at 16" in note for note in visit["notes"])
    first = ask(STUDIES["route-at"], visited=2.0, min_distance=DISTANCE, text=own_text).numbers
    assert first["documents"] > 1 and first["protocol"]["unit"] == "windows"
    assert "fitted" not in " ".join(first["notes"])
    monkeypatch.setattr("analysis.studies.routing.live.score_routers", None)
    again = ask(STUDIES["route-at"], visited=3.0, min_distance=DISTANCE, text=own_text).numbers
    assert again["means"][6]["recall"] > first["means"][6]["recall"], "and another budget needs no pass"
    with pytest.raises(BadText, match="short has . tokens .* must be at least 9 tokens long"):
        ask(STUDIES["route-at"], min_distance=DISTANCE, text=context.add_text("short", "the cat"))
    with pytest.raises(BadSetting, match="tested in buckets of raw keys"):
        ask(STUDIES["route-at"], min_distance=DISTANCE, partition="whitening", text=own_text)


def test_a_step_of_generation_is_timed_against_dense(ask, own_text):
    numbers = ask(STUDIES["route-time"], text=own_text, visited=3, length=40, new_tokens=3, repeats=1).numbers
    assert [row["side"] for row in numbers["rows"]] == ["dense", "bucket routing"] and numbers["length"] == 40
    assert all(row["ms_per_token"] > 0 for row in numbers["rows"]) and numbers["step_parts"]["router"] > 0
    assert "gathered buckets" in numbers["rows"][1]["kernel"] and "3 of 6 buckets" in numbers["sentence"]
    for wrong, message in (({"visited": 7}, "7 buckets were to be visited"), ({"length": 64}, "prompt is 64")):
        with pytest.raises(BadSetting, match=message):
            ask(STUDIES["route-time"], text=own_text, **wrong)


def test_the_buckets_of_one_query(ask, context):
    key = context.add_text("mine", "the cat sat on the mat and the cat saw a dog " * 5)
    result = ask(STUDIES["route-visit"], text=key, position=45, layer=1, head=2, visited=2, min_distance=DISTANCE)
    tokens, buckets, numbers = result.tables["tokens"], result.tables["buckets"], result.numbers
    assert tokens["attention"][:46].sum() == pytest.approx(1, abs=1e-5) and not tokens["attention"][46:].any()
    assert (tokens["bucket"][46:] == -1).all() and tokens["far"].sum() == 46 - DISTANCE
    assert buckets["rank"].tolist() == list(range(BUCKETS)) and buckets["visited"].sum() == 2
    assert buckets["keys"].sum() == 46 - DISTANCE and buckets["mass"].sum() == pytest.approx(1, abs=1e-5)
    far = tokens[tokens["far"]]
    share = far[far["visited"]]["attention"].sum() / far["attention"].sum()
    assert numbers["recall"] == pytest.approx(share, abs=1e-4) and numbers["recall"] <= numbers["best"] + 1e-6
    assert set(tokens[tokens["visited"]]["bucket"]) <= set(buckets[buckets["visited"]]["bucket"])
    for router in ("oracle", "recency", "random", "mlp", "static_prior"):
        numbers = ask(STUDIES["route-visit"], text=key, position=45, router=router, min_distance=DISTANCE).numbers
        assert router != "oracle" or numbers["recall"] == pytest.approx(numbers["best"])
    for wrong, error, message in (
        ({"position": 4}, BadText, "must be at least 9 tokens long"),
        ({"layer": 3}, BadSetting, "Layers run from 0 to 2"),
        ({"router": "knn"}, BadSetting, "There is no router 'knn'"),
        ({"visited": 7}, BadSetting, "buckets to visit is 7"),
    ):
        with pytest.raises(error, match=message):
            ask(STUDIES["route-visit"], text=key, min_distance=DISTANCE, **wrong)


def test_the_method_finds_its_routers_or_makes_some(home, tmp_path, context):
    (near,) = candidates(context, context.model(str(home / "tiny")), [{"name": "bucket_routing"}])
    assert near.method.fitted.settings.name == "c6-d8-s0" and near.settings["window"] == DISTANCE
    fresh = Context(state=tmp_path, browser=False)
    with pytest.raises(NotFitted, match="no stored routing curves"):
        STUDIES["route-at"](model=str(home / "tiny"), context=fresh)
    model = fresh.model(str(home / "tiny"))
    (fitted,) = candidates(fresh, model, [{"name": "bucket_routing", "settings": {"visited": 2}}])
    settings = fitted.method.fitted.settings
    assert fitted.method.fitted.about["revision"] == model.revision and "visited 2" in fitted.label
    path = next((tmp_path / "routing").glob("*.safetensors"))
    assert RoutingState.load(path).settings == settings and "mlp" not in fitted.method.fitted.kinds
    assert fit_on_samples(fresh, model).settings == settings


def test_from_the_command_line(home, capsys):
    files = sorted(str(path) for path in (home / "corpus").rglob("*.txt"))
    place = ["--model", str(home / "tiny"), "--state", str(home / "state")]
    sizes = ["--min-distance", "8", "--buckets", "6", "--prompts", "3", "--no-mlp", "--heads", "0:0", "--json"]
    assert main(["route", *files, *place, *sizes]) == 0
    row = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"][0]
    assert list(row)[:6] == ["layer", "head", "router", "l", "recall", "selectivity"]
    assert main(["route-at", *place, "--visited", "1.5", "--min-distance", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["l"] == 1.5
    assert main(["route-visit", "story", *place, "--min-distance", "8", "--position", "30"]) == 0
    assert "sends" in capsys.readouterr().out
