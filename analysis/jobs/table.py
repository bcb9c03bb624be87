"""The job table: what was asked, how far it is and how it ended, outside every process that may die."""

import json
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from analysis.errors import BadSetting, Busy
from analysis.files import clear, read_json, sweep, write_json
from analysis.limits import limits
from analysis.runs.database import Database, now
from analysis.runs.keys import check_id, is_id

KEPT = 500  # ended jobs
_SCHEMAS = (
    """CREATE TABLE IF NOT EXISTS jobs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, key TEXT NOT NULL, verb TEXT NOT NULL,
    args TEXT NOT NULL, session TEXT NOT NULL, owner TEXT NOT NULL, state TEXT NOT NULL,
    fraction REAL NOT NULL DEFAULT 0, stage TEXT NOT NULL DEFAULT '', seconds_left REAL,
    cancel INTEGER NOT NULL DEFAULT 0, run TEXT, error TEXT, created TEXT NOT NULL, started TEXT, ended TEXT)""",
    "CREATE TABLE IF NOT EXISTS curves (job TEXT PRIMARY KEY, points TEXT NOT NULL)",  # of jobs that are not done
)
_COLUMNS = (
    "seq id key verb args session owner state fraction stage seconds_left cancel run error created started ended"
).split()
_STATUS = (  # the fields of a JobStatus
    "id, verb, args, state, fraction, stage, seconds_left, CASE WHEN state = 'queued' THEN (SELECT count(*) FROM jobs o"
    " WHERE o.owner = jobs.owner AND o.state = 'queued' AND o.seq <= jobs.seq) ELSE 0 END AS queue_position,"
    " run AS run_id, error, created, started, ended, cancel AS cancelling"
)


@dataclass(frozen=True)
class JobStatus:
    """A job as it stands. `state`: queued, running, done, failed, cancelled or interrupted; `fraction` 0 to 1;
    `seconds_left` None while unknown; `queue_position` 1 = next, 0 = not waiting; `run_id` when done; `error` the
    sentence to show; times in ISO 8601."""

    id: str
    verb: str
    args: dict[str, Any]
    state: str
    fraction: float
    stage: str
    seconds_left: float | None
    queue_position: int
    run_id: str | None
    error: str | None
    created: str
    started: str | None
    ended: str | None
    cancelling: bool = False


class JobTable:
    """Rows of one shared database, and beside it `jobs/<id>.json` with the row of each as it last changed its state:
    from these the table is filled again when the database is lost. Each job belongs to the app that took it (`owner`)
    and waits in that app's queue."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._folder = database.path.parent / "jobs"
        database.prepare(self._create)

    def add(self, key: str, verb: str, args: dict[str, Any], session: str, owner: str) -> str:
        """Id of a new queued job; an equal one that still waits or runs is answered with its own id.

        Busy when this session, or the whole machine, has too many waiting.
        """
        with self._database.transaction() as connection:
            find = "SELECT id FROM jobs WHERE key = ? AND state IN ('queued', 'running') AND NOT cancel"
            if equal := connection.execute(find, (key,)).fetchone():
                return str(equal["id"])
            counts = "SELECT count(*) FILTER (WHERE session = ?), count(*) FROM jobs WHERE ended IS NULL"
            own, total = connection.execute(counts, (session,)).fetchone()
            for number, limit, whose in ((own, limits().jobs_each, "of yours"), (total, limits().jobs_all, "in all")):
                if number >= limit:
                    raise Busy(
                        f"{number} jobs {whose} are waiting or running and {limit} is the limit: cancel one, or wait."
                    )
            job_id = secrets.token_hex(6)
            connection.execute(
                "INSERT INTO jobs (id, key, verb, args, session, owner, state, created)"
                " VALUES (?, ?, ?, ?, ?, ?, 'queued', ?)",
                (job_id, key, verb, json.dumps(args), session, owner, now()),
            )
            beyond = "seq <= (SELECT seq FROM jobs ORDER BY seq DESC LIMIT 1 OFFSET ?)"
            old = f"state NOT IN ('queued', 'running') AND {beyond}"
            gone = connection.execute(f"SELECT id FROM jobs WHERE {old}", (KEPT,)).fetchall()
            connection.execute(f"DELETE FROM jobs WHERE {old}", (KEPT,))
            connection.execute("DELETE FROM curves WHERE job NOT IN (SELECT id FROM jobs)")
        for row in gone:
            clear(self._file(row["id"]))
        self._note(job_id)
        return job_id

    def claim(self, owner: str) -> JobStatus | None:
        """Marks the owner's oldest queued job as running and returns its status, or None."""
        with self._database.transaction() as connection:
            oldest = "SELECT id FROM jobs WHERE owner = ? AND state = 'queued' ORDER BY seq LIMIT 1"
            row = connection.execute(oldest, (owner,)).fetchone()
            if row is None:
                return None
            connection.execute("UPDATE jobs SET state = 'running', started = ? WHERE id = ?", (now(), row["id"]))
        self._note(row["id"])
        return self.status(row["id"])

    def progress(
        self, job_id: str, fraction: float, stage: str, seconds_left: float | None, curve: dict[str, Any] | None = None
    ) -> None:
        """How far a running job is; `curve`: what it can draw already, column -> values."""
        if curve is not None:
            self._database.write("INSERT OR REPLACE INTO curves VALUES (?, ?)", (job_id, json.dumps(curve)))
        self._database.write(
            "UPDATE jobs SET fraction = ?, stage = ?, seconds_left = ? WHERE id = ? AND state = 'running'",
            (fraction, stage, seconds_left, job_id),
        )

    def finish(self, job_id: str, state: str, run: str | None = None, error: str | None = None) -> None:
        """Ends a job once; a job that has ended stays as it is."""
        self._database.write(
            "UPDATE jobs SET state = ?, run = ?, error = ?, ended = ?, seconds_left = NULL, cancel = 0,"
            " fraction = CASE WHEN ? = 'done' THEN 1 ELSE fraction END WHERE id = ? AND state IN ('queued', 'running')",
            (state, run, error, now(), state, job_id),
        )
        self._note(job_id)
        if state == "done":
            self._database.write("DELETE FROM curves WHERE job = ?", (job_id,))

    def curve(self, job_id: str) -> dict[str, Any] | None:
        """What a job that is not done has shown so far, column -> values; None when that is nothing."""
        rows = self._database.read(
            "SELECT points FROM curves JOIN jobs ON jobs.id = job WHERE job = ? AND state != 'done'",
            (check_id(job_id, "job"),),
        )
        return json.loads(rows[0]["points"]) if rows else None

    def ask_cancel(self, job_id: str) -> None:
        """A queued job is cancelled at once; a running one is marked, and its owner sees to it."""
        self._database.write(
            "UPDATE jobs SET state = 'cancelled', ended = ?, error = ? WHERE id = ? AND state = 'queued'",
            (now(), "The job was cancelled before it began.", job_id),
        )
        self._database.write("UPDATE jobs SET cancel = 1 WHERE id = ? AND state = 'running'", (job_id,))
        self._note(job_id)

    def cancel_asked(self, job_id: str) -> bool:
        """Whether somebody, in any app, wants this job cancelled."""
        return bool(self._database.read("SELECT 1 FROM jobs WHERE id = ? AND cancel", (job_id,)))

    def interrupt(self, owner: str, why: str) -> None:
        """Every job of that owner which waits or runs is now interrupted."""
        waiting = "SELECT id FROM jobs WHERE owner = ? AND state IN ('queued', 'running')"
        ids = [row["id"] for row in self._database.read(waiting, (owner,))]
        self._database.write(
            "UPDATE jobs SET state = 'interrupted', ended = ?, error = ?, seconds_left = NULL"
            " WHERE owner = ? AND state IN ('queued', 'running')",
            (now(), why, owner),
        )
        for job_id in ids:
            self._note(job_id)

    def owners(self) -> list[str]:
        """Owners of jobs that wait or run."""
        return [row["owner"] for row in self._database.read("SELECT DISTINCT owner FROM jobs WHERE ended IS NULL")]

    def status(self, job_id: str) -> JobStatus:
        """JobStatus; BadSetting for an id that is malformed or unknown."""
        rows = self._select("WHERE id = ?", (check_id(job_id, "job"),))
        if not rows:
            raise BadSetting(f"The job {job_id} is not known here (any more): start it again.")
        return rows[0]

    def session(self, job_id: str) -> str:
        """The session that submitted a job."""
        return str(self._database.read("SELECT session FROM jobs WHERE id = ?", (job_id,))[0]["session"])

    def active(self, session: str | None = None) -> list[JobStatus]:
        """Jobs that wait or run, the oldest first."""
        return self._select("WHERE ended IS NULL AND (session = ? OR ? IS NULL) ORDER BY seq", (session, session))

    def recent(self, session: str | None = None, limit: int = 20) -> list[JobStatus]:
        """The newest jobs in any state."""
        return self._select("WHERE session = ? OR ? IS NULL ORDER BY seq DESC LIMIT ?", (session, session, limit))

    def _select(self, chosen: str, values: Sequence[Any]) -> list[JobStatus]:
        found = []
        for row in self._database.read(f"SELECT {_STATUS} FROM jobs {chosen}", values):
            args, cancelling = json.loads(row["args"]), bool(row["cancelling"])
            found.append(JobStatus(**{**dict(row), "args": args, "cancelling": cancelling}))
        return found

    def _create(self, connection: Connection) -> None:
        for schema in _SCHEMAS:
            connection.execute(schema)
        self._folder.mkdir(parents=True, exist_ok=True)
        sweep(self._folder)
        known = {row["id"] for row in connection.execute("SELECT id FROM jobs")}
        lost = [read_json(path) or {} for path in self._folder.glob("*.json") if path.stem not in known]
        for row in sorted(filter(_is_row, lost), key=lambda row: row["seq"]):
            columns = [name for name in row if name != "seq"]
            connection.execute(
                f"INSERT INTO jobs ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
                [row[name] for name in columns],
            )

    def _note(self, job_id: str) -> None:
        """Keep a job's row in its file."""
        for row in self._database.read("SELECT * FROM jobs WHERE id = ?", (job_id,)):
            with suppress(OSError):  # a full disk: the table has it
                write_json(self._file(job_id), dict(row))

    def _file(self, job_id: str) -> Path:
        return self._folder / f"{job_id}.json"


def _is_row(row: dict[str, Any]) -> bool:
    """Whether a file holds what `_note` writes: all columns of a job."""
    return set(_COLUMNS) == set(row) and is_id(row["id"]) and isinstance(row["seq"], int)
