"""Long-context tests: how far back can the model find something and use it, and what remains when it reads less?"""

from app.benchmarks import page as benchmarks
from app.benchmarks.controls import CONTROLS as BENCHMARKS
from app.probes import asked, page, shown
from app.probes.controls import TABS
from app.ui import asking, widgets
from app.ui.tabs import drawer, tabs

widgets.header(
    "How far back can it find something and use it?",
    "Needles, pairs, passages and examples, after Focal Attention (section 4.3, appendix D); chance stands beside",
)
asking.settle_router()
tabs(
    "tests_tab",
    TABS,
    {"one": page.one_test, "every": page.every_test, "files": lambda: benchmarks.own(asked.methods())},
    {"files": BENCHMARKS},
)
drawer("tests_evidence", lambda: widgets.each(shown.beyond, shown.recall, benchmarks.kept))
