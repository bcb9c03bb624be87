"""What is folded away under the map: all heads in a table or a scatter, their names, what is lost without them, and the
stored studies behind that."""

from functools import partial
from typing import Any

import streamlit as st

from analysis.claims import signed
from analysis.runs import Run
from app import cached
from app.heads import head_charts, without
from app.heads.head_statistics import ALL, LETTERS, cells_of, offered, ranked, spelled
from app.heads.numbers import head_table
from app.heads.overview import choose
from app.selection.look import FINDERS
from app.ui import asking, fields, head_cards, plots, studied, tables, widgets
from app.ui.head_cards import Names

NAMED = {
    "cell": head_cards.HEAD,
    "name": tables.Column("name"),
    "score": tables.Column("score", "share", words="score_words", help="mean over the made texts, 95% interval"),
    "verdict": tables.Column("by ablation"),
    "rise": tables.Column(
        "loss rises by",
        "number",
        4,
        words="rise_words",
        help="nats per token, on tokens that need the name, less the rise of the others",
    ),
    "others_rise": tables.Column("without others", "number", 3, help="the most of the other heads that were tried"),
    "null_high": tables.Column("displaced", "share", help="the same measure at another place or distance, at most"),
    "others": tables.Column("other heads", "share", help="their median"),
    "here": tables.Column("this text", "share", help="the statistic of the same definition, where there is one"),
    "clear": tables.Column("sure", help="clear: the whole interval lies above the limit and the displaced"),
}
DEFINED = {
    "letter": tables.Column("letter"),
    "name": tables.Column("name"),
    "measure": tables.Column("what is measured", wrap=True),
    "above": tables.Column("from", "share"),
    "source": tables.Column("definition by", wrap=True),
}
HERE = {"previous token": "previous_token", "induction": "induction", "sink": "first_token_mass"}  # of `statistics`
SHOWN = {"map": "table", "scatter": "scatter"}
CHANCE = "chance level (uniform reading)"


def show(run: Run, table: dict, tokens: dict, cell: tuple[int, int], names: Names) -> None:
    """All of it, one below the other."""
    study = partial(studied.section, term="induction score", rows=False, reads=False)
    widgets.each(
        lambda: _all_heads(run, table, cell, names),
        lambda: _named(table, *cell),
        lambda: without.all_heads(tokens, *cell),
        partial(study, "induction", "Do induction heads carry what repetition gains?"),
        partial(study, "why-circuit", "Does Why name the heads that induction heads need?"),
        # It makes its models itself; it is stored beside this one.
        partial(study, "circuit", "Which models learn to look back?", of="demo"),
    )


# --- all heads --------------------------------------------------------------------------------------------------------


def _all_heads(run: Run, table: dict, now: tuple[int, int], names: Names) -> None:
    """The heads by the statistic in use: a table from either end, or every head against another statistic."""
    name = st.session_state["statistic"]
    about, order = ALL[name], st.session_state["order"] or ALL[name].first
    st.subheader(f"Heads by {about.short.lower()}", anchor=False, help=cached.glossary(about.term))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        look: dict[str, Any] = {"label_visibility": "collapsed", "required": True}
        st.segmented_control("Shown as", ["map", "scatter"], key="heads_shown", format_func=SHOWN.__getitem__, **look)
        fields.pick(st.segmented_control, "Order", ["highest", "lowest"], "order", order, **look)
        st.segmented_control("Rows", FINDERS, key="finder", **look)
    if st.session_state["heads_shown"] == "scatter":
        # Against any other statistic, a third one or the layer in colour.
        titles = {key: other.title for key, other in offered(table).items()}
        colours = {"layer": "Layer"} | titles
        with st.container(horizontal=True, gap="small"):
            fields.choose("Across", titles, "heads_across", width=205)
            fields.choose("Colour", colours, "heads_colour", width=205)
        across, colour = st.session_state["heads_across"], st.session_state["heads_colour"]
        title = f"{about.short} against {ALL[across].short.lower()}"
        figure = head_charts.scatter(table, across, name, colour, now, head_cards.cards())
        points = plots.draw(figure, table, title, "heads_scatter", ALL[across].term, select="points")
        if cell := widgets.new_cell(points, "heads_scatter"):
            choose(*cell)
            st.rerun()
        return
    listed = ranked(table[name], order)[: st.session_state["finder"]]
    chance = cached.columns(run, "chance")
    values = {column: [table[column][row] for row in listed] for column in ("layer", "head", "label", name)}
    values["cell"] = [spelled(*cell) for cell in cells_of(values)]
    columns = {
        "cell": head_cards.HEAD,
        "label": tables.Column("label", help=cached.glossary("label of a head")),
        name: about.column,
    }
    if name in chance:
        even = dict(zip(chance["layer"], chance[name], strict=True))
        values["chance"] = [even[layer] for layer in values["layer"]]
        help = cached.glossary(CHANCE)
        columns["chance"] = tables.Column("uniform attention", about.kind, about.digits, help=help)
    if names:
        values["name"] = [", ".join(names.get(cell, ())) for cell in cells_of(values)]
        columns["name"] = tables.Column("name", help=cached.glossary("name of a head"))
    identity = f"{run.id}.{name}.{order}.{len(listed)}"
    head_table(columns, values, "heads_finder", "Heads by this statistic", identity, now)


# --- names ------------------------------------------------------------------------------------------------------------


def _named(table: dict, layer: int, head: int) -> None:
    """The names of all heads, with what they rest on; `table`: the statistics of the heads on the reader's text."""
    st.subheader("What are the heads called?", anchor=False, help=cached.glossary("name of a head"))
    widgets.prose(
        "A name says what a head does on a text made to show it: random tokens that come twice, or a fact hidden in a "
        "story. The reader's text has no part in it.",
        "more",
    )
    is_stored = cached.store().find(head_cards.names_request()) is not None
    run = asking.ask(head_cards.names_request(), "Reading the texts made for names")
    if not is_stored:
        # The map and the finder show them too.
        st.rerun()
    named = run.numbers["rows"]
    verdicts = [row["verdict"] for row in named if row["verdict"] in head_cards.MARKS]
    widgets.prose(
        f"{len(set(cells_of(plots.columns(named, 'layer', 'head'))))} of {run.numbers['heads']} heads have a name, "
        f"{len(named)} names in all. Ablation confirms {verdicts.count('confirmed')} of the {len(verdicts)} it tried."
    )
    place = {cell: row for row, cell in enumerate(cells_of(table))}
    rows = []
    for row in named:
        cell, statistic = (row["layer"], row["head"]), HERE.get(row["name"])
        here = table[statistic][place[cell]] if statistic and cell in place else None
        rise = [row[name] and signed(row[name], ".3f") for name in ("rise", "low_rise", "high_rise")]
        words = {"score_words": tables.spread(row["score"], row["low"], row["high"])}
        words |= {"rise_words": "–" if row["rise"] is None else "{} ({} to {})".format(*rise)}
        sure = "clear" if row["clear"] else "close"
        rows.append(row | {"cell": spelled(*cell), "here": here, "clear": sure} | words)
    listed = plots.columns(rows, *NAMED, "score_words", "rise_words", "layer", "head")
    head_table(NAMED, listed, "heads_names", "Heads with a name", run.id, (layer, head))
    widgets.notes(run)
    with st.expander("What each name means", icon=":material/menu_book:"):
        defined = [about | {"letter": LETTERS[about["name"]]} for about in run.numbers["definitions"]]
        plots.listed(DEFINED, defined, "heads_definitions", "Definitions", run.id, height=330)
