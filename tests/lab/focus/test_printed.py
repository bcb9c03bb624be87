"""Focus as printed, tiny: every number of steps and reading, the rate chosen apart, and what is said of the curve."""

import json

import numpy as np
import pytest

from analysis.errors import BadSetting
from analysis.studies import NAMED
from analysis.studies.context import Context
from analysis.studies.stored.comparisons import difference
from lab.focus.printed import FLAT, Sizes, _curve, flat, sentence
from tests.made.studied import asker, part_again, studied_home

SIZES = {"length": 32, "windows": 9, "steps": 8, "tokens_per_step": 64, "window": 4, "rates": [1e-3, 1e-2], "seeds": 1}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return studied_home(tmp_path_factory.mktemp("printed"))


@pytest.fixture
def ask(home, tmp_path):
    given = {"corpus": str(home / "corpus"), "output": str(tmp_path / "p.json")}
    return asker(NAMED["focus-printed"], home, **given, **SIZES)


def test_the_training_is_the_printed_one():
    plan = Sizes().plan(4000, 1e-3, 0)
    router = plan.router_settings()
    assert (router.groups, router.top, router.window, router.n_sink, router.gate) == (4, 2, 128, 0, "literal")
    assert (router.temperature, router.iterations, router.d_s, plan.length) == (0.1, 10, 16, 1024)
    assert plan.sharpening(3999) == 1, "the printed gate has one lambda"


@pytest.mark.slow
def test_every_number_of_steps_is_trained_and_read(ask, home, tmp_path):
    numbers = ask().numbers
    stored = json.loads((tmp_path / "p.json").read_text(), parse_constant=pytest.fail)
    rows = numbers["rows"]
    assert [row["steps"] for row in rows] == [1, 2, 4, 8] and rows[-1]["tokens"] == 512
    assert {one["name"] for one in numbers["columns"]} <= set(rows[-1]) == set(rows[0])
    assert rows[0]["soft_gained"] is None and rows[1]["soft_gained"] is not None
    apart = np.log(rows[3]["perplexity_soft"] / rows[2]["perplexity_soft"])
    assert rows[3]["soft_gained"] == pytest.approx(apart, abs=1e-6)
    for row in rows:
        assert row["hard_against_dense"] == pytest.approx(np.log(row["perplexity_hard"] / numbers["dense"]), abs=1e-6)
        assert row["pairs_share"] > 0.5, "two of four groups share most pairs"
    assert [one["rate"] for one in numbers["tried"]] == [1e-3, 1e-2]
    assert numbers["protocol"]["rate"] == min(numbers["tried"], key=lambda one: one["choosing"])["rate"]
    assert numbers["protocol"]["units"] < 6, "half of the documents chose the rate"
    assert len(numbers["panels"]) == 3 and len({one["steps"] for one in numbers["curves"]}) == 4
    assert part_again(NAMED["focus-printed"], stored, home)
    again = NAMED["focus-printed"].recheck(stored, context=Context(state=home / "state", browser=False))
    assert list(again) == ["8 steps"] and all(now == pytest.approx(kept, rel=1e-3) for kept, now in again.values())


def made(gained: np.ndarray, above: float = 0.1) -> dict:
    """Numbers of a study whose last doubling changed each of 16 texts so."""
    texts, zero = np.arange(len(gained)), np.zeros(len(gained))
    row = {"steps": 4000, "pairs_share": 0.83, "equal_window": 700}
    row |= difference("soft_gained", gained, zero, texts)
    for key in ("soft_against_dense", "hard_against_dense", "hard_against_random", "hard_against_window"):
        row |= difference(key, above + gained, zero, texts)
    return {"rows": [row], "dense": 42.8}


def test_a_curve_is_flat_where_no_more_could_be_missed():
    wobble = 1e-4 * np.random.default_rng(0).normal(size=16)
    still, falling, unsure = made(wobble), made(wobble - 0.05), made(400 * wobble)
    assert flat(still["rows"][0]) and f"less than {FLAT:g} nats" in sentence(still, 3)
    assert flat(falling["rows"][0]) is False and "not flat yet" in sentence(falling, 3)
    assert flat(unsure["rows"][0]) is False and "is not told" in sentence(unsure, 3)
    few = made(wobble[:3])
    assert flat(few["rows"][0]) is None and "is not judged" in sentence(few, 3)
    assert "worse than random groups" in sentence(still, 3) and "not of the method" not in sentence(still, 3)
    assert sentence(still, 1).endswith("this router, one training of every arm, and not of the method.")


def test_points_of_a_curve_are_means_of_their_steps():
    assert _curve(4, 0, [3.0, 2.0])[1] == {"steps": 4, "seed": 0, "step": 2, "loss": 2.0}
    long = _curve(400, 1, np.arange(400.0).tolist())
    assert len(long) == 40 and long[0] == {"steps": 400, "seed": 1, "step": 10, "loss": 4.5}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"steps": 7}, "number of steps is 7 and must lie between 8"),
        ({"top": 5}, "cannot be in 5 of 4 groups"),
        ({"window": 32}, "window that is always read"),
        ({"seeds": 0}, "number of seeds is 0"),
    ],
)
def test_what_cannot_be_studied_is_refused(given, said, ask):
    with pytest.raises(BadSetting, match=said):
        ask(**given)
