"""A stored study as it describes itself: its panels as small multiples, and all of its rows."""

import math
from collections.abc import Sequence

import streamlit as st

from analysis.runs.stored import Panel, StoredStudy
from app import cached
from app.ui import stored, study_charts, tables, widgets


def drawn(study: StoredStudy, key: str, help: str | None = None, name: str = "") -> None:
    """What stands under the sentence of a stored study: its panels, its rows where it has a `name` to keep them by, its
    notes, and how it was made. `key` begins the keys of all that is drawn."""
    if study.panels:
        with st.grid(2, min_column_width=380, gap="large"):
            for place, panel in enumerate(study.panels):
                with st.container(), widgets.guarded():
                    _draw(panel, study, f"{key}_{place}", help)
        if any(line.paper for panel in study.panels for line in panel.series):
            st.caption("Dashed, open marks: printed in the paper, on another model and other text; never one scale.")
    if name:
        rows(name, study, key)
    widgets.prose(study.notes, "quiet")
    stored.made(study)


def one(study: StoredStudy, title: str, key: str, help: str | None = None) -> None:
    """The panel of this title, large, in the colours that its series have in the small ones."""
    panel = next(panel for panel in study.panels if panel.title == title)
    _draw(panel, study, key, help, large=True)


def _draw(panel: Panel, study: StoredStudy, key: str, help: str | None, large: bool = False) -> None:
    # A series keeps its colour from panel to panel, so every panel is drawn with the names of all.
    names = list(dict.fromkeys(line.name for panel in study.panels for line in panel.series))
    widgets.chart(
        study_charts.panel(panel, names, large),
        study_charts.values(panel),
        title=panel.title,
        key=key,
        alt=f"{panel.y_label} against {panel.x_label}",
        help=help,
    )


def rows(name: str, study: StoredStudy, key: str) -> None:
    """The rows of a study under its columns' labels. `key` begins the keys of table and download."""
    st.subheader("All rows", anchor=False, help=cached.glossary("protocol"))
    values = {about.name: [row.get(about.name) for row in study.rows] for about in study.columns}
    columns = {}
    for about in study.columns:
        unit = f", {about.unit}" if about.unit else ""
        kind = widgets.guess(about.name, values[about.name]).kind
        columns[about.name] = tables.Column(f"{about.label}{unit}", kind, digits=digits(values[about.name]))
    tables.table(columns, values, key=f"{key}_rows", identity=name, label="Rows of the study")
    widgets.numbers(values, name, f"{key}_numbers")


def digits(numbers: Sequence) -> int:
    """After the point, so many that the smallest number shows two digits of its own; 3 to 6."""
    sizes = [abs(number) for number in numbers if isinstance(number, float) and number and math.isfinite(number)]
    return min(6, max(3, 1 - math.floor(math.log10(min(sizes))))) if sizes else 3
