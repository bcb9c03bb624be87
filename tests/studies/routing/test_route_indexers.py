"""Indexers beside bucket routers: what is measured, against full tables of attention; what is kept for the method."""

import numpy as np
import pytest
import torch

from analysis.corpus import sample_texts, tokenize
from analysis.errors import BadSetting, NotFitted
from analysis.indexers.sizes import Sizes
from analysis.studies import STUDIES
from analysis.studies.ready.candidates import candidates
from analysis.studies.routing.cells import Cell
from analysis.studies.routing.indexers import BOUNDS, fit_indexers, score_indexers
from analysis.studies.routing.score import Curves
from analysis.studies.routing.starved import starved_rows
from analysis.studies.routing.texts import Prompt
from tests.made.routed import SMALL

FREE = ["low_rank", "moba"]
KEYS = 4


@pytest.fixture(scope="module")
def scored(home, context):
    """(the model, its prompt, curves at 1 and 4 of 4 parts of the far keys, shares of all attention)."""
    lm = context.model(str(home / "tiny"))
    ids = np.arange(3, 51) % 40 + 3
    cell = Cell(KEYS, 0)
    heads = [(layer, head) for layer in range(lm.num_layers) for head in range(lm.num_heads)]
    curves = Curves(heads, [1, 4], 4, {cell: {}}, {cell: {}}, {})
    indexed = fit_indexers(context, lm, [Prompt(0, ids), Prompt(1, ids[::-1].copy())], FREE, Sizes(unit=4))
    score_indexers(context, lm, [Prompt(0, ids)], indexed, cell, curves)
    return lm, ids, curves, indexed


def test_bounds_and_newest_keys_are_those_of_full_tables(scored):
    lm, ids, curves, indexed = scored
    cell = Cell(KEYS, 0)
    lm.lm.set_attn_implementation("eager")
    with torch.no_grad():
        tables = lm.lm(torch.from_numpy(ids)[None], output_attentions=True, use_cache=False).attentions
    for layer, table in enumerate(tables):
        wanted = {"oracle_head": [], "oracle_layer": [], "recent_keys": []}
        all_of, far_of = [], []
        for row in range(KEYS, len(ids)):
            far = table[0, :, row, : row - KEYS + 1]  # [H, keys]
            count = int(np.ceil(far.shape[1] / 4))
            shared = far.sum(0).topk(count).indices
            masses = {
                "oracle_head": far.topk(count, -1).values.sum(-1),
                "oracle_layer": far[:, shared].sum(-1),
                "recent_keys": far[:, -count:].sum(-1),
            }
            for name, values in masses.items():
                wanted[name].append(values / far.sum(-1))
            far_of.append(far.sum(-1))
            all_of.append(1 - far.sum(-1) + masses["recent_keys"])
        place = slice(layer * lm.num_heads, (layer + 1) * lm.num_heads)
        for name, rows in wanted.items():
            ours = curves.recall[cell][name][0, place, 0]
            assert np.allclose(ours, torch.stack(rows).mean(0), atol=1e-5), name
        assert np.allclose(indexed.whole["recent_keys"][0, place, 0], torch.stack(all_of).mean(0), atol=1e-5)
        assert np.allclose(indexed.far[0, place], torch.stack(far_of).mean(0), atol=1e-5)


def test_no_choice_finds_more_than_the_bound_of_its_kind(scored):
    lm, _, curves, indexed = scored
    cell = Cell(KEYS, 0)
    recall = curves.recall[cell]
    assert all(np.allclose(values[..., -1], 1, atol=1e-5) for values in recall.values()), "all keys hold all"
    assert (recall["oracle_head"] + 1e-5 >= recall["oracle_group"]).all()
    assert recall["oracle_group"].mean() + 1e-5 >= recall["oracle_layer"].mean() >= recall["low_rank"].mean()
    assert recall["oracle_head"].mean() >= recall["moba"].mean()
    rows = starved_rows(curves, cell, indexed, FREE, 1)
    assert {row.kind for row in rows} == {"low_rank"}, "MoBA's heads choose for themselves"
    shares = [row.recall / row.alone for row in rows]
    assert shares == sorted(shares) and len(rows) == lm.num_layers * lm.num_heads


def test_route_tells_of_them_and_keeps_them_for_the_method(ask, home, context):
    sizes = {"corpus": str(home / "corpus"), "mlp": False, **SMALL}
    numbers = ask(STUDIES["route"], **sizes, kinds=FREE).numbers
    assert {row["kind"] for row in numbers["indexers"]} == set(FREE)
    assert {*FREE, *BOUNDS, "recent_keys"} <= {row["router"] for row in numbers["means"]}
    assert all(0 < row["recall"] <= row["whole"] <= 1 for row in numbers["indexers"])
    lm = context.model(str(home / "tiny"))
    (method,) = candidates(context, lm, [{"name": "indexer"}])
    assert method.method.kind == "low_rank" and method.state.texts
    with pytest.raises(BadSetting):
        ask(STUDIES["route"], **sizes, kinds=FREE, heads="0.1")
    with pytest.raises(BadSetting):
        ask(STUDIES["route"], **sizes, kinds=["lsh"])


def test_one_token_is_shown_what_its_indexer_offers_it(ask, home, context):
    """Against the scores of the stored indexer and the whole attention."""
    ask(STUDIES["route"], corpus=str(home / "corpus"), mlp=False, **SMALL, kinds=FREE)
    key = context.add_text("offered", sample_texts()["story"][1][:400])
    lm, place = context.model(str(home / "tiny")), 40
    (method,) = candidates(context, lm, [{"name": "indexer", "settings": {"kind": "low_rank"}}])
    about = {"text": key, "position": place, "layer": 1, "head": 2, "visited": KEYS, "min_distance": KEYS}
    result = ask(STUDIES["route-visit"], **about, router="low_rank")
    ids = torch.as_tensor(tokenize(lm.tokenizer, sample_texts()["story"][1][:400], lm.max_positions, 1).ids)
    lm.lm.set_attn_implementation("eager")
    with torch.no_grad():
        out = lm.lm(ids[None, : place + 1], output_attentions=True, output_hidden_states=True, use_cache=False)
    far = out.attentions[1][0, 2, place, : place - KEYS + 1]
    hidden = lm.lm.base_model.layers[1].input_layernorm(out.hidden_states[1][0])
    state = {
        name: method.method.fitted[f"low_rank.layers.1.self_attn.indexer.{name}"] for name in ("q.weight", "k.weight")
    }
    scores = (hidden[place] @ state["q.weight"].mT) @ (hidden @ state["k.weight"].mT).mT
    offered = scores[: len(far)].topk(KEYS).indices
    tokens = result.tables["tokens"]
    assert sorted(tokens.index[tokens["visited"]]) == sorted(offered.tolist())
    assert result.numbers["recall"] == pytest.approx(float(far[offered].sum() / far.sum()), abs=1e-4)
    assert result.numbers["best"] == pytest.approx(float(far.topk(KEYS).values.sum() / far.sum()), abs=1e-4)
    with pytest.raises(NotFitted):
        ask(STUDIES["route-visit"], **about, router="qsa")
