"""The texts people brought, named by their content; a page or a link carries only the 12-digit name."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from analysis.corpus import text_hash
from analysis.errors import BadSetting, BadText
from analysis.files import write_whole
from analysis.runs.database import Database, now
from analysis.runs.keys import check_id

MAX_BYTES = 20_000_000  # one text, as UTF-8
KEPT = 500  # texts that no stored run names are kept while they are among the newest
log = logging.getLogger("focuscope.runs")


class Texts:
    """Folder of `<hash>.json` files ({name, created, text}, and of a document `said`: what of it was read) with one
    row each in the shared database."""

    def __init__(self, folder: Path, database: Database) -> None:
        self._folder, self._database = folder, database
        database.prepare(self._create)

    def put(self, text: str, name: str, said: str = "") -> str:
        """Stores `text` (str) under its hash and returns that; an equal text is stored once, with its first name.
        `said`: what of a document was read, in one sentence."""
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
            with write_whole(self._folder / f"{key}.json") as draft:
                draft.write_text(json.dumps(entry), encoding="utf-8")
            self._insert(self._database.write, key, entry)
        self._trim(key)
        return key

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
        for path in sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime):
            if path.stem not in known and (entry := self._whole(path.stem)) is not None:
                self._insert(connection.execute, path.stem, entry)

    @staticmethod
    def _insert(execute: Callable[[str, tuple[Any, ...]], object], key: str, entry: dict[str, str]) -> None:
        execute(
            "INSERT OR REPLACE INTO texts (id, name, bytes, created) VALUES (?, ?, ?, ?)",
            (key, entry["name"], len(entry["text"].encode()), entry["created"]),
        )

    def _trim(self, kept: str) -> None:
        """Forgets the oldest texts beyond KEPT that no stored run names."""
        surplus = self._database.read(
            "SELECT id FROM texts WHERE id != ? AND id NOT IN (SELECT text FROM runs WHERE text IS NOT NULL)"
            " AND seq <= (SELECT seq FROM texts ORDER BY seq DESC LIMIT 1 OFFSET ?)",
            (kept, KEPT),
        )
        for row in surplus:
            (self._folder / f"{row['id']}.json").unlink(missing_ok=True)
            self._database.write("DELETE FROM texts WHERE id = ?", (row["id"],))
