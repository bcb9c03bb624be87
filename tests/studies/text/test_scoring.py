"""Which part of a text is scored, in which windows, and that the dense pass is made once."""

import pytest

from analysis.studies.quality.evaluate import predicted_bytes
from analysis.studies.text import scoring
from tests.made.evaluating import TEXT, evaluator, one


@pytest.fixture(scope="module")
def ask(context, home):
    """`ask(methods, text, model="tiny", **arguments)` -> Result."""
    return evaluator(context, home)


def test_bytes_are_those_of_the_predicted_tokens(context, home):
    text = "the cat 漢字 the cat"
    key = context.add_text("a text", text)
    begins = context.model(str(home / "begins"))
    reading = scoring.whole_windows(context, begins, key, None, "windows")
    assert predicted_bytes(reading) == len(text.encode()), "the first token is no text, so all of it is predicted"
    plain = context.model(str(home / "tiny"))
    reading = scoring.whole_windows(context, plain, key, None, "windows")
    assert predicted_bytes(reading) == len(text.encode()) - len(reading.tokens.pieces[0].encode())


def test_windows_of_equal_length_and_what_is_left_is_said(ask):
    result = ask([{"name": "dense"}])
    total, size = len(result.tables["tokens"]), result.numbers["window"]
    windows = total // size
    assert total == windows * size and size <= 64 and total > 64 * (windows - 1), "the fewest windows"
    assert one(result)["tokens"] == total - windows, "the first token of a window is not predicted"
    assert result.numbers["notes"][0].startswith(f"{windows} windows of {size} tokens are scored")
    first = ask([{"name": "dense"}], window=40, long_text="first")
    assert len(first.tables["tokens"]) == 40 == first.numbers["protocol"]["window"]
    assert first.numbers["notes"][0].startswith("The first 40 of the text's")
    brief = ask([{"name": "dense"}], TEXT[:99], window=60, long_text="first")
    assert brief.numbers["window"] == len(brief.tables["tokens"]) < 60 and brief.numbers["notes"] == []
    assert ask([{"name": "dense"}], "the cat sat").numbers["notes"] == []


def test_the_dense_pass_is_kept_for_the_next_method(ask, context, home, monkeypatch):
    passes, lm = [], context.model(str(home / "tiny"))
    handle = lm.lm.register_forward_pre_hook(lambda *_: passes.append(1))
    asked = [{"name": "streaming_llm", "settings": {"window": 7}}]
    try:
        first = one(ask(asked, TEXT[:99], window=16))
        windows = len(passes) // 2
        assert len(passes) == 2 * windows > 2, "dense and the method"
        assert one(ask(asked, TEXT[:99], window=16)) == first and len(passes) == 3 * windows, "the method alone"
        passes.clear()
        shorter = ask(asked, TEXT[:99], window=9)
        assert len(passes) == 2 * (1 + shorter.tables["losses"]["window"].max()), "other windows, another dense pass"
        monkeypatch.setattr(scoring, "KEPT_BYTES", 0)
        context.kept.clear()
        assert one(ask(asked, TEXT[:99], window=16)) == first, "logits that do not fit are computed again"
    finally:
        handle.remove()
