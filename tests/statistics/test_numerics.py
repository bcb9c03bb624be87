"""The numerics of a layer: its largest score, and how far its weights lie from float64, by hand and on a model."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analysis.statistics import HeadReading, Numerics
from analysis.statistics.states import attention_states
from tests.made.tiny import LAYERS, tiny, token_ids

HEADS, LENGTH, DIM = 2, 40, 16


def looked(offset: float, kind: torch.dtype, **module) -> tuple[float, float, float]:
    """One layer whose scores all carry the same `offset`, in a type."""
    random = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, HEADS, LENGTH, DIM, generator=random).bfloat16().float()
    query[..., 0], key[..., 0] = offset * DIM**0.5, 1.0
    result = Numerics(1)
    result.look(0, query.to(kind), key.to(kind), SimpleNamespace(**module))
    return tuple(result.found[0])


def test_large_scores_lie_apart_in_the_type_of_the_model_and_caps_and_windows_count():
    largest, local, in_model_type = looked(60, torch.bfloat16)
    assert 60 < largest < 75 and local < 1e-4 and in_model_type > 0.02
    _, local, in_model_type = looked(60, torch.float32)
    assert local == in_model_type < 1e-4
    assert looked(0, torch.bfloat16)[2] < in_model_type + 0.02, "small scores are told apart by few digits"
    assert looked(60, torch.float32, attn_logit_softcapping=20.0)[0] <= 20
    query, key = torch.ones(1, 1, 4, 2), torch.tensor([9.0, 1.0, 1.0, 1.0])[None, None, :, None] * torch.ones(2)
    far, near = Numerics(1), Numerics(1)
    far.look(0, query, key, SimpleNamespace(scaling=1.0))
    near.look(0, query[:, :, 1:], key[:, :, 1:], SimpleNamespace(scaling=1.0, sliding_window=2))
    assert (far.found[0, 0], near.found[0, 0]) == (18, 2)


def test_every_layer_of_a_reading_is_looked_at():
    from analysis.models import load_model

    model, ids = load_model(tiny("llama")), token_ids(1, LENGTH)[0].numpy()
    numerics = Numerics(model.num_layers)
    HeadReading(model.num_layers, model.num_heads, numerics=numerics).read(model, ids)
    table = numerics.table()
    assert table["layer"].tolist() == list(range(LAYERS)) and (table["difference"] < 1e-5).all()
    for layer, states in attention_states(model, ids).items():
        scores = torch.stack([states.scores(head, 0, LENGTH) for head in range(model.num_heads)])
        largest = scores.masked_fill(scores.isinf(), 0.0).abs().max().item()
        assert 0.2 * largest < table["largest_score"][layer] <= largest * (1 + 1e-5)
    assert np.isfinite(table.to_numpy()).all()


@pytest.mark.parametrize("length", [1, 3])
def test_short_texts(length):
    result = Numerics(1)
    result.look(0, torch.ones(1, 2, length, 4), torch.ones(1, 1, length, 4), SimpleNamespace())
    assert result.found[0].tolist() == [2.0, 0.0, 0.0]
