"""Tokens as words: the word around each token and its category, by word lists."""

import io
import json
import keyword
import re
import tokenize
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

# Of characters, one per token.
Offsets = Sequence[int] | np.ndarray
Span = tuple[int, int]
NAME, CONTENT, PIECE, NO_TEXT = "name", "content word", "word piece", "no text"
IDENTIFIER, KEYWORD, NUMBER = "identifier", "keyword", "number"
PUNCTUATION, SPACE, LINE_BREAK = "punctuation", "space", "line break"
CONTENT_CATEGORIES = frozenset({NAME, CONTENT, IDENTIFIER})

# Category -> closed-class words, each in its commonest class.
ENGLISH: dict[str, str] = json.loads(Path(__file__).with_name("wordlists.json").read_text(encoding="utf-8"))
CATEGORY_OF = {word: category for category, words in ENGLISH.items() for word in words.split()}

# Scripts written without spaces are read character by character; an apostrophe ending ('s, 't, 'll) is its own word.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"(?<=\w)['’](?:s|t|m|d|re|ve|ll)\b|[{UNSPACED}]|[^\W{UNSPACED}]+", re.IGNORECASE)
FIGURES = re.compile(r"[\d_.,]*\d[\d_.,]*(?:e[+-]?\d+|st|nd|rd|th|s)?|0[xob][\da-f_]+", re.IGNORECASE)
# Read on the 12 characters before a word:
SENTENCE_START = re.compile(r"(?:\A|[.!?…:;]|\n\s*\n)[\s\"'“”‘’()\[\]*_—#>-]*\Z")
CODE_LINE = re.compile(
    r"(?:def|class|if|elif|else|for|while|with|try|except)\b.*:(?:\s*#.*)?"
    r"|(?:import|return) .*|from \S+ import .*|@\w.*"
)
VISIBLE = str.maketrans({" ": "␣", "\t": "⇥", "\r": "␍", "\n": "⏎"})
# Of the lines that are not blank, from which on a text counts as Python.
CODE_SHARE = 0.1
# Of the words that are closed-class, from which on a text counts as English.
ENGLISH_SHARE = 0.2


def word_of_tokens(text: str, starts: Offsets, ends: Offsets) -> list[str]:
    """The word around each token, the whole word for each of its pieces.

    starts, ends: character offsets [T] of the tokens, end exclusive. A token that touches no word gets its own visible
    form: the punctuation itself, ␣ for spaces, ⏎ for line breaks; a token without text gets "∅".
    """
    words = []
    for a, b, span in _spans(text, starts, ends):
        piece = text[a:b] if span is None else text[slice(*span)]
        words.append((piece.translate(VISIBLE) if piece.isspace() else piece.strip()) or "∅")
    return words


def categories(text: str, starts: Offsets, ends: Offsets) -> tuple[list[str], str]:
    """Category of each token, and one phrase that says what decided it.

    A token that continues a word is a "word piece". In languages other than English and Python every word counts as a
    content word.
    """
    by_word, source = word_categories(text)
    labels = []
    for a, b, span in _spans(text, starts, ends):
        visible = text[a:b].lstrip()
        if not text[a:b]:
            labels.append(NO_TEXT)
        elif span is not None:
            labels.append(PIECE if visible and b - len(visible) > span[0] else by_word[span])
        elif visible:
            labels.append(PUNCTUATION)
        else:
            labels.append(LINE_BREAK if "\n" in text[a:b] or "\r" in text[a:b] else SPACE)
    return labels, source


def content_tokens(text: str, starts: Offsets, ends: Offsets) -> list[bool]:
    """Whether each token belongs to a content word (CONTENT_CATEGORIES), all pieces of the word included."""
    by_word, _ = word_categories(text)
    return [span is not None and by_word[span] in CONTENT_CATEGORIES for _, _, span in _spans(text, starts, ends)]


@lru_cache(maxsize=8)
def word_categories(text: str) -> tuple[dict[Span, str], str]:
    """Category of every word by its character span, and what decided it; the last eight texts are remembered."""
    words = _word_spans(text)
    lines = [line.strip() for line in text.splitlines()[:400] if line.strip()]
    if sum(CODE_LINE.fullmatch(line) is not None for line in lines) >= max(2, CODE_SHARE * len(lines)):
        return _python(text, words), "Python keywords, and English word lists inside comments and strings"
    first = words[:4000]
    if sum(text[a:b].lower() in CATEGORY_OF for a, b in first) >= ENGLISH_SHARE * max(1, len(first)):
        return _english(text, words), "English word lists"
    return {(a, b): _plain(text[a:b]) for a, b in words}, "character classes only: no word lists for this language"


@lru_cache(maxsize=8)
def _word_spans(text: str) -> list[Span]:
    return [match.span() for match in WORD.finditer(text)]


def _spans(text: str, starts: Offsets, ends: Offsets) -> list[tuple[int, int, Span | None]]:
    """(start, end, span of the first word the token touches or None) for each token."""
    words = _word_spans(text)
    word_ends = [end for _, end in words]
    spans = []
    for a, b in zip(map(int, starts), map(int, ends), strict=True):
        index = bisect_right(word_ends, a)
        touched = a < b and index < len(words) and words[index][0] < b
        spans.append((a, b, words[index] if touched else None))
    return spans


def _plain(word: str) -> str:
    return NUMBER if FIGURES.fullmatch(word) else CONTENT


def _english(text: str, words: list[Span]) -> dict[Span, str]:
    """Word lists; a capitalised word is a name when it also stands inside a sentence, or never without its capital."""
    small = {text[a:b] for a, b in words if text[a:b].islower()}
    capital = {(a, b) for a, b in words if text[a].isupper() and not (b - a > 1 and text[a:b].isupper())}
    inside = {span for span in capital if not SENTENCE_START.search(text[max(0, span[0] - 12) : span[0]])}
    names = {text[slice(*span)] for span in inside}
    result = {}
    for span in words:
        word = text[slice(*span)]
        if word.lower() in CATEGORY_OF:
            result[span] = CATEGORY_OF[word.lower()]
        elif span in inside or (span in capital and word in names and word.lower() not in small):
            result[span] = NAME
        else:
            result[span] = _plain(word)
    return result


def _python(text: str, words: list[Span]) -> dict[Span, str]:
    # Which characters stand inside comments and strings.
    prose = bytearray(len(text) + 1)
    lines = [0]
    for line in io.StringIO(text, newline=""):
        lines.append(lines[-1] + len(line))
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if tokenize.tok_name[token.type] in ("STRING", "COMMENT", "FSTRING_MIDDLE"):
                a, b = (lines[line - 1] + column for line, column in (token.start, token.end))
                prose[a:b] = b"\1" * (b - a)
    except (tokenize.TokenError, SyntaxError, ValueError, IndexError):
        # Half a file: what was read so far is used.
        pass
    result = _english(text, words)
    for a, b in words:
        if not prose[a]:
            result[a, b] = KEYWORD if keyword.iskeyword(text[a:b]) else IDENTIFIER
            if FIGURES.fullmatch(text[a:b]):
                result[a, b] = NUMBER
    return result
