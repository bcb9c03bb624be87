"""Names of heads: what is read of a pattern by hand and against the stock model, and the texts made for them."""

import numpy as np
import pytest
import torch

from analysis.methods import METHODS
from analysis.models import load_model
from analysis.probes.named import DRAWS, SETTLED, needles, repeats
from analysis.seam.attention import Block, apply
from analysis.statistics.names import NAMES, PatternReading, copied, steady
from tests.made.tiny import LAYERS, tiny


def one_layer(weights: list, spans: dict) -> PatternReading:
    """A reading of one layer, one head and one text with these weights [T, T], in two blocks of queries."""
    p = torch.tensor(weights)[None, None]
    length = p.shape[-1]
    reading = PatternReading(1, 1, (1, length), spans)
    for rows in (torch.arange(length - 1), torch.arange(length - 1, length)):
        visible = (torch.arange(length) <= rows[:, None])[None, None]
        displayed = p[:, :, rows]
        reading.watch(
            Block(0, displayed, visible, rows, torch.arange(length), torch.zeros(1, dtype=torch.long)), displayed
        )
    return reading


def test_shares_of_spans_evenness_and_a_steady_distance_by_hand():
    weights = [[1.0, 0, 0, 0], [0.25, 0.75, 0, 0], [0.5, 0.3, 0.2, 0], [0.25, 0.25, 0.25, 0.25]]
    before = np.array([[0, 0], [0, 1], [1, 2], [2, 3]])[None, None]  # the token before, of all queries but the first
    nobody = np.zeros_like(before)
    reading = one_layer(weights, {"before": np.concatenate([before, before + 1]), "nobody": nobody})
    result = reading.shares()["before"][:, 0, 0, 0]
    assert result == pytest.approx([(0.25 + 0.3 + 0.25) / 3, (0.75 + 0.2 + 0.25) / 3])
    assert np.isnan(reading.shares()["nobody"]).all() and reading.best[0, 0, 0].tolist() == [0, 1, 0, 0]
    entropy = [-sum(w * np.log(w) for w in row if w) for row in weights]
    assert reading.evenness().item() == pytest.approx(sum(entropy) / np.log([1, 2, 3, 4]).sum(), rel=1e-5)
    assert copied(reading.best, before).item() == pytest.approx(0 / 3)
    spans_of_row = np.array([[0, 0], [1, 2], [0, 1], [2, 3]])[None, None]
    assert copied(reading.best, spans_of_row).item() == pytest.approx(2 / 3)
    best = np.array([[0, 0, 1, 2, 0, 4]])[None, None]  # 0, 1, 1, 1, 4, 1 back
    assert steady(best, 1).item() == pytest.approx(4 / 5) and steady(best, 0).item() == pytest.approx(4 / 6)


def test_what_the_seam_shows_is_what_the_stock_model_gives():
    lm = tiny("llama")
    built = repeats(3, 40, lm.config.vocab_size, np.random.default_rng(0))
    model = load_model(lm)
    heads = lm.config.num_attention_heads
    reading = PatternReading(LAYERS, heads, built.ids.shape, built.spans)
    with torch.no_grad(), apply(model, METHODS["dense"](), watch=reading.watch):
        lm.base_model(torch.from_numpy(built.ids), use_cache=False)
    stock = lm.config._attn_implementation
    lm.set_attn_implementation("eager")
    with torch.no_grad():
        weights = torch.stack(lm.base_model(torch.from_numpy(built.ids), output_attentions=True).attentions)
    lm.set_attn_implementation(stock)
    before = weights.diagonal(-1, 3, 4).mean(-1).transpose(1, 2)  # [L, B, H, T, T] -> [L, H, B]
    assert reading.shares()["previous token"][0] == pytest.approx(before.numpy(), abs=1e-5)
    assert reading.shares()["sink"][0] == pytest.approx(weights[..., 1:, 0].mean(-1).transpose(1, 2).numpy(), abs=1e-5)
    period = int((built.needs[0].sum()) + SETTLED)
    copy = weights[:, 0].diagonal(1 - period, 2, 3)[..., -period:].mean(-1)  # [L, H] of the first text
    assert reading.shares()["induction"][0][..., 0] == pytest.approx(copy.numpy(), abs=1e-5)


def test_random_tokens_end_with_a_stretch_and_its_copy():
    built = repeats(5, 64, 500, np.random.default_rng(1))
    periods = (built.needs.sum(1) + SETTLED).tolist()
    assert len(set(periods)) > 1 and min(periods) >= 16 and max(periods) <= 32
    for index, (row, period) in enumerate(zip(built.ids, periods, strict=True)):
        assert (row[-period:] == row[-2 * period : -period]).all() and len(set(row[: 64 - period])) == 64 - period
        low, high = built.spans["duplicate token"][0, index, -1]
        assert (row[low], high - low) == (row[-1], 1)
        low = built.spans["induction"][0, index, -2, 0]
        assert row[low] == row[-1] and row[low - 1] == row[-2], "what followed the earlier copy"
        displaced = built.spans["induction"][1:, index, -2, 0]
        assert len(displaced) == DRAWS and (np.abs(displaced - low) > 1).all()
    assert built.fresh == 64 - max(periods) and not (built.needs & built.rest).any()
    assert built.spans["local"][0, 0, 20].tolist() == [13, 21] and built.spans["local"][0, 0, 3].tolist() == [0, 0]
    assert built.spans["sink"][0, :, 1:].tolist() == [[[0, 1]] * 63] * 5
    assert set(built.spans) | {"retrieval", "even", "positional"} == set(NAMES)


def test_a_needle_asks_for_its_own_tokens():
    model = load_model("demo")
    built = needles(model.tokenizer, 3, 256, np.random.default_rng(2))
    for index, row in enumerate(built.ids):
        answer = np.flatnonzero(built.needs[index])
        request = built.spans["retrieval"][0, index, answer - 1, 0]
        assert (row[request] == row[answer]).all() and request.max() < answer.min() and answer[-1] == len(row) - 1
        displaced = built.spans["retrieval"][1:, index, answer[0] - 1, 0]
        assert (row[displaced] == row[answer[0]]).mean() < 0.5
