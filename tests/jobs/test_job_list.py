"""The list of jobs outlives its database: overwritten, removed, or replaced by another program's while an app runs."""

import sqlite3

import pytest

from analysis.jobs.table import JobTable
from analysis.runs import RunStore
from tests.made.stored_runs import put


@pytest.fixture
def store(tmp_path):
    opened = RunStore(tmp_path / "state")
    yield opened
    opened.close()


def overwritten(path):
    path.write_bytes(b"\xff" * path.stat().st_size)


def foreign(path):
    """Another program's database in the place of ours, with tables of its own of the same names."""
    path.unlink()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE runs (name TEXT)")
    other.execute("CREATE TABLE jobs (name TEXT)")
    other.execute("INSERT INTO runs VALUES ('theirs')")
    other.commit()
    other.close()


@pytest.mark.parametrize("damage", [overwritten, foreign, lambda path: path.unlink()], ids=["bytes", "foreign", "gone"])
@pytest.mark.parametrize("open_meanwhile", [True, False], ids=["open", "closed"])
def test_jobs_and_runs_are_listed_again_and_it_is_said(store, damage, open_meanwhile):
    run, jobs = put(store), JobTable(store.database)
    first, second, third = (jobs.add(f"key{n}", "count", {"steps": n}, "me", "owner") for n in range(3))
    jobs.finish(first, "done", run=run.id)
    assert jobs.claim("owner").id == second
    jobs.progress(second, 0.5, "half", 3.0)
    before = [jobs.status(one) for one in (third, first)]
    store.database.read("PRAGMA wal_checkpoint(TRUNCATE)")
    if not open_meanwhile:
        store.close()
        for suffix in ("-wal", "-shm"):
            store.database.path.with_name(f"focuscope.sqlite{suffix}").unlink(missing_ok=True)
    damage(store.database.path)
    if open_meanwhile:
        store.database._connection.execute("PRAGMA cache_size = 0")
        store.database._connection.execute("PRAGMA shrink_memory")
    else:
        store = RunStore(store.root)
        jobs = JobTable(store.database)
    assert [one.id for one in jobs.recent()] == [third, second, first]
    assert [jobs.status(one) for one in (third, first)] == before
    assert jobs.status(second).state == "running" and jobs.status(second).args == {"steps": 1}
    assert [row.id for row in store.search()] == [run.id]
    jobs.finish(second, "failed", error="It ended.")
    assert jobs.status(second).state == "failed"
    aside = list(store.root.glob("focuscope.sqlite.damaged-*"))
    if "<lambda>" not in damage.__name__:
        assert len(aside) == 1 and aside[0].name in store.damaged()[0]
        assert ("another program" in store.damaged()[0]) == (damage is foreign)
    if damage is foreign:
        other = sqlite3.connect(aside[0])
        assert other.execute("SELECT name FROM runs").fetchall() == [("theirs",)], "what is theirs was changed"
        other.close()
    store.close()
