"""What dense attention reads from afar and the strongest far links of every token, streamed by blocks, against tables
that are fully made; and what enters each attention layer."""

import numpy as np
import pytest
import torch

from analysis.methods import METHODS
from analysis.models import load_model
from analysis.seam.attention import Block, apply
from analysis.statistics import FarLinks, FarReading, attention_inputs, forward
from analysis.statistics.far import MOST
from tests.made.tiny import FAMILIES, tiny, token_ids

PROJECTIONS = ("q_proj", "c_attn", "query_key_value")  # what the hidden states enter first in an attention layer


def windows(*lengths: int) -> list[np.ndarray]:
    return [token_ids(1, length, seed=length)[0].numpy() for length in lengths]


def streamed(model, parts, min_distance) -> FarReading:
    """FarReading as the studies feed it: window by window."""
    reading, start = FarReading(sum(map(len, parts)), min_distance), 0
    for ids in parts:
        with apply(model, METHODS["dense"](), watch=reading.window(start)):
            forward(model, ids)
        start += len(ids)
    return reading


def materialised(model, parts, min_distance, sliding) -> dict:
    """The same from the stock model's full attention tables, one number at a time in float64."""
    total = sum(map(len, parts))
    received, expected, mass, uniform = np.zeros(total), np.zeros(total), {}, {}
    far = far_uniform = sink = queries = 0.0
    start = 0
    for ids in parts:
        with torch.no_grad():
            tables = model.lm(torch.tensor(ids)[None], output_attentions=True, use_cache=False).attentions
        for layer, table in enumerate(tables):
            read = table[0].double().mean(0).numpy()  # [T, T]
            for i in range(len(ids)):
                visible = [j for j in range(i + 1) if i - j < sliding[layer]]
                distant = [j for j in visible if j > 0 and i - j >= min_distance]
                far_mass = sum(read[i, j] for j in distant)
                for j in distant:
                    received[start + j] += read[i, j]
                    expected[start + j] += far_mass / len(distant)
                for j in visible:
                    if j > 0:
                        bin_ = (i - j).bit_length()  # 0, 1, 2-3, 4-7, ...
                        mass[bin_] = mass.get(bin_, 0) + read[i, j]
                        uniform[bin_] = uniform.get(bin_, 0) + 1 / len(visible)
                far, far_uniform = far + far_mass, far_uniform + len(distant) / len(visible)
                sink, queries = sink + read[i, 0], queries + 1
        start += len(ids)
    ratio = [r / e if e > 0 else np.nan for r, e in zip(received, expected, strict=True)]
    bins = sorted(uniform)
    return {
        "tokens": ratio,
        "low": [0 if b == 0 else 2 ** (b - 1) for b in bins],
        "high": [2**b for b in bins],
        "mass": [mass[b] / queries for b in bins],
        "uniform": [uniform[b] / queries for b in bins],
        "shares": {"far": far / queries, "far_uniform": far_uniform / queries, "sink": sink / queries},
    }


@pytest.mark.parametrize("block_bytes", [64 << 20, 4 * 4 * 40 * 7], ids=["one block", "blocks of 7 queries"])
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "gpt2"])
def test_far_reading_equals_the_full_table(family, block_bytes, monkeypatch):
    monkeypatch.setattr("analysis.seam.reference.BLOCK_BYTES", block_bytes)
    model, parts = load_model(tiny(family)), windows(40, 23, 1)
    sliding = {"mistral": [12] * 3, "gemma2": [12, 99, 12]}.get(family, [99] * 3)
    reading, truth = streamed(model, parts, 6), materialised(model, parts, 6, sliding)
    np.testing.assert_allclose(reading.tokens(), truth["tokens"], rtol=1e-4)
    table = reading.distances()
    assert table["low"].tolist() == truth["low"] and table["high"].tolist() == truth["high"]
    np.testing.assert_allclose(table["mass"], truth["mass"], atol=1e-5)
    np.testing.assert_allclose(table["uniform"], truth["uniform"], atol=1e-5)
    for name, value in truth["shares"].items():
        assert reading.shares()[name] == pytest.approx(value, abs=1e-5), name
    assert table["mass"].sum() + reading.shares()["sink"] == pytest.approx(1, abs=1e-5)


def test_hooks_are_taken_off_after_a_failure_and_a_text_without_far_tokens_has_no_far_reading(monkeypatch):
    # the only key 8 tokens back is the sink; then token 9 can read token 1
    none, far_key = (streamed(load_model(tiny("llama")), windows(length), 8) for length in (9, 10))
    assert np.isnan(none.tokens()).all() and none.shares()["far"] == none.shares()["far_uniform"] == 0
    assert far_key.tokens()[1] == pytest.approx(1) and np.isnan(np.delete(far_key.tokens(), 1)).all()
    model = load_model(tiny("llama"))
    monkeypatch.setattr("analysis.statistics.inputs.forward", lambda *a: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        attention_inputs(model, windows(5))
    assert not any(m._forward_pre_hooks for m in model.lm.modules())


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_inputs_are_what_the_projections_get(family):
    model, parts, observed = load_model(tiny(family)), windows(17, 5, 1), []
    modules = [m for n, m in model.lm.named_modules() if n.endswith(PROJECTIONS)]
    handles = [m.register_forward_pre_hook(lambda m, args: observed.append((m, args[0][0].clone()))) for m in modules]
    try:
        inputs = attention_inputs(model, parts)
    finally:
        for handle in handles:
            handle.remove()
    assert len(inputs) == len(modules) == model.num_layers
    for layer, module in enumerate(modules):
        assert inputs[layer].shape == (23, model.width) and not inputs[layer].requires_grad
        assert torch.equal(inputs[layer], torch.cat([x for m, x in observed if m is module]))
    assert not any(m._forward_pre_hooks for m in model.lm.modules())


def test_others_may_use_the_model_while_progress_is_reported():
    """Interactive requests are served at a job's progress: what they run must not enter the job's numbers."""
    model, parts, done = load_model(tiny("llama")), windows(12, 8), []

    def progress(fraction):
        assert not any(m._forward_pre_hooks for m in model.lm.modules())
        forward(model, windows(30)[0])
        done.append(fraction)

    inputs = attention_inputs(model, parts, progress)
    assert done == [0.0, 0.5] and [len(x) for x in inputs] == [20] * 3
    assert all(torch.equal(a, b) for a, b in zip(inputs, attention_inputs(model, parts), strict=True))


LAYERS, HEADS, WINDOWS = 3, 2, (40, 23)


def tables(seed: int) -> list[list[torch.Tensor]]:
    """Causal attention [H, t, t] of each window in each layer."""
    draw = torch.Generator().manual_seed(seed)
    windows = []
    for size in WINDOWS:
        scores = torch.randn(LAYERS, HEADS, size, size, generator=draw) * 3
        future = torch.ones(size, size, dtype=torch.bool).triu(1)
        windows.append(list(torch.softmax(scores.masked_fill(future, -torch.inf), -1)))
    return windows


def links_of(attention, min_distance: int, size: int) -> FarLinks:
    links, start = FarLinks(sum(WINDOWS), HEADS, min_distance), 0
    for window in attention:
        for layer, table in enumerate(window):
            for rows in torch.arange(table.shape[1]).split(size):
                reach = int(rows[-1]) + 1
                attention_rows, columns = table[None, :, rows, :reach], torch.arange(reach)
                visible = (columns <= rows[:, None])[None, None]
                block = Block(layer, attention_rows, visible, rows, columns, torch.zeros(1, dtype=torch.long))
                links.window(start)(block, attention_rows)
        start += window[0].shape[1]
    return links


def strongest(attention, min_distance: int) -> list[list[list[tuple]]]:
    """[reads, readers][token] -> the MOST strongest (share, place, head), each place once."""
    best_links: list[list[dict]] = [[{} for _ in range(sum(WINDOWS))] for _ in range(2)]
    start = 0
    for window in attention:
        for layer, table in enumerate(window):
            for head, query, key in np.ndindex(*table.shape):
                if key and query - key >= min_distance:
                    link = (float(table[head, query, key]), layer * HEADS + head)
                    for side, near_end, far_end in ((0, query, key), (1, key, query)):
                        links = best_links[side][start + near_end]
                        links[start + far_end] = max(link, links.get(start + far_end, (0.0, 0)))
        start += window[0].shape[1]
    order = lambda links: sorted(((share, place, head) for place, (share, head) in links.items()), reverse=True)  # noqa: E731
    return [[order(links)[:MOST] for links in side] for side in best_links]


@pytest.mark.parametrize("seed, min_distance, size", [(0, 5, 7), (1, 1, 64), (2, 16, 3)])
def test_links_are_those_of_the_whole_tables(seed, min_distance, size):
    attention = tables(seed)
    links = links_of(attention, min_distance, size)
    for side, tokens in enumerate(strongest(attention, min_distance)):
        for token, wanted in enumerate(tokens):
            got = links.place[side, token].tolist()
            assert got == [place for _, place, _ in wanted] + [-1] * (MOST - len(wanted))
            assert links.head[side, token, : len(wanted)].tolist() == [head for *_, head in wanted]
            shares = links.share[side, token, : len(wanted)].tolist()
            assert shares == pytest.approx([share for share, *_ in wanted])
