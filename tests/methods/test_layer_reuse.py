"""Layer reuse: what anchors choose and layers below them read, and how far layers agree, from the stock attention."""

import itertools

import numpy as np
import pytest
import torch

from analysis import load_model
from analysis.commands.routing import Reuse
from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.metrics.anchors import place_anchors, served, spelled, spread
from analysis.seam.attention import apply
from analysis.statistics.best_keys import overlap, overlaps, rows_of
from analysis.studies.routing.reuse import reuse
from tests.made.evaluating import TEXT
from tests.made.tiny import LAYERS, tiny, token_ids

T, K = 40, 5


def stock_attention(lm, ids) -> list[torch.Tensor]:
    """Of every layer the mean over heads of the stock model's attention, float64 [T, T]."""
    with torch.no_grad():
        return [layer[0].double().mean(0) for layer in lm(ids, output_attentions=True).attentions]


def read_by(lm, method, ids) -> list[torch.Tensor]:
    """Of every layer which keys are read, bool [H, T, T]."""
    read = {}
    with torch.no_grad(), apply(lm, method, watch=lambda block, _: read.setdefault(block.layer, block.read[0])):
        lm(ids)
    return [read[layer].expand(lm.config.num_attention_heads, -1, -1) for layer in range(LAYERS)]


def test_layers_below_an_anchor_read_its_keys():
    lm, ids = tiny("llama"), token_ids(1, T)
    first = stock_attention(lm, ids)[0]
    read = read_by(lm, METHODS["layer_reuse"](k=K, pattern="FSS"), ids)
    wanted = torch.zeros(T, T, dtype=torch.bool)
    for query in range(T):
        wanted[query, first[query].topk(min(K, query + 1)).indices] = True
    for layer in read:
        assert torch.equal(layer, wanted.expand_as(layer))
    two_anchors = read_by(lm, METHODS["layer_reuse"](k=K, pattern="FSF"), ids)
    assert torch.equal(two_anchors[1], two_anchors[0]) and not torch.equal(two_anchors[2], two_anchors[0])
    assert (two_anchors[2].sum(-1) <= K).all()


def test_with_all_keys_nothing_changes_and_a_wrong_pattern_is_refused():
    lm, ids = tiny("llama"), token_ids(1, T)
    with torch.no_grad():
        stock = lm(ids).logits
        with apply(lm, METHODS["layer_reuse"](k=T, anchors=1)):
            torch.testing.assert_close(lm(ids).logits, stock, atol=1e-4, rtol=0)
    with pytest.raises(BadSetting, match="does not fit a model of 3 layers"):
        METHODS["layer_reuse"](pattern="FS").check(lm)
    for pattern in ("SFF", "FxS"):
        with pytest.raises(BadSetting, match="pattern of Layer reuse is"):
            METHODS["layer_reuse"](pattern=pattern)


def test_the_overlap_of_layers_is_that_of_the_stock_attention():
    """Set by set, of the compared queries."""
    lm, ids = tiny("llama"), token_ids(1, T)
    shares = overlaps(load_model(lm), [ids[0].numpy()], K)
    best = [
        {row: set(layer[row].topk(K).indices.tolist()) for row in rows_of(T).tolist()}
        for layer in stock_attention(lm, ids)
    ]
    for a, b in itertools.product(range(LAYERS), repeat=2):
        wanted = np.mean([len(best[a][row] & best[b][row]) / K for row in best[a]])
        assert shares[a, b] == pytest.approx(wanted)


def test_the_command_places_anchors_by_the_overlap(context, home):
    text = context.add_text("one", TEXT)
    request = {"model": str(home / "tiny"), "text": text, "anchors": 2}
    answer = reuse(Reuse(**request, k=4), context=context)
    table = answer.overlap.pivot(index="layer", columns="other", values="shared").to_numpy()
    assert answer.pattern == spelled(place_anchors(table, 2), LAYERS)
    assert answer.mean == served(table, [0, *placed(answer)])
    assert np.allclose(table, table.T) and (np.diag(table) == 1).all() and 0 < answer.chance < 0.2
    assert answer.mean >= answer.even - 1e-9 and f"{answer.mean:.0%}" in answer.sentence
    with pytest.raises(BadSetting, match="a text of 4,000 tokens is needed"):
        reuse(Reuse(**request, k=1000), context=context)


def placed(answer) -> list[int]:
    """The anchors of an answer, the first apart."""
    return [layer for layer, letter in enumerate(answer.pattern) if letter == "F" and layer]


def test_overlaps_patterns_and_the_best_placements():
    """Two layers, one query: keys 0 and 1 against 1 and 3."""
    assert overlap(torch.tensor([[[0, 1]], [[3, 1]]]), 4).tolist() == [[1, 0.5], [0.5, 1]]
    assert spread(6, 2) == [0, 3] and spread(7, 3) == [0, 2, 4] and spread(2, 9) == [0, 1]
    assert spelled([0, 3], 6) == "FSSFSS"
    shares = np.array([[1, 0.5, 0.2], [0.5, 1, 0.4], [0.2, 0.4, 1]])
    assert place_anchors(shares, 2) == [0, 2] and served(shares, [0, 2]) == 0.5 and served(shares, [0]) == 0.35
    draw = np.random.default_rng(0)
    for layers in (1, 2, 5, 7):
        shares = draw.random((layers, layers))
        shares = (shares + shares.T) / 2
        np.fill_diagonal(shares, 1)
        for count in range(1, layers + 1):
            placed = place_anchors(shares, count)
            placements = [[0, *further] for further in itertools.combinations(range(1, layers), count - 1)]
            best = max(total(shares, anchors) for anchors in placements)
            assert placed in placements and total(shares, placed) == pytest.approx(best)


def total(shares: np.ndarray, anchors: list[int]) -> float:
    """The sum of overlaps of each layer with the anchor above."""
    return sum(shares[max(a for a in anchors if a <= layer), layer] for layer in range(len(shares)))
