"""The study that makes CSA's own table: corpora by contexts, on a tiny model, stopped and gone on with."""

import json

import pytest

from analysis.errors import BadSetting
from analysis.studies import NAMED
from analysis.studies.context import Context
from lab.budgets.calibration_table import PASSES, UNJUDGED, _sentence, _verdict
from tests.made.calibrated import csa_home, text
from tests.made.studied import asker, part_again

table = NAMED["calibration"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with the tiny models and `corpora` with novels and Python, a document on each side."""
    home = csa_home(tmp_path_factory.mktemp("table"))
    for at, (name, kind) in enumerate((("books", "txt"), ("python", "py"))):
        for seed, side in enumerate(("train", "valid")):
            (home / "corpora" / name / side).mkdir(parents=True)
            (home / "corpora" / name / side / f"{seed}.{kind}").write_text(text(10 * at + seed))
    return home


@pytest.fixture
def ask(home, tmp_path):
    """`ask(progress, **arguments)` -> Result of the study; its work lies in `tmp_path`."""
    given = {"corpus": str(home / "corpora"), "output": str(tmp_path / "c.json"), "length": 32, "windows": 2}
    return asker(table, home, **given)


def test_a_row_for_every_corpus_and_context(ask, home, tmp_path):
    result = ask()
    stored = json.loads((tmp_path / "c.json").read_text(), parse_constant=pytest.fail)
    places = [(row["corpus"], row["context"]) for row in stored["rows"]]
    assert places == [("novels", 32), ("novels", 64), ("python", 32), ("python", 64)]
    for row in stored["rows"]:
        own = [one for one in stored["sweeps"] if (one["corpus"], one["context"]) == (row["corpus"], row["context"])]
        passing = [one for one in own if one["passes"]]
        chosen = passing[0] if passing else own[-1]
        assert (row["cap"], row["beta"]) == (chosen["cap"], chosen["beta"])
        assert row["verdict"] == "too few documents to judge" and row["upper"] is None, "one document has no limit"
        assert row["tokens"] == 64 and len(chosen["bins"]) == 16
        assert all(not one["passes"] for one in own if one["beta"] < row["beta"])
    assert [one["context"] for one in stored["rank_correlations"]] == [32, 64]
    assert all(-1 <= one["pearson_log"] <= 1 for one in stored["rank_correlations"])
    assert stored["sentence"] == result.numbers["sentence"] and len(result.tables["rows"]) == 4
    assert part_again(table, stored, home, corpus=str(home / "corpora"))
    for kept, now in table.recheck(stored, context=Context(state=home / "state", browser=False)).values():
        assert now == pytest.approx(kept, rel=1e-4)


def test_twice_the_context_is_no_reason_for_fewer_documents(ask, tmp_path):
    for side, seeds in {"train": (0, 1), "valid": (2, 3, 4)}.items():
        (tmp_path / "many" / side).mkdir(parents=True)
        for seed in seeds:
            (tmp_path / "many" / side / f"{seed}.txt").write_text(text(seed))
    rows = ask(corpus=str(tmp_path / "many"), windows=4).numbers["rows"]
    found = [(row["context"], row["units"], row["tokens"]) for row in rows]
    assert found == [(32, 3, 4 * 32), (64, 3, 3 * 64)], "two windows of 64 have as many tokens, of two documents"


def test_a_folder_of_texts_is_one_corpus_and_bad_input_is_refused(ask, home):
    assert {row["corpus"] for row in ask(corpus=str(home / "corpora" / "python"), length=40).numbers["rows"]} == {
        "python"
    }
    for arguments, said in (
        ({"length": 65}, "window of text"),
        ({"windows": 0}, "number of windows"),
    ):
        with pytest.raises(BadSetting, match=said):
            ask(**arguments)


def judged(**changed):
    """A row of a sweep that was chosen and holds, with another change of what is given."""
    side = {"upper": 0.005, "worst_bin_upper": 0.01}
    return {"passes": True, "holds": True, "select": side, "report": side} | changed


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (judged(), "passes"),
        (judged(holds=False), "does not pass"),
        (judged(passes=False), "does not pass"),
        (judged(holds=None, report={"upper": None, "worst_bin_upper": None}), "too few documents to judge"),
        (judged(report={"upper": 0.005, "worst_bin_upper": None}), "too few documents to judge"),
        (judged(passes=False, select={"upper": None, "worst_bin_upper": None}), "too few documents to judge"),
    ],
)
def test_too_few_documents_are_no_failure(found, verdict):
    assert _verdict(found) == verdict


def test_the_sentence_counts_what_could_not_be_judged():
    rows = [{"verdict": PASSES, "reads_causal": 0.3}, {"verdict": UNJUDGED, "reads_causal": 0.4}]
    assert _sentence(rows).startswith("1 of 2 corpora and contexts pass, at 30.0% to 30.0%")
    assert _sentence(rows).endswith("In 1 there are too few documents to judge.")
    assert "shown to pass in 1 corpora" in _sentence(rows[1:]) and "In 1 " in _sentence(rows[1:])
