"""What became of the headline conclusions with other weights."""

import json

import pytest

from analysis.places import CACHE
from analysis.runs.conclusions import (
    FLIPPED,
    FOUND,
    LOST,
    NEITHER,
    SAME,
    WAITS,
    changed,
    conclusions,
    found,
    headlines,
    verdict,
)

UP, DOWN, OPEN = (0.2, 0.1, 0.3), (-0.2, -0.3, -0.1), (0.1, -0.1, 0.3)


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [(UP, UP, SAME), (DOWN, UP, FLIPPED), (UP, OPEN, LOST), (OPEN, DOWN, FOUND), (OPEN, OPEN, NEITHER)]
    + [((0.2, None, None), UP, "")],
)
def test_a_difference_is_held_against_the_side_of_0_on_which_it_lay(before, now, said):
    assert verdict(before, now) == said


def test_a_headline_finds_its_one_row_and_the_interval_of_its_number():
    line = {"table": "rows", "where": "k=1;arm=a", "key": "gain"}
    rows = [{"k": 1, "arm": "a", "gain": 0.5, "gain_low": 0.4, "gain_high": 0.6}, {"k": 1, "arm": "b", "gain": 2.0}]
    assert found(line, {"rows": rows}) == (0.5, 0.4, 0.6)
    assert found(line | {"where": "k=1;arm=b"}, {"rows": rows}) == (2.0, None, None)
    assert found(line | {"where": "k=1"}, {"rows": rows}) is None, "two rows are no headline"
    assert found(line | {"where": "k=1;arm~b"}, {"rows": rows}) == (2.0, None, None), "a beginning is enough"
    assert found(line | {"where": "k=3"}, {"rows": rows}) is None


def test_every_headline_has_its_row_in_the_study_that_is_stored():
    """A place that leads nowhere would wait for ever, with its study measured."""
    stored = {path.stem: json.loads(path.read_text()) for path in (CACHE / "demo" / "studies").glob("*.json")}
    assert {line["study"] for line in headlines()} <= set(stored)
    for line in headlines():
        assert found(line, stored[line["study"]]) is not None, (line["study"], line["where"])


def test_a_headline_whose_study_is_not_measured_again_waits():
    assert {row["verdict"] for row in conclusions({})} == {WAITS}
    line = next(
        line for line in headlines() if line["judged"] == "yes" and line["before"] > 0 and "~" not in line["where"]
    )
    pairs = dict(pair.split("=", 1) for pair in line["where"].split(";"))
    row = pairs | {line["key"]: -1.0, f"{line['key']}_low": -2.0, f"{line['key']}_high": -0.5}
    (said,) = changed(line["study"], {line["table"]: [row]})
    assert said.startswith(f"{line['conclusion']}: the other way round with this model. +0.")
    (now,) = [one for one in conclusions({line["study"]: {line["table"]: [row]}}) if one["verdict"] == FLIPPED]
    assert (now["conclusion"], now["now"]) == (line["conclusion"], -1.0)
