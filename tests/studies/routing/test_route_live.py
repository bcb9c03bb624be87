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
from analysis.routers.state import RoutingState
from analysis.seam.attention import apply
from analysis.statistics import forward
from analysis.studies import STUDIES
from analysis.studies.context import Context
from analysis.studies.ready.candidates import candidates
from analysis.studies.routing.cells import Cell
from analysis.studies.routing.live import from_state
from analysis.studies.routing.rows import at_budget
from analysis.studies.routing.score import score_routers
from analysis.studies.routing.states import fit_on_samples, state_near
from analysis.studies.routing.texts import Prompt
from tests.made.routed import BUCKETS, DISTANCE, everything, routed_home, routing_context


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a tiny model and a corpus."""
    return routed_home(tmp_path_factory.mktemp("route"))


@pytest.fixture(scope="module")
def context(home):
    """One context for the module."""
    return routing_context(home)


@pytest.fixture(scope="module")
def stored(home, context):
    """The result of a run with everything, stored."""
    return everything(home, context)


@pytest.fixture
def ask(home, context):
    """`ask(study, **arguments)` -> Result on the tiny model."""

    def ask(study, **arguments):
        return study(**{"model": str(home / "tiny")} | arguments, context=context)

    return ask


def test_recall_equals_a_loop_over_the_whole_attention(home, context, stored):
    """One prompt, one layer: dense attention in full, masses added key by key, against what was streamed."""
    model = context.model(str(home / "tiny"))
    ids = np.arange(3, 51)
    state = state_near(context, model, Cell(DISTANCE, 0))
    fitted = from_state(model, state, Cell(DISTANCE, 0))
    curves, _, _ = score_routers(context, model, [Prompt(0, ids)], fitted)
    seen, vectors = {}, {}

    def take(layer, q, k):
        vectors[layer] = q, k

    from analysis.studies.routing.passes import read_prompt

    read_prompt(model, ids, state.settings.rotated, take)
    with apply(model, METHODS["dense"](), watch=lambda b, p: seen.setdefault(b.layer, p[0])), torch.no_grad():
        forward(model, ids)
    for layer, head in ((0, 0), (2, 3)):
        labels = (vectors[layer][1][head // 2] @ state.centroids(layer)[head // 2].T).argmax(-1)
        mass, keys = torch.zeros(48 - DISTANCE, BUCKETS), torch.zeros(48 - DISTANCE, BUCKETS)
        for row, i in enumerate(range(DISTANCE, 48)):
            for j in range(i - DISTANCE + 1):
                mass[row, labels[j]] += seen[layer][head, i, j]
                keys[row, labels[j]] += 1
        mass, keys = mass / mass.sum(1, keepdim=True), keys / keys.sum(1, keepdim=True)
        queries = vectors[layer][0][head, DISTANCE:]
        chosen = state.router("gwr_linear", layer, 4).scores(vectors[layer][0])[head, DISTANCE:].topk(2).indices
        at = curves.heads.index((layer, head))
        cell = Cell(DISTANCE, 0)
        found = at_budget(curves.recall[cell]["gwr_linear"][0, at], curves.points, 2)
        assert found == pytest.approx(bucket_recall(mass, chosen), abs=1e-4) and len(queries) == 40
        share = at_budget(curves.selectivity[cell]["gwr_linear"][0, at], curves.points, 2)
        assert share == pytest.approx(bucket_recall(keys, chosen), abs=1e-4)


def test_a_slider_reads_the_stored_curves(ask, stored):
    found = ask(STUDIES["route-at"], visited=1.0, min_distance=DISTANCE).numbers
    for mine, row in zip(found["means"], stored.numbers["means"], strict=True):
        assert mine["router"] == row["router"] and mine["recall"] == pytest.approx(row["recall"], abs=1e-3)
    between = ask(STUDIES["route-at"], visited=1.5, min_distance=DISTANCE)
    two = ask(STUDIES["route-at"], visited=2.0, min_distance=DISTANCE).numbers["means"][6]["recall"]
    one, half = found["means"][6]["recall"], between.numbers["means"][6]["recall"]
    assert half == pytest.approx((one + two) / 2) and len(between.tables["rows"]) == 12 * len(ROUTERS)
    assert found["lines"]["oracle"]["l"] == list(range(1, BUCKETS + 1)) and found["buckets"] == BUCKETS
    assert (
        ask(STUDIES["route-at"], visited=2.0, min_distance=DISTANCE, partition="whitening").numbers["means"][1][
            "recall"
        ]
        > 0
    )
    with pytest.raises(BadSetting, match="no curves for d9 s0: choose one of d8 s0"):
        ask(STUDIES["route-at"], min_distance=9)
    with pytest.raises(BadSetting, match="between 1 and 6"):
        ask(STUDIES["route-at"], visited=7, min_distance=DISTANCE)


def test_a_readers_text_is_the_test(ask, stored, context, monkeypatch):
    key = context.add_text("mine", sample_texts()["story"][1][3000:3500])
    first = ask(STUDIES["route-at"], visited=2.0, min_distance=DISTANCE, text=key).numbers
    assert first["documents"] > 1 and first["protocol"]["unit"] == "windows"
    monkeypatch.setattr("analysis.studies.routing.live.score_routers", None)
    again = ask(STUDIES["route-at"], visited=3.0, min_distance=DISTANCE, text=key).numbers
    assert again["means"][6]["recall"] > first["means"][6]["recall"], "and another budget needs no pass"
    short = context.add_text("short", "the cat")
    with pytest.raises(BadText, match="short has . tokens .* must be at least 9 tokens long"):
        ask(STUDIES["route-at"], min_distance=DISTANCE, text=short)
    with pytest.raises(BadSetting, match="tested in buckets of raw keys"):
        ask(STUDIES["route-at"], min_distance=DISTANCE, partition="whitening", text=key)


def test_routers_are_tried_where_they_were_not_fitted_and_it_is_said(ask, stored, context):
    key = context.add_text("mine", sample_texts()["story"][1][3000:3500])
    far = ask(STUDIES["route-at"], visited=2.0, min_distance=16, sinks=2, text=key).numbers
    assert any("fitted for keys at least 8 back, the first 0 left out" in note for note in far["notes"])
    assert "fitted" not in " ".join(ask(STUDIES["route-at"], min_distance=DISTANCE, sinks=0, text=key).numbers["notes"])
    means = {row["router"]: row["recall"] for row in far["means"]}
    assert max(means.values()) == means["oracle"] and {row["side"] for row in far["balance"]} == {"test"}
    assert any(
        "are tried here at 16" in note
        for note in ask(STUDIES["route-visit"], text=key, min_distance=16).numbers["notes"]
    )
    with pytest.raises(BadText, match="must be at least 61 tokens long"):
        ask(STUDIES["route-at"], min_distance=60, text=context.add_text("short", "the cat sat on the mat"))


def test_what_a_page_needs_comes_with_every_budget(ask, stored):
    found = ask(STUDIES["route-at"]).numbers
    assert (found["min_distance"], found["sinks"], found["partition"], found["l"]) == (DISTANCE, 0, "raw keys", 1.0)
    budgets = sorted({row["l"] for row in found["curve"]})
    assert budgets == stored.numbers["budgets"] == sorted({row["l"] for row in found["closures"]})
    for row in found["closures"]:
        assert row["router"] != "kmeans" or row["mean_of_ratios"] in (0.0, None)
        assert row["router"] != "mlp" or row["ratio_of_means"] in (1.0, None)
    assert {row["router"] for row in found["timings"]} == {*ROUTERS, "buckets"}
    assert {row["side"] for row in found["balance"]} == {"calibration", "test"} and found["notes"] and found["paper"]


def test_a_step_of_generation_is_timed_against_dense(ask, stored, context):
    key = context.add_text("mine", sample_texts()["story"][1][3000:3500])
    numbers = ask(STUDIES["route-time"], text=key, visited=3, length=40, new_tokens=3, repeats=1).numbers
    assert [row["side"] for row in numbers["rows"]] == ["dense", "bucket routing"] and numbers["length"] == 40
    assert all(row["ms_per_token"] > 0 for row in numbers["rows"]) and numbers["step_parts"]["router"] > 0
    assert "gathered buckets" in numbers["rows"][1]["kernel"] and "3 of 6 buckets" in numbers["sentence"]
    with pytest.raises(BadSetting, match="7 buckets were to be visited: choose 1 to 6"):
        ask(STUDIES["route-time"], text=key, visited=7)
    with pytest.raises(BadSetting, match="The length of the prompt is 64"):
        ask(STUDIES["route-time"], text=key, length=64)


def test_the_buckets_of_one_query(ask, stored, context):
    key = context.add_text("mine", "the cat sat on the mat and the cat saw a dog " * 5)
    result = ask(STUDIES["route-visit"], text=key, position=45, layer=1, head=2, visited=2, min_distance=DISTANCE)
    tokens, buckets, numbers = result.tables["tokens"], result.tables["buckets"], result.numbers
    assert tokens["attention"][:46].sum() == pytest.approx(1, abs=1e-5) and not tokens["attention"][46:].any()
    assert (tokens["bucket"][46:] == -1).all() and tokens["far"].sum() == 46 - DISTANCE
    assert buckets["rank"].tolist() == list(range(BUCKETS)) and buckets["visited"].sum() == 2
    assert buckets["keys"].sum() == 46 - DISTANCE and buckets["mass"].sum() == pytest.approx(1, abs=1e-5)
    mine = tokens[tokens["far"]]
    share = mine[mine["visited"]]["attention"].sum() / mine["attention"].sum()
    assert numbers["recall"] == pytest.approx(share, abs=1e-4) and numbers["recall"] <= numbers["best"] + 1e-6
    assert set(tokens[tokens["visited"]]["bucket"]) <= set(buckets[buckets["visited"]]["bucket"])
    for router in ("oracle", "recency", "random", "mlp", "static_prior"):
        found = ask(STUDIES["route-visit"], text=key, position=45, router=router, min_distance=DISTANCE).numbers
        assert router != "oracle" or found["recall"] == pytest.approx(found["best"])
    for wrong, error, said in (
        ({"position": 4}, BadText, "must be at least 9 tokens long"),
        ({"layer": 3}, BadSetting, "Layers run from 0 to 2"),
        ({"router": "knn"}, BadSetting, "There is no router 'knn'"),
        ({"visited": 7}, BadSetting, "buckets to visit is 7"),
    ):
        with pytest.raises(error, match=said):
            ask(STUDIES["route-visit"], text=key, min_distance=DISTANCE, **wrong)


def test_no_curves_and_no_routers(home, tmp_path):
    context = Context(state=tmp_path, browser=False)
    with pytest.raises(NotFitted, match="no stored routing curves"):
        STUDIES["route-at"](model=str(home / "tiny"), context=context)


def test_the_method_finds_its_routers_or_makes_some(home, tmp_path, context, stored):
    (one,) = candidates(context, context.model(str(home / "tiny")), [{"name": "bucket_routing"}])
    assert one.method.fitted.settings.name == "c6-d8-s0" and one.settings["window"] == DISTANCE
    fresh = Context(state=tmp_path, browser=False)
    model = fresh.model(str(home / "tiny"))
    (two,) = candidates(fresh, model, [{"name": "bucket_routing", "settings": {"visited": 2}}])
    assert two.method.fitted.about["revision"] == model.revision and "visited 2" in two.label
    path = next((tmp_path / "routing").glob("*.safetensors"))
    assert RoutingState.load(path).settings == two.method.fitted.settings
    assert "mlp" not in two.method.fitted.kinds and fit_on_samples(fresh, model).settings == two.method.fitted.settings


def test_from_the_command_line(home, stored, capsys):
    files = sorted(str(path) for path in (home / "corpus").rglob("*.txt"))
    place = ["--model", str(home / "tiny"), "--state", str(home / "state")]
    sizes = ["--min-distance", "8", "--buckets", "6", "--prompts", "3", "--no-mlp", "--heads", "0:0", "--json"]
    assert main(["route", *files, *place, *sizes]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(told["rows"][0])[:6] == ["layer", "head", "router", "l", "recall", "selectivity"] and told["protocol"]
    assert main(["route-at", *place, "--visited", "1.5", "--min-distance", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["l"] == 1.5
    assert main(["route-visit", "story", *place, "--min-distance", "8", "--position", "30"]) == 0
    assert "sends" in capsys.readouterr().out
    assert main(["route", *files, *place, *sizes, "--heads", "7:7"]) == 2
    assert "Layers run from 0 to 2" in capsys.readouterr().err
