"""Recall documents: what is asked was told, everything is drawn from seed and row, and the answers are marked."""

import re

import numpy as np
import pytest
from tokenizers import Tokenizer

from analysis.corpus import sample_texts
from analysis.places import CACHE
from lab.far.kinds import KINDS, document
from lab.far.recall import Source, Writer, lookups, spread, thinness
from lab.far.words import STYLES, Words


@pytest.fixture(scope="module")
def source():
    """The bundled tokenizer, and two bundled samples as the training texts."""
    tokenizer = Tokenizer.from_file(str(CACHE / "demo" / "tokenizer.json"))
    samples = sample_texts()
    texts = {"novels": samples["story"][1], "python": samples["program"][1]}
    return Source(tokenizer, {name: np.array([0, *tokenizer.encode(t).ids], np.uint16) for name, t in texts.items()})


def answers(source, made) -> list[str]:
    """The texts of the marked stretches."""
    edges = np.flatnonzero(np.diff(made.answer.astype(int), prepend=0, append=0)).reshape(-1, 2)
    return [source.tokenizer.decode(made.ids[a:b].tolist()) for a, b in edges]


def test_a_list_and_its_lookups_by_hand(source):
    writer = Writer(source, 60, np.random.default_rng(0), "novels", thin=False)
    writer.line("{key} = {value}\n", "berth", "seven", ask=False)
    writer.line("{key} = {value}\n", "cargo", "salt", ask=False)
    told = writer.written
    writer.line("Which {key}? {value}.\n", "berth", "seven", ask=True)
    made = writer.document("by hand")
    assert source.tokenizer.decode(made.ids.tolist()) == "berth = seven\ncargo = salt\nWhich berth? seven.\n"
    assert answers(source, made) == [" seven"]
    asked = made.asked[0]
    assert (asked.key, asked.value) == ("berth", "seven") and asked.told < told <= asked.at
    assert source.tokenizer.decode(made.ids[asked.told :].tolist()).startswith(" seven\ncargo")
    assert source.tokenizer.decode(made.ids[asked.at :].tolist()).startswith(" seven.")


@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_was_told_before(source, kind):
    empty = 0
    for row in range(12):
        made = document(source, 3, row, 400, kind)
        assert made.kind == kind and made.ids.shape == made.answer.shape == (400,) and made.ids.dtype == np.int64
        assert made.ids.min() >= 0 and made.ids.max() < source.vocabulary
        empty += not made.answer.any()
        for one in made.asked:
            value = source.tokenizer.encode(f" {one.value}").ids
            bare = source.tokenizer.encode(one.value).ids
            there = [made.ids[at : at + max(len(value), len(bare))].tolist() for at in (one.told, one.at)]
            assert one.told < one.at < 400 and made.answer[one.at]
            whole = one.at + max(len(value), len(bare)) <= 400
            assert not whole or all(found[: len(value)] == value or found[: len(bare)] == bare for found in there)
        edges = np.flatnonzero(np.diff(made.answer.astype(int), prepend=0, append=0)).reshape(-1, 2)
        if kind in ("copies", "labels"):  # word for word, and not only asked of a table of what was told
            for first, last in edges:
                before, wanted = made.ids[:first].tolist(), made.ids[first:last].tolist()
                assert any(before[at : at + len(wanted)] == wanted for at in range(first - len(wanted) + 1))
    assert empty <= 1


@pytest.mark.parametrize("kind", ["loops", "repeats"])
def test_a_loop_is_one_passage_again_and_again(source, kind):
    for row in range(10):
        made = document(source, 0, row, 257, kind)
        first = int(np.argmax(made.answer))  # the second token of the second copy
        assert np.array_equal(made.ids[first - 1 :], made.ids[: 257 - first + 1]) and made.answer[first:].all()


def test_a_key_has_one_value_in_a_document(source):
    for row in range(20):
        values = {}
        for one in document(source, 0, row, 1024, "pairs").asked:
            assert values.setdefault(one.key, one.value) == one.value


def test_a_row_is_a_function_of_seed_and_number(source):
    same = [document(source, 5, 17, 257) for _ in range(2)]
    assert np.array_equal(same[0].ids, same[1].ids) and same[0].asked == same[1].asked
    assert not np.array_equal(same[0].ids, document(source, 5, 18, 257).ids)
    assert not np.array_equal(same[0].ids, document(source, 6, 17, 257).ids)


def test_shares_of_ones_own_decide_the_kind(source):
    drawn = [document(source, 0, row, 600, own={"pairs": 0.8, "labels": 0.2}).kind for row in range(40)]
    assert set(drawn) == {"pairs", "labels"} and 22 <= drawn.count("pairs") <= 39


def test_long_documents_have_far_answers_and_short_ones_are_dense(source):
    assert thinness(256) == 0 and thinness(2048) == pytest.approx(0.6) and thinness(10**9) == 0.6
    far = [one.at - one.told for row in range(30) for one in document(source, 1, row, 2048, "facts").asked]
    assert max(far) > 1200 and min(far) < 60
    short, long = (np.mean([document(source, 1, row, n).answer.mean() for row in range(60)]) for n in (256, 2048))
    assert short > long > 0.08 and short > 0.18


def test_thin_documents_hold_natural_text_between_their_lines(source):
    made = Writer(source, 600, np.random.default_rng(1), "novels", thin=True)
    lookups(made, "{key}: {value}\n", ["{key}: {value}\n"], "word", "made")
    text = source.tokenizer.decode(made.document("thin").ids.tolist())
    assert any(text[at : at + 40] in sample_texts()["story"][1] for at in range(0, len(text) - 40))


def test_values_are_drawn_from_many(source):
    words, rng = Words(source.tokenizer), np.random.default_rng(0)
    assert len(words.plain) > 1000
    for style in STYLES:
        drawn = {words.draw(style, rng) for _ in range(300)}
        assert len(drawn) > 200, style
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", words.draw("uuid", rng))
    taken = set()
    assert len({words.fresh("number", rng, taken) for _ in range(200)}) == len(taken) == 200
    counts = np.bincount([spread(rng, 1, 100) for _ in range(2000)], minlength=101)
    assert counts[0] == 0 and counts[1:11].sum() == pytest.approx(1000, abs=150) and counts[50:].sum() > 150
