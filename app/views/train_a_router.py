"""Train a router: does a router learn groups that stay balanced, causal and useful?"""

from app.selection.evidence import TRAIN_TABS
from app.training import ablations, balance, causality, collapse, form
from app.ui import asking, widgets
from app.ui.tabs import tabs

widgets.header(
    "Do the groups stay balanced while a router learns?",
    "Training, routing collapse (dominance), ablations, causality check: Focus, sections 2 to 5 and appendices A and B",
)
asking.settle_router()
with widgets.guarded():
    widgets.prose(form.answer())
rooms = {"train": form, "collapse": collapse, "balance": balance, "causality": causality, "ablations": ablations}
tabs("evidence", TRAIN_TABS, {name: room.tab for name, room in rooms.items()})
