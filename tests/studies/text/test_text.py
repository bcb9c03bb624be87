"""Texts: the domains of a corpus that are held out, the token that a page on one head opens with, and which part of a
text is scored, in which windows, the dense pass being made once."""

import numpy as np
import pandas as pd
import pytest
import torch

from analysis.commands.quality import Evaluate
from analysis.errors import BadSetting, BadText
from analysis.statistics.states import States
from analysis.studies.context import Context
from analysis.studies.quality.evaluate import predicted_bytes
from analysis.studies.text import scoring, states as first_query
from analysis.studies.text.held_out import domains, texts_of
from analysis.studies.text.states import far_reads, telling_query
from tests.made.evaluating import TEXT


def test_a_file_of_web_text_is_a_domain_of_its_own(tmp_path):
    """Documents between blank lines; wrapped lines are joined, and one that comes again counts once."""
    (tmp_path / "books" / "train").mkdir(parents=True)
    (tmp_path / "books" / "valid").mkdir()
    for split in ("train", "valid"):
        (tmp_path / "books" / split / "a.txt").write_text(f"A {split} novel.")
    pages = [f"Page {n}\ngoes on." for n in range(21)]
    (tmp_path / "web.txt").write_text("\n\n".join([*pages[:20], pages[0], "\n  \n" + pages[20]]))
    context = Context(browser=False)
    by_name = domains(str(tmp_path), None, context)
    assert list(by_name) == ["novels", "web"] and list(domains(str(tmp_path), "web", context)) == ["web"]
    train, held_out = by_name["web"]
    assert held_out == ["Page 9 goes on.", "Page 19 goes on."] and train[0] == "Page 0 goes on." and len(train) == 19
    with pytest.raises(BadSetting, match="no domain 'python': the domains are novels, web"):
        domains(str(tmp_path), "python", context)


def test_a_folder_of_domains_is_read_in_turns_and_each_is_split_on_its_own(tmp_path):
    for name, suffix, count in (("books", "txt", 1), ("python", "py", 3)):
        for split in ("train", "valid"):
            (tmp_path / name / split).mkdir(parents=True)
            for n in range(count):
                (tmp_path / name / split / f"{n}.{suffix}").write_text(f"{name} {split} {n}")
    context = Context(browser=False)
    train, held_out = texts_of(tmp_path, context)
    assert held_out == ["books valid 0", "python valid 0", "python valid 1", "python valid 2"]
    assert train == [text.replace("valid", "train") for text in held_out]
    plain = tmp_path / "python" / "train"  # no split inside: every tenth file, at least one, is held out
    assert [len(side) for side in texts_of(plain, context)] == [2, 1]


def test_without_blank_lines_each_line_is_a_document(tmp_path):
    file, read = tmp_path / "web.txt", (str(tmp_path), None, Context(browser=False))
    file.write_text("one page\nanother page\none page\n")
    assert domains(*read) == {"web": (["one page"], ["another page"])}
    file.write_text("a single page\n")
    with pytest.raises(BadText, match="fewer than two different documents"):
        domains(*read)
    file.write_bytes(b"caf\xe9\nx")
    with pytest.raises(BadText, match="is not UTF-8"):
        domains(*read)


@pytest.mark.parametrize("window", [None, 9])
@pytest.mark.parametrize("size", [30, 7])
def test_far_reads_are_the_largest_far_weight_but_the_sink_s(window, size, monkeypatch):
    monkeypatch.setattr(first_query, "query_blocks", lambda n: [(a, min(a + size, n)) for a in range(0, n, size)])
    draw = torch.Generator().manual_seed(0)
    states = States(*(torch.randn(heads, 30, 8, generator=draw) for heads in (4, 2)), 1.0, None, window)
    reads = far_reads(states, 2, far=5)
    weights = states.scores(2, 0, 30).double().softmax(-1).numpy()
    for row in range(30):
        assert reads[row] == pytest.approx(weights[row, 1 : max(1, row - 4)].max(initial=0.0), abs=1e-6)
    assert not reads[:6].any() and reads[6] > 0


def test_a_whole_word_comes_first_then_a_piece_then_any_token(monkeypatch):
    """Reads .9 by a comma, .8 by a piece, .5 and .6 by whole words, of which one is no content word."""
    monkeypatch.setattr(first_query, "far_reads", lambda *_: np.array([0, 0.9, 0.8, 0.5, 0.6, 0], np.float32))
    words = pd.DataFrame({"piece": ["x", "x", ",", "Cr", " lamp", " the", " end"]})
    words["word"] = ["x", "x", ",", "Crale", "lamp", "the", "end"]
    words["content"] = [False, False, False, True, True, False, True]
    assert telling_query(None, 0, words, 1) == 3, "lamp"
    words.loc[4, "content"] = False
    assert telling_query(None, 0, words, 1) == 2, "Cr"
    words["content"] = False
    assert telling_query(None, 0, words, 1) == 1, ","
    monkeypatch.setattr(first_query, "far_reads", lambda *_: np.zeros(6, np.float32))
    assert telling_query(None, 0, words, 1) == 5, "nothing is far: the last token"


DENSE = [{"name": "dense"}]


def test_bytes_are_those_of_the_predicted_tokens(context, home):
    text = "the cat 漢字 the cat"
    key = context.add_text("a text", text)
    begins, plain = (context.model(str(home / name)) for name in ("begins", "tiny"))
    reading = scoring.whole_windows(context, begins, key, None, "windows")
    assert predicted_bytes(reading) == len(text.encode()), "the first token is no text, so all of it is predicted"
    reading = scoring.whole_windows(context, plain, key, None, "windows")
    assert predicted_bytes(reading) == len(text.encode()) - len(reading.tokens.pieces[0].encode())


def test_windows_of_equal_length_and_what_is_left_is_noted(ask):
    result = ask(Evaluate, methods=DENSE)
    total, size = len(result.tables["tokens"]), result.numbers["window"]
    windows = total // size
    assert total == windows * size and size <= 64 and total > 64 * (windows - 1), "the fewest windows"
    assert result.numbers["rows"][0]["tokens"] == total - windows, "the first token of a window is not predicted"
    assert f"{windows} windows of {size} tokens" in result.numbers["notes"][0]
    first = ask(Evaluate, methods=DENSE, window=40, long_text="first")
    assert len(first.tables["tokens"]) == 40 == first.numbers["protocol"]["window"] and first.numbers["notes"]
    brief = ask(Evaluate, TEXT[:99], methods=DENSE, window=60, long_text="first")
    assert brief.numbers["window"] == len(brief.tables["tokens"]) < 60 and brief.numbers["notes"] == []
    assert ask(Evaluate, "the cat sat", methods=DENSE).numbers["notes"] == []


def test_the_dense_pass_is_kept_for_the_next_method(ask, context, home, monkeypatch):
    passes, lm = [], context.model(str(home / "tiny"))
    handle = lm.lm.register_forward_hook(lambda *_: passes.append(1))

    def rows(window=16):
        passes.clear()
        methods = [{"name": "streaming_llm", "settings": {"window": 7}}]
        return ask(Evaluate, TEXT[:99], methods=methods, window=window).numbers["rows"]

    try:
        first, windows = rows(), len(passes) // 2
        assert len(passes) == 2 * windows > 2, "dense and the method"
        assert rows() == first and len(passes) == windows, "the method alone"
        assert rows(9) and len(passes) > 2 * windows, "other windows, another dense pass"
        monkeypatch.setattr(scoring, "KEPT_BYTES", 0)
        context.kept.clear()
        assert rows() == first, "logits that do not fit are computed again"
    finally:
        handle.remove()
