"""The verb `head-texts`: lift by hand, a tiny corpus once for real, a stopped run that goes on, refusals."""

import json

import numpy as np
import pytest

from analysis.errors import BadSetting, BadText
from analysis.statistics.heads import ALL
from analysis.statistics.sampled import TOP
from analysis.studies.heads import texts as studied
from analysis.studies.heads.lift import lifted
from analysis.studies.heads.texts import head_texts
from tests.made.evaluating import TEXT


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for name, word in (("a", "cat"), ("b", "dog")):
        (folder / f"{name}.txt").write_text(TEXT.replace("cat", word), encoding="utf-8")
    (folder / "c.txt").write_text("hi", encoding="utf-8")  # too short to read from, and passed over
    return folder


@pytest.fixture
def ask(home, context, corpus):
    def ask(**given):
        return head_texts(
            str(home / "tiny"), **{"corpus": str(corpus), "tokens": 200, "queries": 40} | given, context=context
        )

    return ask


def test_lift_by_hand():
    """Twenty queries of tokens 1 and 2: token 1 reads 7 eight times and 8 twice, token 2 always 8."""
    query = np.array([1] * 10 + [2] * 10)
    key = np.array([7] * 8 + [8] * 12)
    weight = np.array([0.9, 0.9] + [0.5] * 18)  # the tenth that gives most: two queries, both of token 1
    rows = {(row["kind"], row["query"], row["key"]): row for row in lifted(query, key, weight, {7: 2.0, 8: 24.0})}
    assert rows["key", None, 7]["count"] == 8 and rows["key", None, 7]["lift"] == 4
    assert ("key", None, 8) not in rows, "12 of 24 are fewer than by chance"
    assert rows["pair", 1, 7]["lift"] == 8 * 20 / (10 * 8) and rows["pair", 2, 8]["count"] == 10
    assert ("pair", 1, 8) not in rows and not [one for one in rows if one[0] == "query"], "fewer than three times"
    many = lifted(np.repeat(query, 3), np.repeat(key, 3), np.repeat(weight, 3), {7: 6.0, 8: 72.0})
    asking = {row["query"]: row for row in many if row["kind"] == "query"}
    assert set(asking) == {1} and asking[1]["count"] == 6 and asking[1]["lift"] == pytest.approx(6 / (0.1 * 30))


def test_one_run_tells_of_every_head(ask):
    answer = ask()
    numbers, heads = answer.numbers, 12
    assert numbers["drawn"] == 40 and numbers["texts"] == 2 and 150 <= numbers["read"] <= 200
    spread = answer.tables["spread"]
    assert len(spread) == heads * len(ALL) and f"{numbers['read']:,} tokens of 2 texts" in numbers["sentence"]
    edges = spread.dropna()[[f"q{step}" for step in range(0, 101, 10)]].to_numpy()
    assert (np.diff(edges, axis=1) >= 0).all() and len(edges) > 0
    one = answer.tables["examples"].query("layer == 1 and head == 2 and statistic == 'entropy'")
    assert one["decile"].tolist() == [0] * TOP + sorted(list(range(1, 11)) * 2)
    assert (one["value"].diff().dropna()[one["decile"].diff() == 1][1:] <= 1e-6).all(), "the highest tenth first"
    texts = answer.tables["texts"]
    row = one.iloc[-1]
    assert row["position"] < texts["tokens"][row["text"]] and row["query"]
    assert set(answer.tables["tokens"]["kind"]) <= {"key", "query", "pair"}
    json.dumps(numbers, allow_nan=False)


def test_queries_are_drawn_from_all_texts_alike_and_never_the_first_of_a_window(home, context):
    lm = context.model(str(home / "tiny"))
    documents = studied._drawn(lm, [TEXT, TEXT * 3], 600, 5000, 0)
    assert [len(one.tokens.spans) for one in documents][1] > 1, "several windows"
    for one in documents:
        firsts = [first for first, _ in one.tokens.spans]
        assert not set(one.queries) & set(firsts) and len(one.queries) == len(one.tokens) - len(firsts), "all of them"
    few = studied._drawn(lm, [TEXT, TEXT * 3], 600, 50, 0)
    assert sum(len(one.queries) for one in few) == 50 and all((np.diff(one.queries) > 0).all() for one in few)


def test_what_cannot_be_is_one_sentence(ask, tmp_path):
    for given, said in (({"tokens": 3}, "tokens"), ({"queries": 2}, "queries")):
        with pytest.raises(BadSetting, match=said):
            ask(**given)
    with pytest.raises(BadText, match="no folder with a file of text"):
        ask(corpus=str(tmp_path))
    (tmp_path / "a.txt").write_text("hi there")
    with pytest.raises(BadSetting, match="long enough to read from"):
        ask(corpus=str(tmp_path))
