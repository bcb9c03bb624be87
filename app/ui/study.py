"""A stored study as it describes itself: its panels as small multiples, and all of its rows."""

import math
from collections.abc import Sequence

import streamlit as st

from app import cached
from app.ui import stored, study_charts, tables, widgets


def drawn(study: dict, key: str, help: str | None = None, name: str = "") -> None:
    """What stands under the sentence of a stored study: its panels, its rows where it has a `name` to keep them by, its
    notes, and how it was made. `key` begins the keys of all that is drawn."""
    if study.get("panels"):
        panels(study, key, help)
        if any(one["paper"] for panel in study["panels"] for one in panel["series"]):
            st.caption("Dashed, open marks: printed in the paper, on another model and other text; never one scale.")
    if name:
        rows(name, study, key)
    widgets.prose(study.get("notes", []), "quiet")
    stored.made(study)


def panels(study: dict, key: str, help: str | None = None) -> None:
    """Every panel of a study; a series keeps its colour from panel to panel. `key` begins the charts' keys."""
    with st.grid(2, min_column_width=380, gap="large"):
        for place, panel in enumerate(study["panels"]):
            with st.container(), widgets.guarded():
                _draw(panel, _names(study), f"{key}_{place}", help)


def _names(study: dict) -> list[str]:
    return list(dict.fromkeys(one["name"] for panel in study["panels"] for one in panel["series"]))


def _draw(panel: dict, names: list[str], key: str, help: str | None, large: bool = False) -> None:
    widgets.chart(
        study_charts.panel(panel, names, large),
        study_charts.values(panel),
        title=panel["title"],
        key=key,
        alt=f"{panel['y_label']} against {panel['x_label']}",
        help=help,
    )


def one(study: dict, title: str, key: str, help: str | None = None) -> None:
    """The panel of this title, large, in the colours that `panels` gives its series."""
    panel = next(panel for panel in study["panels"] if panel["title"] == title)
    _draw(panel, _names(study), key, help, large=True)


def rows(name: str, study: dict, key: str) -> None:
    """The rows of a study under its columns' labels. `key` begins the keys of table and download."""
    st.subheader("All rows", anchor=False, help=cached.glossary("protocol"))
    labels = {column["name"]: column for column in study["columns"]}
    values = {column: [row.get(column) for row in study["rows"]] for column in labels}
    columns = {}
    for column, about in labels.items():
        made = widgets.guess(column, values[column])
        unit = f", {about['unit']}" if about.get("unit") else ""
        columns[column] = tables.Column(f"{about['label']}{unit}", made.kind, digits=digits(values[column]))
    tables.table(columns, values, key=f"{key}_rows", identity=name, label="Rows of the study")
    widgets.numbers(values, name, f"{key}_numbers")


def digits(numbers: Sequence) -> int:
    """After the point, so many that the smallest number shows two digits of its own; 3 to 6."""
    sizes = [abs(one) for one in numbers if isinstance(one, float) and one and math.isfinite(one)]
    return min(6, max(3, 1 - math.floor(math.log10(min(sizes))))) if sizes else 3
