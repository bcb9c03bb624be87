"""One pass for several readers gives each of them what its own pass would."""

import numpy as np
import pytest
import torch

from analysis.methods import METHODS
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.statistics import HeadReading, attention_inputs, forward
from analysis.statistics.reader import Reader
from analysis.statistics.states import attention_states
from tests.made.full_tables import few
from tests.made.tiny import FAMILIES, tiny


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
