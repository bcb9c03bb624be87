"""The controls of phase 2: a base trained under random groups or a window alone, its router left as it was."""

from dataclasses import replace

import pytest
import torch

from analysis.errors import BadSetting
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.training.mitigations import Control, method_of
from tests.made.tiny import LAYERS, tiny, token_ids
from tests.made.tuning import SECOND, start


def test_what_the_controls_read():
    """A window as long as the text is full attention, with its gradient; groups are drawn anew for every turn."""
    model, router, ids = load_model(tiny("llama")), start(), token_ids(1, 24)

    def read(method):
        with apply(model, method, kernels=True):
            return model.lm(ids, use_cache=False).logits

    model.lm.requires_grad_(True)
    try:
        full = method_of(replace(SECOND, reading="alone"), router.variant(window=24))
        assert torch.allclose(read(full), model.lm(ids, use_cache=False).logits, atol=1e-4)
    finally:
        model.lm.requires_grad_(False)
    drawn = method_of(replace(SECOND, reading="drawn"), router)
    assert isinstance(drawn, Control) and drawn.plan.groups == 4
    hidden, groups = torch.zeros(2, 400, 32), {}
    for turn in ((), (1, 0), (1, 1), (2, 0)):
        drawn.begin(*turn)
        groups[turn] = [drawn.token_features(layer, hidden, None) for layer in range(LAYERS)]
        assert all((g.sum(-1) == 1).all() and g.shape == (2, 400, 4) for g in groups[turn])
        assert all(torch.equal(a, drawn.token_features(i, hidden, None)) for i, a in enumerate(groups[turn]))
    firsts = [layers[0] for layers in groups.values()] + [groups[1, 0][1]]
    assert not any(torch.equal(a, b) for i, a in enumerate(firsts) for b in firsts[:i])


def test_a_control_belongs_to_phase_2():
    for reading in ("drawn", "alone"):
        with pytest.raises(BadSetting, match="gives the router no gradient"):
            replace(SECOND, reading=reading, phase=1)
