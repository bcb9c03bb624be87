"""The index of the run folders: what lists, prices and makes room. It can be lost; the folders are the truth."""

import json
import sqlite3
from collections.abc import Container
from dataclasses import replace
from datetime import datetime
from sqlite3 import Connection, Row
from typing import Any

from analysis.runs.database import Database, now
from analysis.runs.run import Run, checked_link, read_marks, write_marks
from analysis.runs.shelf import Shelf

KEPT_RUNS, KEPT_BYTES = 500, 2_000_000_000  # beyond either the oldest runs go, pinned ones never
KEPT_LINKS = 1_000  # of requests whose run was not stored yet
_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, verb TEXT NOT NULL, model TEXT, text TEXT,
    created TEXT NOT NULL, seconds REAL NOT NULL, tokens INTEGER NOT NULL, bytes INTEGER NOT NULL,
    pinned INTEGER NOT NULL DEFAULT 0, imported TEXT, request TEXT NOT NULL DEFAULT '{}', question TEXT);
CREATE INDEX IF NOT EXISTS runs_by_verb ON runs (verb, model, seq);
CREATE INDEX IF NOT EXISTS runs_by_question ON runs (question, seq);
CREATE TABLE IF NOT EXISTS damaged (seq INTEGER PRIMARY KEY AUTOINCREMENT, said TEXT NOT NULL, at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS links (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, link TEXT NOT NULL)
"""


class Index:
    """One row per run folder of `shelf`. Order is order of arrival, so a changed clock does not matter."""

    def __init__(self, database: Database, shelf: Shelf) -> None:
        self._database, self._shelf = database, shelf
        database.prepare(self._create)

    def add(self, run: Run) -> None:
        self._database.write(*_insertion(run))

    def remove(self, run_id: str) -> None:
        """Forget the row of a run."""
        self._database.write("DELETE FROM runs WHERE id = ?", (run_id,))

    def ids(self, verb: str | None = None, limit: int = -1) -> list[str]:
        """Ids of one verb or of all, the newest first."""
        rows = self._database.read(
            "SELECT id FROM runs WHERE verb = ? OR ? IS NULL ORDER BY seq DESC LIMIT ?", (verb, verb, limit)
        )
        return [row["id"] for row in rows]

    def rows(self) -> list[Row]:
        """All rows (sqlite3.Row), the newest first."""
        return self._database.read("SELECT * FROM runs ORDER BY seq DESC")

    def asked(self, question: str) -> list[str]:
        """Ids of the runs of one request whatever their weights, the newest first."""
        rows = self._database.read("SELECT id FROM runs WHERE question = ? ORDER BY seq DESC", (question,))
        return [row["id"] for row in rows]

    def pin(self, run_id: str, pinned: bool) -> bool:
        """Whether there was such a run."""
        return self._database.write("UPDATE runs SET pinned = ? WHERE id = ?", (bool(pinned), run_id)) > 0

    def surplus(self, kept: Container[str], runs: int, size: int) -> list[str]:
        """Ids to remove: the oldest beyond so many `runs`, or `size` bytes, that are not pinned; never those `kept`.
        Runs computed here and runs that came in bundles are counted apart."""
        ids = []
        for origin in ("IS NULL", "IS NOT NULL"):  # what came in bundles never pushes out what was computed here
            count, total = 0, 0
            chosen = f"SELECT id, bytes FROM runs WHERE NOT pinned AND imported {origin} ORDER BY seq DESC"
            for row in self._database.read(chosen):
                count, total = count + 1, total + row["bytes"]
                if (count > runs or total > size) and row["id"] not in kept:
                    ids.append(row["id"])
        return ids

    def imported(self) -> tuple[int, int]:
        """(runs, bytes) that came in bundles and are not pinned."""
        chosen = "SELECT count(*), coalesce(sum(bytes), 0) FROM runs WHERE NOT pinned AND imported IS NOT NULL"
        return tuple(self._database.read(chosen)[0])

    def requests(self) -> list[str]:
        """The requests of all runs, as JSON."""
        return [row["request"] for row in self._database.read("SELECT request FROM runs")]

    def past(self, verb: str, model: str | None, limit: int) -> list[tuple[float, int, dict[str, Any]]]:
        """(seconds, tokens, request) of the newest runs of a verb with a model, or with any for None, that were
        computed here."""
        rows = self._database.read(
            "SELECT seconds, tokens, request FROM runs WHERE verb = ? AND model = coalesce(?, model)"
            " AND imported IS NULL ORDER BY seq DESC LIMIT ?",
            (verb, None if model is None else str(model), limit),
        )
        return [(row["seconds"], row["tokens"], json.loads(row["request"])) for row in rows]

    def remember(self, run_id: str, link: dict[str, Any]) -> None:
        """Keep which page and controls ask for a run that is not stored yet."""
        self._database.write("INSERT OR REPLACE INTO links (id, link) VALUES (?, ?)", (run_id, json.dumps(link)))
        self._database.write(
            "DELETE FROM links WHERE seq <= (SELECT seq FROM links ORDER BY seq DESC LIMIT 1 OFFSET ?)", (KEPT_LINKS,)
        )

    def remembered(self, run_id: str) -> dict[str, Any] | None:
        """The link of `remember`, or None; it is forgotten then."""
        rows = self._database.read("SELECT link FROM links WHERE id = ?", (run_id,))
        if not rows:
            return None
        self._database.write("DELETE FROM links WHERE id = ?", (run_id,))
        return checked_link(json.loads(rows[0]["link"]))

    def note_damage(self, run_id: str, sentence: str) -> None:
        """Keep a sentence about a damaged run for `damage`."""
        self.note(sentence)
        self.remove(run_id)

    def note(self, sentence: str) -> None:
        """Keep a sentence for `damage`."""
        self._database.write("INSERT INTO damaged (said, at) VALUES (?, ?)", (sentence, now()))

    def damage(self, limit: int = 20) -> list[str]:
        """The sentences of `note_damage`, the newest first."""
        rows = self._database.read("SELECT said FROM damaged ORDER BY seq DESC LIMIT ?", (limit,))
        return [row["said"] for row in rows]

    def _create(self, connection: Connection) -> None:
        self._renew(connection)
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        while self._database.said:
            connection.execute("INSERT INTO damaged (said, at) VALUES (?, ?)", (self._database.said.pop(), now()))
        known = {row["id"] for row in connection.execute("SELECT id FROM runs")}
        there = self._shelf.ids()
        for run_id in known.difference(there):
            connection.execute("DELETE FROM runs WHERE id = ?", (run_id,))
        orphans = [self._shelf.read(run_id) for run_id in there if run_id not in known]
        for run in sorted(filter(None, orphans), key=lambda run: datetime.fromisoformat(run.created)):
            connection.execute(*_insertion(run))

    def _renew(self, connection: Connection) -> None:
        """An index of an older program is made anew from the folders; what it had pinned stays pinned."""
        columns = [row["name"] for row in connection.execute("PRAGMA table_info(runs)")]
        if not columns or {"request", "question"} <= set(columns):
            return
        if not {"seq", "id", "verb", "pinned"} <= set(columns):
            raise sqlite3.OperationalError("no such column in its runs: verb")
        for row in connection.execute("SELECT id FROM runs WHERE pinned"):
            if (folder := self._shelf.folder / row["id"]).is_dir():
                write_marks(folder, replace(read_marks(folder), pinned=True))
        connection.execute("DROP TABLE runs")


def _insertion(run: Run) -> tuple[str, tuple[Any, ...]]:
    tokens = run.protocol.get("tokens")
    return (
        "INSERT OR IGNORE INTO runs (id, verb, model, text, created, seconds, tokens, bytes, pinned, imported, request,"
        " question) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
        (
            run.id,
            run.verb,
            _word(run.request.get("model", "demo")),
            _word(run.request.get("text")),
            run.created,
            run.seconds,
            tokens if isinstance(tokens, int) and 0 <= tokens < 1 << 53 else 0,
            run.bytes,
            run.marks.pinned,
            run.marks.imported,
            json.dumps(run.request),
            run.question,
        ),
    )


def _word(value: object) -> str | None:
    return value if isinstance(value, str) else None
