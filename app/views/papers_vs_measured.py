"""Papers vs measured: every row that the papers print, beside what this installation measured."""

from app.papers import findings, page, row
from app.papers.found import Stored
from app.ui import widgets

widgets.header(
    "Do the papers' numbers hold here?",
    "Every row of every table, and every figure that names its numbers, of Focus, Focal Attention, Calibrated Sparse "
    "Attention (CSA) and GWR Linear, beside what this installation measured",
)
stored = Stored()
known = page.known(stored)
page.answer(known)
page.overview(known)
looked_at = page.rows(known)
with widgets.guarded():
    row.show(looked_at, *known[looked_at], stored)
findings.show(stored)
