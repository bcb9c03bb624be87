"""What is stored with the program: a small part of every study comes out again, on the bundled samples."""

import json
from pathlib import Path

import pytest

from analysis.places import revision
from analysis.runs.stored import StudyProtocol
from analysis.studies import NAMED
from analysis.studies.context import Context
from analysis.studies.stored.quick import SAME, compared, leaves
from lab.harness import documented
from lab.harness.remeasure import study_of

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
