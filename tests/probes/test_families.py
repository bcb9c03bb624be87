"""Reranking, questions over a text and answers with their source: what stands in a prompt, word by word."""

import re

import pytest

from analysis.probes.families import QUERY
from analysis.probes.tasks import TASKS
from tests.probes.test_probes import make, pieces, places  # noqa: F401


def spelled(pieces, ids) -> str:  # noqa: F811
    return pieces.tokenizer.decode(ids)


@pytest.mark.parametrize("seed", range(5))
def test_relevance_is_the_number_of_the_querys_words_that_a_passage_holds(pieces, seed):  # noqa: F811
    item = make(pieces, "reranking", 900, 0.3, choices=6, seed=seed)
    query = spelled(pieces, item.ids[item.question :]).split("Query:")[1].split("\n")[0].split()
    assert len(query) == QUERY == len(set(query))
    text = spelled(pieces, item.ids[: item.question])
    word_counts = {}
    for mark, passage in re.findall(r"\nPassage (\w+):([^\n]*(?:\n(?!\n?Passage)[^\n]*)*)", text):
        word_counts[mark] = sum(f" {word}" in passage for word in query)
    marks = [spelled(pieces, row).strip() for row in item.candidates]
    assert tuple(word_counts[mark] for mark in marks) == item.relevance
    assert sorted(item.relevance, reverse=True) == [4, 3, 2, 1, 0, 0] and item.relevance[item.right] == QUERY
    assert all(count == 0 for mark, count in word_counts.items() if mark not in marks)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("depth", [0, 0.5, 1])
def test_the_last_place_is_asked_and_the_first_one_stands_before_it(pieces, seed, depth):  # noqa: F811
    item = make(pieces, "long_questions", 600, depth, seed=seed)
    text, question = (spelled(pieces, ids) for ids in (item.ids[: item.question], item.ids[item.question :]))
    name = re.search(r"The last place of (\w+) is the$", question)[1]
    moves = re.findall(r"\n (\w+) went to the (\w+)\.\n", text)
    theirs = [place for who, place in moves if who == name]
    candidates = [spelled(pieces, row).strip() for row in item.candidates]
    assert len(theirs) == 2 and theirs[-1] == candidates[item.right] and theirs[0] in candidates
    lasts = {dict(moves)[who] for who, _ in moves}
    assert set(candidates) == lasts | {theirs[0]} and len(moves) == 6


@pytest.mark.parametrize("seed", range(5))
def test_a_citation_is_right_where_code_and_source_are(pieces, seed):  # noqa: F811
    item = make(pieces, "citations", 600, 0.7, seed=seed)
    text, question = (spelled(pieces, ids) for ids in (item.ids[: item.question], item.ids[item.question :]))
    sources = {
        name: (code, mark) for mark, name, code in re.findall(r"Source (\w+): The code of (\w+) is (\w+)\.", text)
    }
    code, mark = sources[re.search(r"The code of (\w+) is$", question)[1]]
    answers = [spelled(pieces, row).strip() for row in item.candidates]
    assert len(sources) == 4 and answers[item.right] == f"{code} from source {mark}"
    wrong = [answer for place, answer in enumerate(answers) if place != item.right]
    assert sum(answer.startswith(code) for answer in wrong) == 1 == sum(answer.endswith(mark) for answer in wrong)
    assert spelled(pieces, item.ids[slice(*item.gold)]).strip() == code


def test_every_family_has_a_task_and_two_candidates_are_the_last_place_and_the_one_before(pieces):  # noqa: F811
    wanted = {"recall", "in-context learning", "retrieval augmented", "citations", "reranking", "long questions"}
    assert {task.family for task in TASKS.values()} == wanted
    item = make(pieces, "long_questions", 300, 0.5, choices=2)
    assert len(item.candidates) == 2 and places(item.ids, item.answer) == [item.gold[0]]
