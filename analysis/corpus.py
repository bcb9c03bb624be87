"""Text to tokens: reading what a user gives, normalising it, cutting it into windows of the model's context.

Nothing here imports torch or transformers: the app's side of the house validates uploads with `read_text`.
"""

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.errors import BadText

SAMPLES = Path(__file__).parent / "samples"
MAX_BYTES = 5_000_000  # about 1.2 million tokens of English
MAX_WINDOWS = 16  # per interactive analysis; a longer text is cut and the page says so
SNIFF = 100_000  # characters looked at for control characters


def read_text(data: bytes, name: str = "the text") -> str:
    """Decode an uploaded file, or say in one sentence why it is no text.

    Accepts UTF-8 (with or without a byte order mark) and UTF-16 with one; line ends become `\\n`.
    Raises BadText for an empty, oversized, binary or wrongly encoded file and for nothing but spaces.
    """
    if not data:
        raise BadText(f"{name} is empty (0 bytes): choose a file with some text in it.")
    if len(data) > MAX_BYTES:
        raise BadText(
            f"{name} has {len(data) / 1e6:,.1f} MB and the limit is {MAX_BYTES / 1e6:,.0f} MB: cut out the part "
            "to look at."
        )
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    if encoding != "utf-16" and b"\0" in data:
        raise BadText(
            f"{name} looks like a binary file (a zero byte at offset {data.index(0):,}): "
            "save it as plain text, or paste the text instead."
        )
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise BadText(
            f"{name} is not valid {error.encoding.upper()} (byte 0x{data[error.start]:02X} at offset {error.start:,}): "
            "save it as UTF-8 and upload it again."
        ) from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise BadText(f"{name} holds only spaces and line breaks ({len(text):,} characters): there is nothing to read.")
    head = text[:SNIFF]
    control = sum(unicodedata.category(c) in ("Cc", "Cn") and c not in "\n\t\f" for c in head)
    if control > 0.02 * len(head):
        raise BadText(
            f"{name} looks like a binary file ({control:,} control characters in its first {len(head):,}): "
            "save it as plain text, or paste the text instead."
        )
    return text


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
    for path in sorted(SAMPLES.glob("*.*"), key=lambda p: ("story", "essay", "program").index(p.stem)):
        text = path.read_text(encoding="utf-8")
        samples[path.stem] = (text.split("\n", 1)[0].strip(' "#'), text)
    return samples


def read_folder(folder: Path) -> tuple[list[str], list[str]]:
    """The documents of a folder, (for training, held out): one document per .txt, .md or .py file, novels normalised.

    A folder with `train` and `valid` inside is taken as split; otherwise every tenth document (at least one) is held
    out, and a single document is cut nine to one. The two lists never share a text.
    """
    if not folder.is_dir():
        raise BadText(f"{folder} is no folder: give one with .txt, .md or .py files.")
    if (folder / "train").is_dir() and (folder / "valid").is_dir():
        return _documents(folder / "train"), _documents(folder / "valid")
    documents = _documents(folder)
    if len(documents) == 1:
        cut = int(0.9 * len(documents[0]))
        return [documents[0][:cut]], [documents[0][cut:]]
    return [d for i, d in enumerate(documents) if i % 10 != 9 % len(documents)], documents[9 % len(documents) :: 10]


def _documents(folder: Path) -> list[str]:
    paths = [p for p in sorted(folder.rglob("*")) if p.suffix in (".txt", ".md", ".py") and p.is_file()]
    if not paths:
        raise BadText(f"{folder} holds no .txt, .md or .py file: give a folder with some text.")
    texts = {p: read_text(p.read_bytes(), p.name) for p in paths}
    return list(dict.fromkeys(t if p.suffix == ".py" else normalise(t) for p, t in texts.items()))


@dataclass(frozen=True)
class Tokens:
    """A text as the model sees it: one entry per token, cut into windows no longer than the context.

    `ids` int64 [T], `window` int64 [T], `pieces` what each token shows, `starts` and `ends` character offsets into
    the text (equal for a token that is no text, such as the begin-of-sequence token), `broken` bool [T] tokens that
    hold a part of a character only, `total` the tokens of the whole text before it was cut.
    """

    ids: np.ndarray
    window: np.ndarray
    pieces: list[str]
    starts: np.ndarray
    ends: np.ndarray
    broken: np.ndarray
    total: int

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """First and past-the-last token of each window."""
        edges = np.flatnonzero(np.diff(self.window, prepend=-1))
        return list(zip(edges.tolist(), [*edges[1:].tolist(), len(self.ids)], strict=True))

    @property
    def byte_fallback_share(self) -> float:
        """Share of tokens that are single bytes of a character the vocabulary lacks (0 to 1)."""
        return float(self.broken.mean())


def token_stream(tokenizer, documents: list[str]) -> np.ndarray:
    """All documents as one run of tokens int64 [T], an end-of-text token (where the tokenizer has one) before each."""
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    rows = (end + tokenizer(d, add_special_tokens=False, verbose=False)["input_ids"] for d in documents)
    return np.concatenate([np.array(row, dtype=np.int64) for row in rows])


def tokenize(tokenizer, text: str, context: int, max_windows: int = MAX_WINDOWS) -> Tokens:
    """Cut `text` into windows of at most `context` tokens, the first `max_windows` of them.

    `tokenizer` is a fast Hugging Face tokenizer (offsets are needed). Where it begins texts with a special token
    (most Llama and Gemma checkpoints), every window begins with it, because the model never saw a text without.
    Raises BadText when fewer than two tokens are left.
    """
    coded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ids, offsets = coded["input_ids"], coded["offset_mapping"]
    if len(ids) < 2:
        raise BadText(f"The text has {len(ids)} token and attention needs at least 2: give a longer text.")
    begin = _begin_token(tokenizer)
    shown = {i: _partial_bytes(tokenizer, i) for i in set(ids)}
    room = context - (begin is not None)
    out_ids, window, pieces, starts, ends, broken = [], [], [], [], [], []
    for number, first in enumerate(range(0, min(len(ids), room * max_windows), room)):
        if begin is not None:
            out_ids.append(begin)
            pieces.append(tokenizer.convert_ids_to_tokens(begin))
            starts.append(offsets[first][0])
            ends.append(offsets[first][0])
            broken.append(False)
        for index in range(first, min(first + room, len(ids))):
            start, end = offsets[index]
            start = min(start, offsets[index - 1][1] if index else 0)  # some tokenizers leave the space out
            partial = shown[ids[index]]
            out_ids.append(ids[index])
            pieces.append(partial or text[start:end])
            starts.append(start)
            ends.append(end)
            broken.append(partial is not None)
        window.extend([number] * (len(out_ids) - len(window)))
    return Tokens(
        np.array(out_ids), np.array(window), pieces, np.array(starts), np.array(ends), np.array(broken), len(ids)
    )


def _begin_token(tokenizer) -> int | None:
    with_special = tokenizer("a")["input_ids"]
    begin = tokenizer.bos_token_id
    return begin if begin is not None and with_special and with_special[0] == begin else None


def _partial_bytes(tokenizer, token_id: int) -> str | None:
    """The bytes of a token that is no whole character, as ⟨E2⟩⟨80⟩; None for any other token."""
    token = tokenizer.convert_ids_to_tokens(token_id)
    if re.fullmatch(r"<0x[0-9A-F]{2}>", token):
        return f"⟨{token[3:5]}⟩"
    if "\ufffd" not in tokenizer.decode([token_id]):
        return None
    return "".join(f"⟨{_BYTE_OF.get(c, ord(c) & 255):02X}⟩" for c in token)


def _byte_alphabet() -> dict[str, int]:
    """The inverse of the byte-level alphabet of GPT-2's tokenizer: printable character -> byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


_BYTE_OF = _byte_alphabet()


def notes(tokens: Tokens, context: int) -> list[str]:
    """Sentences about what was done to a text that does not fit as it is, with the numbers; empty when it fits."""
    said = []
    if tokens.total > len(tokens):
        said.append(
            f"The text has {tokens.total:,} tokens; the first {len(tokens):,} are shown "
            f"({len(tokens.spans)} windows of {context:,}, the most for one look)."
        )
    if len(tokens.spans) > 1:
        said.append(
            f"The text has {tokens.total:,} tokens and the model reads {context:,} at once: it is cut into "
            f"{len(tokens.spans)} windows, and no attention crosses a window's edge."
        )
    if tokens.byte_fallback_share > 0.3:
        said.append(
            f"{tokens.byte_fallback_share:.0%} of the tokens are single bytes of characters that this model's "
            "vocabulary lacks: it was not made for this script, so read the numbers with care."
        )
    return said
