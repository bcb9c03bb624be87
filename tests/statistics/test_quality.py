"""Perplexity by hand, on a model whose logits are known; bins, paired changes, KL and bits by hand and in float64."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import analysis
from analysis.errors import BadSetting, BadText
from analysis.methods import METHODS
from analysis.metrics.paired import UNIT, perplexity_change
from analysis.metrics.quality import bits_per_byte, divergence, perplexity, position_bins, same_top1, token_losses
from analysis.models import load_model
from analysis.seam.attention import apply
from tests.made.speaking import Speaking
from tests.made.tiny import tiny, token_ids

# After token a, token b has the probability NEXT[a][b].
NEXT = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])


class Known(Speaking):
    """A language model that looks at one token only; it remembers the windows it was asked about."""

    def __init__(self):
        super().__init__(self.looked_up, 3)
        self.windows = []

    def looked_up(self, ids):
        assert not torch.is_grad_enabled()
        self.windows.append(ids.tolist())
        return NEXT.log()[ids] + 7.0  # a constant changes no probability


def known_model():
    return SimpleNamespace(lm=Known(), device=torch.device("cpu"))


def test_losses_by_hand_and_of_a_real_model_under_the_applied_method():
    model, observed = known_model(), []
    quality = perplexity(model, [0, 0, 1, 1, 2, 2, 0], 3, observed.append)
    assert model.lm.windows == [[[0, 0, 1]], [[1, 2, 2]]] and observed == [0.5, 1.0]
    chances = [0.5, 0.25, 0.1, 0.6]  # 0>0, 0>1 | 1>2, 2>2; the last token has no window
    np.testing.assert_allclose(quality.losses, -np.log(np.reshape(chances, (2, 2))), rtol=1e-6)
    assert quality.perplexity == pytest.approx(math.prod(chances) ** -0.25)
    assert (quality.low, quality.high, quality.units) == (None, None, 2)
    assert perplexity(known_model(), [0, 1, 2], window=3).losses.shape == (1, 2), "exactly one window"
    model, ids = load_model(tiny("llama")), token_ids(2, 24)
    with torch.no_grad():
        stock = model.lm(ids, labels=ids).loss.item()
    losses = token_losses(model, ids)
    assert losses.shape == (2, 23) and losses.mean() == pytest.approx(stock, abs=1e-5)
    with apply(model, METHODS["dense"]()):
        assert math.log(perplexity(model, ids.flatten(), 24).perplexity) == pytest.approx(stock, abs=1e-5)


def test_an_interval_needs_eight_blocks_and_losses_must_be_numbers():
    ids = np.random.default_rng(0).integers(0, 3, 4 * 8)
    quality = perplexity(known_model(), ids, window=4)
    assert quality.losses.shape == (8, 3) and (quality.units, quality.unit) == (8, "blocks of 3 tokens in this text")
    assert quality.low <= quality.perplexity <= quality.high
    assert perplexity(known_model(), ids[: 4 * 7], window=4).low is None
    model = known_model()
    model.lm = Speaking(lambda ids: torch.full((*ids.shape, 3), math.nan), 3)
    with pytest.raises(BadSetting, match="not finite"):
        perplexity(model, [0, 1, 2], window=3)


@pytest.mark.parametrize(
    "ids, window, error", [([0, 1], 3, BadText), *[([0, 1, 2], window, BadSetting) for window in (1, 0, -3)]]
)
def test_windows_that_cannot_be_are_refused(ids, window, error):
    with pytest.raises(error):
        perplexity(known_model(), ids, window=window)


# --- by position --------------------------------------------------------------------------------------------------


def test_position_bins_by_hand_and_through_the_door():
    assert analysis.perplexity is perplexity
    losses = np.log([[1.0, 4.0, 2.0, 2.0, 9.0], [1.0, 4.0, 8.0, 8.0, 9.0]])
    table = analysis.position_bins(losses, bins=2)
    assert list(table.columns) == ["bin", "first", "last", "n", "perplexity"]
    assert table[["bin", "first", "last", "n"]].to_numpy().tolist() == [[0, 0, 2, 4], [1, 2, 4, 4]]
    assert table["perplexity"].tolist() == pytest.approx([2, 4]) and table.attrs["dropped"] == 1
    table = position_bins(np.zeros(1023))  # the paper's last bin
    assert (len(table), table.attrs["dropped"]) == (16, 15) and (table["n"] == 63).all()
    assert table.iloc[-1][["first", "last", "perplexity"]].tolist() == [945, 1008, 1]


@pytest.mark.parametrize("shape, bins", [((2, 5), 6), ((2, 5), 0), ((0, 5), 1), ((2, 5, 1), 1)])
def test_bins_that_cannot_be_are_refused(shape, bins):
    with pytest.raises(BadSetting):
        position_bins(np.zeros(shape), bins)


# --- against a baseline -------------------------------------------------------------------------------------------


def test_a_paired_change_by_hand_and_what_its_units_are():
    losses = np.random.default_rng(0).random((3, 10))
    equal = perplexity_change(losses, losses)
    assert (equal.change, equal.low, equal.high, equal.units, equal.points) == (0, None, None, 3, (0, 0, 0)), (
        "three blocks"
    )
    assert equal.unit == "blocks of 10 tokens in this text", "a window is no longer than that"
    worse = perplexity_change(losses + math.log(1.02), losses, stretch=4)
    assert [worse.change, worse.low, worse.high] == pytest.approx([0.02] * 3), "what makes a text hard cancels"
    assert (worse.units, worse.unit, worse.points) == (9, "blocks of 4 tokens in this text", ())
    uneven = np.zeros((1, 10))
    uneven[0, :4] = math.log(2)
    change = perplexity_change(uneven, np.zeros((1, 10)), stretch=4)
    assert change.change == pytest.approx(2**0.4 - 1), "every token weighs the same, also in a short stretch"
    assert change.low is None and change.points == pytest.approx([1, 0, 0])


@pytest.mark.parametrize("windows, units, unit", [(7 * UNIT, 7 * UNIT, "4 tokens"), (7 * UNIT + 1, 8, "8 windows")])
def test_many_windows_are_drawn_in_eights(windows, units, unit):
    result = perplexity_change(np.ones((windows, 4)), np.zeros((windows, 4)))
    assert (result.units, result.unit) == (units, f"blocks of {unit} in this text")
    assert result.change == pytest.approx(math.e - 1)


def test_documents_are_units_and_fewer_than_five_give_their_points():
    """Five documents of two windows each: the t interval of their means by hand; four give no bar, but four points."""
    apart = np.repeat([0.0, 0.01, 0.02, 0.03, 0.04], 2)[:, None] + np.zeros((10, 3))
    result = perplexity_change(apart, np.zeros((10, 3)), np.repeat([7, 3, 9, 1, 4], 2))
    error = np.std([0.0, 0.01, 0.02, 0.03, 0.04], ddof=1) / 5**0.5
    assert (result.units, result.unit, result.points) == (5, "documents", ())
    both = [math.expm1(0.02 + 2.7764451 * sign * error) for sign in (-1, 1)]
    assert [result.low, result.high] == pytest.approx(both)
    # a worse tail decides: the quantile of 95 and not of 97.5%
    assert result.upper == pytest.approx(math.expm1(0.02 + 2.1318468 * error))
    four = perplexity_change(apart[:8], np.zeros((8, 3)), np.repeat([0, 1, 2, 3], 2))
    assert (four.low, four.high, four.upper) == (None, None, None)
    assert four.points == pytest.approx([math.expm1(item) for item in (0, 0.01, 0.02, 0.03)])
    with pytest.raises(BadSetting, match="10 values and 3 units"):
        perplexity_change(apart, np.zeros((10, 3)), [1, 2, 3])


@pytest.mark.parametrize("shapes", [((2, 3), (2, 4)), ((3,), (3,)), ((2, 3), (1, 3)), ((0, 3), (0, 3))])
def test_losses_that_are_no_pairs_are_refused(shapes):
    with pytest.raises(BadSetting, match="two tables of windows and positions"):
        perplexity_change(*map(np.zeros, shapes))


def test_divergence_is_from_the_reference_and_that_of_float64():
    p, q, skewed = torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.8, 0.1, 0.1]])
    by_hand = 0.5 * math.log(2) + 0.25 * math.log(0.5)
    assert divergence(p.log() + 3, q.log() - 5).item() == pytest.approx(by_hand, abs=1e-6)
    assert divergence(skewed.log(), p.log()).item() == pytest.approx(0.8 * math.log(1.6) + 0.2 * math.log(0.4))
    a, b = torch.randn(2, 50, 4096, generator=torch.Generator().manual_seed(0)) * 4
    log_a, log_b = (torch.log_softmax(x.double(), -1) for x in (a, b))
    exact = (log_a.exp() * (log_a - log_b)).sum(-1)
    torch.testing.assert_close(divergence(a, b).double(), exact, rtol=2e-5, atol=0)
    torch.testing.assert_close(divergence(a.double(), b.double()), exact, rtol=1e-10, atol=0)


def test_divergence_at_its_edges_and_the_same_most_likely_token_by_hand():
    x = torch.randn(20, 4096, generator=torch.Generator().manual_seed(1)) * 9
    assert divergence(x, x).eq(0).all() and divergence(x, x.flip(1)).gt(0).all()
    assert divergence(x, x + 1e-4 * torch.randn_like(x)).ge(0).all()
    never = torch.tensor([0.0, -math.inf])
    assert divergence(never, torch.zeros(2)).item() == pytest.approx(math.log(2))
    assert divergence(torch.zeros(2), never).item() == math.inf
    a, b = torch.tensor([[1.0, 2.0], [2.0, 1.0]]), torch.tensor([[0.0, 9.0], [0.0, 0.1]])
    assert same_top1(a, b).tolist() == [True, False]
    assert bits_per_byte(np.log([2.0, 4.0, 8.0]), 3) == pytest.approx(2)
    with pytest.raises(BadSetting, match="at least one byte"):
        bits_per_byte([1.0], 0)
