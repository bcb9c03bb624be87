"""The router lab on a tiny model: what it returns, some heads and all, documents apart, bad input."""

import json

import numpy as np
import pandas as pd
import pytest

from analysis.errors import BadSetting, BadText
from analysis.metrics.intervals import interval
from analysis.routers import ROUTERS
from analysis.studies import STUDIES
from analysis.studies.routing.fit import ABLATIONS
from analysis.studies.routing.rows import edges, without_each
from analysis.studies.routing.texts import heads_of, prompts_of, sides_of
from tests.made.routed import BUCKETS, SMALL


def test_what_it_returns(stored):
    numbers = stored[0].numbers
    rows = pd.DataFrame(numbers["rows"])
    assert set(rows["router"]) == set(ROUTERS) and rows["recall"].between(0, 1).all()
    assert len(rows) == 3 * 4 * len(ROUTERS) * len(numbers["budgets"])
    by = rows.pivot_table(index=["layer", "head", "l"], columns="router", values="recall")
    assert (by.sub(by["oracle"], axis=0).drop(columns="oracle").max() < 1e-5).all(), "the oracle bounds all"
    cells = {cell["name"]: cell for cell in numbers["cells"]}
    assert set(cells) == {"d8 s0", "d16 s0", "d16 s4", "d8 s0 gwr_geometric", "d8 s0 whitening"}
    routers = {name: {row["router"] for row in cell["means"]} for name, cell in cells.items()}
    assert routers["d16 s0"] == set(ROUTERS) - set(ABLATIONS), "ablations are of the first setting alone"
    assert routers["d8 s0 whitening"] == {"random", "whitening", "oracle"} and cells["d8 s0 whitening"]["closure"] == []
    means = {row["router"]: row for row in numbers["means"]}
    for row in means.values():
        assert row["recall_low"] is None and len(row["recall_points"]) == 3
        assert np.mean(row["recall_points"]) == pytest.approx(row["recall"])
    points = means["random"]["recall_points"]
    assert min(points) - 0.03 <= numbers["l"] / BUCKETS <= max(points) + 0.03
    assert means["random"]["selectivity"] == pytest.approx(numbers["l"] / BUCKETS, abs=0.05)
    closed = {row["router"]: row for row in numbers["closure"]}
    assert closed["kmeans"]["ratio_of_means"] == 0 and closed["mlp"]["ratio_of_means"] == 1
    assert len(numbers["heads"]) == 12 and {"kmeans", "gwr_linear", "mlp", "gap_closure"} <= set(numbers["heads"][0])
    assert {row["router"] for row in numbers["timings"]} == {*ROUTERS, "buckets"}
    assert all(row["route_us"] > 0 for row in numbers["timings"] if row["router"] != "buckets")
    assert {row["side"] for row in numbers["balance"]} == {"calibration", "test"} and len(numbers["balance"]) == 12
    assert any(row["router"] == "gwr_linear" and row["value"] == 0.726 for row in numbers["paper"])
    assert "3 documents, too few for an interval: in these texts" in numbers["sentence"]
    assert numbers["protocol"]["documents"] == [3, 3] and "python -m analysis route" in numbers["protocol"]["command"]
    json.dumps(numbers, allow_nan=False)


def test_all_buckets_hold_all_and_curves_only_rise(stored):
    curves = stored[1]
    assert curves.points[-1] == BUCKETS
    for cell, kinds in curves.recall.items():
        for kind, values in kinds.items():
            assert (np.diff(values, axis=-1) > -1e-5).all(), (cell, kind)
            for of_kind in (values, curves.selectivity[cell][kind]):
                assert np.allclose(of_kind[..., -1], 1, atol=1e-4), (cell, kind)


def test_some_heads_equal_the_same_among_all_however_they_are_written(ask, home, context):
    sizes = {"corpus": str(home / "corpus"), "mlp": False, **SMALL}
    of_all_heads, chosen = (ask(STUDIES["route"], **sizes, heads=heads).numbers for heads in ("all", "2:3,0:1"))
    of_all = {(row["layer"], row["head"]): row for row in of_all_heads["heads"]}
    assert [(row["layer"], row["head"]) for row in chosen["heads"]] == [(0, 1), (2, 3)]
    for row in chosen["heads"]:
        for kind in ("kmeans", "static_prior", "gwr_linear", "oracle"):
            assert row[kind] == pytest.approx(of_all[row["layer"], row["head"]][kind], abs=1e-3), kind
    assert of_all_heads["closure"] == [] and of_all_heads["heads"][0]["gap_closure"] is None, "no router is learned"
    model = context.model(str(home / "tiny"))
    assert heads_of(model, "2.0,1.3") == heads_of(model, "1:3, 2:0") == {1: [3], 2: [0]}


def test_documents_are_on_one_side_only_and_too_few_or_too_short_are_refused(home, context, ask):
    texts = [context.add_text(f"{number}", f"text {number} " * 40) for number in range(7)]
    calibrate, test = sides_of(context, [*texts, texts[0]], "")
    assert len(calibrate) == 3 and len(test) == 4 and not set(calibrate) & set(test)
    prompts = prompts_of(context.model(str(home / "tiny")), ["the cat sat " * 400, "a dog " * 30], 32, 6, 9)
    assert {prompt.document for prompt in prompts} == {0, 1} and all(9 <= len(prompt.ids) <= 32 for prompt in prompts)
    texts = [context.add_text(f"{number}", f"text number {number} is short") for number in range(6)]
    with pytest.raises(BadText, match="3 documents to calibrate and 3 others to test, and 5 different"):
        ask(STUDIES["route"], texts=texts[:5], **SMALL)
    with pytest.raises(BadText, match=r"Document 1 has \d+ tokens and no query .* at least 51 tokens long"):
        ask(STUDIES["route"], texts=texts, **SMALL | {"min_distance": 50})


def test_shares_of_all_attention_further_distances_and_sgd(ask, home):
    """The oracle over all buckets finds all far attention, and of all attention the less the farther back; SGD trains
    another router than Adam, everything else is the same."""
    sizes = {"corpus": str(home / "corpus"), "heads": "0.1", **SMALL}
    usual, changed = (
        ask(STUDIES["route"], **sizes, **options).numbers
        for options in ({}, {"recall_of": "all", "distances": [12, 20], "optimiser": "sgd"})
    )
    cells = {cell["name"]: cell for cell in changed["cells"]}
    assert list(cells) == ["d8 s0 of all", "d12 s0 of all", "d12 s4 of all", "d20 s0 of all", "d20 s4 of all"]

    def best(cell):
        return next(row["recall"] for row in cell["means"] if row["router"] == "oracle")

    recalls = [best(cells[name]) for name in ("d8 s0 of all", "d12 s0 of all", "d20 s0 of all")]
    assert best(usual["cells"][0]) > recalls[0] > recalls[1] > recalls[2] > 0
    assert usual["lines"]["oracle"]["recall"][-1] == pytest.approx(1, abs=1e-4)
    assert 0 < changed["lines"]["oracle"]["recall"][-1] < 0.999
    for kind, stays in (("kmeans", True), ("mlp", False)):
        usual_value, changed_value = (numbers["lines"][kind]["selectivity"] for numbers in (usual, changed))
        assert (usual_value == pytest.approx(changed_value, abs=1e-6)) == stays, kind
    assert "of all attention, far and near" in changed["sentence"]
    assert "--optimiser sgd" in changed["protocol"]["command"]
    with pytest.raises(BadSetting, match="measured and not stored"):
        ask(STUDIES["route"], **sizes | {"heads": "all"}, recall_of="all", store=True)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"heads": "9:0"}, "Layers run from 0 to 2, and 9 was asked for"),
        ({"heads": "1:4"}, "Heads run from 0 to 3, and 4 was asked for"),
        ({"heads": "first"}, "'first' names no head"),
        ({"buckets": 65}, "number of buckets is 65 and must lie between 2 and 64"),
        ({"min_distance": 64}, "minimum distance is 64 and must lie between 1 and 63"),
        ({"min_distance": 60, "sinks": 8}, "make it at least 69 tokens long"),
        ({"length": 65}, "length of a prompt is 65"),
        ({"distances": [4, 60]}, "further minimum distance is 60 and must lie between 1 and 59"),
        ({"visited": 9}, "buckets to visit is 9"),
        ({"corpus": ""}, "several texts or one folder"),
        ({"heads": "0:0", "store": True}, "Only routers of all heads"),
        ({"seed": -1}, "seed of route is -1"),
    ],
)
def test_what_cannot_be_is_refused(ask, home, wrong, message):
    with pytest.raises(BadSetting, match=message):
        ask(STUDIES["route"], **{"corpus": str(home / "corpus"), **SMALL} | wrong)


def test_intervals_are_over_documents():
    """Three documents gave a bar; now five at least, and then that of the t interval."""
    values = np.array([[0.1], [0.2], [0.3], [0.25], [0.15]])
    _, low, high, *_ = interval(values)
    assert edges(0.2, without_each(values)[:, 0], 5) == pytest.approx((low, high))
    assert without_each(np.array([[1.0], [3.0], [np.nan]]))[:, 0].tolist() == [3, 1, 2]
    assert edges(0.2, without_each(values[:3])[:, 0], 5) == (None, None)
