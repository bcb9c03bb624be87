"""The texts people brought, named by their content; a page or a link carries only the 12-digit name."""

import json
import logging
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..corpus import read_text, sample_texts, text_hash
from ..errors import BadSetting, BadText
from ..files import clear, sweep, write_text
from .catalogue import Catalogue
from .keys import check_id
from .run import now
from .shelf import room

MAX_BYTES = 20_000_000  # one text, as UTF-8
# Texts that no stored run names are kept while they are among the newest.
KEPT = 500
_NAMED = re.compile(r"(?<![0-9a-f])[0-9a-f]{12}(?![0-9a-f])")
log = logging.getLogger("focuscope.runs")


@dataclass(frozen=True)
class StoredText:
    """A text in a list."""

    key: str  # its hash
    name: str
    bytes: int
    created: str


class TextStore:
    """Folder `root`/texts of `<hash>.json` files ({name, created, text}, and of a document `said`: what of it was
    read). What `_requests()` names stays: those of all stored runs, as JSON."""

    root: Path

    def __init__(self) -> None:
        self._folder = self.root / "texts"
        self._texts = Catalogue(self._folder, self._entry, ".json")
        sweep(self._folder)

    def put_text(self, text: str, name: str, said: str = "", beside: Container[str] = ()) -> str:
        """Stores a text of at most 20 MB under the 12-digit hash of its content and returns that; an equal text is
        stored once, with its first name. `said`: what of a document was read, in one sentence; `beside`: hashes of
        others that stay as well."""
        if not isinstance(text, str) or not text:
            raise BadText(f"{name} is empty: choose a file with some text in it.")
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise BadText(f"{name} holds half of a character (a lone surrogate): save it as UTF-8 again.") from None
        if size > MAX_BYTES:
            raise BadText(
                f"{name} has {size / 1e6:,.1f} MB and the limit is {MAX_BYTES / 1e6:.0f} MB: use a part of it."
            )
        key = text_hash(text)
        with room(self.root):
            if self._whole(key) is None:
                title = str(name)[:200].encode("utf-8", "replace").decode()
                content = {"name": title, "created": now(), "text": text} | ({"said": said} if said else {})
                self._folder.mkdir(parents=True, exist_ok=True)
                write_text(self._folder / f"{key}.json", json.dumps(content))
            self._trim({key}, beside)
        return key

    def put_bytes(self, data: bytes, name: str) -> str:
        """Stores an uploaded file once it has been read as text; BadText when it is none (`corpus.read_text`)."""
        return self.put_text(read_text(data, name), name)

    def samples(self) -> Sequence[tuple[str, str]]:
        """(hash, title) of the bundled sample texts, stored like a reader's own."""
        return [(self.put_text(text, title), title) for title, text in sample_texts().values()]

    def forget_text(self, key: str) -> None:
        """Removes a stored text."""
        clear(self._folder / f"{key}.json")

    def text(self, key: str) -> tuple[str, str]:
        """(name, text) of a stored text; BadSetting when there is none of this hash or its file is damaged."""
        content = self._whole(check_id(key, "text"))
        if content is None:
            raise BadSetting(f"The text {key} is not stored here (any more): upload or paste it again.")
        return content["name"], content["text"]

    def said(self, key: str) -> str:
        """What was read of the document that a stored text comes from; empty for plain text."""
        content = self._whole(check_id(key, "text"))
        return str(content.get("said", "")) if content else ""

    def texts(self) -> Sequence[tuple[str, str, int, str]]:
        """(hash, name, bytes, created) of every stored text, the newest first."""
        return [(text.key, text.name, text.bytes, text.created) for text in self._texts.entries()[::-1]]

    def _requests(self) -> Iterable[str]:
        raise NotImplementedError

    def _whole(self, key: str) -> dict[str, Any] | None:
        try:
            content: dict[str, Any] = json.loads((self._folder / f"{key}.json").read_text(encoding="utf-8"))
            if text_hash(content["text"]) == key and isinstance(content["name"], str):
                return content
            log.warning("The stored text %s is not what was written; it is ignored.", key)
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError) as error:
            log.warning("The stored text %s cannot be read (%s); it is ignored.", key, type(error).__name__)
        return None

    def _entry(self, key: str) -> StoredText | None:
        content = self._whole(key)
        if content is None:
            return None
        return StoredText(key, content["name"], len(content["text"].encode()), str(content.get("created", "")))

    def _trim(self, *kept: Container[str]) -> None:
        """Forgets the oldest texts beyond KEPT that no stored run names in any form: as the argument `text`, in a list,
        joined by "+", or under another name."""
        old = self.texts()[KEPT:]
        named = {key for request in self._requests() for key in _NAMED.findall(request)} if old else set()
        for key, *_ in old:
            if key not in named and not any(key in keys for keys in kept):
                self.forget_text(key)
