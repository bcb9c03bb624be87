"""The index of the run folders: what lists, prices and makes room. It can be lost; the folders are the truth."""

from datetime import datetime

KEPT_RUNS, KEPT_BYTES = 500, 2_000_000_000  # beyond either the oldest runs go, pinned ones never
_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, verb TEXT NOT NULL, model TEXT, text TEXT,
    created TEXT NOT NULL, seconds REAL NOT NULL, tokens INTEGER NOT NULL, bytes INTEGER NOT NULL,
    pinned INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS runs_by_verb ON runs (verb, model, seq);
CREATE TABLE IF NOT EXISTS damaged (seq INTEGER PRIMARY KEY AUTOINCREMENT, said TEXT NOT NULL, at TEXT NOT NULL)
"""


class Index:
    """One row per run folder of `shelf`. Order is order of arrival, so a changed clock does not matter."""

    def __init__(self, database, shelf):
        self._database, self._shelf = database, shelf
        database.prepare(self._create)

    def add(self, run):
        self._database.write(*_insertion(run))

    def remove(self, run_id):
        """Forget the row of a run."""
        self._database.write("DELETE FROM runs WHERE id = ?", (run_id,))

    def ids(self, verb=None, limit=-1):
        """Ids of one verb or of all, the newest first."""
        rows = self._database.read(
            "SELECT id FROM runs WHERE verb = ? OR ? IS NULL ORDER BY seq DESC LIMIT ?", (verb, verb, limit)
        )
        return [row["id"] for row in rows]

    def unpinned(self):
        """Ids of all runs that may go."""
        return [row["id"] for row in self._database.read("SELECT id FROM runs WHERE NOT pinned")]

    def pin(self, run_id, pinned):
        """Whether there was such a run."""
        return self._database.write("UPDATE runs SET pinned = ? WHERE id = ?", (bool(pinned), run_id)) > 0

    def surplus(self, kept):
        """Ids to remove: the oldest beyond KEPT_RUNS or KEPT_BYTES of what is not pinned, never the run `kept`."""
        runs, size, ids = 0, 0, []
        for row in self._database.read("SELECT id, bytes FROM runs WHERE NOT pinned ORDER BY seq DESC"):
            runs, size = runs + 1, size + row["bytes"]
            if (runs > KEPT_RUNS or size > KEPT_BYTES) and row["id"] != kept:
                ids.append(row["id"])
        return ids

    def past(self, verb, model, limit):
        """(seconds, tokens) of the newest runs of a verb with a model."""
        rows = self._database.read(
            "SELECT seconds, tokens FROM runs WHERE verb = ? AND model = ? AND tokens > 0 ORDER BY seq DESC LIMIT ?",
            (verb, str(model), limit),
        )
        return [(row["seconds"], row["tokens"]) for row in rows]

    def note_damage(self, run_id, sentence):
        """Keep a sentence about a damaged run for `damage`."""
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        self._database.write("INSERT INTO damaged (said, at) VALUES (?, ?)", (sentence, now))
        self.remove(run_id)

    def damage(self, limit=20):
        """The sentences of `note_damage`, the newest first."""
        return [
            row["said"] for row in self._database.read("SELECT said FROM damaged ORDER BY seq DESC LIMIT ?", (limit,))
        ]

    def _create(self, connection):
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        known = {row["id"] for row in connection.execute("SELECT id FROM runs")}
        orphans = [self._shelf.read(run_id) for run_id in self._shelf.ids() if run_id not in known]
        for run in sorted(
            (run for run in orphans if run is not None), key=lambda run: datetime.fromisoformat(run.created)
        ):
            connection.execute(*_insertion(run))


def _insertion(run):
    tokens = run.protocol.get("tokens")
    return (
        "INSERT OR IGNORE INTO runs (id, verb, model, text, created, seconds, tokens, bytes) VALUES (?,?,?,?,?,?,?,?)",
        (
            run.id,
            run.verb,
            _word(run.request.get("model", "demo")),
            _word(run.request.get("text")),
            run.created,
            run.seconds,
            tokens if isinstance(tokens, int) else 0,
            run.bytes,
        ),
    )


def _word(value):
    return value if isinstance(value, str) else None
