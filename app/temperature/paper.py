"""What the paper on Focal Attention prints, beside what is measured here."""

import streamlit as st

from analysis import papers
from app import cached
from app.temperature import trained
from app.ui import stored, tables, widgets

PAPER = "focal_attention"
TABLES = {
    "table 1": "Trained from scratch: constant and learned temperature",
    "table 2": "Adapted: trained further at a temperature",
}


def show() -> None:
    """Tables 1 and 2 and the best temperatures of figure 8, each with what it was measured on."""
    st.header("What the paper printed", anchor=False, help=cached.glossary("softmax temperature"))
    widgets.prose(_best(), "more")
    for name, title in TABLES.items():
        cells = papers.find(PAPER, name)
        rows, columns = (list(dict.fromkeys(getattr(cell, side) for cell in cells)) for side in ("row", "column"))
        printed = {(cell.row, cell.column): cell.value for cell in cells}
        values = {"setting": rows} | {column: [printed.get((row, column)) for row in rows] for column in columns}
        titles = {"setting": tables.Column("setting")}
        titles |= {column: tables.Column(f"{column}, %", "number") for column in columns}
        st.subheader(f"{name.capitalize()}: {title.lower()}", anchor=False)
        tables.table(titles, values, key=f"paper_{name[-1]}", identity=name, label=f"{name} of the paper", height=200)
        widgets.numbers(values, name.replace(" ", "-"), f"paper_{name[-1]}_numbers")
        facts = list(dict.fromkeys(cell.protocol for cell in cells if cell.protocol))
        doubts = list(dict.fromkeys(f"{cell.row}, {cell.column}: {cell.note}" for cell in cells if cell.note))
        widgets.prose(["; ".join(facts), *doubts], "quiet")
    widgets.prose(
        "These benchmarks are not measured here: the bundled model is too small for them. The paper used other "
        "models and other text, so its numbers stand beside ours without a common scale.",
        "quiet",
    )


def _best() -> str:
    printed = papers.find(PAPER, "figure 8a")[0]
    paper = f"The paper's best constant temperature is {printed.value:g} (figure 8a, {printed.row}; {printed.protocol})"
    measured = stored.study("temperature")
    rows = [row for row in (measured.rows if measured else []) if row["layer"] is None]
    if not rows:
        return f"{paper}; here it is not measured yet.{trained.best()}"
    by_domain = {}
    for row in rows:
        best = by_domain.setdefault(row["domain"], row)
        by_domain[row["domain"]] = min(best, row, key=lambda candidate: candidate["perplexity"])
    listed = ", ".join(f"{row['t']:g} on {name}" for name, row in by_domain.items())
    return (
        f"{paper}, of models trained with it. Here, sharpened without training, the lowest perplexity is at {listed}."
        f"{trained.best()}"
    )
