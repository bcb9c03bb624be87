"""Group contents by hand: words around tokens, their categories, the label, purity against chance, word lift, PCA."""

import builtins

import numpy as np
import pytest

from analysis.errors import AnalysisError, BadSetting
from analysis.groups import words as words_module
from analysis.groups.contents import group_contents, label_of
from analysis.groups.vectors import pca, umap2d
from analysis.groups.words import CATEGORY_OF, ENGLISH, categories, content_tokens, is_content, word_of_tokens
from tests.made.clock import steps

TEXT = 'The old man, Henry, didn\'t sing.\n\nBut Henry saw 3 "cats".'


def offsets(text, pieces):
    """Character offsets of pieces that follow each other in the text."""
    starts, ends, at = [], [], 0
    for piece in pieces:
        at = text.index(piece, at)
        starts.append(at)
        at += len(piece)
        ends.append(at)
    return starts, ends


@pytest.fixture(autouse=True)
def no_spacy(monkeypatch):
    monkeypatch.setattr(words_module, "load_tagger", lambda: None)
    words_module.word_categories.cache_clear()
    yield
    words_module.word_categories.cache_clear()


PIECES = [
    "The", " old", " man", ",", " Hen", "ry", ",", " didn", "'t", " sing", ".", "\n\n", "But", " Henry", " saw", " ",
    "3", ' "', "cats", '".',
]  # fmt: skip


def test_words_and_categories_by_hand():
    starts, ends = offsets(TEXT, PIECES)
    assert word_of_tokens(TEXT, starts, ends) == [
        "The",
        "old",
        "man",
        ",",
        "Henry",
        "Henry",
        ",",
        "didn",
        "'t",
        "sing",
        ".",
        "⏎⏎",
        "But",
        "Henry",
        "saw",
        "␣",
        "3",
        '"',
        "cats",
        '".',
    ]
    labels, source = categories(TEXT, starts, ends, "english")
    assert source == "English word lists"
    assert labels == [
        "determiner",
        "content word",
        "content word",
        "punctuation",
        "name",
        "word piece",
        "punctuation",
        "auxiliary",
        "particle",
        "content word",
        "punctuation",
        "line break",
        "conjunction",
        "name",
        "content word",
        "space",
        "number",
        "punctuation",
        "content word",
        "punctuation",
    ]
    content = content_tokens(TEXT, starts, ends, "english")
    assert [piece for piece, wanted in zip(PIECES, content, strict=True) if wanted] == [
        " old",
        " man",
        " Hen",
        "ry",
        " sing",
        " Henry",
        " saw",
        "cats",
    ]


def test_offsets_without_the_leading_space_and_tokens_without_text():
    starts, ends = offsets("the red fox", ["the", "red", "fox"])
    assert word_of_tokens("the red fox", [*starts, 0], [*ends, 0]) == ["the", "red", "fox", "∅"]
    assert categories("the red fox", [*starts, 0], [*ends, 0], "english")[0][-1] == "no text"


def test_a_capital_at_the_start_of_a_sentence_is_a_name_only_if_it_is_one_elsewhere():
    text = "Walker came. Dogs barked at Walker. “Rain,” he said. CHAPTER two"
    starts, ends = offsets(text, ["Walker", "Dogs", "Walker", "Rain", "CHAPTER"])
    assert categories(text, starts, ends, "english")[0] == [
        "name",
        "content word",
        "name",
        "content word",
        "content word",
    ]


def test_python_keywords_but_prose_inside_comments():
    text = "import os\n\n\ndef walk(path):\n    # the end of it\n    for x in 'in a box':\n        return None\n"
    picked = ["import", "os", "walk", "the", "end", "for", " in", "'in", "box", "None"]
    starts, ends = offsets(text, picked)
    labels, source = categories(text, starts, ends)
    assert source.startswith("Python")
    assert labels == [
        "keyword",
        "identifier",
        "identifier",
        "determiner",
        "content word",
        "keyword",
        "keyword",
        "preposition",
        "content word",
        "keyword",
    ]
    broken = text + "def ((\n  '''"
    assert categories(broken, *offsets(broken, picked))[0][:3] == ["keyword", "identifier", "identifier"]


def test_other_languages_and_scripts_get_no_word_lists():
    text = "Der Hund schläft. 我们 走. שלום 42 🙂"
    pieces = ["Der", " Hund", "我", "们", "שלום", " 42", "🙂"]
    starts, ends = offsets(text, pieces)
    assert word_of_tokens(text, starts, ends) == ["Der", "Hund", "我", "们", "שלום", "42", "🙂"]
    labels, source = categories(text, starts, ends)
    assert "no word lists" in source
    assert labels == ["content word"] * 5 + ["number", "punctuation"]


def test_english_is_recognised_in_prose_with_hard_line_breaks():
    text = (
        "It was the best of times, it was the worst of times;\nfor the season of light\nif it was, with the rest\n" * 20
    )
    assert categories(text, [0], [2])[1] == "English word lists"


def test_spacy_decides_for_words_when_installed(monkeypatch):
    class Token:
        def __init__(self, idx, pos_):
            self.idx, self.pos_ = idx, pos_

    monkeypatch.setattr(words_module, "load_tagger", lambda: lambda text: [Token(0, "VERB"), Token(5, "SPACE")])
    labels, source = categories("Sing the song", [0, 4, 8], [4, 8, 13], "english")
    assert labels == ["verb", "determiner", "content word"] and source == "spaCy en_core_web_sm"


def test_word_lists_are_disjoint_and_content_is_what_is_left():
    assert sum(len(words.split()) for words in ENGLISH.values()) == len(CATEGORY_OF)
    assert (
        is_content("name")
        and is_content("content word")
        and not is_content("determiner")
        and not is_content("word piece")
    )


def test_label_is_share_times_lift_by_hand():
    # Text: 6 content words, 2 names, 2 commas. Set: 2 content, 2 names. Ratings 4/6 and 4/2: names, purity 1/2.
    index, purity = label_of(np.array([2, 2, 0]), np.array([6, 2, 2]))
    assert (int(index), float(purity)) == (1, 0.5)
    assert int(label_of(np.array([1, 2]), np.array([1, 4]))[0]) == 1  # equal ratings: the larger share


def test_group_contents_by_hand():
    words = ["the", "The", "cat", ",", "the", "dog", ",", "cat"]
    kinds = ["det", "det", "noun", "punct", "det", "noun", "punct", "noun"]
    group = np.array([0, 0, 1, 2, 0, 1, 2, 2])
    groups, found = group_contents(group, np.full(8, 0.5) + group / 10, words, kinds, groups=4, seed=0)
    assert groups["tokens"].tolist() == [3, 2, 3, 0] and groups["share"].tolist() == [0.375, 0.25, 0.375, 0.0]
    assert groups["label"].tolist() == ["det", "noun", "punct", "empty"]
    assert groups["purity"].tolist()[:3] == pytest.approx([1, 1, 2 / 3])
    assert groups["confidence"].tolist()[:3] == pytest.approx([0.5, 0.6, 0.7])
    assert groups.iloc[3][["confidence", "purity", "purity_random"]].isna().all()
    # "the" (with "The"): 3 of 3 in group 0, expected 3 * 3 / 8; "," 2 of 3 in group 2, expected 3 * 2 / 8.
    assert found[["group", "rank", "word", "count"]].values.tolist() == [[0, 1, "the", 3], [2, 1, ",", 2]]
    assert found["lift"].tolist() == pytest.approx([8 / 3, 8 / 3])


def test_random_sets_use_the_same_rule_and_bracket_a_random_group():
    draw = np.random.default_rng(0)
    kinds = draw.choice(["a", "b", "c", "d"], size=2000, p=[0.5, 0.3, 0.15, 0.05])
    group = draw.integers(0, 8, 2000)
    groups, _ = group_contents(group, np.ones(2000), kinds, kinds, 8, seed=1)
    inside = (groups["purity"] >= groups["purity_random_low"]) & (groups["purity"] <= groups["purity_random_high"])
    assert inside.sum() >= 6
    planted, _ = group_contents((kinds == "c").astype(int), np.ones(2000), kinds, kinds, 2, seed=1)
    assert planted["label"].tolist()[1] == "c" and planted["purity"][1] == 1 > planted["purity_random_high"][1]
    again, _ = group_contents(group, np.ones(2000), kinds, kinds, 8, seed=1)
    assert again.equals(groups)


def test_group_contents_without_tokens_and_with_bad_input():
    groups, found = group_contents(np.zeros(0, int), np.zeros(0), [], [], 3)
    assert groups["label"].tolist() == ["empty"] * 3 and found.empty
    with pytest.raises(BadSetting, match="one word"):
        group_contents(np.zeros(2, int), np.zeros(2), ["a"], ["b", "b"], 3)
    with pytest.raises(BadSetting, match="0 to 2"):
        group_contents(np.array([3]), np.zeros(1), ["a"], ["b"], 3)


def test_no_step_is_taken_for_each_token():
    def of(tokens):
        draw = np.random.default_rng(0)
        words = [f"w{i}" for i in np.arange(tokens) % 300]
        kinds = draw.choice([f"k{i}" for i in range(16)], tokens)
        given = draw.integers(0, 8, tokens), np.ones(tokens), words, kinds, 8
        group_contents(*given)  # what is imported or cached at first is no part of it
        return steps(lambda: group_contents(*given))

    assert abs(of(8192) - of(1024)) < 200


def test_pca_by_hand_and_edge_cases():
    x = np.array([[3.0, 0.0, 1.0], [-3.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.0, -1.0, 1.0]])
    coordinates, share = pca(x)
    assert np.allclose(coordinates, x[:, :2]) and np.allclose(share, [0.9, 0.1])
    assert np.array_equal(pca(x)[0], pca(x.copy())[0]) and coordinates.dtype == share.dtype == np.float32
    for few in (np.zeros((0, 5)), np.ones((1, 5)), np.ones((4, 1)), np.ones((3, 4)) * 7):
        coordinates, share = pca(few)
        assert coordinates.shape == (len(few), 2) and not coordinates.any() and not share.any()
    with pytest.raises(BadSetting, match="finite"):
        pca(np.full((3, 2), np.nan))


def test_umap_refuses_short_texts_and_a_missing_package(monkeypatch):
    with pytest.raises(BadSetting, match="at least 16 tokens"):
        umap2d(np.ones((5, 4)))
    own = builtins.__import__

    def without(name, *rest):
        if name.startswith("umap"):
            raise ImportError(name)
        return own(name, *rest)

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
