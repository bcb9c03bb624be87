"""What is stored with the program: a small part of every study comes out again, on the bundled samples."""

import json
from pathlib import Path

import pytest

from analysis.places import revision
from analysis.runs.stored import StudyProtocol
from analysis.studies import NAMED
from analysis.studies.context import Context
from lab.harness import documented

CACHE = Path(__file__).parents[3] / "models_cache"
ROUNDING = 1e-8  # what is 0 but for rounding, as a share that is all but nothing, differs between processors
STORED = sorted((*CACHE.glob("demo/studies/*.json"), *CACHE.glob("demo-gpt2/*/studies/*.json")))


TRAIN = "ablations baselines causality dominance finetuning focal focus-printed length-extension pretraining pruned"
DEAR = (*TRAIN.split(), "step-cost", "top")  # their smallest part takes seconds: they come again in `--all`


def each() -> list:
    """Every stored study."""
    marks = {path: pytest.mark.slow if path.name.startswith(DEAR) else () for path in STORED}
    return [pytest.param(path, marks=mark, id=str(path.relative_to(CACHE))) for path, mark in marks.items()]


def test_each_stored_study_says_how_it_was_made():
    for path in STORED:
        told = json.loads(path.read_text(), parse_constant=pytest.fail)["protocol"]
        assert told["command"].startswith("python -m analysis study ") and told["date"] and told["versions"], path.name


@pytest.mark.parametrize("path", each())
def test_a_part_of_each_stored_study_comes_again(path):
    stored = json.loads(path.read_text())
    told = stored["protocol"]
    if StudyProtocol.of(told).other_weights(revision(told["model"])):
        pytest.skip(f"its weights, {told['revision']}, are no longer here; `remeasure --stale` measures it again")
    study = NAMED[told["verb"].removeprefix("study ")]
    checked = study.recheck(stored, context=Context(browser=False))
    assert checked
    for name, (kept, now) in checked.items():
        assert now == pytest.approx(kept, rel=study.tolerance, abs=ROUNDING), name


@pytest.mark.parametrize("path", STORED, ids=lambda path: str(path.relative_to(CACHE)))
def test_what_a_stored_study_says_follows_from_its_numbers(path):
    """Words, columns and panels can be bettered without measuring again: they are made of what is stored."""
    stored = json.loads(path.read_text())
    made = json.loads(json.dumps(NAMED[stored["protocol"]["verb"].removeprefix("study ")].shown(stored)))
    assert {name: stored[name] for name in made} == made


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_question_is_told_whole(name):
    question = documented.question(name)
    assert question.endswith((".", "?", ")")) and "\n" not in question, question
