"""What a model writes: token for token as whole passes, and its score by hand."""

from math import log2

import numpy as np
import pytest
import torch

from analysis.methods import METHODS
from analysis.probes.pieces import Item
from analysis.probes.scoring import answer_written
from analysis.probes.written import MORE, budget, graded, ndcg, order, plain, stands
from analysis.seam.attention import apply
from tests.made.tiny import token_ids
from tests.probes.test_probe_scoring import model_of
from tests.probes.test_probes import make, pieces  # noqa: F401


@pytest.mark.parametrize("name", ["dense", "streaming_llm"])
def test_the_likeliest_token_each_time_as_whole_passes_have_it(name):
    model, method = model_of("llama"), METHODS[name]()
    item = Item(token_ids(1, 40, seed=3)[0].numpy(), np.array([[3, 4], [5, 6]]), 0, None, 30)
    written, ids = answer_written(model, method, item, 6), item.ids.tolist()
    with apply(model, method), torch.no_grad():
        for token in written:
            assert token == model.lm(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()
            ids.append(int(token))
    ends = ["\n" in model.tokenizer.decode([token]) for token in written]
    assert not any(ends[:-1]) and (len(written) == 6 or ends[-1])


@pytest.mark.parametrize("answer, text, right", [
    ("Paris", "It is Paris.", True),
    ("The Hague", "in the hague!", True),
    ("Paris", "Parisian", False),
    ("12-b", "12b", True),
    ("the", "the", False),
])  # fmt: skip
def test_an_answer_counts_in_whole_words_without_capitals_points_and_articles(answer, text, right):
    assert stands(answer, text) is right


def test_lines_end_and_rankings_are_graded_by_hand(pieces):  # noqa: F811
    item = make(pieces, "several_needles")
    line, wrong = pieces.ids("\n"), item.candidates[item.right - 1]
    assert graded(pieces, item, item.answer) == graded(pieces, item, np.concatenate([wrong, item.answer])) == 1
    assert graded(pieces, item, np.concatenate([wrong, line, item.answer])) == 0 == graded(pieces, item, wrong)
    best = 2 / log2(2) + 1 / log2(3)
    assert ndcg([0, 1, 2], (2, 1, 0)) == 1 and ndcg([], (2, 1, 0)) == 0
    assert ndcg([1, 0], (2, 1, 0)) == pytest.approx((1 / log2(2) + 2 / log2(3)) / best)
    assert ndcg([2, 0], (2, 1, 0)) == pytest.approx(2 / log2(3) / best)
    assert order("b, then a and b", ["a", "b", "c"]) == [1, 0] and plain("A  Cat's") == "cats"
    assert ndcg([*range(12)], (*[0] * 11, 1)) == 0, "the first ten places count"


def test_a_ranking_is_graded_by_its_order_and_has_room_to_list_all(pieces):  # noqa: F811
    item = make(pieces, "reranking", 900, choices=3)
    ranked = [item.candidates[place] for place in np.argsort([-value for value in item.relevance])]
    assert graded(pieces, item, np.concatenate(ranked)) == 1
    assert 0 < graded(pieces, item, np.concatenate(ranked[::-1])) < 1
    size = item.candidates.shape[1]
    assert budget(item, 2000) == size * 3 * 3 + MORE and budget(item, 900) == size
    assert (
        budget(make(pieces, "uuid_needle", choices=3), 2000) == make(pieces, "uuid_needle").candidates.shape[1] + MORE
    )
