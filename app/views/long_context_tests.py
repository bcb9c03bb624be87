"""Long-context tests: how far back can the model find something and use it, and what remains when it reads less?"""

from app.benchmarks import page as benchmarks
from app.probes import asked, page, shown
from app.selection.controls import named
from app.selection.decide import TEST_TABS
from app.ui import asking, widgets
from app.ui.tabs import drawer, tabs

widgets.header(
    "How far back can it find something and use it?",
    "Needles, pairs, passages and examples, after Focal Attention (section 4.3, appendix D); chance stands beside",
)
asking.settle_router()
tabs(
    "tests_tab",
    TEST_TABS,
    {"one": page.one_test, "every": page.every_test, "files": lambda: benchmarks.own(asked.methods())},
    {"files": named("benchmark_")},
)
drawer("tests_evidence", lambda: widgets.each(shown.beyond, shown.recall, benchmarks.kept))
