"""One slider of Quality vs speed moves: how often the store is asked, a manifest read, a word of the URL parsed."""

from collections import Counter

import pytest
from streamlit.testing.v1 import AppTest

from analysis.runs import RunStore, keys, shelf, store as stores
from app.quality import controls
from tests.made import results
from tests.made.in_process import ENTRY
from tests.made.quality import evaluate
from tests.made.results import STUDIES

VIEW = "views/quality_vs_speed.py"
SLIDER = "quality.streaming_llm.window"


@pytest.fixture
def client(client, monkeypatch):
    monkeypatch.setattr(results, "CONTEXT", 2048)
    monkeypatch.setitem(STUDIES, "evaluate", evaluate)
    return client


def test_count(client, monkeypatch):
    app = AppTest.from_file(ENTRY, default_timeout=30)
    app.run().switch_page(VIEW).run()
    seen = Counter()

    def counting(owner, name, label=None):
        real = getattr(owner, name)

        def counted(*args, **more):
            seen[label(args) if callable(label) else label or name] += 1
            return real(*args, **more)

        monkeypatch.setattr(owner, name, counted)

    counting(RunStore, "find", lambda a: f"find {a[1]}")
    counting(RunStore, "list")
    counting(RunStore, "price")
    counting(shelf, "read_run")
    counting(keys, "canonical", "canonical(key)")
    counting(stores, "request_key")
    counting(controls, "parse")
    from app.ui import offers

    counting(offers, "smaller")
    app.select_slider(key=SLIDER).set_value(64).run()
    print("MISS", dict(seen))
    seen.clear()
    app.select_slider(key=SLIDER).set_value(128).run()
    print("HIT", dict(seen))
