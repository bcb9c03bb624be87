"""Which part of a text is scored, in which windows, and that the dense pass is made once."""

from analysis.commands.quality import Evaluate
from analysis.studies.quality.evaluate import predicted_bytes
from analysis.studies.text import scoring
from tests.made.evaluating import TEXT

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
