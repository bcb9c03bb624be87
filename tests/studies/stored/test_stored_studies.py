"""What is stored with the program: a small part of every study comes out again, on the bundled samples."""

import json
from pathlib import Path

import pytest

from analysis.studies import NAMED
from analysis.studies.context import Context

CACHE = Path(__file__).parents[3] / "models_cache"
ROUNDING = 1e-8  # what is 0 but for rounding, as a share that is all but nothing, differs between processors
STORED = sorted((*CACHE.glob("demo/studies/*.json"), *CACHE.glob("demo-gpt2/*/studies/*.json")))


@pytest.mark.parametrize("path", STORED, ids=lambda path: str(path.relative_to(CACHE)))
def test_a_part_of_each_stored_study_comes_again(path):
    stored = json.loads(path.read_text(), parse_constant=pytest.fail)
    told = stored["protocol"]
    assert told["command"].startswith("python -m analysis study ") and told["date"] and told["versions"]
    study = NAMED[told["verb"].removeprefix("study ")]
    checked = study.recheck(stored, context=Context(browser=False))
    assert checked
    for name, (kept, now) in checked.items():
        assert now == pytest.approx(kept, rel=study.tolerance, abs=ROUNDING), name
