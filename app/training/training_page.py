"""Train a router: does a router learn groups that stay balanced, causal and useful?"""

from app.selection.evidence import TRAIN_TABS
from app.training import router_evidence, train
from app.ui import asking, screen, widgets
from app.ui.tabs import tabs


def show() -> None:
    """Training, and what was measured of it."""
    asking.settle_router()
    with widgets.guarded():
        screen.answer(*train.answer())
    rooms = {name: getattr(router_evidence, name) for name in TRAIN_TABS if name != "train"}
    tabs("evidence", TRAIN_TABS, {"train": train.tab} | rooms)
