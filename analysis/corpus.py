"""Text to tokens: reading what a user gives, normalising it, cutting it into windows of the model's context.

Nothing here imports torch or transformers: the app's side of the house validates plain text with `read_text`.
"""

import codecs
import hashlib
import re
import unicodedata
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from . import documents
from .documents import Document
from .errors import BadText

SAMPLES = Path(__file__).parent / "samples"
# About 1.2 million tokens of English.
MAX_BYTES = 5_000_000
# Per interactive analysis; a longer text is cut and the page says so.
MAX_WINDOWS = 16
# What `fitting_samples` are called in a protocol.
FITTED_ON = "bundled samples without the story"
# Of the files that are read from a folder.
SUFFIXES = (".txt", ".md", ".py", *documents.KINDS)
# Whose lines stay as they are.
PROGRAMS = (".py", ".ipynb")
# Characters looked at for control characters.
SNIFF = 100_000


def read_text(data: bytes, name: str = "the text") -> str:
    """Decode an uploaded file, or say in one sentence why it is no text.

    Accepts UTF-8 (with or without a byte order mark) and UTF-16 with one; line ends become `\\n`.
    Raises BadText for an empty, oversized, binary or wrongly encoded file and for nothing but spaces.
    """
    if not data:
        raise BadText(f"{name} is empty (0 bytes): choose a file with some text in it.")
    if len(data) > MAX_BYTES:
        raise too_large(name, len(data))
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    if encoding != "utf-16" and b"\0" in data:
        raise BadText(
            f"{name} looks like a binary file (a zero byte at offset {data.index(0):,}): "
            "save it as plain text, or paste the text instead."
        )
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        # Python counts from behind that mark.
        offset = error.start + 3 * data.startswith(codecs.BOM_UTF8)
        raise BadText(
            f"{name} is not valid {error.encoding.upper()} (byte 0x{data[offset]:02X} at offset {offset:,}): "
            "save it as UTF-8 and upload it again."
        ) from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise BadText(f"{name} holds only spaces and line breaks ({len(text):,} characters): there is nothing to read.")
    head = text[:SNIFF]
    control = sum(unicodedata.category(c) == "Cc" and c not in "\n\t\f" for c in head)
    if control > 0.02 * len(head):
        raise BadText(
            f"{name} looks like a binary file ({control:,} control characters in its first {len(head):,}): "
            "save it as plain text, or paste the text instead."
        )
    return text


def read_any(data: bytes, name: str) -> Document:
    """The text of a file: a document's by its library, in a process of its own; of anything else as it is written,
    Markdown and programs too. Errors: BadText."""
    if documents.kind(name, data) is None:
        return Document(read_text(data, name))
    document = documents.read_document(data, name)
    return replace(document, text=read_text(document.text.encode(), name))


def read_file(path: Path) -> Document:
    """The text of a file, as `read_any` gives it; one that is too large is not even opened. Errors: BadText."""
    size, document = path.stat().st_size, documents.kind(path.name) is not None
    if size > (documents.MAX_BYTES if document else MAX_BYTES):
        raise (documents.too_large if document else too_large)(path.name, size)
    return read_any(path.read_bytes(), path.name)


def texts_in(folder: Path) -> list[Path]:
    """The files with text in a folder and below it, in the order of their names. Errors: BadText where none is."""
    paths = [p for p in sorted(folder.rglob("*")) if p.suffix.lower() in SUFFIXES and p.is_file()]
    if not paths:
        raise BadText(
            f"{folder} is no folder with a file of text in it ({', '.join(SUFFIXES)}): give one that has some."
        )
    return paths


def too_large(name: str, size: int) -> BadText:
    """The error for a text of `size` bytes."""
    return BadText(
        f"{name} has {size / 1e6:,.1f} MB and the limit is {MAX_BYTES / 1e6:,.0f} MB: cut out the part to look at."
    )


def text_hash(text: str) -> str:
    """Twelve hexadecimal digits that name a text by its content."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def normalise(text: str) -> str:
    """Join hard-wrapped lines, keep paragraphs (blank lines), squeeze spaces: how novels are trained and scored."""
    text = re.sub(r"\n{2,}", "\0", text.replace("\r", ""))
    text = re.sub(r"[ \t]*\n[ \t]*", " ", text)
    return re.sub(r" {2,}", " ", text).replace("\0", "\n\n").strip()


def sample_texts() -> dict[str, tuple[str, str]]:
    """The bundled samples: name -> (title, text). The title is the text's first line."""
    samples = {}
    for path in sorted(SAMPLES.glob("*.*"), key=lambda p: ("story", "essay", "program", "register").index(p.stem)):
        text = path.read_text(encoding="utf-8")
        samples[path.stem] = (text.split("\n", 1)[0].strip(' "#'), text)
    return samples


def natural_samples() -> dict[str, str]:
    """name -> text of the bundled samples that stand in for a corpus: all but the register, whose
    second half is look-ups as no corpus has them."""
    return {name: text for name, (_, text) in sample_texts().items() if name != "register"}


def fitting_samples() -> dict[str, str]:
    """name -> text of the bundled samples that fit what a model lacks: of the natural ones all but the story, which
    pages open on and which nothing that was fitted on it could be measured on."""
    return {name: text for name, text in natural_samples().items() if name != "story"}


def read_folder(folder: Path) -> tuple[list[str], list[str]]:
    """The documents of a folder, (for training, held out): one per file of SUFFIXES, all but programs normalised.

    A folder with `train` and `valid` inside is split so; otherwise every tenth document (at least one) is held out, and
    a single one is cut nine to one. The two lists never share a text.
    """
    if (folder / "train").is_dir() and (folder / "valid").is_dir():
        held_out = _documents(folder / "valid")
        return [d for d in _documents(folder / "train") if d not in held_out], held_out
    documents = _documents(folder)
    if len(documents) == 1:
        cut = len(documents[0]) * 9 // 10
        return [documents[0][:cut]], [documents[0][cut:]]
    return one_in_ten_held_out(documents)


def one_in_ten_held_out(documents: list[str]) -> tuple[list[str], list[str]]:
    """(for training, held out): every tenth of several documents, at least one, is held out."""
    first = 9 % len(documents)
    return [d for i, d in enumerate(documents) if i % 10 != first], documents[first::10]


def _documents(folder: Path) -> list[str]:
    texts = {p: read_file(p).text for p in texts_in(folder)}
    return list(dict.fromkeys(t if p.suffix in PROGRAMS else normalise(t) for p, t in texts.items()))


@dataclass(frozen=True)
class Tokens:
    """A text as the model sees it: one entry per token, cut into windows no longer than the context.

    `ids` and `window` int64 [T], `starts` and `ends` character offsets into the text (equal for a token that is no
    text), `broken` bool [T] tokens that hold a part of a character only, `pieces` what each token shows, `total` the
    tokens of the text before it was cut, `begin` the special tokens (0 or 1) before a window.
    """

    ids: np.ndarray
    window: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    broken: np.ndarray
    pieces: list[str]
    total: int
    begin: int

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """First and past-the-last token of each window."""
        edges = np.flatnonzero(np.diff(self.window, prepend=-1))
        return list(zip(edges.tolist(), [*edges[1:].tolist(), len(self.ids)], strict=True))

    @property
    def shown(self) -> int:
        """Tokens of the text that are left, without those that begin the windows."""
        return len(self) - self.begin * len(self.spans)

    @property
    def byte_fallback_share(self) -> float:
        """Share of tokens that are single bytes of a character the vocabulary lacks (0 to 1)."""
        return float(self.broken.mean())


def token_stream(tokenizer: Any, documents: list[str]) -> np.ndarray:
    """All documents as one run of tokens int64 [T], an end-of-text token (where the tokenizer has one) before each."""
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    rows = (end + tokenizer(d, add_special_tokens=False, verbose=False)["input_ids"] for d in documents)
    return np.concatenate([np.zeros(0, np.int64), *(np.array(row, dtype=np.int64) for row in rows)])


def tokenize(tokenizer: Any, text: str, context: int, max_windows: int = MAX_WINDOWS) -> Tokens:
    """Cut `text` into windows of at most `context` tokens, the first `max_windows` of them.

    `tokenizer` is a fast Hugging Face tokenizer (offsets are needed). Where it begins texts with a special token
    (most Llama and Gemma checkpoints), every window begins with it, because the model never saw a text without.
    Raises BadText when fewer than two tokens are left.
    """
    coded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ids, offsets = coded["input_ids"], coded["offset_mapping"]
    if len(ids) < 2:
        raise BadText(f"The text has {len(ids)} token and attention needs at least 2: give a longer text.")
    begin = tokenizer.bos_token_id
    if begin is not None and tokenizer("a")["input_ids"][:1] != [begin]:
        begin = None
    partial = {i: partial_bytes(tokenizer, i) for i in set(ids)}
    spans = _spans(text, offsets, partial[ids[0]] is None)
    room = context - (begin is not None)
    # In the order of the first fields of Tokens.
    rows: list[tuple[int, int, int, int, bool]] = []
    pieces: list[str] = []
    for number, first in enumerate(range(0, min(len(ids), room * max_windows), room)):
        if begin is not None:
            start = spans[first][0]
            rows.append((begin, number, start, start, False))
            pieces.append(tokenizer.convert_ids_to_tokens(begin))
        for token, (start, end) in zip(ids[first : first + room], spans[first : first + room], strict=True):
            rows.append((token, number, start, end, partial[token] is not None))
            pieces.append(partial[token] or text[start:end] or tokenizer.convert_ids_to_tokens(token))
    ids, window, starts, ends, broken = map(np.array, zip(*rows, strict=True))
    return Tokens(ids, window, starts, ends, broken, pieces, len(coded["input_ids"]), int(begin is not None))


def _spans(text: str, offsets: list[tuple[int, int]], first_is_whole: bool) -> list[tuple[int, int]]:
    """Offsets without gaps or overlaps: neighbours are disjoint, or equal where they share the bytes of a character."""
    spans, before = [], (0, 0)
    for index, (start, end) in enumerate(offsets):
        if index == 0 and first_is_whole and end > offsets[1][0]:
            # The space that SentencePiece puts before a text is not in it.
            end = start
        # Some tokenizers leave the space out.
        start = min(start, before[1])
        if start < before[1]:
            start, end = (before[1], end) if end > before[1] else before
        before = (start, len(text) if index == len(offsets) - 1 else end)
        spans.append(before)
    return spans


def partial_bytes(tokenizer: Any, token_id: int) -> str | None:
    """The bytes of a token that is no whole character, as ⟨E2⟩⟨80⟩; None for any other token, and for a number beyond
    the tokenizer's, which a model with spare rows in its vocabulary may write."""
    token = tokenizer.convert_ids_to_tokens(token_id)
    if token is None:
        return None
    if re.fullmatch(r"<0x[0-9A-F]{2}>", token):
        raw = bytes.fromhex(token[3:5])
    elif "\ufffd" in tokenizer.decode([token_id]) and all(c in _BYTE_OF for c in token):
        raw = bytes(_BYTE_OF[c] for c in token)
    else:
        return None
    complete = raw.decode(errors="ignore").encode() == raw
    return None if complete else "".join(f"⟨{byte:02X}⟩" for byte in raw)


# Bytes that GPT-2's tokenizer writes as themselves.
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_BYTE_OF = {chr(byte): byte for byte in _PRINTABLE}
_BYTE_OF |= {chr(256 + i): byte for i, byte in enumerate(byte for byte in range(256) if byte not in _PRINTABLE)}


def notes(tokens: Tokens, context: int) -> list[str]:
    """Sentences about what was done to a text that does not fit as it is, with the numbers; empty when it fits."""
    sentences, windows = [], len(tokens.spans)
    if tokens.total > tokens.shown:
        cut = f"{windows} window{'s' * (windows > 1)} of {context:,}"
        sentences.append(f"The text has {tokens.total:,} tokens; the first {tokens.shown:,} are shown ({cut}).")
    if windows > 1:
        sentences.append(
            f"The text has {tokens.total:,} tokens and the model reads {context:,} at once: it is cut into "
            f"{windows} windows, and no attention crosses a window's edge."
        )
    if tokens.byte_fallback_share > 0.3:
        sentences.append(
            f"{tokens.byte_fallback_share:.0%} of the tokens are single bytes of characters that this model's "
            "vocabulary lacks: it was not made for this script, so read the numbers with care."
        )
    return sentences
