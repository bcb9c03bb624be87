"""One pass for several readers gives each of them what its own pass would; queries of all heads, against a reading of
one head and against what the stock model gives."""

import numpy as np
import pytest
import torch

from analysis.methods import METHODS
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.statistics import HeadReading, attention_inputs, forward
from analysis.statistics.heads import ALL
from analysis.statistics.reader import Reader
from analysis.statistics.sampled import TOP, QueryReading
from analysis.statistics.states import attention_states
from tests.made.full_tables import few
from tests.made.tiny import FAMILIES, LAYERS, tiny, token_ids


def watched(model, ids, run) -> dict:
    """(layer, first query) -> probabilities [H, m] of single queries, as a watch saw them in a pass."""
    observed = {}

    def watch(block, probabilities):
        for row, query in enumerate(block.rows.tolist()):
            row_of_query = torch.zeros(probabilities.shape[1], len(ids))
            row_of_query[:, block.columns] = (
                probabilities[0, :, row] * block.visible[0, 0].expand(len(block.rows), -1)[row]
            ).float()
            observed[block.layer, query] = row_of_query

    run(watch)
    return observed


@pytest.mark.parametrize("family", FAMILIES)
def test_each_sees_what_a_pass_of_its_own_shows(family):
    model, ids = load_model(tiny(family)), few(length=40)[0].numpy()
    alone = HeadReading(model.num_layers, model.num_heads)
    alone.read(model, ids)
    result, inputs, reader = HeadReading(model.num_layers, model.num_heads, query_block=7), {}, []

    def together(watch):
        reader.append(Reader(result, [watch], lambda layer, hidden: inputs.update({layer: hidden.clone()}), keep=True))
        result.read(model, ids, reader=reader[0])

    def dense(watch):
        with torch.no_grad(), apply(model, METHODS["dense"](), watch=watch):
            forward(model, ids)

    ours, alone_rows = watched(model, ids, together), watched(model, ids, dense)
    assert ours.keys() == alone_rows.keys() and len(ours) == model.num_layers * len(ids)
    for place, probabilities in alone_rows.items():
        torch.testing.assert_close(ours[place], probabilities, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(result.means(), alone.means(), rtol=1e-5, atol=1e-6)
    for layer, hidden in enumerate(attention_inputs(model, [ids])):
        torch.testing.assert_close(inputs[layer].float(), hidden, rtol=1e-4, atol=1e-5)
    states = attention_states(model, ids)
    for layer, retained in reader[0].states.items():  # none where a mask or a soft cap needs the seam's own path
        torch.testing.assert_close(retained.scores(0, 0, 40), states[layer].scores(0, 0, 40), rtol=1e-4, atol=1e-5)
    assert reader[0].states or family in ("gemma2", "mistral")


def test_on_an_accelerator_the_seam_computes(monkeypatch):
    monkeypatch.setattr("analysis.statistics.reader.accelerated", lambda tensor: True)
    test_each_sees_what_a_pass_of_its_own_shows("llama")


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
