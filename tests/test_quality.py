"""Perplexity by hand, on a model whose logits are known."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analysis.attention import apply
from analysis.errors import BadSetting, BadText
from analysis.methods import METHODS
from analysis.metrics.intervals import UNIT
from analysis.metrics.quality import perplexity, token_losses
from analysis.models import load_model
from tests.tiny import tiny, token_ids

# After token a, token b has the probability NEXT[a][b].
NEXT = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])


class Known:
    """A language model that looks at one token only; it remembers the windows it was given."""

    def __init__(self):
        self.given = []

    def __call__(self, ids, use_cache):
        assert not use_cache and not torch.is_grad_enabled()
        self.given.append(ids.tolist())
        return SimpleNamespace(logits=NEXT.log()[ids] + 7.0)  # a constant changes no probability


def known():
    return SimpleNamespace(lm=Known(), device=torch.device("cpu"))


def test_perplexity_by_hand_and_the_remainder_is_dropped():
    model = known()
    quality = perplexity(model, [0, 0, 1, 1, 2, 2, 0], window=3)
    assert model.lm.given == [[[0, 0, 1]], [[1, 2, 2]]]
    chances = [0.5, 0.25, 0.1, 0.6]  # 0>0, 0>1 | 1>2, 2>2; the last token has no window
    np.testing.assert_allclose(quality.losses, -np.log(np.reshape(chances, (2, 2))), rtol=1e-6)
    assert quality.perplexity == pytest.approx(math.prod(chances) ** -0.25)
    assert (quality.low, quality.high, quality.units) == (None, None, 1)


def test_an_interval_needs_two_units_and_holds_the_mean():
    ids = np.random.default_rng(0).integers(0, 3, 4 * (UNIT + 1))
    quality = perplexity(known(), ids, window=4)
    assert quality.losses.shape == (UNIT + 1, 3) and quality.units == 2
    assert quality.low <= quality.perplexity <= quality.high
    assert perplexity(known(), ids[: 4 * UNIT], window=4).low is None


def test_a_text_of_exactly_one_window_and_one_token_less():
    assert perplexity(known(), [0, 1, 2], window=3).losses.shape == (1, 2)
    with pytest.raises(BadText, match="has 2 tokens and one window needs 3"):
        perplexity(known(), [0, 1], window=3)


@pytest.mark.parametrize("window", [1, 0, -3])
def test_a_window_without_a_target_is_refused(window):
    with pytest.raises(BadSetting, match=f"A window of {window} tokens predicts nothing"):
        perplexity(known(), [0, 1, 2], window=window)


def test_losses_that_are_no_numbers_are_refused():
    model = known()
    model.lm = lambda ids, use_cache: SimpleNamespace(logits=torch.full((*ids.shape, 3), math.nan))
    with pytest.raises(BadSetting, match="not finite"):
        perplexity(model, [0, 1, 2], window=3)


def test_progress_counts_windows():
    seen = []
    perplexity(known(), list(range(3)) * 4, 3, seen.append)
    assert seen == [0.25, 0.5, 0.75, 1.0]


def test_losses_are_those_of_a_real_model_under_the_applied_method():
    model, ids = load_model(tiny("llama")), token_ids(2, 24)
    with torch.no_grad():
        stock = model.lm(ids, labels=ids).loss.item()
    assert token_losses(model, ids).shape == (2, 23) and token_losses(model, ids).mean() == pytest.approx(
        stock, abs=1e-5
    )
    with apply(model, METHODS["dense"]()):
        assert math.log(perplexity(model, ids.flatten(), 24).perplexity) == pytest.approx(stock, abs=1e-5)
