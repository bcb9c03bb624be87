"""Papers vs measured: every row that the papers print, beside what this installation measured."""

from app.papers import findings, page, row
from app.papers.lookup import Lookup
from app.ui import widgets

widgets.header(
    "Do the papers' numbers hold here?",
    "Every row of every table, and every figure that names its numbers, of Focus, Focal Attention, Calibrated Sparse "
    "Attention (CSA) and GWR Linear, beside what this installation measured",
)
lookup = Lookup()
rows = page.states(lookup)
page.answer(rows)
page.overview(rows)
looked_at = page.table(rows)
with widgets.guarded():
    row.show(looked_at, *rows[looked_at], lookup)
findings.show(lookup)
