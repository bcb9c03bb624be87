"""What leaves a page: the numbers as CSV, a chart as PNG or SVG, both into the report; stamped with their origin."""

from collections.abc import Callable, Sequence

import streamlit as st

from app.ui import basket, stamp, tables
from app.ui.painted import part

_EXPORT = part("export", '<div class="export"></div>\n')


def row(values: Callable[[], dict[str, Sequence]], name: str, key: str, title: str, chart: str = "") -> dict[str, str]:
    """The buttons below a chart (its key: `chart`) or a table: `values` makes its numbers, `name` goes into the
    names of files, `title` above the picture. Returns where it comes from (`stamp.facts`)."""
    facts = stamp.facts(title)
    st.download_button(
        "CSV",
        lambda: tables.to_csv(values(), {"read with": stamp.HOW} | facts),
        file_name=f"focuscope-{name}.csv",
        mime="text/csv",
        key=f"{key}_csv",
        icon=":material/download:",
        type="tertiary",
        on_click="ignore",
        help=f"Lines that begin with # say where it is from; {stamp.HOW} leaves them out.",
    )
    data = {
        "chart": chart,
        "offers": ["PNG", "SVG", "Keep"] if chart else ["Keep"],
        "name": f"focuscope-{name}",
        "title": title,
        "footer": stamp.footer(facts),
    }
    place = f"{key}_export"
    _EXPORT(key=place, data=data, on_keep_change=lambda: basket.on_keep(place, facts, values), width="content")
    return facts
