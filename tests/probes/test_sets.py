"""Sets of texts from made files: every format becomes the same questions, which hold what they are said to, and files
that are missing or of another format are refused in one sentence."""

import csv
import json

import numpy as np
import pytest

from analysis.benchmarks import here
from analysis.errors import BadSetting
from analysis.probes.from_files import task
from analysis.probes.pieces import Item
from analysis.probes.prompts import Ask
from analysis.probes.sets import SETS, Labelled, read_set
from analysis.probes.tasks import TASKS
from analysis.probes.written import graded, stands
from tests.probes.test_probes import pieces  # noqa: F401

TOWNS = ("Oslo", "Rome", "Lima", "Cairo", "Quito", "Delhi")


def lines(path, records) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, records)))


def question(number: int) -> dict:
    town = TOWNS[number]
    passages = [{"title": f"Page {n}", "text": f"Nothing is said of land {number} on page {n}."} for n in range(3)]
    gold_passage = {"title": town, "text": f"The capital of land {number} is {town}, as all know."}
    query = {"question": f"What is the capital of land {number}?", "answers": [town, f"City of {town}"]}
    return query | {"ctxs": [passages[0], gold_passage, *passages[1:]]}


@pytest.fixture
def folder(tmp_path):
    """Made files of one set of each kind."""
    examples = [
        {"text": f"{label} sentence {n}", "label": label} for n in range(6) for label in ("sad", "glad", "calm")
    ]
    lines(tmp_path / "banking77" / "train.jsonl", examples)
    lines(tmp_path / "banking77" / "test.jsonl", [{"text": "a glad one", "label": "glad"}])
    for name in ("nq", "alce_asqa"):
        lines(tmp_path / name / "test.jsonl", [question(n) for n in range(len(TOWNS))])
    graded = [{"text": f"passage of grade {n}", "label": n} for n in (0, 3, 1, 2, 0, 0)]
    lines(tmp_path / "msmarco" / "dev.jsonl", [{"query": "which grade?", "ctxs": graded}])
    stories = [{"question": f"Where is {n}?", "answer": town, "document": f"Once {n} was in {town}. " * 8}
            for n, town in enumerate(TOWNS)]  # fmt: skip
    lines(tmp_path / "narrativeqa" / "test.jsonl", stories)
    return tmp_path


def item_of(folder, pieces, name: str, length: int = 400, depth: float = 0.5, seed: int = 0) -> Item:  # noqa: F811
    ask = Ask(length, 3, depth=depth)
    return task(name, folder).make(pieces, ask, np.random.default_rng(seed))


@pytest.mark.parametrize("name", ["banking77", "nq", "alce_asqa", "msmarco", "narrativeqa"])
def test_prompt_and_longest_answer_have_the_asked_length_and_candidates_differ(folder, pieces, name):  # noqa: F811
    for seed in range(4):
        item = item_of(folder, pieces, name, seed=seed)
        assert len(item.ids) + item.candidates.shape[1] == 400 and len(item.candidates) == 3
        assert (item.ids >= 0).all() and graded(pieces, item, item.answer) > 0
    again = item_of(folder, pieces, name, seed=3)
    assert again.ids.tolist() == item.ids.tolist() and again.right == item.right


def test_every_label_has_a_word_of_its_own_and_examples_of_all(folder, pieces):  # noqa: F811
    item = item_of(folder, pieces, "banking77")
    text = pieces.tokenizer.decode(item.ids)
    assert text.endswith("a glad one\nlabel:") and item.gold is None
    mark = pieces.show(item.answer)
    examples = [part.split("\nlabel:") for part in text.split("\n\n") if "sentence" in part and "label:" in part]
    theirs = {example.split()[-3]: word.strip() for example, word in examples}
    assert theirs["glad"] == mark and set(theirs.values()) == {pieces.show(row) for row in item.candidates}


@pytest.mark.parametrize("depth", [0, 0.5, 1])
def test_one_passage_holds_the_answer_at_its_depth(folder, pieces, depth):  # noqa: F811
    item = item_of(folder, pieces, "nq", depth=depth)
    text, answer = pieces.show(item.ids[: item.question]), pieces.show(item.answer)
    passage = pieces.show(item.ids[slice(*item.gold)])
    assert answer in TOWNS and stands(answer, passage) and text.count(f"is {answer},") == 1
    place = text.index(f"is {answer},") / len(text)
    assert abs(place - depth) < 0.35
    assert graded(pieces, item, pieces.ids(f" the City of {answer}.")) == 1
    alternatives = {pieces.show(row) for row in item.candidates} - {answer}
    assert alternatives < set(TOWNS) and len(alternatives) == 2


def test_answers_and_passages_of_a_set_are_its_own(folder, pieces):  # noqa: F811
    item = item_of(folder, pieces, "alce_asqa")
    town, mark = pieces.show(item.answer).split(" from source ")
    assert f"Passage {mark}: {town}. The capital" in pieces.show(item.ids)
    assert graded(pieces, item, pieces.ids(f" {town}")) == 0, "an answer alone is not enough"
    item = item_of(folder, pieces, "msmarco")
    text = pieces.show(item.ids)
    for row, grade in zip(item.candidates, item.relevance, strict=True):
        assert f"Passage {pieces.show(row)}: passage of grade {grade}" in text
    assert sorted(item.relevance) == [1, 2, 3] and item.relevance[item.right] == 3
    item = item_of(folder, pieces, "narrativeqa")
    assert pieces.show(item.ids).count(f"was in {pieces.show(item.answer)}.") == 8
    with pytest.raises(BadSetting, match="hold no text of NarrativeQA") as caught:
        item_of(folder, pieces, "narrativeqa", length=40)
    assert str(caught.value).count(". ") == 0


def test_every_format_is_read(tmp_path):
    read = {}
    lines(tmp_path / "a" / "clinc150" / "test.jsonl", [{"text": "hello", "intent": "greet"}])
    (tmp_path / "b" / "clinc150").mkdir(parents=True)
    (tmp_path / "b" / "clinc150" / "test.json").write_text(json.dumps([["hello", "greet"]]))
    (tmp_path / "c" / "clinc150").mkdir(parents=True)
    with open(tmp_path / "c" / "clinc150" / "test.csv", "w", newline="") as file:
        csv.writer(file).writerows([["text", "category"], ["hello", "greet"]])
    for part in "abc":
        read[part] = list(read_set("clinc150", tmp_path / part).asked)
    assert read["a"] == read["b"] == read["c"] == [Labelled("hello", "greet")]
    for name, label in (("trec_coarse", "DESC"), ("trec_fine", "DESC:manner")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "test.txt").write_text("DESC:manner How did it begin ?\n")
        assert list(read_set(name, tmp_path).asked) == [Labelled("How did it begin ?", label)]
    (tmp_path / "b" / "clinc150" / "test.json").write_text(json.dumps({"train": [["hello", "greet"]]}))
    with pytest.raises(BadSetting, match="No file in"):
        read_set("clinc150", tmp_path / "b")
    assert here(tmp_path, SETS) == ["trec_coarse", "trec_fine"]


@pytest.mark.parametrize("name", SETS)
def test_files_that_are_missing_or_of_another_format_are_refused_in_one_sentence(tmp_path, name):
    with pytest.raises(BadSetting, match=f"a folder called {name}"):
        task(name, tmp_path)
    lines(tmp_path / name / "test.jsonl", [{"something": "else"}])
    with pytest.raises(BadSetting, match="put in the files") as caught:
        task(name, tmp_path)
    assert str(caught.value).count(". ") == 0


def test_sets_have_families_of_their_own_and_a_question_without_an_answer_is_not_asked(tmp_path):
    assert {about.family for about in SETS.values()} < {synthetic.family for synthetic in TASKS.values()}
    assert not set(SETS) & set(TASKS)
    lines(tmp_path / "popqa" / "test.jsonl", [question(0) | {"answers": ["Paris"]}])
    with pytest.raises(BadSetting, match="No question of PopQA"):
        task("popqa", tmp_path)
