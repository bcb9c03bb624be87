"""Every head under bucket routing: the map, the paper's table 2 for all heads, and the printed one beside."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.heads import charts as heads_charts
from app.heads.words import Statistic
from app.routing.words import HEAD, ROUTERS, head_columns
from app.selection import state
from app.ui import painted, tables, widgets
from app.ui.reading import rows_of

MEASURES = {
    "gwr_linear": "Recall, GWR linear",
    "over_prior": "GWR linear over the static prior",
    "over_kmeans": "GWR linear over k-means",
    "gap_closure": "Gap closure, GWR linear",
    **{kind: f"Recall, {look.title}" for kind, look in ROUTERS.items() if kind != "gwr_linear"},
}
OVER = {"over_prior": "static_prior", "over_kmeans": "kmeans"}


def show(opened: Run, run: Run) -> None:
    """The map beside table 2; a click on either chooses the head. `opened`: the stored curves as the page found them,
    which say what is looked at when no head was chosen."""
    heads, rows = run.numbers["heads"], cached.columns(run, "rows")
    kinds = set(rows["router"])
    if "gwr_linear" not in kinds:
        widgets.prose("Heads are compared in buckets of the raw keys: choose those above.", "note")
        return
    offered = [name for name in MEASURES if name in kinds or name in (*OVER, "gap_closure")]
    if heads[0]["gap_closure"] is None and all(row["gap_closure"] is None for row in heads):
        offered.remove("gap_closure")
    widgets.settled("route_measure", offered, "gwr_linear")
    layer, head = chosen(opened.numbers["heads"])
    with st.grid(2, min_column_width=420, gap="large"):
        with st.container():
            st.selectbox(
                "On the map",
                offered,
                key="route_measure",
                format_func=MEASURES.get,
                width=300,
            )
            _map(run, heads, rows, layer, head)
        with st.container():
            _table(run, heads, layer, head)
    with st.container():
        _paper(run.numbers["paper"])


def chosen(heads: list[dict]) -> tuple[int, int]:
    """The head in use: the shared selection where it is among these, else the one where GWR linear finds most."""
    cells = [(row["layer"], row["head"]) for row in sorted(heads, key=lambda row: -(row["gwr_linear"] or 0))]
    layers, places = sorted({layer for layer, _ in cells}), sorted({head for _, head in cells})
    widgets.settled("layer", [None, *layers], None)
    widgets.settled("head", [None, *places], None)
    layer, head = st.session_state["layer"], st.session_state["head"]
    fitting = [cell for cell in cells if layer in (None, cell[0]) and head in (None, cell[1])]
    return fitting[0] if fitting else cells[0]


def _map(run: Run, heads: list[dict], rows: dict, layer: int, head: int) -> None:
    measure = st.session_state["route_measure"]
    about = Statistic(MEASURES[measure], "share", 2, "gap closure" if measure == "gap_closure" else "recall@l")
    values = _values(heads, rows, measure)
    table = {"layer": [row["layer"] for row in heads], "head": [row["head"] for row in heads]}
    points = widgets.chart(
        heads_charts.heads(table, values, about, layer, head),
        table | {MEASURES[measure]: values},
        title=f"Every head at {run.numbers['l']:g} buckets",
        key="routing_map",
        alt=f"{about.title} in every layer and head, the chosen head framed",
        help=about.help,
        select="points",
    )
    st.caption("Click a cell to choose the head shown in the tab One token.")
    if cell := widgets.new_cell(points, "routing_map"):
        state.choose(st.session_state, layer=cell[0], head=cell[1])
        st.rerun()


def _values(heads: list[dict], rows: dict, measure: str) -> list[float | None]:
    if measure == "gap_closure":
        return [row["gap_closure"] for row in heads]
    if measure in OVER:
        return [row["gwr_linear"] - row[OVER[measure]] for row in heads]
    router_rows = rows_of(rows, router=measure)
    recall = {
        (a, b): value
        for a, b, value in zip(router_rows["layer"], router_rows["head"], router_rows["recall"], strict=True)
    }
    return [recall[row["layer"], row["head"]] for row in heads]


def _table(run: Run, heads: list[dict], layer: int, head: int) -> None:
    st.subheader("Recall of each head", anchor=False, help=cached.glossary("gap closure"))
    widgets.prose("Table 2 of the paper for this model, with the static prior and the oracle beside.", "quiet")
    columns = {name: column for name, column in head_columns().items() if name in heads[0]}
    values = {name: [row[name] for row in heads] for name in columns}
    cells = list(zip(values["layer"], values["head"], strict=True))
    tables.table(
        columns,
        values,
        key="routing_heads",
        identity=f"{run.id}{run.created}",
        label="Heads; choose one to look at it",
        selected=cells.index((layer, head)),
        on_row=lambda: _row(cells),
        height=400,
    )
    widgets.numbers(values, "routing-heads", "routing_heads_numbers")


def _row(cells: list[tuple[int, int]]) -> None:
    if cell := painted.picked("routing_heads", cells):
        state.choose(st.session_state, layer=cell[0], head=cell[1])


def _paper(paper: list[dict]) -> None:
    cells = [row for row in paper if row["table"] == "table 2"]
    titles = {
        "Symmetric K-Means": "kmeans",
        "GWR Linear": "gwr_linear",
        "Saap-MLP": "mlp",
        "Gap Closure": "gap_closure",
    }
    names = list(dict.fromkeys(row["row"] for row in cells))
    printed = {(row["row"], titles[row["column"]]): row for row in cells if row["column"] in titles}
    values = {"head": names}
    for name in titles.values():
        cells_of_row = [printed.get((place, name)) for place in names]
        values[name] = [
            cell and (cell["value"] / 100 if cell["unit"] == "%" else cell["value"]) for cell in cells_of_row
        ]
    columns = {"head": tables.Column("head (layer, head)")}
    columns |= {kind: tables.Column(ROUTERS[kind].title, "share") for kind in HEAD if kind in values}
    columns["gap_closure"] = tables.Column("gap closure", "share")
    st.subheader("What the paper printed: table 2", anchor=False)
    tables.table(columns, values, key="routing_paper", identity="table 2", label="Table 2 of the paper", height=300)
    sentences = list(dict.fromkeys(row["protocol"] for row in cells if row["protocol"]))
    sentences += [f"{row['row']}, {row['column']}: {row['note']}" for row in cells if row["note"]]
    widgets.prose([f"{sentence}." for sentence in sentences], "quiet")
