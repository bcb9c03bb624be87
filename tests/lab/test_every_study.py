"""What holds for every study: its file is whole and can be drawn, a part of it comes again, and what cannot be studied
is refused in one sentence."""

import json

import pytest

from analysis.errors import BadSetting, BadText
from analysis.studies import NAMED
from analysis.studies.stored.quick import SAME
from tests.lab.cases import CASES

NO_PART = ("dominance", "step-cost")  # trainings to their end, and times

REFUSED = [
    ("ablations", {"rows": "depth"}, "no row 'depth'"),
    ("ablations", {"steps": 0}, "steps of a training is 0"),
    ("ablations", {"length": 16, "rows": None}, "32 groups are balanced over the tokens of a step, and it has 16"),
    ("figure-one", {"new_tokens": 17}, "What is written is 17 and must lie between 2 and 16"),
    ("groups", {"router": "k2-top1"}, "'k2-top1' .* is not trained .* name one of k4-top1"),
    ("groups", {"router": "k9-top1"}, "'k9-top1' .* is not there"),
    ("groups", {"window": 32}, "always read is 32 and must lie between 1 and 31"),
    ("groups", {"corpus": "absent"}, "absent is no folder"),
    ("causality", {"router": "k2-top1"}, "is not trained"),
    ("pruned", {"router": "k2-top1"}, "is not trained"),
    ("pruned", {"window": 32}, "always read is 32"),
    ("top", {"router": "k5-top1"}, "is not there"),
    ("dominance", {"corpus": "absent"}, "absent is no folder"),
    ("dominance", {"rows": "sinkhorn,magic"}, "no row 'magic': the rows are softmax, "),
    ("dominance", {"groups": 33}, "33 groups are balanced over the tokens of a step, and it has 32"),
    ("finetuning", {"rows": "poems"}, "There is no domain 'poems': the domains are novels"),
    ("finetuning", {"window": 32}, "always read is 32"),
    ("lengths", {"rows": "long"}, "are lengths such as 512,1024,2048, not long"),
    ("lengths", {"rows": "8"}, "A length to read is 8"),
    ("lengths", {"rows": "65536"}, "2 windows need 131,072"),
    ("lengths", {"length": 65}, "A window of text is 65"),
    ("pretraining", {"rows": "focal"}, "no row 'focal': the rows are dense, focus, random groups"),
    ("pretraining", {"steps": 3}, "at least 4 steps"),
    ("pretraining", {"tokens_per_step": 48}, "must be a multiple of the context"),
    ("focus-printed", {"steps": 7}, "steps of focus-printed is 7 and must lie between 8"),
    ("focus-printed", {"top": 5}, "cannot be in 5 of 4 groups"),
    ("focal-temperatures", {"rows": "0"}, "must lie between"),
    ("focal-temperatures", {"rows": "nan"}, "must lie between"),
    ("focal-temperatures", {"rows": "sharp"}, "There is no row 'sharp'"),
    ("focal-temperatures", {"steps": 3}, "at least 4 steps"),
    ("focal-limits", {"rows": "7-5"}, "tau_min is 7 and lies above tau_max, 5"),
    ("focal-limits", {"rows": "5"}, "There is no row '5'"),
    ("focal-limits", {"rows": "0-10"}, "must lie between"),
    ("focal-tasks", {"temperature": 1.0}, "A temperature of 1 is dense attention"),
    ("focal-tasks", {"lengths": [8]}, "length of a prompt is 8"),
    ("length-extension", {"rate": 2.0}, "rate of a training is 2"),
    ("query-router", {"length": 65}, "A window of text is 65"),
    ("query-router", {"caps": [0]}, "The caps are"),
    ("calibration", {"length": 65}, "window of text"),
    ("equal-bytes", {"rows": "poems"}, "There is no domain 'poems'"),
    ("equal-bytes", {"continuation": 41}, "The length of the continuation is 41"),
    ("prefill", {"rows": "best"}, "There is no rule 'best'"),
    ("prefill", {"lengths": "many"}, "is no list of lengths"),
    ("induction", {"by": "noise"}, "not by 'noise'"),
    ("recall-documents", {"shares": [1.0]}, "share of recall documents is 1"),
]


@pytest.mark.parametrize("name", CASES)
def test_what_a_study_stores_is_whole_and_a_part_comes_again(name, stored, folder_of, home):
    study_numbers, study = stored(name), NAMED[name]
    assert study_numbers["sentence"] and study_numbers["protocol"]["verb"] == f"study {name}"
    assert str(home) not in json.dumps(study_numbers["rows"])
    keys = set().union(*study_numbers[study.tables[0]])
    assert {column["name"] for column in study_numbers["columns"]} <= keys
    for panel in study_numbers.get("panels", ()):
        assert all(len(line["y"]) == len(panel["x_values"]) for line in panel["series"]), panel["title"]
    rows = json.loads((folder_of(name) / "check.json").read_text())
    if name != "step-cost":  # the memory of a step is of whatever else this process holds
        assert rows and all(row["verdict"] == SAME for row in rows), rows
    assert any(not row["number"].startswith("check") for row in rows) == (name not in NO_PART)


@pytest.mark.parametrize(("name", "options", "reason"), REFUSED)
def test_what_cannot_be_studied_is_refused(name, options, reason, ask):
    with pytest.raises((BadSetting, BadText), match=reason):
        ask(name, **options)
