"""Long-context tests: how far back can the model find something and use it, and what remains when it reads less?"""

from app.benchmarks import benchmark_scores
from app.probes import probe_form, probe_results
from app.selection.controls import named
from app.selection.decide import TEST_TABS
from app.ui import asking, widgets
from app.ui.tabs import drawer, tabs


def show() -> None:
    """One test, every test, or benchmarks on files, beside the stored studies."""
    widgets.header(
        "How far back can it find something and use it?",
        "Needles, pairs, passages and examples, after Focal Attention (section 4.3, appendix D); chance stands beside",
    )
    asking.settle_router()
    rooms = {"one": probe_results.one_test, "every": probe_results.every_test}
    rooms["files"] = lambda: benchmark_scores.own(probe_form.methods())
    tabs("tests_tab", TEST_TABS, rooms, {"files": named("benchmark_")})
    evidence = (probe_results.beyond, probe_results.recall, benchmark_scores.stored_scores)
    drawer("tests_evidence", lambda: widgets.each(*evidence))
