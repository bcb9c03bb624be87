"""Windows by hand: sinks and the last tokens, positions in the text and in the cache, growing and dilated windows."""

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from analysis.methods import METHODS
from tests.made.passes import block, changed_end, logits, read_keys, watched
from tests.made.tiny import GROUPED, LAYERS, tiny, token_ids

STREAMING, LONGFORMER = METHODS["streaming_llm"], METHODS["longformer"]


def read(method, length: int, layer: int = 0, heads: int = 1, first: int = 0) -> torch.Tensor:
    """bool [H, T, T] that a method reads of a text."""
    return read_keys(method, block(torch.zeros(heads, length, length), layer, first=first))


def test_the_masks_by_hand():
    sink_and_two = [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 0, 1, 1, 0],
        [1, 0, 0, 1, 1],
    ]
    for method in (STREAMING(n_sink=1, window=2), LONGFORMER(n_global=1, window=2)):
        assert read(method, 5)[0].int().tolist() == sink_and_two
    assert read(STREAMING(n_sink=0, window=1), 4)[0].equal(torch.eye(4, dtype=torch.bool))
    assert read(STREAMING(n_sink=4, window=8), 40)[0].sum(1).tolist() == [min(i + 1, 12) for i in range(40)]
    assert read(STREAMING(n_sink=2, window=1), 6, first=3)[0, 5].all(), "sinks are counted from the first real token"


def test_what_is_not_read_cannot_matter():
    """With one layer's reach: what lies between the sinks and all windows before a token changes nothing there."""
    lm, ids = tiny("llama"), token_ids(1, 40)
    method = STREAMING(n_sink=2, window=3)  # 3 layers reach back 3 * 2 tokens beside the sinks
    changed = ids.clone()
    changed[:, 10:20] = changed_end(ids, 10)[:, 10:20]
    before, after = logits(lm, ids, method), logits(lm, changed, method)
    assert torch.equal(before[:, 30:], after[:, 30:]) and not torch.equal(before[:, 20], after[:, 20])


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_one_token_more_than_sinks_and_window_is_not_dense(family):
    lm, ids = tiny(family), token_ids(2, 11)
    sparse, dense = logits(lm, ids, STREAMING(n_sink=3, window=7)), logits(lm, ids)
    assert torch.equal(sparse[:, :10], dense[:, :10]) and (sparse[:, 10] - dense[:, 10]).abs().max() > 1e-4


def rotated(x: torch.Tensor, place: int) -> torch.Tensor:
    """x [D] at a place of a text, as Llama rotates it: dimension d with d + D / 2 by place / 10000^(2 d / D)."""
    half = len(x) // 2
    angle = place / 10_000 ** (torch.arange(half, dtype=torch.float64) / half)
    a, b = x[:half], x[half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()])


def test_in_the_cache_the_sinks_stand_right_before_the_window():
    """Every score by hand, from the queries and keys as the model rotated them: those of a query far behind the sinks
    turn back to the last place of a full cache."""
    passes = []

    class Watched(STREAMING):
        def encode_tokens(self, layer, query, key, past, module, tables):
            passes.append((query[0].double(), key[0].double(), module.scaling))
            return super().encode_tokens(layer, query, key, past, module, tables)

        def scores(self, block):
            moved = super().scores(block)
            if block.layer == 0:
                passes.append((block.scores[0].double(), moved[0].double(), None))
            return moved

    sinks, window = 2, 4
    logits(tiny("llama"), token_ids(1, 12), Watched(n_sink=sinks, window=window, positions="cache"))
    (query, key, scaling), (before, after, _) = passes[:2]
    group = len(query) // len(key)
    for i in range(12):
        for j in range(i + 1):
            for head in range(len(query)):
                wanted = before[head, i, j]
                if j < sinks and i >= sinks + window:
                    back = rotated(query[head, i], sinks + window - 1 - i)
                    wanted = (back @ key[head // group, j]) * scaling
                assert after[head, i, j].item() == pytest.approx(wanted.item(), abs=1e-3), (head, i, j)
    assert (after - before)[:, 6:, :2].abs().max() > 1e-2


def test_in_the_cache_a_token_is_predicted_as_from_what_is_kept_alone():
    """An oracle without this code: with one layer, keys and values come from the tokens alone, so what is kept, given
    to the stock model as a text of its own, must predict the same."""
    torch.manual_seed(0)
    config = LlamaConfig(**GROUPED | {"num_hidden_layers": 1})
    stock = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, p in stock.named_parameters():
            p.mul_(20 if "q_proj" in name or "k_proj" in name else 1)
    sinks, window, ids = 3, 6, token_ids(2, 40)
    in_cache = logits(stock, ids, STREAMING(n_sink=sinks, window=window, positions="cache"))
    in_text = logits(stock, ids, STREAMING(n_sink=sinks, window=window))
    apart = []
    for i in range(40):
        text = ids[:, : i + 1] if i < sinks + window else torch.cat([ids[:, :sinks], ids[:, i + 1 - window : i + 1]], 1)
        with torch.no_grad():
            wanted = stock(text, use_cache=False).logits[:, -1]
        assert (in_cache[:, i] - wanted).abs().max() < 1e-4, i
        apart.append((in_text[:, i] - wanted).abs().max().item())
    assert max(apart[: sinks + window]) < 1e-4 < 1e-2 < max(apart), "positions of the text are another thing"


def test_positions_in_the_cache_change_nothing_within_sinks_and_window_or_without_sinks():
    lm, ids = tiny("llama"), token_ids(2, 11)
    for sinks, window in ((3, 7), (0, 3)):
        in_cache, in_text = (
            logits(lm, ids, STREAMING(n_sink=sinks, window=window, positions=where)) for where in ("cache", "original")
        )
        apart = (in_cache - in_text).abs().amax((0, 2))
        assert not apart[:10].any() and bool(apart[10] > 0) == (sinks > 0)


@pytest.mark.parametrize("n_global", [0, 1, 4])
def test_equal_windows_of_longformer_are_a_window_with_sinks(n_global):
    """What makes a first token global, reading all before it, is nothing in a causal text."""
    lm, ids = tiny("llama"), token_ids()
    wanted = logits(lm, ids, STREAMING(window=6, n_sink=n_global))
    assert torch.equal(logits(lm, ids, LONGFORMER(window=6, n_global=n_global)), wanted)
    two_sided = [[j <= i and (i - j < 6 or j < n_global or i < n_global) for j in range(20)] for i in range(20)]
    assert read(LONGFORMER(window=6, n_global=n_global), 20)[0].tolist() == two_sided


def test_growing_and_dilated_windows_by_hand():
    method = LONGFORMER(window=20, n_global=0, widths="growing")
    method.check(tiny("llama"))
    assert [method.width(layer) for layer in range(LAYERS)] == [10, 20, 30]
    for layer, width in enumerate([10, 20, 30]):
        assert read(method, 40, layer)[0].sum(1).tolist() == [min(i + 1, width) for i in range(40)]
    assert LONGFORMER(window=1, widths="growing").width(0) == 1
    # Window 2, dilation 3, 3 layers: from layer 2 (the upper half) the last two of 3 heads read i and i - 3.
    method = LONGFORMER(window=2, n_global=0, dilation=3)
    method.check(tiny("llama"))
    for layer in (0, 1):
        assert (read(method, 9, layer, 3) == read(LONGFORMER(window=2, n_global=0), 9)).all()
    plain, *spread = read(method, 9, 2, 3)
    assert plain[8].nonzero().flatten().tolist() == [7, 8]
    for head in spread:
        assert [row.nonzero().flatten().tolist() for row in head[2:6]] == [[2], [0, 3], [1, 4], [2, 5]]
    assert read(method, 9, 2, 1)[0, 8].nonzero().flatten().tolist() == [5, 8], "a model of one head"


def test_keys_at_random_are_drawn_evenly():
    """BigBird: of 400 queries each reads itself and 3 keys before it, fewer where two fall on one; the places of 120 in
    every tenth of what lies before (about 11 more or fewer) are even, but for what falls on itself."""
    method = LONGFORMER(window=1, n_global=0, random=3)
    keys = read(method, 400, 1)[0]
    places = [(j + 0.5) / (i + 1) for i, row in enumerate(keys) for j in row.nonzero().flatten().tolist() if j < i]
    assert all(1 <= count <= 4 for count in keys.sum(1).tolist()) and not keys.triu(1).any()
    tenths = torch.histc(torch.tensor(places), 10, 0, 1).tolist()
    assert 1150 < sum(tenths) < 1200 and all(80 < count < 150 for count in tenths)
    assert not torch.equal(keys, read(method, 400, 0)[0]), "other layers, other keys"


def test_probabilities_of_growing_and_dilated_windows_in_float64():
    method = LONGFORMER(window=4, n_global=2, widths="growing", dilation=2)
    for attended, mass in watched(tiny("qwen3"), method, token_ids(1, 30)):
        width = 2 * (attended.layer + 1)
        for head in range(4):
            step = 2 if attended.layer == 2 and head >= 2 else 1
            for i in (0, 5, 29):
                keys = [j for j in range(i + 1) if j < 2 or ((i - j) % step == 0 and i - j < width * step)]
                wanted = torch.softmax(attended.scores[0, head, i, keys].double(), -1)
                assert torch.allclose(mass[0, head, i, keys].double(), wanted, atol=1e-6)
                assert mass[0, head, i].count_nonzero() <= len(keys)
