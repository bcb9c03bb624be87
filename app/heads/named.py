"""What the heads are called: names by published definitions, how far each head fits, and whether ablation confirms."""

import streamlit as st

from analysis.claims import signed
from analysis.runs import Run
from app import cached
from app.heads import finder
from app.heads.words import LETTERS
from app.ui import asking, painted, tables, widgets

TERM = "name of a head"
ROWS = {
    "head": tables.Column("head"),
    "name": tables.Column("name"),
    "score": tables.Column("score", "share", words="spelled", help="mean over the made texts, 95% interval"),
    "verdict": tables.Column("by ablation"),
    "rise": tables.Column(
        "loss rises by",
        "number",
        4,
        words="lost",
        help="nats per token, on tokens that need the name, less the rise of the others",
    ),
    "others_rise": tables.Column("without others", "number", 3, help="the most of the other heads that were tried"),
    "null_high": tables.Column("displaced", "share", help="the same measure at another place or distance, at most"),
    "others": tables.Column("other heads", "share", help="their median"),
    "here": tables.Column("this text", "share", help="the statistic of the same definition, where there is one"),
    "clear": tables.Column("sure", help="clear: the whole interval lies above the limit and the displaced"),
}
HERE = {"previous token": "previous_token", "induction": "induction", "sink": "first_token_mass"}  # of `statistics`


def stored() -> Run | None:
    """The names of this model's heads, where they were asked for before."""
    return cached.store().find("names", _args())


def badges(run: Run | None) -> dict[tuple[int, int], list[str]]:
    """(layer, head) -> the names of a head, what ablation confirms first."""
    badges_: dict[tuple[int, int], list[str]] = {}
    for row in sorted(run.numbers["rows"] if run else [], key=lambda row: row["verdict"] != "confirmed"):
        label = row["name"] + {"confirmed": " ✓", "not confirmed": " (not confirmed)"}.get(row["verdict"], "")
        badges_.setdefault((row["layer"], row["head"]), []).append(label)
    return badges_


def show(table: dict, layer: int, head: int) -> None:
    """The names of all heads, with what they rest on; `table`: the statistics of the heads on the reader's text."""
    widgets.prose(
        "A name says what a head does on a text made to show it: random tokens that come twice, or a fact hidden in a "
        "story. The reader's text has no part in it.",
        "more",
    )
    is_stored = stored() is not None
    run = asking.ask("names", _args(), "Reading the texts made for names")
    if not is_stored:
        st.rerun()  # the map and the finder show them too
    widgets.prose(run.numbers["sentence"])
    _table(run, table, (layer, head))
    widgets.notes(run)
    _definitions(run)


def _args() -> dict:
    return {"model": st.session_state["model"]}


def _table(run: Run, table: dict, now: tuple[int, int]) -> None:
    """One row for each head and name; a row chooses its head."""
    rows = run.numbers["rows"]
    row_of = {cell: place for place, cell in enumerate(zip(table["layer"], table["head"], strict=True))}
    cells = [(row["layer"], row["head"]) for row in rows]
    values = {name: [row.get(name) for row in rows] for name in ROWS}
    values["head"] = [f"{layer}.{head}" for layer, head in cells]
    values["here"] = [
        table[HERE[row["name"]]][row_of[cell]] if row["name"] in HERE and cell in row_of else None
        for row, cell in zip(rows, cells, strict=True)
    ]
    values["clear"] = ["clear" if row["clear"] else "close" for row in rows]
    spelled = {
        "spelled": [f"{row['score']:.0%} ({row['low']:.0%} to {row['high']:.0%})" for row in rows],
        "lost": [_lost(row) for row in rows],
    }
    tables.table(
        ROWS,
        values | spelled,
        key="heads_names",
        identity=run.id,
        label="Heads with a name; choose one to look at it",
        selected=cells.index(now) if now in cells else None,
        on_row=lambda: finder.choose(*(painted.picked("heads_names", cells) or now)),
        height=360,
    )
    widgets.numbers(values, "names-of-heads", "heads_names_numbers")


def _lost(row: dict) -> str:
    if row["rise"] is None:
        return "–"
    rise, low, high = (signed(row[name], ".3f") for name in ("rise", "low_rise", "high_rise"))
    return f"{rise} ({low} to {high})"


def _definitions(run: Run) -> None:
    """What each name means, from which score on, and whose definition it is."""
    definitions = run.numbers["definitions"]
    columns = {
        "letter": tables.Column("letter"),
        "name": tables.Column("name"),
        "measure": tables.Column("what is measured", wrap=True),
        "above": tables.Column("from", "share"),
        "source": tables.Column("definition by", wrap=True),
    }
    with st.expander("What each name means", icon=":material/menu_book:"):
        values = {name: [definition.get(name) for definition in definitions] for name in columns}
        values["letter"] = [LETTERS[definition["name"]] for definition in definitions]
        tables.table(columns, values, key="heads_definitions", identity=run.id, label="Definitions", height=330)
