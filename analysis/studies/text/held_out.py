"""What the studies of one corpus share: which texts are held out, what names them, and which numbers are in range."""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path

import numpy as np

from ...corpus import natural_samples, normalise, one_in_ten_held_out, read_folder, text_hash, token_stream
from ...errors import BadSetting, BadText
from ...models import Model
from ...training import mixture
from ..context import Context

HELD_OUT_WINDOWS = 64
# Text like OpenWebText, where somebody has such a file: none is bundled.
WEB, WEB_FILE = "web", "web.txt"


def make_folder(folder: Path) -> None:
    """Make a folder that is written to. Errors: BadSetting."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadSetting(f"{folder} cannot be a folder ({error.strerror}): name another one.") from error


@contextmanager
def storing(content: str, place: Path) -> Iterator[None]:
    """While something fitted is written to a place. Errors: BadSetting where that fails."""
    try:
        yield
    except OSError as error:
        raise BadSetting(f"The {content} cannot be stored in {place} ({error.strerror}): name another one.") from error


def texts_of(corpus: str | Path, context: Context) -> tuple[list[str], list[str]]:
    """The training and the held-out documents of a folder; of a folder of domains those of all of them in turns, each
    domain split on its own. Errors: BadSetting, BadText."""
    context.progress(0.0, "reading the texts")
    sides = zip(*domains(str(corpus), None, context).values(), strict=True)
    train, held_out = ([text for turn in zip_longest(*side) for text in turn if text is not None] for side in sides)
    return train, held_out


def held_out_windows(
    lm: Model, documents: list[str], length: int, windows: int, fewest: int = 2
) -> tuple[np.ndarray, np.ndarray]:
    """At most `windows` windows of the held-out documents, int64 [n, length], and which document each is of [n].

    A window lies in one document, because documents are the units of an interval; documents shorter than a window are
    joined with those that follow and are one unit then. As many units as there are take part, evenly chosen, with
    windows evenly spaced and as equal in number as their lengths allow. Errors: BadText for fewer than `least` windows.
    """
    tokens = [token_stream(lm.tokenizer, [text]) for text in documents]
    streams = _units(tokens, length)
    few = min(len(streams), windows)
    chosen = np.linspace(0, len(streams) - 1, few).round().astype(int).tolist() if few else []
    turns = sorted((turn, unit) for unit in chosen for turn in range(len(streams[unit]) // length))[:windows]
    if len(turns) < fewest:
        needed = f"{fewest} windows need" if fewest > 1 else "one window needs"
        subject = "held-out text has" if len(documents) == 1 else f"{len(documents)} held-out texts have"
        raise BadText(
            f"The {subject} {sum(map(len, tokens)):,} tokens and {needed} {fewest * length:,}, each window within one "
            "text: give more text."
        )
    counts = np.bincount([unit for _, unit in turns], minlength=len(streams))
    windows_of_units = [
        spread_windows(ids, length, count).reshape(-1, length) for ids, count in zip(streams, counts, strict=True)
    ]
    return np.concatenate([unit_windows for unit_windows in windows_of_units if len(unit_windows)]), np.repeat(
        np.arange(len(streams)), counts
    )


def _units(streams: list[np.ndarray], length: int) -> list[np.ndarray]:
    """The tokens of every unit of at least `length`: a document, or several short ones in a row."""
    units, short = [], []
    for ids in streams:
        if len(ids) >= length:
            units.append(ids)
            continue
        short.append(ids)
        if sum(map(len, short)) >= length:
            units.append(np.concatenate(short))
            short = []
    return units


def spread_windows(ids: np.ndarray, length: int, count: int = HELD_OUT_WINDOWS) -> np.ndarray:
    """At most `count` whole windows of `length` tokens, evenly spaced over the text, joined again."""
    windows = ids[: len(ids) // length * length].reshape(-1, length)
    chosen = np.linspace(0, len(windows) - 1, min(count, len(windows))).round().astype(int)
    return windows[chosen].reshape(-1)


def sample_windows(lm: Model, length: int, count: int = 2) -> np.ndarray:
    """The first windows of the bundled samples, int64 [count, length]: a part of a study that needs no corpus."""
    ids = token_stream(lm.tokenizer, list(natural_samples().values()))
    return np.resize(ids, (count, length)).astype(np.int64)


def ids_hash(ids: np.ndarray) -> str:
    """Twelve digits that name windows of token ids."""
    return text_hash(f"{ids.shape} {hashlib.sha256(ids.astype(np.int64).tobytes()).hexdigest()}")


def corpus_hash(documents: list[str]) -> str:
    """Twelve digits that name the texts of a corpus."""
    return text_hash("".join(text_hash(text) for text in documents))


def check_range(name: str, value: float | None, low: float, high: float) -> None:
    """Refuse a number out of its range; None is always allowed. Errors: BadSetting."""
    if value is not None and not low <= value <= high:
        raise BadSetting(f"{name} is {value:,} and must lie between {low} and {high:,}.")


def chosen(wanted: str | None, available: list[str], kind: str = "row") -> list[str]:
    """The names that were asked for, joined by commas, of those there are (default: all). Errors: BadSetting."""
    names = [name.strip() for name in wanted.split(",")] if wanted else list(available)
    if unknown := [name for name in names if name not in available]:
        raise BadSetting(f"There is no {kind} {unknown[0][:40]!r}: the {kind}s are {', '.join(available)}.")
    return list(dict.fromkeys(names))


def domains(corpus: str, rows: str | None, context: Context) -> dict[str, tuple[list[str], list[str]]]:
    """Name -> (training documents, held-out ones) of the domains that `rows` names (default: all).

    A folder with the split folders of the mixture (`books`, `python`, `wikitext2`, at least one) has these domains,
    prepared as for pretraining, and with a file `web.txt` the domain `web`: its documents, every tenth held out, lie
    between blank lines, or where there are none each line is one. Any other folder is one domain named as itself.
    Errors: BadSetting, BadText for a `web.txt` that is not UTF-8 or has fewer than two different documents.
    """
    folder = Path(corpus)
    available: dict[str, mixture.Domain | None]
    available = {domain.name: domain for domain in mixture.MIXTURE if mixture.split_in(folder / domain.folder)}
    available |= {WEB: None} if (folder / WEB_FILE).is_file() else {}
    if not available:
        chosen(rows, [folder.name], "domain")
        return {folder.name: read_folder(folder)}
    documents = {}
    for name in chosen(rows, list(available), "domain"):
        context.progress(0.0, f"reading {name}")
        domain = available[name]
        if domain is None:
            path = folder / WEB_FILE
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                raise BadText(f"{path} is not UTF-8 (byte {error.start}): convert it.") from None
            parts = [normalise(part) for part in re.split(r"\n[ \t]*\n\s*", text.strip())]
            parts = parts if len(parts) > 1 else [line.strip() for line in text.splitlines()]
            pages = list(dict.fromkeys(part for part in parts if part))
            if len(pages) < 2:
                raise BadText(
                    f"{path} holds fewer than two different documents: separate documents by blank lines, or "
                    "give each a line of its own."
                )
            documents[name] = one_in_ten_held_out(pages)
            continue
        train, valid = (list(mixture.documents(folder, domain, split)) for split in ("train", "valid"))
        held_out = list(dict.fromkeys(valid))
        documents[name] = [text for text in dict.fromkeys(train) if text not in held_out], held_out
    return documents
