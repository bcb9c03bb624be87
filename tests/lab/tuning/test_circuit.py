"""The study of the circuit: told from curves made by hand, whichever way they came out, and tiny once for real."""

import json
import math

import pytest

from analysis.studies.context import Context
from lab.far.looking_back import Circuit
from lab.tuning import circuit as studied
from tests.made.studied import asker, part_again, studied_home

CHANCE = math.log(Circuit.vocabulary)


def curve(*seconds: float) -> list[dict]:
    """A training measured every 50 steps."""
    return [
        {"step": 50 * place, "tokens": 100 * place, "loss": 5.0, "first": CHANCE, "second": second}
        for place, second in enumerate(seconds, 1)
    ]


def found(plain: list[list[dict]], normed: list[list[dict]]) -> dict:
    """What is stored of trainings at one rate, one per seed."""
    curves = {Circuit(seed=seed): one for seed, one in enumerate(plain)}
    curves |= {Circuit(family="llama", seed=seed): one for seed, one in enumerate(normed)}
    return studied.numbers(curves) | {"chance": CHANCE, "protocol": {"seeds": len(plain)}}


def test_rows_and_curves_by_hand():
    made = found([curve(5.0, 0.9, 0.1), curve(4.0, 3.0, 2.0, 0.2), curve(0.25)], [curve(5.5, 5.5, 5.5, 5.4)] * 3)
    plain, normed = made["rows"]
    assert (plain["known"], plain["trainings"], plain["steps"], plain["trained"]) == (3, 3, 100, 200)
    assert plain["second"] == pytest.approx((0.1 + 0.2 + 0.25) / 3) and plain["second_low"] < plain["second"]
    assert (normed["known"], normed["steps"], normed["second"]) == (0, None, pytest.approx(5.4))
    shown = studied.shown(made)
    assert "3 of 3 trainings learn it, after 100 steps" in shown["sentence"]
    assert "0 of 3 trainings learn it, and 5.40 nats is the best mean (200 steps at most)." in shown["sentence"]
    (panel,) = shown["panels"]
    assert panel["x_values"] == [50, 100, 150, 200]
    assert panel["series"][0]["y"] == pytest.approx([9.25 / 3, 4.15 / 3, 2.35 / 3, 0.55 / 3]), "an ended one stays"
    assert panel["series"][-1]["y"] == [CHANCE] * 4


def test_the_other_outcome_is_told_as_well():
    said = studied.shown(found([curve(5.0)], [curve(0.2)]))["sentence"]
    assert "without the norm of queries and keys 0 of 1" in said and "with it 1 of 1" in said
    assert said.endswith("All of it is said of this model, one training of every arm, and not of the method.")


def test_it_is_trained_stored_and_a_part_comes_again(tmp_path):
    home = studied_home(tmp_path)
    made = asker(studied.circuit, home, output=str(tmp_path / "c.json"))(steps=2, seeds=1).numbers
    assert len(made["rows"]) == 4 and all(row["second"] == pytest.approx(CHANCE, abs=0.5) for row in made["rows"])
    stored = json.loads((tmp_path / "c.json").read_text(), parse_constant=pytest.fail)
    assert part_again(studied.circuit, stored, home, corpus="")
    again = studied.circuit.recheck(stored, context=Context(state=home / "state", browser=False))
    assert again and all(now == pytest.approx(kept, rel=1e-3) for kept, now in again.values())
