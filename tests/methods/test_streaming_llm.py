"""Sinks and a window: the mask by hand, and what a model then reads."""

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from analysis.errors import BadModel
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.seam.attention import Block, apply
from tests.made.tiny import GROUPED, left_padded, tiny, token_ids

STREAMING = METHODS["streaming_llm"]


def kept(method, length, first=0):
    """bool [T, T] that a method asks for, causality applied as the seam does."""
    places = torch.arange(length)
    visible = (places <= places[:, None])[None, None]
    asked = method.mask(Block(0, torch.zeros(1, 1, length, length), visible, places, places, torch.tensor([first])))
    return (asked & visible)[0, 0]


def logits(lm, method, ids, **inputs):
    with torch.no_grad(), apply(lm, method):
        return lm(ids, use_cache=False, **inputs).logits


def test_the_mask_by_hand():
    expected = [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 0, 1, 1, 0, 0],
        [1, 0, 0, 1, 1, 0],
        [1, 0, 0, 0, 1, 1],
    ]
    assert kept(STREAMING(n_sink=1, window=2), 6).int().tolist() == expected
    assert kept(STREAMING(n_sink=0, window=1), 4).equal(torch.eye(4, dtype=torch.bool))


def test_a_token_reads_sinks_and_window_and_no_more():
    counts = kept(STREAMING(n_sink=4, window=8), 40).sum(1)
    assert counts.tolist() == [min(i + 1, 12) for i in range(40)]


def test_sinks_are_the_first_real_tokens():
    assert kept(STREAMING(n_sink=2, window=1), 6, first=3)[5].int().tolist() == [1, 1, 1, 1, 1, 1]  # padding is masked
    lm, (ids, mask) = tiny("llama"), left_padded(2, 40)
    method = STREAMING(n_sink=2, window=6)
    padded = logits(lm, method, ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0))
    assert (padded[1:, 5:] - logits(lm, method, ids[1:, 5:])).abs().max() < 1e-4


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_text_no_longer_than_sinks_and_window_is_dense_and_one_token_more_is_not(family):
    lm, ids = tiny(family), token_ids(2, 11)
    method = STREAMING(n_sink=3, window=7)
    same, dense = logits(lm, method, ids), logits(lm, Method(), ids)
    assert torch.equal(same[:, :10], dense[:, :10]) and (same[:, 10] - dense[:, 10]).abs().max() > 1e-4


def test_what_is_not_read_cannot_matter():
    """With one layer's reach: what lies between the sinks and all windows before a token changes nothing there."""
    lm, ids = tiny("llama"), token_ids(1, 40)
    method = STREAMING(n_sink=2, window=3)  # 3 layers reach back 3 * 2 tokens beside the sinks
    other = ids.clone()
    other[:, 10:20] = token_ids(1, 40, seed=5)[:, 10:20]
    before, after = logits(lm, method, ids), logits(lm, method, other)
    assert torch.equal(before[:, 30:], after[:, 30:]) and not torch.equal(before[:, 20], after[:, 20])


def rotated(x, place):
    """x [D] at a place of a text, as Llama rotates it: dimension d with d + D / 2 by place / 10000^(2 d / D)."""
    half = len(x) // 2
    angle = place / 10_000 ** (torch.arange(half, dtype=torch.float64) / half)
    a, b = x[:half], x[half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()])


def test_in_the_cache_the_sinks_stand_right_before_the_window():
    """Every score by hand, from the queries and keys as the model rotated them: those of a query far behind the sinks
    turn back to the last place of a full cache."""
    seen = []

    class Watched(STREAMING):
        def encode_tokens(self, layer, query, key, past, module, tables):
            seen.append((query[0].double(), key[0].double(), module.scaling))
            return super().encode_tokens(layer, query, key, past, module, tables)

        def scores(self, block):
            found = super().scores(block)
            if block.layer == 0:
                seen.append((block.scores[0].double(), found[0].double(), None))
            return found

    sinks, window = 2, 4
    logits(tiny("llama"), Watched(n_sink=sinks, window=window, positions="cache"), token_ids(1, 12))
    (query, key, scaling), (before, after, _) = seen[:2]
    share = len(query) // len(key)
    for i in range(12):
        for j in range(i + 1):
            for head in range(len(query)):
                wanted = before[head, i, j]
                if j < sinks and i >= sinks + window:
                    back = rotated(query[head, i], sinks + window - 1 - i)
                    wanted = (back @ key[head // share, j]) * scaling
                assert after[head, i, j].item() == pytest.approx(wanted.item(), abs=1e-3), (head, i, j)
    assert (after - before)[:, 6:, :2].abs().max() > 1e-2


def test_in_the_cache_a_token_is_predicted_as_from_what_is_kept_alone():
    """An oracle without this code: with one layer, keys and values come from the tokens alone, so what is kept, given
    to the stock model as a text of its own, must predict the same."""
    torch.manual_seed(0)
    stock = AutoModelForCausalLM.from_config(
        LlamaConfig(**GROUPED | {"num_hidden_layers": 1}), attn_implementation="eager"
    )
    with torch.no_grad():
        for name, p in stock.eval().named_parameters():
            p.mul_(20 if "q_proj" in name or "k_proj" in name else 1)
    sinks, window, ids = 3, 6, token_ids(2, 40)
    found = logits(stock, STREAMING(n_sink=sinks, window=window, positions="cache"), ids)
    in_text = logits(stock, STREAMING(n_sink=sinks, window=window), ids)
    far = []
    for i in range(40):
        kept = ids[:, : i + 1] if i < sinks + window else torch.cat([ids[:, :sinks], ids[:, i + 1 - window : i + 1]], 1)
        with torch.no_grad():
            wanted = stock(kept, use_cache=False).logits[:, -1]
        assert (found[:, i] - wanted).abs().max() < 1e-4, i
        far.append((in_text[:, i] - wanted).abs().max().item())
    assert max(far[: sinks + window]) < 1e-4 < 1e-2 < max(far), "positions of the text are another thing, farther on"


def test_positions_in_the_cache_are_those_of_a_short_text_and_need_a_rotation():
    lm, ids = tiny("llama"), token_ids(2, 11)
    method = STREAMING(n_sink=3, window=7, positions="cache")
    same, dense = logits(lm, method, ids), logits(lm, Method(), ids)
    assert torch.equal(same[:, :10], dense[:, :10])
    plain = logits(lm, STREAMING(n_sink=3, window=7), ids)
    assert (same - plain)[:, :10].abs().max() == 0 < (same - plain)[:, 10].abs().max()
    alone = STREAMING(n_sink=0, window=3, positions="cache")
    assert torch.equal(logits(lm, alone, ids), logits(lm, STREAMING(n_sink=0, window=3), ids))
    with pytest.raises(BadModel, match="need rotary embeddings, and this model has none"):
        logits(tiny("gpt2"), method, ids)
