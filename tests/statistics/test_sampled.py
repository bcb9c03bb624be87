"""Queries of all heads: against a reading of one head and against what the stock model gives."""

import numpy as np
import pytest
import torch

from analysis.models import load_model
from analysis.statistics.heads import ALL, HeadReading
from analysis.statistics.reader import Reader
from analysis.statistics.sampled import TOP, QueryReading
from tests.made.tiny import LAYERS, tiny, token_ids

WINDOW, FIRST = 12, 40  # of far reading; tokens of the first of two windows


@pytest.mark.parametrize("family", ["llama", "gemma2"])  # the compiled path, and one whose masks the seam applies
def test_numbers_keys_and_the_largest_of_all_queries(family):
    lm = tiny(family)
    model, ids = load_model(lm), token_ids(1, 70)[0]
    heads = lm.config.num_attention_heads
    queries = np.array([1, 7, 39, 41, 69])
    result = QueryReading(LAYERS, heads, queries, window=WINDOW)
    parts = [ids[:FIRST], ids[FIRST:]]
    for start, part in zip((0, FIRST), parts, strict=True):
        result.begin_window(start)
        result.read(model, part, reader=Reader(result, [result.watch]))
    plain = HeadReading(LAYERS, heads, window=WINDOW, head=(1, 2))
    for part in parts:
        plain.read(model, part)
    assert result.sums == pytest.approx(plain.sums, rel=1e-5) and (result.counts == plain.counts).all()
    numbers = plain.queries()[list(ALL)].to_numpy()
    assert result.values[:, 1, 2] == pytest.approx(numbers[queries], rel=1e-4, abs=1e-5, nan_ok=True)
    for column, name in enumerate(ALL):
        expected = np.sort(numbers[~np.isnan(numbers[:, column]), column])[::-1][:TOP]
        assert result.high[1, 2, column][: len(expected)] == pytest.approx(expected, rel=1e-4, abs=1e-5), name
        places = result.at[1, 2, column]
        assert numbers[places[places >= 0], column] == pytest.approx(expected, rel=1e-4, abs=1e-5), name
        assert (places == -1).sum() == TOP - len(expected)
    stock = lm.config._attn_implementation
    lm.set_attn_implementation("eager")
    with torch.no_grad():
        weights = [torch.stack(lm(part[None], output_attentions=True).attentions)[:, 0] for part in parts]
    lm.set_attn_implementation(stock)
    for row, query in enumerate(queries):
        window, start = (0, 0) if query < FIRST else (1, FIRST)
        observed = weights[window][:, :, query - start].clone()  # [L, H, T]
        observed[..., 0] = -1  # the first token is no key
        assert result.best[row].tolist() == (observed.argmax(-1) + start).tolist()
        assert result.weight[row] == pytest.approx(observed.amax(-1).numpy(), abs=1e-5)
