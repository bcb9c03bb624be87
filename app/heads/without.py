"""What a text loses without a head: all heads by estimate, some exactly, and the text painted by what gets worse."""

import math
from bisect import bisect_right

import streamlit as st

from analysis.claims import Comparison, signed
from analysis.runs import Run
from app import cached
from app.heads import charts, finder, scope
from app.selection import state
from app.selection.look import ABLATION_WAYS
from app.ui import asking, fields, painted, tables, widgets

LEVELS = ((0.1, "0.1–0.3"), (0.3, "0.3–1"), (1.0, "1–2"), (2.0, "2–4"), (4.0, "over 4"))  # nats per token
LOWS = [low for low, _ in LEVELS]
TERM = "ablation of a head"
BEFORE = {"change": "loss_change", "divergence": "kl"}  # names in runs of an earlier version
ROWS = {
    "without": tables.Column("without"),
    "estimate": tables.Column("estimate", "number", 4, help="of first order, in nats per token"),
    "loss_change": tables.Column("loss rises by", "number", 4, words="rise", help="measured in a pass of its own"),
    "kl": tables.Column("KL to all heads", "number", 4, help="how far the predictions move, in nats per token"),
    "worst": tables.Column("suffers most", words="suffers"),
}


def show(tokens: dict, layer: int, head: int) -> None:
    """The passes without the heads that the estimate puts first, and the chosen head on the text."""
    widgets.prose(
        "Attention says what a head reads, not what it is for. Here its output is taken away, and the text is "
        "predicted again.",
        "more",
    )
    by = st.session_state["without_by"] or next(iter(ABLATION_WAYS))
    fields.pick(
        st.segmented_control,
        "In its place",
        list(ABLATION_WAYS),
        "without_by",
        by,
        format_func=ABLATION_WAYS.get,
        help=cached.glossary(TERM),
    )
    part, size = scope.choice("without_all", "ablate", _args("top", by), tokens)
    run = _ask("top", by, part, "Reading the text without heads", size)
    widgets.prose(run.numbers["sentence"])
    rows = _rows(run)
    _map(run, layer, head)
    _table(run, rows, (layer, head))
    widgets.notes(run)
    wanted = f"{layer}.{head}"
    if wanted not in [row["without"] for row in rows]:
        run = _ask(wanted, by, part, f"Reading the text without head {head} of layer {layer}", size)
    _text(run, wanted, tokens)


def _args(heads: str, by: str) -> dict:
    return state.study_args(st.session_state, heads=heads, by=by)


def _ask(heads: str, by: str, part: int | None, doing: str, size: int) -> Run:
    return asking.ask("ablate", _args(heads, by) | {"part": part}, doing, size)


def _rows(run: Run) -> list[dict]:
    """The exact passes; runs that were stored before have them under other names."""
    return [{BEFORE.get(name, name): value for name, value in row.items()} for row in run.numbers["rows"]]


def _map(run: Run, layer: int, head: int) -> None:
    """The estimate of every head; a click chooses one."""
    table = {BEFORE.get(name, name): values for name, values in cached.columns(run, "heads").items()}
    points = widgets.chart(
        charts.losses(table, layer, head),
        table,
        title="Estimated loss without each head",
        key="heads_without",
        alt="Estimated rise of the loss without every head, layer by layer, the chosen head framed",
        help=cached.glossary(TERM),
        select="points",
    )
    if cell := widgets.new_cell(points, "heads_without"):
        finder.choose(*cell)
        st.rerun()
    st.caption("Click a cell to choose the head. Red: the text is predicted worse without it.")


def _table(run: Run, rows: list[dict], now: tuple[int, int]) -> None:
    """The exact passes; a row chooses its head."""
    st.subheader("Measured, the highest estimates first", anchor=False, help=cached.glossary(TERM))
    values = {name: [row[name] for row in rows] for name in ROWS}
    values["rise"] = [_rise(row) for row in rows]
    values["suffers"] = [f"{row['worst_word'].strip()} ({signed(row['worst_change'], '.2f')})" for row in rows]
    cells = [(row["layer"], row["head"]) for row in rows]
    tables.table(
        ROWS,
        values,
        key="heads_without_rows",
        identity=run.id,
        label="Exact passes without one head; choose one to see it on the text",
        selected=cells.index(now) if now in cells else None,
        on_row=lambda: finder.choose(*(painted.picked("heads_without_rows", cells) or now)),
        height=300,
    )
    blocks, few = f"{rows[0]['units']} blocks of {run.numbers['scope']}", rows[0]["low"] is None
    st.caption(f"{blocks}, too few for an interval." if few else f"Brackets: 95% interval over {blocks}.")
    widgets.numbers({name: values[name] for name in ROWS}, "without-heads", "heads_without_numbers")


def _rise(row: dict) -> str:
    return Comparison.of(row, "loss_change", "").bracketed


def _text(run: Run, wanted: str, tokens: dict) -> None:
    """The text painted by how much worse each token is predicted without one head, and a way to the worst."""
    rows = _rows(run)
    place = [row["without"] for row in rows].index(wanted)
    row, changes = rows[place], cached.array(run, "change")[place]
    first = row["offset"] + 1  # the first token of a window is not predicted
    weights: list[float | None] = [None] * len(tokens["piece"])
    weights[first : first + len(changes)] = [None if math.isnan(change) else change for change in changes.tolist()]
    paint = [-1 if weight is None else bisect_right(LOWS, weight) - 1 for weight in weights]
    layer, head = wanted.split(".")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.button(
            f"Go to the worst: “{widgets.plain(row['worst_word'].strip())}”",
            key="heads_without_worst",
            icon=":material/my_location:",
            on_click=lambda: state.choose(st.session_state, query=row["worst"]),
        )
        widgets.prose(f"{_rise(row)} nats per token without head {head} of layer {layer}", "quiet")
    painted.painted(
        tokens,
        paint,
        painted.heat(paint, [f"{name} nats worse" for _, name in LEVELS]),
        key="heads_without_text",
        identity=f"{run.id}.{wanted}",
        place=f"heads_without_text.{len(paint)}",
        tips=[("loss rises by", [None if weight is None else f"{weight:+.3f}" for weight in weights])],
        legend=f"predicted worse without head {head} of layer {layer}; unpainted: by less than 0.1 nats",
        hint="Hover to see a token, click to make it the query above.",
        locked=row["worst"],
        on_token=lambda: state.choose(st.session_state, query=painted.clicked("heads_without_text", "token")),
    )
