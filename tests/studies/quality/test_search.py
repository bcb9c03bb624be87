"""The search for a setting: halving by hand, what chooses and what reports, the verdict, and going on when stopped."""

from types import SimpleNamespace

import numpy as np
import pytest

from analysis.errors import BadSetting, BadText
from analysis.studies import PARTS
from analysis.studies.quality import arms as module
from analysis.studies.quality.arms import Arm
from analysis.studies.quality.search import _sentence, frontier, halving, rank, search, split
from tests.made.evaluating import TEXT


def test_better_is_cheaper_among_the_good_and_gentler_among_the_others():
    tried = [(0.04, 0.5), (0.01, 0.7), (0.2, 0.1), (0.06, 0.3)]  # (change, budget)
    assert sorted(tried, key=lambda one: rank(*one, 0.05)) == [(0.04, 0.5), (0.01, 0.7), (0.06, 0.3), (0.2, 0.1)]


def test_the_frontier_by_hand():
    tried = {"a": (0.1, 0.3), "b": (0.2, 0.1), "c": (0.3, 0.2), "d": (0.5, 0.0), "e": (0.5, 0.4)}
    rows = [SimpleNamespace(label=name, budget=budget, difference=change) for name, (budget, change) in tried.items()]
    assert frontier(rows) == ["a", "b", "d"]


def test_whole_texts_choose_or_report_and_one_text_is_halved():
    assert split(np.array([0, 0, 1, 2, 2])) == ([0, 1], [2, 3, 4])
    assert split(np.zeros(5, int)) == ([0, 1], [2, 3, 4])


def test_the_better_half_goes_on_to_twice_as_many():
    """Eight arms, of which arm i loses i per cent and keeps 1 - i / 10: 8, 4 and then 3 of them go on."""
    arms, dense, asked, done = [Arm(number, {}) for number in range(8)], Arm("dense", {}), [], []

    def read(together, began, share):
        done.append((began, share))
        for arm, stretches in together:
            asked.append((arm.candidate, list(stretches)))
            loss = 0.0 if arm.candidate == "dense" else float(np.log1p(arm.candidate / 100))
            budget = 1.0 if arm.candidate == "dense" else 1 - arm.candidate / 10
            arm.add({"losses": [[1 + loss] * 2] * len(stretches), "budgets": [budget] * len(stretches)})

    left = halving(arms, dense, list(range(10, 20)), 0.05, read)
    assert [arm.candidate for arm in left] == [5, 4, 3] and len(left[0].losses) == len(dense.losses) == 10
    reads = {number: sum(len(own) for name, own in asked if name == number) for number in range(8)}
    assert reads == {5: 10, 4: 10, 3: 10, 2: 4, 0: 2, 1: 2, 6: 2, 7: 2}
    assert {place for _, own in asked for place in own} == set(range(10, 20))
    assert [began for began, _ in done] == pytest.approx([0.1, 0.25, 0.4]) and sum(done[-1]) == pytest.approx(0.85)


@pytest.fixture
def ask(context, home):
    def run(texts=(TEXT * 6,), **arguments):
        keys = [context.add_text(f"text {at}", text) for at, text in enumerate(texts)]
        given = {"methods": [{"name": "snapkv", "settings": {"window": 2}}], "prefix": 32, "continuation": 12}
        return search(str(home / "tiny"), keys, **given | {"cuts": 16, "lose": 0.5} | arguments, context=context)

    return run


def test_the_winner_is_judged_on_the_half_that_did_not_choose_it(ask, context, monkeypatch):
    result = ask()
    rows, chosen = result.numbers["rows"], result.numbers["chosen"]
    assert len(rows) == 7 and sum(row["left"] for row in rows) == 3  # of 7 first 4 and then 3, which read all eight
    able = [row for row in rows if row["left"] and row["difference"] <= 0.5]
    assert chosen["label"] == min(able, key=lambda row: row["budget"])["label"]
    assert chosen["holds"] == (chosen["upper"] <= 0.5) and chosen["difference"] != rows[0]["difference"]
    assert {row["stretches"] for row in rows} == {2, 4, 8} and chosen["units"] == 8
    assert "did not choose it" in result.numbers["sentence"] and len(result.tables["rows"]) == 7
    monkeypatch.setattr(module, "follow", lambda *given: pytest.fail("what was read is not read again"))
    assert ask().numbers["rows"] == rows


def test_prompts_that_are_mostly_window_are_refused(ask):
    """SnapKV keeps 4 of 32 tokens whatever it chooses, an eighth; of 5 the prompt has fewer than eight."""
    windows = [{"name": name, "settings": {"window": 4}} for name in ("snapkv", "ada_kv")]
    assert ask(methods=windows).numbers["rows"]
    windows[1]["settings"]["window"] = 5
    with pytest.raises(BadSetting, match="32 tokens and Ada-KV always keeps 5 of them: give prompts of 40"):
        ask(methods=windows)


def test_methods_that_read_and_lose_the_same_tie(ask):
    """Ada-KV leaves every head its even budget where all of it is safe, which is SnapKV."""
    apart = [{"name": "snapkv", "settings": {"window": 2}}, {"name": "ada_kv", "settings": {"window": 2, "safe": 1.0}}]
    numbers = ask(methods=apart).numbers
    chosen = next(row for row in numbers["rows"] if row["label"] == numbers["chosen"]["label"])
    (tied,) = (row for row in numbers["rows"] if row["label"] in numbers["tied"])
    assert {chosen["method"], tied["method"]} == {"snapkv", "ada_kv"} and chosen["budget"] == tied["budget"]
    assert "tie" in numbers["sentence"] and tied["label"] in numbers["sentence"]
    assert ask(methods=apart[:1]).numbers["tied"] == []


def test_only_signs_are_minus_signs():
    row = SimpleNamespace(label="Ada-KV, score snapkv", budget=0.25, difference=-0.012)
    chosen = SimpleNamespace(**vars(row), upper=-0.001, holds=True, units=8, unit="stretches")
    for said in (_sentence(chosen, [row], ["TOVA"], 0.05, "memory"), _sentence(None, [row], [], 0.05, "memory")):
        assert "Ada-KV" in said and "−1.2%" in said and "-1.2%" not in said


def test_refusals(ask):
    with pytest.raises(BadSetting, match="reads, memory, prefill"):
        ask(saves="energy")
    for saves, name in (("reads", "snapkv"), ("memory", "streaming_llm"), ("memory", "dense")):
        with pytest.raises(BadSetting, match=f"does not save what is searched for, {saves}"):
            ask(saves=saves, methods=[{"name": name}])
    with pytest.raises(BadSetting, match="no setting that counts its keys"):
        ask(saves="reads", methods=[{"name": "focal"}])
    with pytest.raises(BadText, match="a search needs 4"):
        ask(texts=["the cat sat on the mat " * 8])


def test_methods_that_read_less_are_searched_by_the_share_of_the_pairs_they_read(ask):
    """All tokens of a stretch are scored; a wider window reads more, and the ceiling is named as one."""
    windows = [{"name": "streaming_llm", "settings": {"n_sink": 1}}, {"name": "oracle_topk"}]
    result = ask(saves="reads", methods=windows, lose=0.9)
    rows = [row for row in result.numbers["rows"] if row["method"] == "streaming_llm"]
    assert [row["settings"]["window"] for row in rows] == sorted({row["settings"]["window"] for row in rows})
    assert all(row["settings"]["n_sink"] == 1 for row in rows) and len(rows) > 3
    budgets = [row["budget"] for row in rows]
    assert budgets == sorted(budgets) and 0.02 < budgets[0] < 0.2 and 0.6 < budgets[-1] <= 0.9
    assert "of the causal pairs" in result.numbers["sentence"]
    assert [note for note in result.numbers["notes"] if note.startswith("Oracle top-k looks at every key")]


def test_only_methods_that_need_not_look_at_every_key_are_searched_unasked(ask):
    result = ask(saves="reads", methods=None, lose=0.9)
    names = {row["method"] for row in result.numbers["rows"]}
    assert {"streaming_llm", "quest", "sparq", "longformer"} <= names and not names & {"oracle_topk", "csa", "dense"}


@pytest.mark.parametrize("saves, name", [("memory", "snapkv"), ("reads", "streaming_llm")])
def test_other_workers_find_what_is_found_here(ask, context, saves, name, monkeypatch):
    methods = [{"name": name, "settings": {"window": 2} if saves == "memory" else {}}]
    alone = ask(saves=saves, methods=methods).numbers
    asked = []

    def others(verb, requests, progress):
        asked.append([one["stretches"] for one in requests])
        monkeypatch.setattr(context, "others", None)
        found = [PARTS[verb](**one, context=context).numbers for one in requests]
        monkeypatch.setattr(context, "others", others)
        return found

    monkeypatch.setattr(context, "others", others)
    shared = ask(saves=saves, methods=methods).numbers
    assert {one: shared[one] for one in ("rows", "chosen", "frontier")} == {
        one: alone[one] for one in ("rows", "chosen", "frontier")
    }
    assert asked[0][0] == [0, 1] and len(asked[0]) > len(asked[1]) and min(asked[-1][0]) > max(asked[-2][0]), "verdict"
