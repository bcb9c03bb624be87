"""The token a page on one head opens with: a whole word with the strongest far read."""

import numpy as np
import pandas as pd
import pytest
import torch

from analysis.statistics.states import States
from analysis.studies.text import states as first_query
from analysis.studies.text.states import far_reads, telling_query


@pytest.mark.parametrize("window", [None, 9])
@pytest.mark.parametrize("size", [30, 7])
def test_far_reads_are_the_largest_far_weight_but_the_sink_s(window, size, monkeypatch):
    monkeypatch.setattr(first_query, "query_blocks", lambda n: [(a, min(a + size, n)) for a in range(0, n, size)])
    draw = torch.Generator().manual_seed(0)
    states = States(*(torch.randn(heads, 30, 8, generator=draw) for heads in (4, 2)), 1.0, None, window)
    reads = far_reads(states, 2, far=5)
    weights = states.scores(2, 0, 30).double().softmax(-1).numpy()
    for row in range(30):
        assert reads[row] == pytest.approx(weights[row, 1 : max(1, row - 4)].max(initial=0.0), abs=1e-6)
    assert not reads[:6].any() and reads[6] > 0


def test_a_whole_word_comes_first_then_a_piece_then_any_token(monkeypatch):
    """Reads .9 by a comma, .8 by a piece, .5 and .6 by whole words, of which one is no content word."""
    monkeypatch.setattr(first_query, "far_reads", lambda *_: np.array([0, 0.9, 0.8, 0.5, 0.6, 0], np.float32))
    words = pd.DataFrame({"piece": ["x", "x", ",", "Cr", " lamp", " the", " end"]})
    words["word"] = ["x", "x", ",", "Crale", "lamp", "the", "end"]
    words["content"] = [False, False, False, True, True, False, True]
    assert telling_query(None, 0, words, 1) == 3, "lamp"
    words.loc[4, "content"] = False
    assert telling_query(None, 0, words, 1) == 2, "Cr"
    words["content"] = False
    assert telling_query(None, 0, words, 1) == 1, ","
    monkeypatch.setattr(first_query, "far_reads", lambda *_: np.zeros(6, np.float32))
    assert telling_query(None, 0, words, 1) == 5, "nothing is far: the last token"
