"""The circuit that looks back: random tokens that come again, by hand, and runs that are not repeated."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting
from lab.far.looking_back import SETTLED, Circuit, copy_losses, repeated, run

TINY = {"layers": 1, "width": 16, "heads": 2, "vocabulary": 20, "sequences": 4, "length": 16, "shortest": 4}


class Copier(torch.nn.Module):
    """Knows that a token comes again after `period` tokens: 20 nats more for it than for any other."""

    def __init__(self, period: int, vocabulary: int):
        super().__init__()
        self.period, self.vocabulary, self.one = period, vocabulary, torch.nn.Parameter(torch.ones(1))

    def forward(self, input_ids, use_cache):
        logits = torch.zeros(*input_ids.shape, self.vocabulary)
        known = torch.arange(self.period - 1, input_ids.shape[1])  # position p reads p + 1 - period and says p + 1
        said = 20 * torch.nn.functional.one_hot(input_ids[:, known + 1 - self.period], self.vocabulary).float()
        logits[:, known] = said
        return SimpleNamespace(logits=logits)


def test_segments_repeat_with_their_own_period():
    ids = repeated(50, 24, 100, np.random.default_rng(0), (4, 12))
    assert ids.shape == (50, 24) and ids.min() >= 1
    periods = [next(p for p in range(4, 13) if (row[p:] == row[:-p]).all()) for row in ids]
    assert len(set(periods)) > 5  # nothing is learned from one and the same distance
    twice = repeated(3, 10, 100, np.random.default_rng(0), (5, 5))
    assert (twice[:, :5] == twice[:, 5:]).all()


def test_a_model_that_copies_knows_the_second_copy_and_an_even_one_neither():
    first, second = copy_losses(Copier(8, 30), 8, 4, 30)
    assert first == pytest.approx(math.log(30)) and second < 1e-4
    first, second = copy_losses(Copier(3, 30), 8, 4, 30)  # it copies from elsewhere and is wrong
    assert second > 10
    assert SETTLED == 4


def test_a_run_gives_a_curve_and_ends_when_the_circuit_is_there():
    plan = Circuit(**TINY, steps=4, measured_every=2)
    curve = run(plan)
    assert [entry["step"] for entry in curve] == [2, 4] and curve[-1]["tokens"] == 4 * 4 * 16
    assert all(abs(entry["first"] - math.log(20)) < 1 for entry in curve)
    assert curve == run(plan)
    assert len(run(Circuit(**TINY, steps=4, measured_every=2, formed=100, family="llama"))) == 1
    for wrong in ({"family": "rnn"}, {"shortest": 60}):
        with pytest.raises(BadSetting):
            Circuit(**wrong)
