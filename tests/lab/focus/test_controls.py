"""The controls of phase 2: a base trained under random groups or a window alone, its router left as it was."""

import math
from dataclasses import replace

import pytest
import torch

from analysis.errors import BadSetting, Cancelled
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.training import run
from analysis.training.focus import finetune
from analysis.training.mitigations import Control, method_of
from tests.made.tiny import LAYERS, tiny, token_ids
from tests.made.tuning import IDS, SECOND, start


@pytest.mark.parametrize("reading", ["drawn", "alone"])
def test_a_control_trains_the_base_and_leaves_the_router(reading, tmp_path):
    model, given = load_model(tiny("llama")), start()
    plan = replace(SECOND, reading=reading, steps=6, check_windows=2)
    own, router, _, log = finetune(model, given, IDS, plan, tmp_path / "c")
    assert torch.equal(router.projection, given.projection) and torch.equal(router.centroids, given.centroids)
    assert log[-1]["loss"] < log[0]["loss"] and math.isfinite(log[-1]["hard"])
    weights = zip(own.lm.parameters(), model.lm.parameters(), strict=True)
    assert not any(torch.equal(ours, theirs) for ours, theirs in weights)


@pytest.mark.parametrize("reading", ["drawn", "alone"])
def test_a_stopped_control_ends_as_an_unbroken_one_bit_for_bit(reading, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "KEEP_EVERY", 3)
    model, plan = load_model(tiny("llama")), replace(SECOND, reading=reading)

    def stop(fraction, stage):
        if fraction >= 5 / 8:
            raise Cancelled("enough")

    whole, _, _, log = finetune(model, start(), IDS, plan, tmp_path / "whole")
    with pytest.raises(Cancelled):
        finetune(model, start(), IDS, plan, tmp_path / "stopped", stop)
    own, _, _, rows = finetune(model, start(), IDS, plan, tmp_path / "stopped")
    assert rows == log
    assert all(torch.equal(a, b) for a, b in zip(own.lm.parameters(), whole.lm.parameters(), strict=True))


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
    firsts = [one[0] for one in groups.values()] + [groups[1, 0][1]]
    assert not any(torch.equal(a, b) for i, a in enumerate(firsts) for b in firsts[:i])


def test_a_control_belongs_to_phase_2():
    for reading in ("drawn", "alone"):
        with pytest.raises(BadSetting, match="gives the router no gradient"):
            replace(SECOND, reading=reading, phase=1)
