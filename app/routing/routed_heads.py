"""Every head under bucket routing: the map, and the paper's table 2 for all heads of this model."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.heads.head_charts import statistic_map
from app.heads.head_statistics import Statistic, cells_of
from app.routing.bucket_routers import HEAD_COLUMNS, ROUTERS, named
from app.selection import state
from app.selection.sparsify import ROUTED
from app.ui import fields, head_cards, painted, plots, widgets
from app.ui.reading import rows_of

OVER = {"over_prior": "static_prior", "over_kmeans": "kmeans"}
MEASURES = {
    "gwr_linear": "Recall, GWR linear",
    "over_prior": "GWR linear over the static prior",
    "over_kmeans": "GWR linear over k-means",
    "gap_closure": "Gap closure, GWR linear",
    **{kind: f"Recall, {ROUTERS[kind].title}" for kind in ROUTED if kind != "gwr_linear"},
}


def show(opened: Run, run: Run) -> None:
    """The map beside table 2; a click on either chooses the head. `opened`: the stored curves as the page found them,
    which say what is looked at when no head was chosen."""
    heads, rows = run.numbers["heads"], cached.columns(run, "rows")
    kinds = set(rows["router"])
    if "gwr_linear" not in kinds:
        widgets.prose("Heads are compared in buckets of the raw keys: choose those above.", "note")
        return
    has_gap = any(row["gap_closure"] is not None for row in heads)
    offered = [name for name in MEASURES if name in kinds or name in OVER or (name == "gap_closure" and has_gap)]
    widgets.settled("route_measure", offered, "gwr_linear")
    now = chosen(opened.numbers["heads"])
    with st.grid(2, min_column_width=420, gap="large"):
        with st.container():
            st.selectbox("On the map", offered, key="route_measure", format_func=MEASURES.__getitem__, width=300)
            _map(run, heads, rows, now)
        with st.container():
            _table(run, heads, now)


def chosen(heads: list[dict]) -> tuple[int, int]:
    """The head in use: the shared selection where it is among these, else the one where GWR linear finds most."""
    return fields.cell(
        [(row["layer"], row["head"]) for row in sorted(heads, key=lambda row: -(row["gwr_linear"] or 0))]
    )


def _map(run: Run, heads: list[dict], rows: dict, now: tuple[int, int]) -> None:
    measure = st.session_state["route_measure"]
    about = Statistic(MEASURES[measure], "share", 2, "gap closure" if measure == "gap_closure" else "recall@l")
    values = [row.get(measure) for row in heads]
    if measure in OVER:
        values = [row["gwr_linear"] - row[OVER[measure]] for row in heads]
    elif measure != "gap_closure":
        of_router = rows_of(rows, router=measure)
        recall = dict(zip(cells_of(of_router), of_router["recall"], strict=True))
        values = [recall[row["layer"], row["head"]] for row in heads]
    table = plots.columns(heads, "layer", "head") | {about.title: values}
    figure = statistic_map(table, values, about, now, head_cards.cards())
    title = f"Every head at {run.numbers['l']:g} buckets"
    points = plots.draw(figure, table, title, "routing_map", about.term, select="points")
    st.caption("A click chooses the head of One token in the text.")
    if cell := widgets.new_cell(points, "routing_map"):
        state.choose(st.session_state, layer=cell[0], head=cell[1])
        st.rerun()


def _table(run: Run, heads: list[dict], now: tuple[int, int]) -> None:
    st.subheader("Recall of each head", anchor=False, help=cached.glossary("gap closure"))
    widgets.prose("Table 2 of the paper for this model, with the static prior and the oracle beside.", "quiet")
    columns = {name: column for name, column in HEAD_COLUMNS.items() if name == "name" or name in heads[0]}
    values = plots.columns(named(heads), *columns)
    cells = [(row["layer"], row["head"]) for row in heads]

    def on_row() -> None:
        if cell := painted.picked("routing_heads", cells):
            state.choose(st.session_state, layer=cell[0], head=cell[1])

    label, selected = "Heads; choose one to look at it", cells.index(now)
    identity = f"{run.id}{run.created}"
    plots.listed(columns, values, "routing_heads", label, identity, selected=selected, on_row=on_row, height=400)
