"""The verb `names`: what counts as named and as confirmed by hand, and a tiny model once for real."""

import json

import numpy as np
import pytest

from analysis.errors import BadSetting
from analysis.probes.named import repeats
from analysis.statistics.names import NAMES
from analysis.studies.heads import names as studied
from analysis.studies.heads.names import names


@pytest.fixture(scope="module")
def found(home, context):
    return names(str(home / "tiny"), sequences=5, context=context)


def test_every_head_has_a_score_for_every_name_and_refusals_are_one_sentence(found, home, context):
    table, numbers = found.tables["scores"], found.numbers
    assert set(table["name"]) == set(NAMES) - {"retrieval"} and "hold no needle" in numbers["notes"][0]
    assert (table.groupby("name").size() == numbers["heads"]).all()
    assert (table["low"] <= table["score"]).all() and table["score"].between(0, 1.0001).all()
    assert table.loc[table["name"] == "even", "null"].isna().all()
    assert table["named"].sum() == len(numbers["rows"]) and numbers["protocol"]["units"] == 5
    assert {one["name"] for one in numbers["definitions"]} == set(NAMES)
    json.dumps(numbers, allow_nan=False)
    again = names(str(home / "tiny"), sequences=5, context=context)
    assert again.numbers["rows"] == numbers["rows"], "the same texts, the same heads beside"
    for given, said in (({"sequences": 2}, "2 texts and 3 heads"), ({"by": "noise"}, "not by 'noise'")):
        with pytest.raises(BadSetting, match=said):
            names(str(home / "tiny"), context=context, **given)


def test_a_name_takes_its_limit_and_more_than_any_displaced():
    """Scores [variants, layers, heads, texts] of two heads: the first above its null, the second not."""
    high, low = [0.5, 0.52, 0.54, 0.5, 0.52], [0.1, 0.1, 0.1, 0.1, 0.1]
    shares = np.array([[[high, high]], [[low, low]], [[low, [0.6] * 5]]])
    first, second = studied._table("induction", shares).to_dict("records")
    assert first["named"] and first["clear"] and not second["named"] and not second["clear"]
    assert (first["null"], first["null_high"]) == pytest.approx((0.1, 0.1)) and second["null_high"] == 0.6
    assert first["others"] == pytest.approx(np.mean(high)) and first["low"] < first["score"] < first["high"]
    (close,) = studied._table("sink", np.array([[[[0.2, 0.8, 0.5, 0.7, 0.4]]]])).to_dict("records")
    assert close["named"] and not close["clear"], "the interval reaches below the limit"


@pytest.mark.parametrize(
    ("own", "other", "verdict"), [(2.0, 0.5, "confirmed"), (0.4, 0.5, "not confirmed"), (-1.0, -2.0, "not confirmed")]
)
def test_a_name_is_confirmed_where_what_needs_it_suffers_most(own, other, verdict, monkeypatch):
    """Without a head the repeated tokens lose `own` or `other` more than the rest, which lose 1 more as well."""
    made = repeats(5, 64, 500, np.random.default_rng(0))
    bump = np.linspace(-0.1, 0.1, 5)[:, None]

    def ablated(lm, ids, heads, by, seed):
        lost = {(): 0.0, ((0, 1),): own, ((0, 1), (0, 0)): 3 * own}.get(tuple(heads), other)
        return (made.needs[:, 1:] * (lost + bump * bool(heads)) + 1.0 * bool(heads)).astype(np.float32)

    class Model:
        num_layers, num_heads = 2, 2

    class Quiet:
        def progress(self, done, stage):
            assert 0 <= done <= 1

    monkeypatch.setattr(studied, "ablated", ablated)
    row = {"layer": 0, "head": 1, "name": "induction", "score": 0.9}
    sink = {"layer": 1, "head": 1, "name": "sink", "score": 0.9}
    rows = [row, {**row, "head": 0, "score": 0.5}, sink]
    controls, (group,) = studied._confirm(Quiet(), Model(), made, studied.REPEATS, rows, 1, "zero", 0)
    assert row["verdict"] == verdict and row["rise"] == pytest.approx(own, abs=1e-4)
    assert rows[1]["verdict"] == "not tried" and sink["verdict"] == "no text needs it" and sink["rise"] is None
    assert set(controls) == {"1.0", "1.1"}, "heads without a name that these texts need"
    assert row["others_rise"] == pytest.approx(other, abs=1e-4)
    assert (group.name, group.heads) == ("induction", 2) and group.rise == pytest.approx(3 * own, abs=1e-4)
    assert group.others_rise == pytest.approx(other, abs=1e-4), "two others at once"
    said = studied._sentence(rows, [group], 4)
    assert said.startswith("3 of 4 heads have a name: 2 induction, 1 sink.")
    assert f"All 2 induction heads taken away at once: {3 * own:+.2f} nats per token on what needs them" in said
    assert ("0.1 (induction)" in said) == (verdict == "confirmed")
