"""Text in: what is refused and with which words, what passes unchanged, and tokens that cover the text exactly."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from analysis.corpus import (
    MAX_BYTES,
    normalise,
    notes,
    read_file,
    read_folder,
    read_text,
    sample_texts,
    text_hash,
    token_stream,
    tokenize,
)
from analysis.errors import BadText
from analysis.models import load_model
from tests.made.tiny_tokenizer import byte_level, llama_like

BAD = {
    "empty": (b"", r"empty \(0 bytes\)"),
    "spaces only": (b"  \t \r\n \n", r"only spaces and line breaks \(7 characters\)"),
    "a byte order mark only": (b"\xef\xbb\xbf", "only spaces"),
    "binary": (b"PNG\0\0\1", "binary file .a zero byte at offset 3"),
    "control characters": (b"ab" + bytes(range(1, 9)), "binary file .8 control characters in its first 10"),
    "latin-1": ("caf\xe9 au lait".encode("latin-1"), "not valid UTF-8 .byte 0xE9 at offset 3"),
    "broken after a byte order mark": (b"\xef\xbb\xbfabc\xff", "not valid UTF-8 .byte 0xFF at offset 6"),
    "half a UTF-16 character": (b"\xff\xfea\0b", "not valid UTF-16-LE .byte 0x62 at offset 4"),
    "UTF-16 without a mark": ("hello".encode("utf-16-le"), "zero byte at offset 1"),
    "UTF-32": ("hello".encode("utf-32"), "binary file"),
    "50 MB": (b"a" * 50_000_000, r"50\.0 MB and the limit is 5 MB"),
}
GOOD = {
    "right to left": "שלום עולם — مرحبا بالعالم\u202e!",
    "emoji": "👨‍👩‍👧‍👦 🏳️‍🌈 \U0001fae8\U0001fae8",
    "Chinese": "紅樓夢第一回，甄士隱夢幻識通靈。",
    "hostile HTML": "<script>alert(1)</script><img src=x onerror=alert(2)> &amp; \"'",
    "hostile Markdown": "# h\n[a](javascript:alert(1)) ![](http://x/y.png) `$x$` :red[b] | t |\n---",
    "special tokens": "a <|endoftext|> b </s> <s>",
    "a form feed and tabs": "page\f\tpage",
}


@cache
def demo():
    return load_model("demo").tokenizer


TOKENIZERS = {"demo": demo, "byte level": byte_level, "llama": llama_like}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_text_is_refused_in_one_sentence(case):
    data, message = BAD[case]
    with pytest.raises(BadText, match=message) as caught:
        read_text(data, "notes.txt")
    sentence = str(caught.value)
    assert sentence.startswith("notes.txt ") and sentence.endswith(".") and "\n" not in sentence


@pytest.mark.parametrize("case", GOOD)
def test_any_script_and_hostile_markup_pass_unchanged(case):
    assert read_text(GOOD[case].encode()) == GOOD[case]


def test_encodings_line_ends_and_names_become_one():
    assert read_text("\ufeffa\r\nb\rc\n".encode()) == "a\nb\nc\n"
    for encoding in ("utf-16-le", "utf-16-be"):
        assert read_text("\ufeffé漢\r\n".encode(encoding)) == "é漢\n"
    assert text_hash("abc") == "ba7816bf8f01" and text_hash("\ud800") != text_hash("\ud801")
    assert normalise("one \n two\r\n\n\n\nthree   four\n") == "one two\n\nthree four"


@given(st.binary(max_size=60))
def test_any_bytes_are_a_text_or_one_sentence(data):
    try:
        assert read_text(data).strip()
    except BadText as error:
        assert "\n" not in str(error) and str(error).endswith(".")


def test_a_file_that_is_too_large_is_not_opened(tmp_path, monkeypatch):
    path = tmp_path / "huge.txt"
    with path.open("wb") as file:
        file.truncate(50_000_000)
    monkeypatch.setattr(type(path), "read_bytes", lambda self: pytest.fail("it was read"))
    with pytest.raises(BadText, match=r"huge.txt has 50\.0 MB"):
        read_file(path)


def test_a_folder_is_split_and_nothing_stands_on_both_sides(tmp_path):
    for index in range(12):
        (tmp_path / f"{index:02}.txt").write_text(f"text {index % 11}")  # 00 and 11 are the same text
    train, held_out = read_folder(tmp_path)
    assert held_out == ["text 9"] and train == [f"text {i}" for i in (0, 1, 2, 3, 4, 5, 6, 7, 8, 10)]
    for count in (2, 5, 9):
        folder = tmp_path / str(count)
        folder.mkdir()
        for index in range(count):
            (folder / f"{index}.md").write_text(f"part {index}")
        train, held_out = read_folder(folder)
        assert len(train) == count - 1 and len(held_out) == 1 and not set(train) & set(held_out)


def test_a_single_document_is_cut_and_a_given_split_is_kept(tmp_path):
    (tmp_path / "one.py").write_text("0123456789" * 10)
    assert [len(part[0]) for part in read_folder(tmp_path)] == [90, 10]
    split = tmp_path / "split"
    for part, texts in (("train", ("a", "b", "c")), ("valid", ("b", "d"))):
        (split / part).mkdir(parents=True)
        for text in texts:
            (split / part / f"{text}.txt").write_text(text)
    assert read_folder(split) == (["a", "c"], ["b", "d"])


def test_folders_without_text_are_refused(tmp_path):
    (tmp_path / "picture.png").write_bytes(b"\0")
    for folder in (tmp_path, tmp_path / "absent", tmp_path / "picture.png"):
        with pytest.raises(BadText, match="no folder with"):
            read_folder(folder)
    (tmp_path / "bad.txt").write_bytes(b"\0")
    with pytest.raises(BadText, match="bad.txt looks like a binary"):
        read_folder(tmp_path)


def test_token_stream_puts_an_end_before_each_document():
    tokenizer = byte_level()
    stream, end = token_stream(tokenizer, ["the cat", "sat"]), tokenizer.eos_token_id
    assert stream.dtype == np.int64 and tokenizer.decode(stream) == "<|end|>the cat<|end|>sat"
    assert (stream == end).sum() == 2 and stream[0] == end
    assert len(token_stream(tokenizer, [])) == 0


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(max_examples=150)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.text("a— 漢😀é\ufffd\n'", max_size=30))
def test_tokens_cover_the_text_exactly(kind, text):
    tokenizer = TOKENIZERS[kind]()
    try:
        tokens = tokenize(tokenizer, text, 7, 100)
    except BadText:
        assert len(tokenizer(text, add_special_tokens=False)["input_ids"]) < 2
        return
    assert all(2 <= stop - start <= 7 for start, stop in tokens.spans[:-1])
    spans = dict.fromkeys(zip(tokens.starts.tolist(), tokens.ends.tolist(), strict=True))
    assert "".join(text[a:b] for a, b in spans) == text
    assert (np.diff(tokens.starts) >= 0).all()
    full_pieces = ~tokens.broken & (tokens.ends > tokens.starts)
    assert all(tokens.pieces[i] == text[tokens.starts[i] : tokens.ends[i]] for i in np.flatnonzero(full_pieces))
    assert tokens.shown == tokens.total and len(tokens.pieces) == len(tokens)


def test_windows_of_exactly_the_context_and_samples_that_fit():
    tokenizer = byte_level()
    text = "x" * 10
    for context, sizes in ((10, [10]), (9, [9, 1]), (5, [5, 5]), (3, [3, 3, 3, 1])):
        tokens = tokenize(tokenizer, text, context)
        assert [stop - start for start, stop in tokens.spans] == sizes
        assert tokens.window.tolist() == [i for i, size in enumerate(sizes) for _ in range(size)]
    assert notes(tokenize(tokenizer, text, 10), 10) == []
    assert all(len(text.encode()) < MAX_BYTES for _, text in sample_texts().values())
    story = tokenize(demo(), sample_texts()["story"][1], 4096)
    assert notes(story, 4096) == []


def test_parts_of_characters_show_their_bytes_and_whole_ones_never():
    tokens = tokenize(demo(), "a 😀“", 100)
    assert tokens.pieces == ["a", " ", "⟨F0⟩", "⟨9F⟩", "⟨98⟩", "⟨80⟩", "⟨E2⟩", "⟨80⟩", "⟨9C⟩"]
    assert tokens.starts.tolist() == [0, 1, 2, 2, 2, 2, 3, 3, 3] and tokens.ends.tolist() == [1, 2, 3, 3, 3, 3, 4, 4, 4]
    assert tokens.broken.tolist() == [False] * 2 + [True] * 7 and tokens.byte_fallback_share == 7 / 9
    assert "78% of the tokens are single bytes" in notes(tokens, 100)[0]
    tokens = tokenize(byte_level(), "cat \ufffd 😀", 100)
    assert "".join(tokens.pieces) == "cat \ufffd 😀" and not tokens.broken.any()
    tokens = tokenize(llama_like(), "the\ncat😀", 100)
    assert tokens.pieces == ["<s>", "the", "\n", "c", "a", "t", "⟨F0⟩", "⟨9F⟩", "⟨98⟩", "⟨80⟩"]


def test_windows_begin_as_the_model_was_trained_and_an_added_space_is_not_in_the_text():
    tokenizer = llama_like()
    text = "the cat" * 4
    tokens = tokenize(tokenizer, text, 4)
    assert [tokens.ids[start] for start, _ in tokens.spans] == [tokenizer.bos_token_id] * len(tokens.spans)
    assert (tokens.ids == tokenizer.bos_token_id).sum() == len(tokens.spans) > 2 and tokens.begin == 1
    assert all(stop - start <= 4 for start, stop in tokens.spans) and tokens.shown == tokens.total
    assert tokenize(byte_level(), text, 4).begin == 0
    tokens = tokenize(llama_like(), " the cat", 100)
    assert tokens.pieces == ["<s>", "▁", " the", " cat"]
    assert list(zip(tokens.starts, tokens.ends, strict=True)) == [(0, 0), (0, 0), (0, 4), (4, 8)]


@pytest.mark.parametrize("text", ["a", ""])
def test_fewer_than_two_tokens_are_refused(text):
    with pytest.raises(BadText, match=r"has [01] token and attention needs at least 2"):
        tokenize(byte_level(), text, 10)


def test_a_long_text_is_cut_and_says_so_with_the_numbers():
    tokens = tokenize(byte_level(), "x" * 50, 10, max_windows=3)
    assert (tokens.total, tokens.shown, len(tokens), len(tokens.spans)) == (50, 30, 30, 3)
    sentences = notes(tokens, 10)
    assert sentences[0] == "The text has 50 tokens; the first 30 are shown (3 windows of 10)."
    assert "the model reads 10 at once: it is cut into 3 windows" in sentences[1]
    assert "one window" not in sentences[0] and notes(tokenize(byte_level(), "x" * 50, 10, 1), 10) == [
        "The text has 50 tokens; the first 10 are shown (1 window of 10)."
    ]
    begun = tokenize(llama_like(), "b" * 40, 10, max_windows=4)  # 41 tokens with the added space, 9 in each window
    assert (begun.total, begun.shown, len(begun)) == (41, 36, 40)
    assert "has 41 tokens; the first 36 are shown" in notes(begun, 10)[0]
