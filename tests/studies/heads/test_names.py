"""The verb `names` by hand and once on a tiny model; the curve of one head over distance; the command behind *Why*."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from analysis import why as door
from analysis.commands.heads import HeadPreference, Names, Why
from analysis.errors import BadSetting
from analysis.probes.named import repeats
from analysis.routers.preferences import query_statistics
from analysis.statistics.names import NAMES
from analysis.studies.heads import names as studied, why as study
from analysis.studies.heads.preference import head_preference
from analysis.studies.text.states import states_of
from tests.made.evaluating import TEXT


def test_every_head_has_a_score_for_every_name(ask):
    answer = ask(Names, sequences=5)
    table, numbers = answer.tables["scores"], answer.numbers
    assert set(table["name"]) == set(NAMES) - {"retrieval"} and "hold no needle" in numbers["notes"][0]
    assert (table.groupby("name").size() == numbers["heads"]).all()
    assert (table["low"] <= table["score"]).all() and table["score"].between(0, 1.0001).all()
    assert table.loc[table["name"] == "even", "null"].isna().all()
    assert table["named"].sum() == len(numbers["rows"]) and numbers["protocol"]["units"] == 5
    assert {definition["name"] for definition in numbers["definitions"]} == set(NAMES)
    json.dumps(numbers, allow_nan=False)
    assert ask(Names, sequences=5).numbers["rows"] == numbers["rows"], "the same texts, the same heads beside"
    for arguments, message in (({"sequences": 2}, "sequences of names is 2"), ({"by": "noise"}, "'noise'")):
        with pytest.raises(BadSetting, match=message):
            ask(Names, **arguments)


def test_a_name_takes_its_limit_and_more_than_any_displaced():
    """Scores [variants, layers, heads, texts] of two heads: the first above its null, the second not."""
    high, low = [0.5, 0.52, 0.54, 0.5, 0.52], [0.1, 0.1, 0.1, 0.1, 0.1]
    shares = np.array([[[high, high]], [[low, low]], [[low, [0.6] * 5]]])
    first, second = studied.score_table("induction", shares).to_dict("records")
    assert first["named"] and first["clear"] and not second["named"] and not second["clear"]
    assert (first["null"], first["null_high"]) == pytest.approx((0.1, 0.1)) and second["null_high"] == 0.6
    assert first["others"] == pytest.approx(np.mean(high)) and first["low"] < first["score"] < first["high"]
    (close,) = studied.score_table("sink", np.array([[[[0.2, 0.8, 0.5, 0.7, 0.4]]]])).to_dict("records")
    assert close["named"] and not close["clear"], "the interval reaches below the limit"
    assert np.isnan(close["null_high"]) and np.isnan(close["others"])


@pytest.mark.parametrize(
    "head_rise, rival, verdict", [(2.0, 0.5, "confirmed"), (0.4, 0.5, "not confirmed"), (-1.0, -2.0, "not confirmed")]
)
def test_a_name_is_confirmed_where_what_needs_it_suffers_most(head_rise, rival, verdict, monkeypatch, context):
    """Without a head the repeated tokens lose `head_rise` or `rival` more than the rest, which lose 1 more as well."""
    texts = repeats(5, 64, 500, np.random.default_rng(0))
    bump = np.linspace(-0.1, 0.1, 5)[:, None]

    def ablated(lm, ids, heads, by, seed):
        lost = {(): 0.0, ((0, 1),): head_rise, ((0, 1), (0, 0)): 3 * head_rise}.get(tuple(heads), rival)
        return (texts.needs[:, 1:] * (lost + bump * bool(heads)) + 1.0 * bool(heads)).astype(np.float32)

    monkeypatch.setattr(studied, "ablated", ablated)
    row = {"layer": 0, "head": 1, "name": "induction", "score": 0.9}
    rows = [row, row | {"head": 0, "score": 0.5}, {"layer": 1, "head": 1, "name": "sink", "score": 0.9}]
    model = SimpleNamespace(num_layers=2, num_heads=2, layer_numbers=(0, 1))
    trials = studied.trials(context, model, texts, studied.REPEATS, rows, Names(confirm=1))
    judged = [row | studied.verdict(row, {studied.REPEATS: trials}) for row in rows]
    assert [row["verdict"] for row in judged] == [verdict, "not tried", "no text needs it"]
    assert judged[0]["rise"] == pytest.approx(head_rise, abs=1e-4) and judged[2]["rise"] is None
    assert set(trials.controls) == {"1.0", "1.1"}, "heads without a name that these texts need"
    assert judged[0]["others_rise"] == pytest.approx(rival, abs=1e-4)
    (group,) = trials.together
    assert (group.name, group.heads) == ("induction", 2) and group.rise == pytest.approx(3 * head_rise, abs=1e-4)
    assert group.others_rise == pytest.approx(rival, abs=1e-4), "two others at once"
    sentence = studied.sentence(judged, [group], 4)
    assert "3 of 4 heads" in sentence and ("0.1 (induction)" in sentence) == (verdict == "confirmed")


def test_the_curve_is_the_mean_query_on_the_mean_key_turned_apart(context, home):
    lm, text = context.model(str(home / "tiny")), context.add_text("one", TEXT)
    answer = head_preference(HeadPreference(text=text, model=str(home / "tiny"), layer=2, head=3), context=context)
    ids = np.asarray(lm.tokenizer(TEXT, add_special_tokens=False)["input_ids"][: lm.max_positions])
    statistics = query_statistics(lm, [ids])
    table = answer.preference
    assert table["distance"].iloc[0] == 0 and table["distance"].iloc[-1] == lm.max_positions - 1
    scaling = states_of(context, lm, ids, 2)[2].scaling
    wanted = statistics.preference(2, 3, table["distance"].to_numpy()) * scaling
    np.testing.assert_allclose(table["logit"], wanted, rtol=1e-6)
    assert answer.concentration == pytest.approx(statistics.concentration()[2, 3]) and 0 < answer.concentration <= 1


def test_why_lists_the_strongest_parts_and_sums_the_rest(ask, home, monkeypatch):
    monkeypatch.setattr(study, "LISTED", 5)
    answer = ask(Why, layer=1, head=1, query=30, key_token=12, by="zero", long_text="first")
    numbers, parts = answer.numbers, answer.tables["parts"]
    assert (numbers["query"], numbers["key"], len(parts)) == (30, 12, 5)
    assert parts["score"].sum() + numbers["rest"] == pytest.approx(numbers["logit"], abs=1e-6)
    assert answer.tables["spectrum"]["score"].sum() == pytest.approx(numbers["logit"], abs=1e-4)
    logit_at = answer.tables["distance"].set_index("distance")["logit"]
    assert logit_at[18] == pytest.approx(numbers["logit"], abs=1e-4)
    assert len(answer.tables["vocabulary"]) == 2 * study.TOKENS
    assert answer.tables["vocabulary"]["change"].is_monotonic_decreasing
    if numbers["pairs"]:
        sums = answer.tables["writers"].groupby("side")["margin"].sum()
        assert sums.to_numpy() == pytest.approx(numbers["margin"], abs=1e-3)
        assert {row["by"] for row in numbers["rows"]} == {"zero"}
        near = sum(0.8 <= row["slope"] <= 1.25 for row in numbers["rows"])
        assert numbers["slopes"].startswith(f"{near} of {len(numbers['rows'])} slopes")
    json.dumps(numbers)
    assert door.__module__ == "analysis.probes.why"


def test_without_a_key_the_one_read_most_is_asked_about(ask):
    answer = ask(Why, layer=1, head=0, query=20, long_text="first")
    assert 0 < answer.numbers["key"] <= 20
    first = ask(Why, layer=1, head=0, query=0, long_text="first")
    assert first.numbers["key"] == 0
    for query, key in [(64, None), (-1, None), (5, 6)]:
        with pytest.raises(BadSetting):
            ask(Why, layer=1, head=0, query=query, key_token=key, long_text="first")
