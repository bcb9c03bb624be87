"""The study of routing collapse on a tiny model: every row, stopping and resuming, what is stored."""

import json

import pytest

from analysis.errors import BadSetting, BadText, Cancelled
from analysis.groups.dominance import balanced_largest_share
from analysis.studies import NAMED, STUDIES
from lab.focus.dominance import PATHS, ROWS, curve, sentence, together
from tests.made.evaluating import TEXT, watched_context
from tests.made.studied import asker, studied_home

SIZES = {"steps": 3, "groups": 4, "window": 4, "n_sink": 1, "tokens_per_step": 64, "length": 32, "seeds": 1}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return studied_home(tmp_path_factory.mktemp("dominance"))


@pytest.fixture
def ask(home, tmp_path):
    given = {"corpus": str(home / "corpus"), "output": str(tmp_path / "d.json")}
    return asker(NAMED["dominance"], home, **given, **SIZES)


@pytest.mark.slow
def test_every_row_is_trained_twice_and_stored(ask, tmp_path):
    result = ask()
    numbers, stored = result.numbers, json.loads((tmp_path / "d.json").read_text(), parse_constant=pytest.fail)
    assert [row["row"] for row in numbers["rows"]] == list(ROWS) and stored["rows"] == numbers["rows"]
    assert numbers["even"] == 0.25 and numbers["chance"] == balanced_largest_share(128, 4) > 0.25
    for row in numbers["rows"]:
        for phase in "12":
            assert 0.25 <= row[f"share_{phase}"] <= row[f"worst_{phase}"] <= 1 and 1 <= row[f"rank_{phase}"] <= 16
            assert 0 <= row[f"stability_{phase}"] <= 1 and row[f"hard_{phase}"] > 0
        assert row["drift_1"] == pytest.approx(0, abs=1e-6) and row["drift_2"] > 0, "the base is frozen in phase 1"
    curves = result.tables["curves"]
    assert (
        set(curves["row"]) == set(ROWS) and curves["layer"].min() == -1 and curves["step"].unique().tolist() == [0, 3]
    )
    of_one = curves[(curves["row"] == "sinkhorn") & (curves["phase"] == 2) & (curves["step"] == 3)].set_index("layer")
    assert of_one.loc[-1, "share"] == pytest.approx(of_one.loc[0:, "share"].mean(), abs=1e-4)
    assert len(stored["curves"]) == len(curves) and not list(tmp_path.rglob("*.checkpoint"))
    balanced = {row["row"] for row in numbers["rows"] if row["settings"].get("balance") != "softmax"}
    assert balanced == {"sinkhorn", "sinkhorn with 50 iterations"}


@pytest.mark.slow
def test_a_stopped_study_goes_on_inside_its_row_and_ends_the_same(ask, tmp_path):
    rows = "stop-gradient on inputs, sinkhorn"
    whole = ask(rows=rows, work=str(tmp_path / "a")).numbers["rows"]

    def stop(fraction, stage):
        if stage.startswith("sinkhorn, model, step 2"):
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        ask(stop, rows=rows, work=str(tmp_path / "b"))
    stages = []
    again = ask(lambda fraction, stage: stages.append(stage), rows=rows, work=str(tmp_path / "b")).numbers["rows"]
    assert again == whole
    assert not any("stop-gradient" in stage or "router, step" in stage for stage in stages), "these were done"
    stages.clear()
    ask(lambda fraction, stage: stages.append(stage), rows="sinkhorn", steps=2, work=str(tmp_path / "b"))
    assert any("router, step 2 of 2" in stage for stage in stages), "other settings, another row"


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"corpus": "absent"}, BadText, "absent is no folder"),
        ({"rows": "sinkhorn,magic"}, BadSetting, "no row 'magic': the rows are softmax, "),
        ({"groups": 33}, BadSetting, "33 groups are balanced over the tokens of a step, and it has 32"),
        ({"steps": 0}, BadSetting, "got 0 steps"),
    ],
)
def test_what_cannot_be_studied_is_refused(given, error, said, ask):
    with pytest.raises(error, match=said):
        ask(**given)


def test_the_sentence_says_what_happened_either_way():
    ends = {"row": "softmax", "worst_1": 0.15, "worst_2": 0.994, "collapsed_at": 700}
    fine = {"row": "sinkhorn", "worst_1": 0.146, "worst_2": 0.159, "collapsed_at": None}
    said = sentence([ends, fine], 0.125, 1)
    assert "Softmax: the largest group of the worst layer holds 15.0% of the tokens after phase 1 and 99.4%" in said
    assert "a layer passed 90% at step 700." in said and "15.9% after phase 2 (even: 12.5%); no layer reached" in said
    assert said.endswith("All of it is said of this router, one training of every arm, and not of the method.")
    three = sentence([ends | {"collapsed": 2}, fine | {"collapsed": 0}], 0.125, 3)
    assert "a layer passed 90% with 2 of 3 seeds, first at step 700." in three and three.endswith("reached 90%.")
    assert sentence([], 0.125, 3).startswith("Neither")


def test_the_trainings_of_a_row_are_told_together():
    point = {"phase": 1, "step": 0, "layer": -1} | dict.fromkeys(PATHS, 0.5)
    parts = [
        {"ends": {"worst_1": worst, "collapsed_at": at}, "curve": [point | {"share": worst}]}
        for worst, at in ((0.2, None), (0.95, 700), (0.95, 300))
    ]
    found = together(parts)
    assert found["ends"] == {"worst_1": pytest.approx(0.7), "collapsed_at": 300, "collapsed": 2}
    assert found["curve"] == [point | {"share": 0.7}]


def test_the_curve_begins_before_the_first_step():
    look = {"shares": [0.2, 0.4], "centroid_cosine": [0.0, 1.0], "drift": [0.0, 0.0], "start_share": [0.2, 0.2]}
    points = curve([{"step": 0, "start": look | {"rank": [4.0, 2.0]}}, {"step": 1}], 2)
    assert [(p["step"], p["layer"], p["share"], p["rank"]) for p in points] == [
        (0, -1, pytest.approx(0.3), 3.0),
        (0, 0, 0.2, 4.0),
        (0, 1, 0.4, 2.0),
    ]


def test_sinkhorn_live_on_kept_scores(home):
    context = watched_context(home)
    text = context.add_text("a text", TEXT)
    given = {"model": str(home / "tiny"), "text": text, "router": "k4-top1", "context": context}
    first = STUDIES["balance"](**given)
    kept = context.kept["scores"][1]
    assert kept.shape == (3, 64, 4) and first.tables["layers"]["layer"].tolist() == [0, 1, 2]
    softly = STUDIES["balance"](**given, temperature=0.2, iterations=0)
    assert context.kept["scores"][1] is kept, "nothing is read again"
    assert softly.numbers["worst"] == softly.tables["iterations"]["worst"][0]
    at_ten = first.tables["iterations"].set_index("iterations").loc[10]
    assert (at_ten["mean"], at_ten["worst"]) == (first.numbers["mean"], first.numbers["worst"])
    for bad in ({"temperature": 0.0}, {"iterations": -1}):
        with pytest.raises(BadSetting):
            STUDIES["balance"](**given, **bad)
