"""The command behind *Why* on a tiny model: its parts against the door, its defaults, what it refuses."""

import json

import pytest

from analysis import why as door
from analysis.commands.heads import Why
from analysis.errors import BadSetting
from analysis.studies.heads import why as study


def test_why_lists_the_strongest_parts_and_sums_the_rest(ask, home, monkeypatch):
    monkeypatch.setattr(study, "LISTED", 5)
    answer = ask(Why, layer=1, head=1, query=30, key_token=12, by="zero", long_text="first")
    numbers, parts = answer.numbers, answer.tables["parts"]
    assert (numbers["query"], numbers["key"], len(parts)) == (30, 12, 5)
    assert parts["score"].sum() + numbers["rest"] == pytest.approx(numbers["logit"], abs=1e-6)
    assert answer.tables["spectrum"]["score"].sum() == pytest.approx(numbers["logit"], abs=1e-4)
    logit_at = answer.tables["distance"].set_index("distance")["logit"]
    assert logit_at[18] == pytest.approx(numbers["logit"], abs=1e-4)
    assert (
        len(answer.tables["vocabulary"]) == 2 * study.TOKENS
        and answer.tables["vocabulary"]["change"].is_monotonic_decreasing
    )
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
