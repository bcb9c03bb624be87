"""One slider of Quality vs speed moves: the URL's word is read once, the request looked up once, nothing is worked out
that is not shown."""

from collections import Counter

import pytest

from analysis.declaration.command import Command
from analysis.runs import RunStore, shelf
from app.quality import picker
from app.selection.decide import EQUAL_SHARES
from app.ui import offers
from tests.made.quality import opened

SLIDER = "quality.streaming_llm.window"


@pytest.fixture
def hops(monkeypatch):
    """name -> how often it was called; look-ups and lists by their verb, and by the method where they name one."""
    found = Counter()

    def watch(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def watched(*args, **more):
            words = [name]
            if owner is RunStore:
                asked, *arguments = args[1:]
                is_request = isinstance(asked, Command)
                words.append(asked.verb if is_request else asked)
                request = asked.spelled if is_request else next(iter(arguments), None)
                if isinstance(request, dict) and request.get("methods"):
                    words.append(request["methods"][0]["name"])
            found[" ".join(words)] += 1
            return real(*args, **more)

        monkeypatch.setattr(owner, name, watched)

    real = shelf.read_run

    def read(folder, **more):
        run = real(folder, **more)
        found[f"manifest {run.id}"] += 1
        return run

    monkeypatch.setattr(shelf, "read_run", read)
    for owner, name in ((RunStore, "find"), (RunStore, "list"), (picker, "parse"), (offers, "of_text")):
        watch(owner, name)
    return found


def test_a_moved_slider_is_read_once_and_looked_up_once(client, hops):
    about = {"quality": "focus~~streaming_llm~~oracle_topk", "quality_equal": 25, "quality_paint": "streaming_llm"}
    app, moved = opened(**about), None
    for value, computed in ((64, 1), (32, 1), (64, 0)):
        hops.clear()
        before = client.asked.count("evaluate")
        app.select_slider(key=SLIDER).set_value(value).run()
        seen = Counter(hops)  # before this test looks into the store itself
        assert not app.exception and client.asked.count("evaluate") - before == computed
        assert seen["parse"] == 2, "by the callback that changes the word, and by the page that reads it"
        assert all(seen[f"find evaluate {name}"] == len(EQUAL_SHARES) for name in ("focus", "oracle_topk"))
        assert seen["find evaluate streaming_llm"] <= 1 + 3 * computed, "it has one mark, as it is set"
        assert seen["find inspect"] == 1
        assert seen["find model"] == 1, "the bar, the page and the prices share one card"
        assert not seen["list evaluate"] and seen["list launch"] <= 2, "at most the price looks runs up"
        assert seen["of_text"] == 0, "smaller scopes are worked out where they are shown"
        moved = client.store.list("evaluate", 1)[0].id if computed else moved
        assert seen[f"manifest {moved}"] <= 1, "whoever asks for the run shares it"
    hops.clear()
    app.select_slider(key=SLIDER).set_value(32).run()
    seen, stored = Counter(hops), [run.id for run in client.store.list("evaluate")]
    assert len(stored) == 5 and not any(seen[f"manifest {run_id}"] for run_id in stored), "read before: not again"
