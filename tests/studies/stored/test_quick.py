"""A stored study is checked by a part of it: what comes out the same, what does not, and what is refused."""

import json
import shlex
from pathlib import Path

import pytest

from analysis.cli.options import parser
from analysis.errors import BadSetting
from analysis.studies import NAMED
from analysis.studies.context import Context
from analysis.studies.stored.quick import GONE, NEGLIGIBLE, OTHER, SAME, asked, compared, leaves
from analysis.studies.stored.runner import Study
from tests.made.studied import asker, studied_home
from tests.made.tiny_study import TinyMeans

ROOT = Path(__file__).resolve().parents[3]
STUDIES = sorted(
    (*ROOT.glob("models_cache/demo/studies/*.json"), *ROOT.glob("models_cache/demo-gpt2/*/studies/*.json"))
)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return studied_home(tmp_path_factory.mktemp("quick"))


@pytest.fixture
def ask(home):
    ask = asker(TinyMeans.run, home, corpus=str(home / "corpus"))
    ask(times=3.0)
    return ask


@pytest.fixture
def place(home):
    return home / "state" / "studies" / "means-32.json"


def edit(place, change):
    stored = json.loads(place.read_text())
    change(stored)
    place.write_text(json.dumps(stored))


def test_what_is_stored_comes_out_the_same_and_nothing_is_written(ask, home, place):
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    answer = ask(quick=True)
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == before
    assert answer.numbers["verdict"] == SAME and answer.numbers["cpu_seconds"] >= 0
    rows = {row["number"]: row for row in answer.tables["rows"].to_dict("records")}
    assert set(rows) == {"check, first", "rows, 0, mean", "protocol, text"}
    mean = json.loads(place.read_text())["rows"][0]["mean"]
    assert rows["rows, 0, mean"]["stored"] == rows["rows, 0, mean"]["again"] == mean, "with the sizes that are stored"
    assert "3 stored numbers" in answer.numbers["sentence"]


def test_a_number_that_is_another_is_named(ask, place):
    edit(place, lambda stored: stored["rows"][0].update(mean=stored["rows"][0]["mean"] * 1.01))
    numbers = ask(quick=True).numbers
    (row,) = (row for row in numbers["rows"] if row["verdict"] != SAME)
    assert numbers["verdict"] == row["verdict"] == OTHER and row["apart"] == pytest.approx(0.01, rel=0.02)
    edit(place, lambda stored: stored.update(rows=stored["rows"][1:]))
    assert GONE in [row["verdict"] for row in ask(quick=True).numbers["rows"]]


def test_other_texts_are_another_verdict_and_without_texts_the_sample_alone_is_computed(ask, home, tmp_path):
    for side in ("train", "valid"):
        (tmp_path / "corpus" / side).mkdir(parents=True)
        for path in (home / "corpus" / side).iterdir():
            (tmp_path / "corpus" / side / path.name).write_text(path.read_text()[::-1])
    numbers = ask(quick=True, corpus=str(tmp_path / "corpus")).numbers
    assert numbers["verdict"] == OTHER and "protocol, text" in numbers["sentence"]
    numbers = ask(quick=True, corpus="").numbers
    assert [row["number"] for row in numbers["rows"]] == ["check, first"] and numbers["verdict"] == SAME
    assert "name the folder with --corpus" in numbers["sentence"]


def test_what_cannot_be_checked_is_said(ask, place, home):
    with pytest.raises(BadSetting, match="leave times out"):
        ask(quick=True, times=5.0)
    with pytest.raises(BadSetting, match="Nothing is stored of the study means-16"):
        ask(quick=True, length=16)
    edit(place, lambda stored: stored["protocol"].update(revision="0123456789ab"))
    with pytest.raises(BadSetting, match="other weights"):
        ask(quick=True)


def test_rows_stand_beside_those_with_their_words_and_of_several_beside_the_likest():
    stored = {"rows": [{"arm": "a", "t": t, "x": 10 * t, "many": [t, 1.0]} for t in (0.3, 0.4)], "y": 2.0}
    again = {"rows": [{"arm": "a", "t": 0.4, "x": 4.1, "many": [0.4, 1.0]}, {"arm": "b", "x": 1.0}], "y": 2.0}
    by_number = {name: compared(name, *values, 1e-3) for name, *values in leaves(again, stored)}
    assert by_number["rows, a, x"] == {
        **{"number": "rows, a, x", "count": 1, "stored": 4.0, "again": 4.1, "verdict": OTHER},
        "apart": pytest.approx(0.025),
    }
    assert by_number["rows, a, many"]["count"] == 2 and by_number["rows, a, many"]["verdict"] == SAME
    assert by_number["rows, b, x"]["verdict"] == GONE and by_number["y"]["apart"] == 0.0
    assert compared("x", [1.0, 2.0], [1.0], 1e-3)["verdict"] == OTHER, "lists of other lengths"
    assert compared("x", 0.0, NEGLIGIBLE / 2, 1e-3)["verdict"] == SAME != compared("x", None, 1.0, 1e-3)["verdict"]


@pytest.mark.parametrize("name", sorted(NAMED))
def test_every_study_has_a_part_or_says_why_not(name):
    study = NAMED[name].sizes
    assert (study.part is Study.part) == bool(study.whole)


@pytest.mark.slow
@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_document_names_the_command_that_checks_a_stored_study(path):
    stored = json.loads(path.read_text())
    protocol, study = stored["protocol"], NAMED[stored["protocol"]["verb"].removeprefix("study ")]
    document = (ROOT / "docs/measured.md").read_text(encoding="utf-8")
    assert f"\n{protocol['command']}\n" in document and "`--quick`" in document.partition("\n## ")[0]
    options = vars(parser("").parse_args([*shlex.split(protocol["command"])[3:], "--quick"]))
    assert options["quick"] is True and options["name"] == study.name
    sizes = {name: value for name, value in asked(study.sizes, protocol).items() if name in protocol["sizes"]}
    assert (study.sizes.file or study.name).format(**study.defaults | sizes) == path.stem


@pytest.mark.parametrize("name", ["kernels", "equal-budget", "equal-bytes"])
def test_the_bundled_studies_are_checked_without_their_texts(name):
    numbers = NAMED[name](quick=True, context=Context(browser=False)).numbers
    assert numbers["verdict"] == SAME and numbers["rows"]
