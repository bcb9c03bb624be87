"""What became of the headline conclusions with other weights."""

import json
from dataclasses import replace

from analysis.claims import Comparison
from analysis.places import CACHE
from analysis.runs.conclusions import (
    FLIPPED,
    FOUND,
    LOST,
    NEITHER,
    SAME,
    WAITS,
    Headline,
    changed,
    conclusions,
    headlines,
    verdict,
)

UP, DOWN, OPEN = Comparison(0.2, 0.1, 0.3), Comparison(-0.2, -0.3, -0.1), Comparison(0.1, -0.1, 0.3)


def test_a_difference_is_held_against_the_side_of_0_on_which_it_lay():
    pairs = [(UP, UP), (DOWN, UP), (UP, OPEN), (OPEN, DOWN), (OPEN, OPEN), (Comparison(0.2), UP)]
    assert [verdict(*pair) for pair in pairs] == [SAME, FLIPPED, LOST, FOUND, NEITHER, ""]


def test_a_headline_finds_its_one_row_and_the_interval_of_its_number():
    line = Headline("x", "a gains", "rows", "k=1;arm=a", "gain", True, UP)
    rows = [{"k": 1, "arm": "a", "gain": 0.5, "gain_low": 0.4, "gain_high": 0.6}, {"k": 1, "arm": "b", "gain": 2.0}]
    assert line.now({"rows": rows}) == Comparison(0.5, 0.4, 0.6)
    assert replace(line, where="k=1;arm=b").now({"rows": rows}) == Comparison(2.0)
    assert replace(line, where="k=1").now({"rows": rows}) is None, "two rows are no headline"
    assert replace(line, where="k=1;arm~b").now({"rows": rows}) == Comparison(2.0), "a beginning is enough"
    assert replace(line, where="k=3").now({"rows": rows}) is None


def test_every_headline_has_its_row_in_the_study_that_is_stored():
    """A place that leads nowhere would wait for ever, with its study measured."""
    stored = {path.stem: json.loads(path.read_text()) for path in (CACHE / "demo" / "studies").glob("*.json")}
    assert {line.study for line in headlines()} <= set(stored)
    assert not [line for line in headlines() if line.now(stored[line.study]) is None]


def test_a_headline_whose_study_is_not_measured_again_waits():
    assert {of.verdict for of in conclusions({})} == {WAITS}
    line = next(line for line in headlines() if line.judged and line.before.value > 0 and "~" not in line.where)
    row = dict(pair.split("=", 1) for pair in line.where.split(";"))
    row |= {line.key: -1.0, f"{line.key}_low": -2.0, f"{line.key}_high": -0.5}
    (sentence,) = changed(line.study, {line.table: [row]})
    assert sentence.startswith(f"{line.conclusion}: the other way round with this model. +0.")
    (flipped,) = [of for of in conclusions({line.study: {line.table: [row]}}) if of.verdict == FLIPPED]
    assert flipped.headline == line and flipped.now.value == -1.0
