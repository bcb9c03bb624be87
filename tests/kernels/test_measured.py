"""The statistics of rows by the program in C++: against their definitions in float64, by hand, and against numba's."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from analysis.kernels import native, rows
from analysis.kernels.native import measured
from analysis.statistics import HeadReading
from analysis.statistics.heads import ALL, CORE
from analysis.statistics.reader import Reader

COMPILED = bool(measured.programs())
NEEDS_COMPILER = pytest.mark.skipif(not COMPILED, reason="no C++ compiler is at hand")
RANK, ENTROPY, DISTANCE = (ALL.index(name) for name in ("top_p_rank", "entropy", "mean_distance"))


def texts_of(length, first=0, mass=0.9, window=16, without_first=False, ids=None):
    """One text whose first real token is `first`, of these tokens or all of them others."""
    real = np.arange(length)[None] >= first
    ids = np.arange(length) if ids is None else ids
    earlier, last = np.full((1, length), -1), {}
    for place in range(first, length):
        earlier[0, place] = last.get(ids[place], -1)
        last[ids[place]] = place
    return measured.Texts(mass, window, without_first, True, np.array([first]), real, earlier, np.array(ids)[None])


def measured_by(scores, start, texts, by=measured.measure_rows):
    """(numbers, totals, distance, weights) of rows."""
    scores = scores.copy()
    numbers, totals = np.empty((len(scores), len(ALL))), np.empty(len(scores), np.float32)
    distance = np.zeros(measured.BINS)
    by(scores, start, texts, 0, numbers, totals, distance)
    return numbers, totals, distance, scores


def by_numba(scores, start, texts, text, *filled):
    facts = int(texts.first[text]), texts.real[text], texts.earlier[text]
    rows.measure_rows(scores, start, *facts, texts.mass, texts.window, texts.without_first, texts.more, *filled)


def ranks(weights, mass, like):
    """The definition in float64: the fewest weights, from the largest on, that hold `mass`; NaN where `like` is."""
    sums = np.cumsum(np.sort(weights.astype(np.float64), -1)[:, ::-1], -1)
    counted = (sums < mass * (1 - 2**-24) * sums[:, -1:]).sum(-1) + 1.0
    return np.where(np.isnan(like), np.nan, counted)


def test_a_row_by_hand():
    """Four keys with weights 1/8, 1/8, 1/4, 1/2 for the query of place 3; the token of place 1 stood at place 0 before,
    and that of the query at place 1."""
    scores = np.log(np.array([[1, 1, 2, 4]], np.float32))
    texts = texts_of(4, mass=0.75, window=2, ids=[5, 7, 6, 7])
    numbers, totals, distance, weights = measured_by(scores, 3, texts)
    share = np.array([1, 1, 2, 4]) / 8
    wanted = {
        "entropy": -(share * np.log(share)).sum(),
        "max_prob": 0.5,
        "top_p_rank": 2,
        "first_token_mass": 0.125,
        "window_mass": 0.75,
        "mean_distance": 3 / 8 + 2 / 8 + 1 / 4,
        "previous_token": 0.25,
        "induction": 0.25,
        "far_peaks": 1 / 8 - 1 / 4,
    }
    np.testing.assert_allclose(numbers[0], [wanted[name] for name in ALL], rtol=1e-6)
    np.testing.assert_allclose(distance[:4], [0.5, 0.25, 0.25, 0], rtol=1e-6)
    assert totals[0] == pytest.approx(2) and weights[0].tolist() == pytest.approx([0.25, 0.25, 0.5, 1])


@pytest.mark.slow
@NEEDS_COMPILER
@settings(max_examples=150)
@given(st.data())
def test_rows_are_those_of_numba_and_ranks_are_equal(data):
    draw = np.random.default_rng(data.draw(st.integers(0, 9999)))
    start, count = data.draw(st.integers(0, 400)), data.draw(st.integers(1, 20))
    keys = start + count
    scores = (draw.standard_normal((count, keys)) * data.draw(st.sampled_from([0.1, 2, 15]))).astype(np.float32)
    kind = data.draw(st.sampled_from(["plain", "ties", "two values", "hidden", "one strong", "even"]))
    if kind == "ties":
        scores = np.round(scores)
    elif kind == "two values":
        scores = np.where(scores > 0, 0, np.float32(-1e-3))
    elif kind == "hidden":
        scores[draw.random(scores.shape) < 0.4] = -np.inf
    elif kind == "one strong":
        scores[:, draw.integers(keys)] += 60
    elif kind == "even":
        scores[:] = 0
    first = data.draw(st.integers(0, min(4, start)))
    scores[:, :first] = -np.inf
    about = {"mass": data.draw(st.sampled_from([0.5, 0.9, 0.99, 1.0])), "window": data.draw(st.integers(1, 300))}
    texts = texts_of(keys, first, **about, without_first=data.draw(st.booleans()), ids=draw.integers(0, 30, keys))
    compiled, reference = (
        measured_by(scores, start, texts),
        measured_by(scores, start, texts, by_numba),
    )  # numbers, totals, distance, weights
    if about["mass"] < 1:  # a whole row ends where weights of 1e-8 differ in their last bit
        np.testing.assert_array_equal(compiled[0][:, RANK], reference[0][:, RANK])
    if not texts.without_first:
        np.testing.assert_array_equal(compiled[0][:, RANK], ranks(compiled[3], about["mass"], compiled[0][:, RANK]))
    columns = [index for index in range(len(ALL)) if index != RANK]
    np.testing.assert_allclose(compiled[0][:, columns], reference[0][:, columns], rtol=1e-5, atol=1e-5)
    for ours, wanted in zip(compiled[1:], reference[1:], strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mass", [0.9, 1.0])
def test_forty_thousand_equal_keys_are_counted_one_by_one(mass):
    length = 40_000
    numbers = measured_by(np.zeros((1, length), np.float32), length - 1, texts_of(length, mass=mass))[0][0]
    assert numbers[RANK] == round(mass * length) and numbers[ENTROPY] == pytest.approx(np.log(length), rel=1e-6)
    # all but equal: two thirds at 1, a third a little below, where no bin of weights tells them apart
    scores = np.where(np.arange(length) % 3 == 0, np.float32(-1e-6), np.float32(0))[None]
    weights = np.exp(scores[0].astype(np.float64))
    wanted = np.searchsorted(np.cumsum(np.sort(weights)[::-1]), mass * weights.sum() * (1 - 2**-24)) + 1
    assert measured_by(scores, length - 1, texts_of(length, mass=mass))[0][0, RANK] == wanted


@NEEDS_COMPILER
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 5, 30])
def test_a_score_that_is_no_number_makes_no_numbers(bad, place):
    scores = np.zeros((2, 34), np.float32)
    scores[0, place] = bad
    numbers, totals, distance, _ = measured_by(scores, 32, texts_of(34))
    assert np.isnan(numbers[0]).all() and np.isnan(totals[0])
    assert numbers[1, RANK] == 31 and np.isfinite(distance).all()


def test_a_row_of_hidden_keys_has_no_numbers():
    numbers, totals, _, weights = measured_by(np.full((1, 9), -np.inf, np.float32), 8, texts_of(9))
    assert np.isnan(numbers).all() and totals[0] == 0 and not weights.any()


@NEEDS_COMPILER
@pytest.mark.parametrize(("dtype", "apart"), [(torch.float32, 2e-6), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("without_first", [False, True])
@pytest.mark.parametrize("length", [1, 31, 700])
def test_attention_and_its_statistics_against_float64(dtype, apart, without_first, length):
    if dtype not in measured.programs():
        pytest.skip("this processor has no tiles")
    draw = torch.Generator().manual_seed(length)
    q, k, v = (torch.randn(2, heads, length, 24, generator=draw).to(dtype) for heads in (4, 2, 2))
    reading = HeadReading(1, 4, window=16, without_first=without_first, more=False, head=(0, 2))
    reading.begin(torch.arange(2 * length).view(2, length), torch.ones(2, length, dtype=torch.bool))
    out = reading.attend(0, q, k, v, 0.3)
    keys, values = (x.double().repeat_interleave(2, 1) for x in (k, v))
    scores = q.double() @ keys.mT * 0.3
    scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -torch.inf)
    assert (out.double() - scores.softmax(-1) @ values).abs().max() < apart
    if without_first:
        scores[..., 0] = -torch.inf
    p = scores.softmax(-1)
    back = (torch.arange(length)[:, None] - torch.arange(length)).double()
    wanted = torch.stack(
        [
            torch.special.entr(p).sum(-1),
            p.amax(-1),
            (p.sort(-1, descending=True).values.cumsum(-1) < 0.9 * (1 - 2**-24)).sum(-1) + 1.0,
            scores.softmax(-1)[..., 0],
            (p * (back < 16)).sum(-1),
            (p * back).sum(-1),
        ],
        -1,
    )
    of_head = reading.columns[-1][:, :, : len(CORE)]  # of head 2, [B, T, 6]
    compared = [index for index in range(len(CORE)) if not (without_first and index == 3)]
    begun = int(without_first)
    np.testing.assert_allclose(of_head[:, begun:, compared], wanted[:, 2, begun:][..., compared], rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(
        reading.means()[0, :4][:, compared], wanted[:, :, begun:].nanmean((0, 2))[:, compared], rtol=1e-5, atol=1e-5
    )


@pytest.mark.slow
def test_without_a_compiler_numba_gives_the_same(monkeypatch):
    """No program: the seam's reader takes torch's products and numba's rows."""
    ids, real = torch.arange(90)[None] % 17, torch.ones(1, 90, dtype=torch.bool)
    q, k, v = (torch.randn(1, heads, 90, 16, generator=torch.Generator().manual_seed(0)) for heads in (4, 2, 2))

    def read():
        reading = HeadReading(1, 4)
        reading.begin(ids, real)
        reader = Reader(reading)
        reader._measure_even(0, 1, 90)
        call = type("Call", (), {"query": q, "key": k, "value": v, "scaling": 0.25, "layer": 0})
        out = reading.attend(0, q, k, v, 0.25) if measured.runs(q, v) else reader._attend(call)
        return reading.means(), out

    means, out = read()
    monkeypatch.setattr(native, "library", lambda: None)
    assert not measured.programs()
    by_numba_means, wanted = read()
    np.testing.assert_allclose(means[0, :4], by_numba_means[0, :4], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(out, wanted, rtol=1e-5, atol=1e-5)
