"""A moved slider costs the app little beside the worker's own work; `python -m tests.trace` says where it goes."""

from tests.trace import MOST_CALLS, MOST_CHANGES, MOST_FORMS, slider_move


def test_a_moved_slider_stays_within_its_calls_and_reads_each_manifest_once():
    trace = slider_move()
    assert 100 < trace.calls.total() <= MOST_CALLS
    assert trace.changes <= MOST_CHANGES and trace.of("canonical") <= MOST_FORMS
    assert max(trace.manifests.values(), default=0) <= 1
