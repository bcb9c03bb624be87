"""Group contents by hand: words around tokens, their categories, the label, purity against chance, word lift, PCA."""

import builtins

import numpy as np
import pytest

from analysis.errors import AnalysisError, BadSetting
from analysis.groups.contents import group_contents, label_of, overlap
from analysis.groups.vectors import pca, umap2d
from analysis.groups.words import CATEGORY_OF, ENGLISH, categories, content_tokens, word_of_tokens
from tests.made.clock import steps

TEXT = 'The old man, Henry, didn\'t sing.\n\nBut Henry saw 3 "cats".'
# Token, the word around it where that is another, and its category.
TOKENS = """The||determiner; old|old|content word; man|man|content word;,||punctuation; Hen|Henry|name
ry|Henry|word piece;,||punctuation; didn|didn|auxiliary;'t||particle; sing|sing|content word;.||punctuation
NN|⏎⏎|line break;But||conjunction; Henry|Henry|name; saw|saw|content word; |␣|space;3||number; "|"|punctuation
cats||content word;".||punctuation"""


def offsets(text, pieces):
    """Character offsets of pieces that follow each other in the text."""
    starts, ends, end = [], [], 0
    for piece in pieces:
        starts.append(text.index(piece, end))
        end = starts[-1] + len(piece)
        ends.append(end)
    return starts, ends


def labels(text, pieces):
    return categories(text, *offsets(text, pieces))


def test_words_categories_and_capitals_by_hand():
    rows = [row.split("|") for row in TOKENS.replace("\n", ";").replace("NN", "\n\n").split(";")]
    pieces = [piece for piece, _, _ in rows]
    spans = offsets(TEXT, pieces)
    assert word_of_tokens(TEXT, *spans) == [word or piece for piece, word, _ in rows]
    assert labels(TEXT, pieces) == ([category for _, _, category in rows], "English word lists")
    content = content_tokens(TEXT, *spans)
    of_content = [piece for piece, wanted in zip(pieces, content, strict=True) if wanted]
    assert of_content == [" old", " man", " Hen", "ry", " sing", " Henry", " saw", "cats"]
    assert sum(len(words.split()) for words in ENGLISH.values()) == len(CATEGORY_OF), "word lists are disjoint"
    starts, ends = offsets("the red fox", ["the", "red", "fox"])
    assert word_of_tokens("the red fox", [*starts, 0], [*ends, 0]) == ["the", "red", "fox", "∅"]
    assert categories("the red fox", [*starts, 0], [*ends, 0])[0][-1] == "no text"
    text = "Walker came. Dogs barked at Walker. “Rain,” he said. CHAPTER two"
    kinds, _ = labels(text, ["Walker", "Dogs", "Walker", "Rain", "CHAPTER"])
    assert [kind == "name" for kind in kinds] == [True, False, True, False, False]


def test_what_language_a_text_is_in():
    text = "import os\n\n\ndef walk(path):\n    # the end of it\n    for x in 'in a box':\n        return None\n"
    pieces = ["import", "os", "walk", "the", "end", "for", " in", "'in", "box", "None"]
    kinds, source = labels(text, pieces)
    assert source.startswith("Python") and kinds[:5] == ["keyword", *["identifier"] * 2, "determiner", "content word"]
    assert kinds[5:] == ["keyword", "keyword", "preposition", "content word", "keyword"]
    assert labels(text + "def ((\n  '''", pieces)[0][:3] == kinds[:3], "half a file"
    text = "Der Hund schläft. 我们 走. שלום 42 🙂"
    pieces = ["Der", " Hund", "我", "们", "שלום", " 42", "🙂"]
    assert word_of_tokens(text, *offsets(text, pieces)) == [piece.strip() for piece in pieces]
    kinds, source = labels(text, pieces)
    assert "no word lists" in source and kinds == ["content word"] * 5 + ["number", "punctuation"]
    text = "It was the best of times, it was the worst of times;\nfor the season of light\nif it was, with the rest\n"
    assert categories(text * 20, [0], [2])[1] == "English word lists"


def test_labels_and_overlaps_by_hand():
    # Text: 6 content words, 2 names, 2 commas. Set: 2 content, 2 names. Ratings 4/6 and 4/2: names, purity 1/2.
    index, purity = label_of(np.array([2, 2, 0]), np.array([6, 2, 2]))
    assert (int(index), float(purity)) == (1, 0.5)
    # Equal ratings: the larger share.
    assert int(label_of(np.array([1, 2]), np.array([1, 4]))[0]) == 1
    # Determiners (1/2, 1/2, 0), prepositions (0, 1/3, 2/3): 2 * 1/6 / (1/2 + 5/9) = 6/19.
    kinds = ["determiner", "determiner", "preposition", "preposition", "preposition", "name"]
    group = np.array([0, 1, 1, 2, 2, 0])
    assert overlap(group, kinds, "determiner", "preposition") == pytest.approx(6 / 19)
    assert overlap(group, kinds, "determiner", "determiner") == pytest.approx(1)
    assert overlap(group, kinds, "determiner", "name") == pytest.approx(2 / 3)
    assert overlap(group, kinds, "preposition", "name") == 0 and overlap(group, kinds, "name", "particle") is None


def test_group_contents_by_hand():
    words = ["the", "The", "cat", ",", "the", "dog", ",", "cat"]
    kinds = ["det", "det", "noun", "punct", "det", "noun", "punct", "noun"]
    group = np.array([0, 0, 1, 2, 0, 1, 2, 2])
    groups, marks = group_contents(group, np.full(8, 0.5) + group / 10, words, kinds, groups=4, seed=0)
    assert groups["tokens"].tolist() == [3, 2, 3, 0] and groups["share"].tolist() == [0.375, 0.25, 0.375, 0.0]
    assert groups["label"].tolist() == ["det", "noun", "punct", "empty"]
    assert groups["purity"].tolist()[:3] == pytest.approx([1, 1, 2 / 3])
    assert groups["confidence"].tolist()[:3] == pytest.approx([0.5, 0.6, 0.7])
    assert groups.iloc[3][["confidence", "purity", "purity_random"]].isna().all()
    # "the" (with "The"): 3 of 3 in group 0, expected 3 * 3 / 8; "," 2 of 3 in group 2, expected 3 * 2 / 8.
    assert marks[["group", "rank", "word", "count"]].values.tolist() == [[0, 1, "the", 3], [2, 1, ",", 2]]
    assert marks["lift"].tolist() == pytest.approx([8 / 3, 8 / 3])
    groups, marks = group_contents(np.zeros(0, int), np.zeros(0), [], [], 3)
    assert groups["label"].tolist() == ["empty"] * 3 and marks.empty


def test_random_sets_use_the_same_rule_and_bracket_a_random_group():
    draw = np.random.default_rng(0)
    kinds = draw.choice(["a", "b", "c", "d"], size=2000, p=[0.5, 0.3, 0.15, 0.05])
    group = draw.integers(0, 8, 2000)
    groups, _ = group_contents(group, np.ones(2000), kinds, kinds, 8, seed=1)
    inside = (groups["purity"] >= groups["purity_random_low"]) & (groups["purity"] <= groups["purity_random_high"])
    assert inside.sum() >= 6 and group_contents(group, np.ones(2000), kinds, kinds, 8, seed=1)[0].equals(groups)
    planted, _ = group_contents((kinds == "c").astype(int), np.ones(2000), kinds, kinds, 2, seed=1)
    assert planted["label"].tolist()[1] == "c" and planted["purity"][1] == 1 > planted["purity_random_high"][1]


def test_no_step_is_taken_for_each_token():
    def of(tokens):
        draw = np.random.default_rng(0)
        words = [f"w{i}" for i in np.arange(tokens) % 300]
        kinds = draw.choice([f"k{i}" for i in range(16)], tokens)
        arguments = draw.integers(0, 8, tokens), np.ones(tokens), words, kinds, 8
        # What is imported or cached at first is no part of it.
        group_contents(*arguments)
        return steps(lambda: group_contents(*arguments))

    assert abs(of(8192) - of(1024)) < 400


def test_pca_by_hand_and_edge_cases():
    x = np.array([[3.0, 0.0, 1.0], [-3.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.0, -1.0, 1.0]])
    coordinates, share = pca(x)
    assert np.allclose(coordinates, x[:, :2]) and np.allclose(share, [0.9, 0.1])
    assert coordinates.dtype == share.dtype == np.float32
    for few in (np.zeros((0, 5)), np.ones((1, 5)), np.ones((4, 1)), np.ones((3, 4)) * 7):
        coordinates, share = pca(few)
        assert coordinates.shape == (len(few), 2) and not coordinates.any() and not share.any()


def test_umap_refuses_short_texts_and_a_missing_package(monkeypatch):
    with pytest.raises(BadSetting, match="at least 16 tokens"):
        umap2d(np.ones((5, 4)))
    usual = builtins.__import__

    def without(name, *arguments):
        if name.startswith("umap"):
            raise ImportError(name)
        return usual(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(AnalysisError, match="pip install umap-learn"):
        umap2d(np.random.default_rng(0).normal(size=(40, 4)))


@pytest.mark.slow
def test_umap_is_repeatable_and_thinned():
    x = np.random.default_rng(0).normal(size=(150, 8)) + np.repeat(np.eye(8)[:3] * 9, 50, 0)
    coordinates, positions = umap2d(x, seed=1, limit=90)
    assert coordinates.shape == (90, 2) and coordinates.dtype == np.float32 and positions.dtype == np.int32
    assert positions[0] == 0 and positions[-1] == 149 and len(set(positions.tolist())) == 90
    assert np.array_equal(umap2d(x, seed=1, limit=90)[0], coordinates)
