"""The study of the circuit: rows and curves of trainings made by hand."""

import math

import pytest

from lab.far.looking_back import Circuit
from lab.tuning import circuit as studied

CHANCE = math.log(Circuit.vocabulary)


def curve(*seconds: float) -> list[dict]:
    """A training measured every 50 steps."""
    return [
        {"step": 50 * place, "tokens": 100 * place, "loss": 5.0, "first": CHANCE, "second": second}
        for place, second in enumerate(seconds, 1)
    ]


def test_rows_and_curves_by_hand():
    plain = [curve(5.0, 0.9, 0.1), curve(4.0, 3.0, 2.0, 0.2), curve(0.25)]
    curves = {Circuit(seed=seed): curve_of for seed, curve_of in enumerate(plain)}
    curves |= {Circuit(family="llama", seed=seed): curve(5.5, 5.5, 5.5, 5.4) for seed in range(3)}
    numbers = studied.numbers(curves)
    plain, normed = numbers["rows"]
    assert (plain["known"], plain["trainings"], plain["steps"], plain["trained"]) == (3, 3, 100, 200)
    assert plain["second"] == pytest.approx((0.1 + 0.2 + 0.25) / 3) and plain["second_low"] < plain["second"]
    assert (normed["known"], normed["steps"], normed["second"]) == (0, None, pytest.approx(5.4))
    (panel,) = studied.CircuitStudy.shown(numbers | {"chance": CHANCE, "protocol": {"seeds": 3}})["panels"]
    assert panel["x_values"] == [50, 100, 150, 200]
    assert panel["series"][0]["y"] == pytest.approx([9.25 / 3, 4.15 / 3, 2.35 / 3, 0.55 / 3]), "an ended one stays"
    assert panel["series"][-1]["y"] == [CHANCE] * 4


def test_tiny_ones_know_nothing_yet(stored):
    rows = stored("circuit")["rows"]
    assert len(rows) == 4 and all(row["second"] == pytest.approx(CHANCE, abs=0.5) for row in rows)
