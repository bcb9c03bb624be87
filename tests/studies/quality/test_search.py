"""The search for a setting: halving by hand, what chooses and what reports, the verdict, and going on when stopped."""

from types import SimpleNamespace

import numpy as np
import pytest

from analysis.commands.quality import Search
from analysis.errors import BadSetting, BadText
from analysis.studies import PARTS
from analysis.studies.quality import arms as reading
from analysis.studies.quality.arms import Arm
from analysis.studies.quality.search import frontier, halving, rank, split
from tests.made.evaluating import TEXT


def test_order_frontier_and_split_by_hand():
    """Better is cheaper among the good and gentler among the others; whole texts choose or report."""
    changes = [(0.04, 0.5), (0.01, 0.7), (0.2, 0.1), (0.06, 0.3)]  # (change, budget)
    ranked = sorted(changes, key=lambda pair: rank(*pair, 0.05))
    assert ranked == [(0.04, 0.5), (0.01, 0.7), (0.06, 0.3), (0.2, 0.1)]
    tried = {"a": (0.1, 0.3), "b": (0.2, 0.1), "c": (0.3, 0.2), "d": (0.5, 0.0), "e": (0.5, 0.4)}
    rows = [SimpleNamespace(label=name, budget=budget, difference=change) for name, (budget, change) in tried.items()]
    assert frontier(rows) == ["a", "b", "d"]
    assert split(np.array([0, 0, 1, 2, 2])) == split(np.zeros(5, int)) == ([0, 1], [2, 3, 4])


def test_the_better_half_goes_on_to_twice_as_many():
    """Eight arms, of which arm i loses i per cent and keeps 1 - i / 10: 8, 4 and then 3 of them go on."""
    arms, dense, readings, done = [Arm(number, {}) for number in range(8)], Arm("dense", {}), [], []

    def read(together, began, share):
        done.append((began, share))
        for arm, stretches in together:
            readings.append((arm.candidate, list(stretches)))
            loss = 0.0 if arm.candidate == "dense" else float(np.log1p(arm.candidate / 100))
            budget = 1.0 if arm.candidate == "dense" else 1 - arm.candidate / 10
            arm.add({"losses": [[1 + loss] * 2] * len(stretches), "budgets": [budget] * len(stretches)})

    left = halving(arms, dense, list(range(10, 20)), 0.05, read)
    assert [arm.candidate for arm in left] == [5, 4, 3] and len(left[0].losses) == len(dense.losses) == 10
    reads = {number: sum(len(places) for name, places in readings if name == number) for number in range(8)}
    assert reads == {5: 10, 4: 10, 3: 10, 2: 4, 0: 2, 1: 2, 6: 2, 7: 2}
    assert {place for _, places in readings for place in places} == set(range(10, 20))
    assert [began for began, _ in done] == pytest.approx([0.1, 0.25, 0.4]) and sum(done[-1]) == pytest.approx(0.85)


@pytest.fixture
def searched(ask):
    """`searched(**arguments)` -> the answer of a search among settings of SnapKV."""

    def run(**arguments):
        usual = {"texts": [TEXT * 6], "methods": [{"name": "snapkv", "settings": {"window": 2}}], "prefix": 32}
        return ask(Search, **usual | {"continuation": 12, "cuts": 16, "lose": 0.5} | arguments)

    return run


def test_the_winner_is_judged_on_the_half_that_did_not_choose_it(searched, monkeypatch):
    result = searched()
    rows, chosen = result.numbers["rows"], result.numbers["chosen"]
    assert len(rows) == 7 and sum(row["left"] for row in rows) == 3  # of 7 first 4 and then 3, which read all eight
    able = [row for row in rows if row["left"] and row["difference"] <= 0.5]
    assert chosen["label"] == min(able, key=lambda row: row["budget"])["label"]
    assert chosen["holds"] == (chosen["upper"] <= 0.5) and chosen["difference"] != rows[0]["difference"]
    assert {row["stretches"] for row in rows} == {2, 4, 8} and chosen["units"] == 8
    assert "on unseen text" in result.numbers["sentence"] and len(result.tables["rows"]) == 7
    assert result.numbers["nearest"] is None and "7 settings of 1 methods" in result.numbers["notes"][0]
    monkeypatch.setattr(reading, "follow", lambda *_: pytest.fail("what was read is not read again"))
    assert searched().numbers["rows"] == rows


def test_the_nearest_miss_is_judged_on_the_other_half_too(searched, monkeypatch):
    judged = searched().numbers["chosen"]
    monkeypatch.setattr(Arm, "change", lambda arm, dense: 1.0 + abs(arm.budget - judged["budget"]))
    numbers = searched().numbers
    assert numbers["chosen"] is None and numbers["nearest"] == judged
    assert numbers["sentence"].startswith("Nothing passed. Nearest: SnapKV at ")


def test_methods_that_read_and_lose_the_same_tie(searched):
    """Ada-KV leaves every head its even budget where all of it is safe, which is SnapKV."""
    methods = [
        {"name": "snapkv", "settings": {"window": 2}},
        {"name": "ada_kv", "settings": {"window": 2, "safe": 1.0}},
    ]
    numbers = searched(methods=methods).numbers
    chosen = next(row for row in numbers["rows"] if row["label"] == numbers["chosen"]["label"])
    (tied,) = (row for row in numbers["rows"] if row["label"] in numbers["tied"])
    assert {chosen["method"], tied["method"]} == {"snapkv", "ada_kv"} and chosen["budget"] == tied["budget"]
    assert "tie" in numbers["sentence"] and tied["label"] in numbers["sentence"]
    assert searched(methods=methods[:1]).numbers["tied"] == []


def test_prompts_that_are_mostly_window_are_refused(searched):
    """SnapKV keeps 4 of 32 tokens whatever it chooses, an eighth; of 5 the prompt has fewer than eight."""
    snapkv = {"name": "snapkv", "settings": {"window": 4}}
    assert searched(methods=[snapkv]).numbers["rows"]
    with pytest.raises(BadSetting, match="32 tokens and Ada-KV always keeps 5 of them: give prompts of 40"):
        searched(methods=[snapkv, {"name": "ada_kv", "settings": {"window": 5}}])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"saves": "energy"}, "reads, memory, prefill"),
        ({"saves": "reads"}, "SnapKV does not save what is searched for, reads"),
        ({"methods": [{"name": "streaming_llm"}]}, "does not save what is searched for, memory"),
        ({"methods": [{"name": "dense"}]}, "does not save what is searched for, memory"),
        ({"saves": "reads", "methods": [{"name": "focal"}]}, "no setting that counts its keys"),
        ({"texts": ["the cat sat on the mat " * 8]}, "a search needs 4"),
    ],
    ids=str,
)
def test_what_cannot_be_searched_is_refused(searched, arguments, message):
    with pytest.raises((BadSetting, BadText), match=message):
        searched(**arguments)


def test_methods_that_read_less_are_searched_by_the_share_of_the_pairs_they_read(searched):
    """All tokens of a stretch are scored; a wider window reads more, and the ceiling is named as one."""
    windows = [{"name": "streaming_llm", "settings": {"n_sink": 1}}, {"name": "oracle_topk"}]
    result = searched(saves="reads", methods=windows, lose=0.9)
    rows = [row for row in result.numbers["rows"] if row["method"] == "streaming_llm"]
    sizes, budgets = ([row["settings"]["window"] for row in rows], [row["budget"] for row in rows])
    assert sizes == sorted(set(sizes)) and len(rows) > 3 and all(row["settings"]["n_sink"] == 1 for row in rows)
    assert budgets == sorted(budgets) and 0.02 < budgets[0] < 0.2 and 0.6 < budgets[-1] <= 0.9
    assert [note for note in result.numbers["notes"] if note.startswith("Oracle top-k looks at every key")]


@pytest.mark.slow
def test_only_methods_that_need_not_look_at_every_key_are_searched_unasked(searched):
    few = {"prefix": 24, "continuation": 6, "cuts": 4}
    names = {row["method"] for row in searched(saves="reads", methods=None, lose=0.9, **few).numbers["rows"]}
    assert {"streaming_llm", "quest", "sparq", "longformer"} <= names and not names & {"oracle_topk", "csa", "dense"}


@pytest.mark.parametrize("saves, name", [("memory", "snapkv"), ("reads", "streaming_llm")])
def test_other_workers_find_what_is_found_here(searched, context, saves, name, monkeypatch):
    methods = [{"name": name, "settings": {"window": 2} if saves == "memory" else {}}]
    alone, requests_seen = searched(saves=saves, methods=methods).numbers, []

    def other_workers(verb, requests, progress):
        requests_seen.append([part["places"] for part in requests])
        monkeypatch.setattr(context, "others", None)
        answers = [PARTS[verb](**part, context=context).numbers for part in requests]
        monkeypatch.setattr(context, "others", other_workers)
        return answers

    monkeypatch.setattr(context, "others", other_workers)
    shared = searched(saves=saves, methods=methods).numbers
    assert all(shared[part] == alone[part] for part in ("rows", "chosen", "frontier"))
    assert (
        requests_seen[0][0] == [0, 1]
        and len(requests_seen[0]) > len(requests_seen[1])
        and min(requests_seen[-1][0]) > max(requests_seen[-2][0])
    ), "verdict"
