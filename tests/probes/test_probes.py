"""Long-context prompts, hand-worked: one answer at the asked place, distractors that differ, seeds that come again;
reranking, questions over a text and answers with their source, word by word."""

import re

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from analysis.corpus import sample_texts
from analysis.errors import BadSetting, BadText
from analysis.models import load_model
from analysis.probes.families import QUERY
from analysis.probes.pieces import Item, Pieces, cut
from analysis.probes.tasks import OFTEN, TASKS, Ask
from tests.made.tiny_tokenizer import SEEN, byte_level, llama_like

STORY = sample_texts()["story"][1]
PLACED = [name for name, task in TASKS.items() if task.axis == "depth"]
# The answer follows in the text what the question ends with, so that it can be copied.
COPIED = [name for name in PLACED if name not in ("reranking", "long_questions", "citations")]


@pytest.fixture(scope="module")
def pieces() -> Pieces:
    """Prompts of the bundled model's tokenizer, which has whole words."""
    return Pieces(load_model("demo").tokenizer, STORY)


def make(pieces: Pieces, name: str, length: int = 600, depth: float = 0.5, choices: int = 4, seed: int = 0) -> Item:
    ask = Ask(length, choices, depth=depth, examples=16)
    return TASKS[name].make(pieces, ask, np.random.default_rng(seed))


def places(ids: np.ndarray, part: np.ndarray) -> list[int]:
    """Where `part` stands in `ids`."""
    windows = np.lib.stride_tricks.sliding_window_view(ids, len(part))
    return np.flatnonzero((windows == part).all(1)).tolist()


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("length", [400, 1001])
def test_prompt_and_answer_have_the_asked_length_and_candidates_differ(pieces, name, length):
    item = make(pieces, name, length)
    assert len(item.ids) + item.candidates.shape[1] == length
    assert len({tuple(row) for row in item.candidates.tolist()}) == 4 == len(item.candidates)
    assert 0 < item.question < len(item.ids) and item.ids.dtype == item.candidates.dtype == np.int64


@pytest.mark.parametrize("name", [name for name in PLACED if name != "citations"])
def test_the_answer_stands_once_and_where_it_is_said_to(pieces, name):
    for depth in (0, 0.3, 1):
        item = make(pieces, name, 600, depth)
        assert places(item.ids, item.answer) == [item.gold[0]]
        assert item.ids[slice(*item.gold)].tolist() == list(item.answer)


@given(st.floats(0, 1), st.integers(160, 900), st.integers(0, 99))
@settings(max_examples=40)
def test_a_needle_lies_at_its_depth_to_the_token(depth, length, seed):
    pieces = Pieces(byte_level(), SEEN[0] * 60)
    item = make(pieces, "uuid_needle", length, depth, 3, seed)
    named = len(pieces.ids("The code of the lamp is")) + 1
    hay = length - 2 * (named + item.candidates.shape[1]) - 2  # tokens of text: all but needle, question and answer
    assert item.gold[0] - named == round(depth * hay)
    assert item.question == hay + named + item.candidates.shape[1] + 2


@pytest.mark.parametrize("name", ["json", "passages", "reranking"])
def test_blocks_lie_at_their_depth_to_the_block(pieces, name):
    starts = [make(pieces, name, 900, depth).gold[0] for depth in (0, 0.5, 1)]
    block = (starts[2] - starts[0]) / 2
    assert starts[0] < 150 and starts[1] == pytest.approx(starts[0] + block, abs=90)
    assert 900 - starts[2] < 200


def test_distractors_are_there_or_absent_and_what_is_asked_leads_to_the_answer(pieces):
    item = make(pieces, "uuid_needle")
    assert [len(places(item.ids, row)) for row in item.candidates] == [int(i == item.right) for i in range(4)]
    for name in ("several_needles", "json", "passages", "labels", "frequent_words"):
        item = make(pieces, name)
        assert all(places(item.ids, row) for row in item.candidates), name
    # What stands right before the right answer in the text is how the question ends.
    for name in COPIED:
        item = make(pieces, name, 700, 0.4)
        ending = item.ids[-4:]
        after = [len(places(item.ids, np.concatenate([ending, row]))) for row in item.candidates]
        if name == "passages":  # the marks' own introduction is the same, the quote before it is not
            ending = item.ids[-8:]
            after = [len(places(item.ids, np.concatenate([ending, row]))) for row in item.candidates]
        assert after == [int(i == item.right) for i in range(4)], name


def test_words_come_as_often_as_they_should_and_labels_are_spread(pieces):
    item = make(pieces, "frequent_words", 800)
    counts = [len(places(item.ids, row)) for row in item.candidates]
    assert counts[item.right] == OFTEN * min(counts) and sorted(counts)[:3] == [min(counts)] * 3
    assert item.gold is None
    item = make(pieces, "labels", 1000)
    places_of_label = [places(item.ids, row) for row in item.candidates]
    assert [len(of_label) for of_label in places_of_label] == [4] * 4
    in_order = sorted(place for of_label in places_of_label for place in of_label)
    assert in_order[0] < 1000 / 16 + 60 and max(np.diff(in_order)) < 2 * 1000 / 16 and in_order[-1] > 880


@pytest.mark.parametrize("name", ["labels", "several_needles"])
def test_no_candidate_is_shown_more_often_than_another(pieces, name):
    for seed in range(60):
        item = make(pieces, name, 1000, seed=seed)
        assert len({len(places(item.ids, row)) for row in item.candidates}) == 1, seed


@pytest.mark.parametrize("name", TASKS)
def test_a_seed_comes_again_and_another_differs(pieces, name):
    first, again, other_seed = (make(pieces, name, seed=seed) for seed in (3, 3, 4))
    assert first.ids.tolist() == again.ids.tolist() and first.right == again.right
    assert first.ids.tolist() != other_seed.ids.tolist()


def test_a_begin_token_stays_first_and_values_are_made_up_where_the_vocabulary_has_no_words():
    pieces = Pieces(llama_like(), SEEN[0] * 60)
    assert pieces.words == [] and pieces.begin.tolist() == [1]
    item = make(pieces, "several_needles", 600, 0.5)
    assert item.ids[0] == 1 and 1 not in item.ids[1:] and item.candidates.shape[1] > 1
    item = make(pieces, "several_needles", 600, 0.0)
    assert item.ids[0] == 1


@pytest.mark.parametrize(
    "name, ask, message",
    [
        ("uuid_needle", Ask(80, 4, depth=0.5), "choose a greater length"),
        ("json", Ask(200, 4, depth=0.5), "pairs and 4 are needed"),
        ("passages", Ask(100, 4, depth=0.5), "passages and 4 are needed"),
        ("frequent_words", Ask(16, 4), "choose a greater length"),
        ("labels", Ask(300, 4, examples=64), "64 are needed"),
        ("labels", Ask(300, 4, examples=3), "3 examples cannot show 4 labels"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(pieces, name, ask, message):
    with pytest.raises(BadSetting, match=message) as caught:
        TASKS[name].make(pieces, ask, np.random.default_rng(0))
    assert str(caught.value).endswith(".") and str(caught.value).count(". ") == 0


def test_a_text_too_short_to_hide_something_in_is_refused(pieces):
    with pytest.raises(BadText, match="at least 32"):
        Pieces(pieces.tokenizer, "a word")
    short = Pieces(pieces.tokenizer, STORY[:160])
    with pytest.raises(BadSetting, match="passages of 40 tokens"):
        make(short, "passages")


def test_cutting_drops_the_oldest_and_says_whether_the_answer_went(pieces):
    early, late = (make(pieces, "uuid_needle", 600, depth) for depth in (0, 1))
    uncut = cut(early, 600, 0)
    assert (uncut.dropped, uncut.lost) == (0, False) and uncut.item is early
    halves = [cut(item, 400, 0) for item in (early, late)]
    assert [(half.dropped, half.lost) for half in halves] == [(200, True), (200, False)]
    assert halves[0].item.ids.tolist() == early.ids[200:].tolist() and halves[0].item.gold is None
    shortened = halves[1].item
    assert shortened.ids[slice(*shortened.gold)].tolist() == shortened.answer.tolist()
    assert shortened.question == late.question - 200
    begins = cut(Item(np.concatenate([[1], late.ids]), late.candidates, late.right, None, late.question + 1), 400, 1)
    assert begins.item.ids[0] == 1 and begins.item.ids[1:].tolist() == late.ids[201:].tolist()
    with pytest.raises(BadSetting, match="alone need more than the 40 tokens"):
        cut(early, 40, 0)


def spelled(pieces, ids) -> str:
    return pieces.tokenizer.decode(ids)


@pytest.mark.parametrize("seed", range(5))
def test_relevance_is_the_number_of_the_querys_words_that_a_passage_holds(pieces, seed):
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
def test_the_last_place_is_asked_and_the_first_one_stands_before_it(pieces, seed, depth):
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
def test_a_citation_is_right_where_code_and_source_are(pieces, seed):
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


def test_every_family_has_a_task_and_two_candidates_are_the_last_place_and_the_one_before(pieces):
    wanted = {"recall", "in-context learning", "retrieval augmented", "citations", "reranking", "long questions"}
    assert {task.family for task in TASKS.values()} == wanted
    item = make(pieces, "long_questions", 300, 0.5, choices=2)
    assert len(item.candidates) == 2 and places(item.ids, item.answer) == [item.gold[0]]
