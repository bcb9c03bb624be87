"""The texts people brought, named by their content; a page or a link carries only the 12-digit name."""

import json
import logging
import re
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from analysis.corpus import text_hash
from analysis.errors import BadSetting, BadText
from analysis.files import clear, sweep, write_text
from analysis.runs.database import Database, now
from analysis.runs.keys import check_id

MAX_BYTES = 20_000_000  # one text, as UTF-8
KEPT = 500  # texts that no stored run names are kept while they are among the newest
_NAMED = re.compile(r"(?<![0-9a-f])[0-9a-f]{12}(?![0-9a-f])")
log = logging.getLogger("focuscope.runs")


class Texts:
    """Folder of `<hash>.json` files ({name, created, text}, and of a document `said`: what of it was read) with one
    row each in the shared database. `requests()` gives those of all stored runs, as JSON: what they name stays."""

    def __init__(self, folder: Path, database: Database, requests: Callable[[], Iterable[str]]) -> None:
        self._folder, self._database, self._requests = folder, database, requests
        sweep(folder)
        database.prepare(self._create)

    def put(self, text: str, name: str, said: str = "", beside: Container[str] = ()) -> str:
        """Stores `text` (str) under its hash and returns that; an equal text is stored once, with its first name.
        `said`: what of a document was read, in one sentence; `beside`: hashes of others that stay as well."""
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
        if self._whole(key) is None:
            shown = str(name)[:200].encode("utf-8", "replace").decode()
            entry = {"name": shown, "created": now(), "text": text} | ({"said": said} if said else {})
            self._folder.mkdir(parents=True, exist_ok=True)
            write_text(self._folder / f"{key}.json", json.dumps(entry))
            self._insert(self._database.write, key, entry)
        self._trim({key}, beside)
        return key

    def forget(self, key: str) -> None:
        """Remove a text."""
        self._database.write("DELETE FROM texts WHERE id = ?", (key,))
        clear(self._folder / f"{key}.json")

    def get(self, key: str) -> tuple[str, str]:
        """(name, text) of a stored text; BadSetting when there is none of this hash or its file is damaged."""
        entry = self._whole(check_id(key, "text"))
        if entry is None:
            raise BadSetting(f"The text {key} is not stored here (any more): upload or paste it again.")
        return entry["name"], entry["text"]

    def said(self, key: str) -> str:
        """What of the document was read that a stored text comes from; empty for plain text."""
        entry = self._whole(check_id(key, "text"))
        return str(entry.get("said", "")) if entry else ""

    def list(self) -> list[tuple[str, str, int, str]]:
        """(hash, name, bytes, created) of every text, the newest first."""
        rows = self._database.read("SELECT id, name, bytes, created FROM texts ORDER BY seq DESC")
        return [(row["id"], row["name"], row["bytes"], row["created"]) for row in rows]

    def _whole(self, key: str) -> dict[str, str] | None:
        try:
            entry = json.loads((self._folder / f"{key}.json").read_text(encoding="utf-8"))
            if text_hash(entry["text"]) == key and isinstance(entry["name"], str):
                return entry
            log.warning("The stored text %s is not what was written; it is ignored.", key)
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError) as error:
            log.warning("The stored text %s cannot be read (%s); it is ignored.", key, type(error).__name__)
        return None

    def _create(self, connection: Connection) -> None:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS texts (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL,"
            " name TEXT NOT NULL, bytes INTEGER NOT NULL, created TEXT NOT NULL)"
        )
        if not self._folder.exists():
            return
        known = {row["id"] for row in connection.execute("SELECT id FROM texts")}
        for key in known.difference(path.stem for path in self._folder.glob("*.json")):
            connection.execute("DELETE FROM texts WHERE id = ?", (key,))
        for path in sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime):
            if path.stem not in known and (entry := self._whole(path.stem)) is not None:
                self._insert(connection.execute, path.stem, entry)

    @staticmethod
    def _insert(execute: Callable[[str, tuple[Any, ...]], object], key: str, entry: dict[str, str]) -> None:
        execute(
            "INSERT OR REPLACE INTO texts (id, name, bytes, created) VALUES (?, ?, ?, ?)",
            (key, entry["name"], len(entry["text"].encode()), entry["created"]),
        )

    def _trim(self, *kept: Container[str]) -> None:
        """Forgets the oldest texts beyond KEPT that no stored run names in any form: as the argument `text`, in a list,
        joined by "+", or under another name."""
        surplus = self._database.read(
            "SELECT id FROM texts WHERE seq <= (SELECT seq FROM texts ORDER BY seq DESC LIMIT 1 OFFSET ?)", (KEPT,)
        )
        if not surplus:
            return
        named = {key for request in self._requests() for key in _NAMED.findall(request)}
        for key in (row["id"] for row in surplus):
            if key not in named and not any(key in some for some in kept):
                self.forget(key)
