"""Recall documents: what is asked was said before, everything is drawn from seed and row, and answers are marked."""

import re

import numpy as np
import pytest
from tokenizers import Tokenizer

from analysis.corpus import sample_texts
from analysis.places import CACHE
from lab.far.kinds import KINDS, document
from lab.far.recall import STYLES, Source, Words, Writer, lookups, spread, thinness


@pytest.fixture(scope="module")
def source():
    """The bundled tokenizer, and two bundled samples as the training texts."""
    tokenizer = Tokenizer.from_file(str(CACHE / "demo" / "tokenizer.json"))
    samples = sample_texts()
    texts = {"novels": samples["story"][1], "python": samples["program"][1]}
    return Source(tokenizer, {name: np.array([0, *tokenizer.encode(t).ids], np.uint16) for name, t in texts.items()})


@pytest.fixture
def lines(monkeypatch):
    """(key, value, tokens before it, whether it asks) of every line that is written."""
    written, line = [], Writer.line

    def noted(writer, template, key, value, ask):
        written.append((key, value, writer.written, ask))
        line(writer, template, key, value, ask)

    monkeypatch.setattr(Writer, "line", noted)
    return written


def answers(source, recall) -> list[tuple[str, str]]:
    """(the text before, the text) of every marked stretch."""
    edges = np.flatnonzero(np.diff(recall.answer.astype(int), prepend=0, append=0)).reshape(-1, 2)
    show = source.tokenizer.decode
    return [(show(recall.ids[:a].tolist()), show(recall.ids[a:b].tolist())) for a, b in edges]


def test_a_list_by_hand_and_thin_documents_hold_natural_text(source):
    writer = Writer(source, 60, np.random.default_rng(0), "novels", thin=False)
    writer.line("{key} = {value}\n", "berth", "seven", ask=False)
    writer.line("{key} = {value}\n", "cargo", "salt", ask=False)
    writer.line("Which {key}? {value}.\n", "berth", "seven", ask=True)
    recall = writer.document("by hand")
    assert source.tokenizer.decode(recall.ids.tolist()) == "berth = seven\ncargo = salt\nWhich berth? seven.\n"
    assert answers(source, recall) == [("berth = seven\ncargo = salt\nWhich berth?", " seven")]
    writer = Writer(source, 600, np.random.default_rng(1), "novels", thin=True)
    lookups(writer, "{key}: {value}\n", ["{key}: {value}\n"], "word", "made")
    text = source.tokenizer.decode(writer.document("thin").ids.tolist())
    assert any(text[start : start + 40] in sample_texts()["story"][1] for start in range(0, len(text) - 40))


@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_stands_before(source, kind):
    empty = 0
    for row in range(12):
        recall = document(source, 3, row, 400, kind)
        assert recall.kind == kind and recall.ids.shape == recall.answer.shape == (400,)
        assert recall.ids.dtype == np.int64 and 0 <= recall.ids.min() and recall.ids.max() < source.vocabulary
        empty += not recall.answer.any()
        if kind not in ("loops", "repeats"):
            # There a copy runs on into the next one, and a test of its own holds it.
            assert all(text.strip() in before for before, text in answers(source, recall))
    assert empty <= 1


@pytest.mark.parametrize("kind", ["loops", "repeats"])
def test_a_loop_is_one_passage_again_and_again(source, kind):
    for row in range(10):
        recall = document(source, 0, row, 257, kind)
        # The second token of the second copy.
        first = int(np.argmax(recall.answer))
        assert np.array_equal(recall.ids[first - 1 :], recall.ids[: 257 - first + 1]) and recall.answer[first:].all()


def test_a_row_is_a_function_of_seed_and_number_its_kind_of_the_recipe_and_a_key_has_one_value(source, lines):
    first, again, other_row, other_seed = (
        document(source, *place, 257) for place in ((5, 17), (5, 17), (5, 18), (6, 17))
    )
    assert np.array_equal(first.ids, again.ids) and np.array_equal(first.answer, again.answer)
    assert not np.array_equal(first.ids, other_row.ids) and not np.array_equal(first.ids, other_seed.ids)
    drawn = [document(source, 0, row, 600, own={"pairs": 0.8, "labels": 0.2}).kind for row in range(40)]
    assert set(drawn) == {"pairs", "labels"} and 22 <= drawn.count("pairs") <= 39
    for row in range(20):
        lines.clear()
        document(source, 0, row, 1024, "pairs")
        assert len({key for key, *_ in lines}) == len({(key, value) for key, value, *_ in lines}) > 0


def test_long_documents_have_far_answers_and_short_ones_are_dense(source, lines):
    assert thinness(256) == 0 and thinness(2048) == pytest.approx(0.6) and thinness(10**9) == 0.6
    distances = []
    for row in range(30):
        lines.clear()
        document(source, 1, row, 2048, "facts")
        lines_at = {key: place for key, _, place, ask in reversed(lines) if not ask}
        distances += [place - lines_at[key] for key, _, place, ask in lines if ask and place < 2048]
    assert max(distances) > 1200 and min(distances) < 60
    short, long = (np.mean([document(source, 1, row, n).answer.mean() for row in range(60)]) for n in (256, 2048))
    assert short > long > 0.08 and short > 0.18


def test_values_are_drawn_from_many(source):
    words, rng = Words(source.tokenizer), np.random.default_rng(0)
    assert len(words.plain) > 1000
    for style in STYLES:
        assert len({words.draw(style, rng) for _ in range(300)}) > 200, style
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", words.draw("uuid", rng))
    used = set()
    assert len({words.fresh("number", rng, used) for _ in range(200)}) == len(used) == 200
    counts = np.bincount([spread(rng, 1, 100) for _ in range(2000)], minlength=101)
    assert counts[0] == 0 and counts[1:11].sum() == pytest.approx(1000, abs=150) and counts[50:].sum() > 150
