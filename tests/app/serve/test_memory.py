"""The app's own process gives back what pages and readers took."""

import os
import subprocess
import sys

import pytest

import run
from app.serve import memory
from focuscope.__main__ import main as start

SCRIPT = """
import psutil
from app.serve.memory import give_back, tidy

class Reader:
    def __init__(self):
        self.page = {"reader": self, "words": [object() for _ in range(20)]}

give_back()
taken = psutil.Process().memory_info
before = taken().rss
readers = [Reader() for _ in range(50_000)]
peak, stays = taken().rss, readers[::1000]
del readers
tidy()
print((taken().rss - before) / (peak - before))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the C library gives pages back on Linux alone")
def test_memory_goes_back_around_what_stays():
    environment = {**os.environ, "PYTHONMALLOC": "malloc"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, cwd=run.ROOT, capture_output=True, text=True)
    assert float(done.stdout) < 0.2, done.stderr


def test_every_way_to_start_the_app_leaves_pythons_own_allocator_away(monkeypatch):
    monkeypatch.delenv("PYTHONMALLOC", raising=False)
    begun = []
    monkeypatch.setattr(run, "install", lambda *names: None)
    monkeypatch.setattr(run, "become", lambda *words: begun.append(os.environ["PYTHONMALLOC"]) or 0)
    monkeypatch.setattr(
        "focuscope.__main__.subprocess.call", lambda words, cwd, env: begun.append(env["PYTHONMALLOC"]) or 0
    )
    assert run.main(["serve"]) == start([]) == 0 and begun == ["malloc"] * 2
    assert "ENV PYTHONMALLOC=malloc" in (run.ROOT / "Dockerfile").read_text()
    monkeypatch.setattr(memory, "SETTINGS", {})
    memory.give_back()
    assert "PYTHONMALLOC" not in os.environ, "the worker keeps it"
