"""Train a router: does a router learn groups that stay balanced, causal and useful?"""

from app.selection.evidence import TRAIN_TABS
from app.training import router_evidence, train
from app.ui import asking, widgets
from app.ui.tabs import tabs


def show() -> None:
    """Training, and what was measured of it."""
    widgets.header(
        "Do the groups stay balanced while a router learns?",
        "Training, routing collapse (dominance), ablations, causality check: Focus, sections 2 to 5 and appendices A "
        "and B",
    )
    asking.settle_router()
    with widgets.guarded():
        widgets.prose(train.answer())
    rooms = {name: getattr(router_evidence, name) for name in TRAIN_TABS if name != "train"}
    tabs("evidence", TRAIN_TABS, {"train": train.tab} | rooms)
