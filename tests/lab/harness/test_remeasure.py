"""What is out of date is found and measured again, the cheapest first; a new study is one script in the lab. What is
stored with the program is told in docs/measured.md, and a small part of every study comes out again, on the bundled
samples."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import lab
from analysis.__main__ import main
from analysis.errors import BadSetting
from analysis.models import load_model
from analysis.places import revision
from analysis.runs.stored import Column, StudyProtocol
from analysis.studies import NAMED, registry
from analysis.studies.context import Context
from analysis.studies.stored.quick import SAME, compared, leaves
from lab.harness import documented, remeasure as module
from lab.harness.remeasure import STOPPED, reasons, remeasure, study_of
from tests.lab import cases
from tests.made import tiny_study
from tests.made.studied import asker, studied_home
from tests.made.tiny_study import TinyMeans

ROOT = Path(__file__).parents[3]


@pytest.fixture
def two_stored(tmp_path, monkeypatch):
    """With two stored studies, of windows of 32 and of 16 tokens; the longer took less time."""
    monkeypatch.setattr(module, "NAMED", {"tiny-means": TinyMeans.run})
    home = studied_home(tmp_path)
    ask = asker(TinyMeans.run, home, corpus=str(home / "corpus"))
    for length, seconds in ((32, 10.0), (16, 7200.0)):
        change(Path(ask(length=length).numbers["path"]), seconds=seconds)
    return home


def change(path: Path, **protocol) -> None:
    stored = json.loads(path.read_text())
    stored["protocol"] |= protocol
    path.write_text(json.dumps(stored))


def again(home, progress=lambda fraction, stage: None, **options) -> list[dict]:
    context = Context(progress=progress, state=home / "state", browser=False)
    arguments = {"model": str(home / "tiny"), "corpus": str(home)} | options
    return remeasure(**arguments, context=context).numbers["rows"]


def test_what_is_out_of_date_says_why(two_stored):
    lm, path = load_model(str(two_stored / "tiny")), two_stored / "state" / "studies" / "means-16.json"
    stored = json.loads(path.read_text())
    assert reasons(stored, lm) == [] and again(two_stored, stale=True) == []
    for changed, why in (
        ({"revision": "other"}, "other weights"),
        ({"version": 0}, "other version"),
        ({"sizes": stored["protocol"]["sizes"] | {"times": 3.0}}, "other sizes"),
        ({"sizes": None}, "other sizes"),
    ):
        protocol = stored["protocol"] | changed
        assert reasons(stored | {"protocol": protocol}, lm) == [why]
    assert StudyProtocol("study groups", revision="old").other_weights("new")
    assert not StudyProtocol("study groups", revision="new").other_weights("new")
    assert not StudyProtocol("study pretraining", revision="old").other_weights("new")


def test_the_page_says_what_was_measured_on_earlier_weights():
    title, study = next((title, study) for title, study in documented.stored().items() if title.startswith("groups"))
    old = replace(study.protocol, revision="0" * 12)
    page = documented.document({title: replace(study, protocol=old)})
    assert "*Measured on earlier weights of demo: these numbers wait to be measured again.*" in page
    now = replace(old, revision=revision("demo"))
    assert documented.earlier(now) == []
    assert "by an earlier version of this study" in documented.earlier(replace(now, version=1))[0]
    assert "weights of demo and by an earlier version" in documented.earlier(replace(old, version=1))[0]


def test_the_cheapest_comes_first_and_what_was_asked_for_is_asked_again(two_stored):
    stages = []
    rows = again(two_stored, lambda fraction, stage: stages.append(stage))
    assert [(row["name"], row["why"], row["state"]) for row in rows] == [
        ("means-32", "asked for", "measured"),
        ("means-16", "asked for", "measured"),
    ]
    assert "To be measured again: means-32, means-16. Before, that took about 2.0 hours." in stages
    stored = json.loads((two_stored / "state" / "studies" / "means-16.json").read_text())
    assert stored["protocol"]["asked"] == {"length": 16} and "path" not in stored


def test_it_says_what_cannot_be_measured_and_stops_after_the_minutes(two_stored):
    (row,) = again(two_stored, only="means-16", corpus="")
    assert row["state"] == "It reads the folder corpus: name that, or the one it lies in, as the corpus."
    with pytest.raises(BadSetting, match="There is no stored study 'top'"):
        again(two_stored, only="top")
    path = two_stored / "state" / "studies" / "means-32.json"
    change(path, version=0)
    before = path.read_text()
    (row,) = again(two_stored, stale=True, minutes=0)
    assert row["state"] == "to be measured" and row["why"] == "other version" and path.read_text() == before
    (row,) = again(two_stored, stale=True, minutes=1e-9)
    assert row["state"] in (STOPPED, "to be measured") and path.read_text() == before
    (row,) = again(two_stored, stale=True, minutes=60)
    assert row["state"] == "measured" and again(two_stored, stale=True) == []


def test_the_page_of_what_was_measured_is_what_is_stored_and_stays_short():
    page = documented.document(documented.stored())
    assert (ROOT / "docs" / "measured.md").read_text(encoding="utf-8") == page, "run `python -m analysis measured`"
    assert (ROOT / "docs" / "measured.md").stat().st_size <= 100_000


def test_a_cell_shows_its_interval_its_unit_and_nothing_that_a_table_would_break():
    gain = Column("gain", "gain")
    row = {"gain": -0.01234567, "gain_low": -0.02, "gain_high": 0.0, "share": 0.5, "name": "a|b", "whole": True}
    assert documented.cell(row, gain) == "-0.01235 (-0.02 to 0)"
    assert documented.cell(row, Column("share", "share", "share")) == "50.00%"
    assert documented.cell(row, Column("name", "name")) == "a\\|b"
    assert documented.cell(row, Column("whole", "whole")) == "yes" and documented.cell({}, gain) == ""
    printed = documented.table([gain, Column("gain_low", "low"), Column("lost", "lost")], [row])
    assert printed.splitlines()[0] == "| gain |" and len(printed.splitlines()) == 3


CACHE = Path(__file__).parents[3] / "models_cache"
STORED = sorted((*CACHE.glob("demo/studies/*.json"), *CACHE.glob("demo-gpt2/*/studies/*.json")))


@pytest.mark.parametrize("path", STORED, ids=lambda path: str(path.relative_to(CACHE)))
def test_a_stored_study_says_how_it_was_made_and_follows_from_its_numbers(path):
    """Words, columns and panels can be bettered without measuring again: they are made of what is stored."""
    stored = json.loads(path.read_text(), parse_constant=pytest.fail)
    protocol = stored["protocol"]
    assert protocol["command"].startswith("python -m analysis study ") and protocol["date"] and protocol["versions"]
    summary = json.loads(json.dumps(NAMED[study_of(stored)].shown(stored)))
    assert {name: stored[name] for name in summary} == summary


@pytest.mark.parametrize("path", STORED, ids=lambda path: str(path.relative_to(CACHE)))
def test_a_part_of_each_stored_study_comes_again(path):
    stored = json.loads(path.read_text())
    protocol = stored["protocol"]
    if StudyProtocol.of(protocol).other_weights(revision(protocol["model"])):
        pytest.skip(f"its weights, {protocol['revision']}, are no longer here: `remeasure --stale` measures it again")
    run = NAMED[study_of(stored)].setting(stored, Context(browser=False))
    again = list(leaves({"check": run.sizes.sample(run, stored)}, stored))
    assert again
    for name, before, now in again:
        assert compared(name, before, now, run.sizes.tolerance)["verdict"] == SAME, name


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_question_is_a_sentence_of_one_line(name):
    question = documented.question(name)
    assert question.endswith((".", "?", ")")) and "\n" not in question, question


def test_a_script_in_the_lab_is_a_study(home, tmp_path, monkeypatch, capsys):
    shutil.copy(tiny_study.__file__, tmp_path / "tiny_means.py")
    monkeypatch.setattr(lab, "__path__", [*lab.__path__, str(tmp_path)])
    for name, study in registry.scripts(tmp_path, registry.STORED).items():
        monkeypatch.setitem(registry.STORED, name, study)
        monkeypatch.setitem(NAMED._places, name, study.full_place())
    assert registry.STORED["tiny-means"].help.startswith("A stored study as small as one can be")
    state = tmp_path / "state"
    command = ["study", "tiny-means", "--model", home / "tiny", "--corpus", home / "corpus", "--state", state]
    assert main([*map(str, command), "--plan", "--json"]) == 0 and not state.exists()
    assert main([*map(str, command), "--json"]) == 0
    stored = json.loads((state / "studies" / "means-32.json").read_text())
    assert len(stored["rows"]) == 3 and stored["protocol"]["version"] == 1
    capsys.readouterr()
    assert main([*map(str, command), "--quick", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["verdict"] == "the same"
    context = cases.Context(state=state, browser=False)
    (row,) = remeasure(str(home / "tiny"), str(home / "corpus"), only="means-32", context=context).numbers["rows"]
    assert row["study"] == "tiny-means" and row["state"] == "measured"


def test_what_the_table_lists_is_no_script_of_its_own():
    assert not registry.scripts(registry.LAB, registry.STORED)
