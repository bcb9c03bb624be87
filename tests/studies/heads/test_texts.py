"""The verb `head-texts`: lift by hand, a tiny corpus once for real, refusals."""

import json

import numpy as np
import pytest

from analysis.commands.heads import HeadTexts
from analysis.errors import BadSetting, BadText
from analysis.statistics.heads import ALL
from analysis.statistics.sampled import TOP
from analysis.studies.heads.texts import drawn_documents, lifted
from tests.made.evaluating import TEXT


@pytest.fixture(scope="module")
def over_texts(ask, tmp_path_factory):
    """`over_texts(**arguments)` -> the answer about a folder of three texts."""
    folder = tmp_path_factory.mktemp("corpus")
    for name, word in (("a", "cat"), ("b", "dog")):
        (folder / f"{name}.txt").write_text(TEXT.replace("cat", word), encoding="utf-8")
    (folder / "c.txt").write_text("hi", encoding="utf-8")  # too short to read from, and passed over

    return lambda **arguments: ask(HeadTexts, **{"corpus": str(folder), "tokens": 200, "queries": 40} | arguments)


def test_lift_by_hand():
    """Twenty queries of tokens 1 and 2: token 1 reads 7 eight times and 8 twice, token 2 always 8."""
    query = np.array([1] * 10 + [2] * 10)
    key = np.array([7] * 8 + [8] * 12)
    weight = np.array([0.9, 0.9] + [0.5] * 18)  # the tenth that gives most: two queries, both of token 1
    rows = {(row["kind"], row["query"], row["key"]): row for row in lifted(query, key, weight, {7: 2.0, 8: 24.0})}
    assert rows["key", None, 7]["count"] == 8 and rows["key", None, 7]["lift"] == 4
    assert ("key", None, 8) not in rows, "12 of 24 are fewer than by chance"
    assert rows["pair", 1, 7]["lift"] == 8 * 20 / (10 * 8) and rows["pair", 2, 8]["count"] == 10
    assert ("pair", 1, 8) not in rows and not [kind for kind, *_ in rows if kind == "query"], "fewer than three times"
    thrice = lifted(np.repeat(query, 3), np.repeat(key, 3), np.repeat(weight, 3), {7: 6.0, 8: 72.0})
    asking = {row["query"]: row for row in thrice if row["kind"] == "query"}
    assert set(asking) == {1} and asking[1]["count"] == 6 and asking[1]["lift"] == pytest.approx(6 / (0.1 * 30))


def test_one_run_tells_of_every_head(over_texts):
    answer = over_texts()
    numbers = answer.numbers
    assert numbers["drawn"] == 40 and numbers["texts"] == 2 and 150 <= numbers["read"] <= 200
    spread = answer.tables["spread"]
    edges = spread.dropna()[[f"q{step}" for step in range(0, 101, 10)]].to_numpy()
    assert len(spread) == 12 * len(ALL) and len(edges) > 0 and (np.diff(edges, axis=1) >= 0).all()
    examples = answer.tables["examples"].query("layer == 1 and head == 2 and statistic == 'entropy'")
    assert examples["decile"].tolist() == [0] * TOP + sorted(list(range(1, 11)) * 2)
    falls = examples["value"].diff().dropna()[examples["decile"].diff() == 1][1:]
    assert (falls <= 1e-6).all(), "the highest tenth first"
    row = examples.iloc[-1]
    assert row["position"] < answer.tables["texts"]["tokens"][row["text"]] and row["query"]
    assert set(answer.tables["tokens"]["kind"]) <= {"key", "query", "pair"}
    json.dumps(numbers, allow_nan=False)


def test_queries_are_drawn_from_all_texts_alike_and_never_the_first_of_a_window(home, context):
    lm = context.model(str(home / "tiny"))
    documents = drawn_documents(lm, [TEXT, TEXT * 3], 600, 5000, 0)
    assert len(documents[1].tokens.spans) > 1, "several windows"
    for document in documents:
        firsts = {first for first, _ in document.tokens.spans}
        assert set(document.queries) == set(range(len(document.tokens))) - firsts, "all of them"
    few = drawn_documents(lm, [TEXT, TEXT * 3], 600, 50, 0)
    assert sum(len(document.queries) for document in few) == 50
    assert all((np.diff(document.queries) > 0).all() for document in few)


def test_what_cannot_be_is_one_sentence(over_texts, tmp_path):
    for arguments, message in (({"tokens": 3}, "tokens of head-texts"), ({"queries": 2}, "queries of head-texts")):
        with pytest.raises(BadSetting, match=message):
            over_texts(**arguments)
    with pytest.raises(BadText, match="no folder with a file of text"):
        over_texts(corpus=str(tmp_path))
    (tmp_path / "a.txt").write_text("hi there")
    with pytest.raises(BadSetting, match="long enough to read from"):
        over_texts(corpus=str(tmp_path))
