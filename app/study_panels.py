"""A stored study as it describes itself: its panels as small multiples, and all of its rows."""

import streamlit as st

from app import cached, study_charts, tables, widgets


def panels(study: dict, key: str, help: str | None = None) -> None:
    """Every panel of a study; a series keeps its colour from panel to panel. `key` begins the charts' keys."""
    names = list(dict.fromkeys(one["name"] for panel in study["panels"] for one in panel["series"]))
    with st.grid(2, min_column_width=380, gap="large"):
        for place, panel in enumerate(study["panels"]):
            with st.container(), widgets.guarded():
                widgets.chart(
                    study_charts.panel(panel, names),
                    study_charts.values(panel),
                    title=panel["title"],
                    key=f"{key}_{place}",
                    alt=f"{panel['y_label']} against {panel['x_label']}",
                    help=help,
                )


def rows(name: str, study: dict, key: str) -> None:
    """The rows of a study under its columns' labels. `key` begins the keys of table and download."""
    st.subheader("All rows", anchor=False, help=cached.glossary("protocol"))
    labels = {column["name"]: column for column in study["columns"]}
    values = {column: [row.get(column) for row in study["rows"]] for column in labels}
    columns = {}
    for column, about in labels.items():
        made = widgets.guess(column, values[column])
        unit = f", {about['unit']}" if about.get("unit") else ""
        columns[column] = tables.Column(f"{about['label']}{unit}", made.kind, digits=3)
    tables.table(columns, values, key=f"{key}_rows", identity=name, label="Rows of the study")
    with st.container(horizontal=True, gap="small"):
        widgets.numbers(values, name, f"{key}_numbers")
