"""A moved slider costs the app little beside the worker's own work; `python -m tests.trace` says where it goes."""

from app.selection.decide import EQUAL_SHARES
from tests.made.quality import opened
from tests.trace import MOST_CALLS, MOST_CHANGES, MOST_FORMS, SLIDER, slider_move, traced


def test_a_moved_slider_stays_within_its_calls_and_reads_each_manifest_once():
    trace = slider_move()
    assert 100 < trace.calls.total() <= MOST_CALLS
    assert trace.changes <= MOST_CHANGES and trace.of("canonical") <= MOST_FORMS
    assert max(trace.manifests.values(), default=0) <= 1


def test_a_moved_slider_is_read_once_and_looked_up_once(client):
    app = opened(quality="focus~~streaming_llm~~oracle_topk", quality_equal=25, quality_paint="streaming_llm")
    for value, computed in ((64, 1), (32, 1), (64, 0), (32, 0)):
        before = client.asked.count("evaluate")
        trace = traced(app.select_slider(key=SLIDER).set_value(value).run)
        assert not app.exception and client.asked.count("evaluate") - before == computed
        assert trace.of("parse") == 2, "by the callback that changes the word, and by the page that reads it"
        lookups = trace.lookups
        assert trace.of("find") <= 2 * len(EQUAL_SHARES) + 10 + 2 * computed, "each mark once"
        assert all(lookups[f"find evaluate {name}"] == len(EQUAL_SHARES) for name in ("focus", "oracle_topk"))
        assert lookups["find evaluate streaming_llm"] <= 1 + 3 * computed, "it has one mark, as it is set"
        assert lookups["find model"] == lookups["find inspect"] == 1, "the page and the prices share one card"
        assert not lookups["list evaluate"] and trace.of("list") <= 2, "at most the price of a launch looks runs up"
        assert trace.of("of_text") == 0, "smaller scopes are worked out where they are shown"
        assert max(trace.manifests.values(), default=0) <= 1, "whoever asks for the run shares it"
    assert not trace.manifests, "read before: not again"
