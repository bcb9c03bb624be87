"""Why a head reads a key: who wrote what matches, who explains the head over many pairs, and the score without them."""

import re
from typing import Any

import streamlit as st

from analysis.commands.heads import Why
from analysis.runs import Run
from app import cached
from app.heads.head_statistics import spelled
from app.heads.overview import choose
from app.selection import state
from app.ui import asking, painted, plots, tables, widgets
from app.ui.charts import figure
from app.ui.head_cards import Names
from app.ui.head_map import BOTH_WAYS

TERM = "why a head reads a key"
# Writers on either side of the picture, and rows of the table.
SIDE, ROWS = 6, 8
HEAD = re.compile(r"L(\d+)\.H(\d+)")
WRITERS = {
    "writer": tables.Column("wrote it"),
    "name": tables.Column("name", wrap=True, help=cached.glossary("name of a head")),
    "side": tables.Column("in the stream of"),
    "share": tables.Column("share", "share", words="spelled", help="of the score above other tokens, 95% interval"),
}
REMOVED = {
    "writer": tables.Column("without"),
    "side": tables.Column("in the stream of"),
    "predicted": tables.Column("predicted", "number", 2, help="change of the score with the norms as they were"),
    "measured": tables.Column("measured", "number", 2, help="the layers run anew, norms and all"),
    "slope": tables.Column("slope", "number", 2, words="slopes", help="measured over predicted, 95% interval"),
    "followed": tables.Column(
        "all follow", "number", 2, words="followed_slopes", help="the same slope, the model run without the writer"
    ),
}
PUSHED = {"token": tables.Column("token", "token"), "change": tables.Column("logit", "number", 2)}


def show(run: Run, names: Names) -> None:
    """The tab, for the query of the head's `run` and the key that it reads most, or the one in the address."""
    query, length = run.numbers["query"], run.numbers["length"]
    args = {name: run.request[name] for name in ("layer", "head", "part")} | {"query": query}
    key = st.session_state["why_key"]
    if key is not None and 0 <= key - run.numbers["offset"] <= query:
        args["key_token"] = key - run.numbers["offset"]
    found = asking.ask(Why(**state.study_args(st.session_state, **args)), "Asking who wrote it", length)
    widgets.prose(found.numbers["sentence"], "more")
    # The strongest pairs of writers in colour.
    numbers, parts, words = found.numbers, cached.columns(found, "parts"), cached.columns(found, "tokens")["word"]
    reader, read = (words[numbers["offset"] + numbers[side]] for side in ("query", "key"))
    rows, columns = (list(dict.fromkeys(parts[side]))[:SIDE] for side in ("query_writer", "key_writer"))
    cells = dict(zip(zip(parts["query_writer"], parts["key_writer"], strict=True), parts["score"], strict=True))
    scores = [[cells.get((row, column)) for column in columns] for row in rows]
    most = max(abs(score) for score in parts["score"])
    heat = {"type": "heatmap", "x": columns, "y": rows, "z": scores, "zmid": 0}
    heat |= {"zmin": -most, "zmax": most, "colorscale": BOTH_WAYS, "reversescale": True, "showscale": False}
    heat |= {"texttemplate": "%{z:.1f}", "hovertemplate": "%{y} × %{x}: %{z:.2f}<extra></extra>", "hoverongaps": False}
    look: dict[str, Any] = {"yaxis": {"autorange": "reversed", "type": "category"}, "xaxis": {"type": "category"}}
    drawn = figure([heat], f"wrote at “{read}” (key)", f"wrote at “{reader}” (query)", 300, **look)
    plots.draw(drawn, parts, f"Who wrote the match of “{reader}” and “{read}”", "heads_why", TERM)
    drawn_sum = sum(score for row in scores for score in row if score is not None)
    capped = f", {numbers['capped']:.1f} after the model's cap" if numbers["capped"] != numbers["logit"] else ""
    share = f"{numbers['attention']:.0%} of the attention"
    widgets.prose(f"Score {numbers['logit']:.1f}{capped}, {drawn_sum:.1f} of it drawn; {share}.", "quiet")
    _explained(found, names)
    with st.expander("At other distances, what it moved, and without the writers", icon=":material/unfold_more:"):
        _distances(found)
        if numbers["share"] is not None:
            widgets.prose(f"What was moved is {numbers['share']:.0%} of what the head wrote here.", "quiet")
            label = "What it moved: logits that rise and fall most"
            plots.listed(PUSHED, cached.columns(found, "vocabulary"), "heads_why_moved", label, found.id, height=220)
        if numbers["rows"]:
            removed = [
                row
                | {"slopes": tables.spread(row["slope"], row["low"], row["high"], ".2f")}
                | {"followed_slopes": tables.spread(row["followed"], row["followed_low"], row["followed_high"], ".2f")}
                for row in numbers["rows"]
            ]
            plots.listed(REMOVED, removed, "heads_why_removed", "A writer's output at its mean", found.id, height=260)
            widgets.prose(numbers["slopes"], "quiet")
    widgets.notes(found)


def _explained(found: Run, names: Names) -> None:
    """Who explains what the head reads, over many pairs; a row of a head chooses it."""
    writers = {name: values[:ROWS] for name, values in cached.columns(found, "writers").items()}
    if not writers["writer"]:
        return
    heads = [HEAD.fullmatch(writer) for writer in writers["writer"]]
    cells = [match and (int(match[1]), int(match[2])) for match in heads]
    writers["name"] = [", ".join(names.get(cell, ())) if cell else "" for cell in cells]
    margin = found.numbers["margin"]
    ends = zip(writers["share"], writers["low"], writers["high"], strict=True)
    writers["spelled"] = [
        tables.spread(share, low and low / margin, high and high / margin) for share, low, high in ends
    ]

    def on_row() -> None:
        row = painted.clicked("heads_why_writers", "row")
        if row is not None and row < len(cells) and (cell := cells[row]):
            choose(*cell)

    label = (
        f"Who explains head {spelled(found.numbers['layer'], found.numbers['head'])}, {found.numbers['pairs']} pairs"
    )
    plots.listed(WRITERS, writers, "heads_why_writers", label, found.id, on_row=on_row)


def _distances(found: Run) -> None:
    table = cached.columns(found, "distance")
    if not table["distance"]:
        widgets.prose("The positions of this model are not rotary, so the score has no curve over distances.", "quiet")
        return
    curve = plots.curve("score", table, "distance", "logit", hover="%{x} tokens back: %{y:.2f}")
    drawn = figure([curve], "tokens back", "score, content as it is", 220, xaxis={"type": "log"})
    plots.draw(drawn, table, "The same words at other distances", "heads_why_distance", TERM)
