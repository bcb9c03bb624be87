"""Drawers of Attention heads: heads like this one, names of heads, and the stored studies behind them."""

import streamlit as st

from analysis.claims import signed
from analysis.commands.heads import Ablate, Alike, Names as NamesOfHeads
from analysis.runs.price import spell
from app import cached
from app.heads import one_head
from app.heads.finder import head_table
from app.heads.head_statistics import LETTERS, Names, cells_of
from app.selection import state
from app.ui import asking, offers, plots, studied, tables, widgets

# The study of training makes its models itself; it is stored beside this one.
TRAINED_WITH = "demo"
NAMED = {
    "cell": tables.Column("head"),
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
MARKS = {"confirmed": " ✓", "not confirmed": " (not confirmed)"}


# --- which windows of a text a drawer covers --------------------------------------------------------------------------


def windows(control: str, request: Alike | Ablate, tokens: dict) -> tuple[int | None, int]:
    """(window that is asked for, None for all; its tokens), as the switch `control` says. A text of several windows
    offers all of them, which then start at the price that the button says."""
    (part, _), count, every = one_head.place(tokens), tokens["window"][-1] + 1, len(tokens["window"])
    if count == 1:
        return part, every
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if st.session_state[control]:
            widgets.prose(f"All {count} windows, {every:,} tokens.", "quiet")
            look = {"type": "tertiary", "on_click": _read_all, "args": (control, False, None)}
            st.button(f"Window {part + 1} only", key=f"{control}_one", **look)
            return None, every
        size, price = tokens["window"].count(part), cached.due(request.but(part=None), every).price
        widgets.prose(f"Window {part + 1} of {count}, {size:,} of {every:,} tokens.", "quiet")
        look = {"icon": ":material/play_arrow:", "help": f"{price.sentence}."}
        look |= {"on_click": _read_all, "args": (control, True, request.verb)}
        st.button(f"All {count} windows, ~{spell(price.seconds)}", key=f"{control}_all", **look)
    return part, size


def _read_all(control: str, every: bool, starts: str | None) -> None:
    state.choose(st.session_state, **{control: every})
    if starts:
        st.session_state[offers.GO] = starts


# --- heads like this one ----------------------------------------------------------------------------------------------


def alike(table: dict, tokens: dict, layer: int, head: int, names: Names) -> None:
    """The heads most like the chosen one in the window in use, or in all. `table`: the statistics of all heads, which
    label them; `names`: those that are known."""
    settings = {"layer": layer, "head": head, "without_first": st.session_state["without_first"]}
    request = Alike(**state.study_args(st.session_state, **settings))
    part, size = windows("alike_all", request, tokens)
    run = asking.ask(request.but(part=part), f"Comparing head {head} of layer {layer} with the others", size)
    widgets.prose(run.numbers["sentence"])
    heads = cached.columns(run, "heads")
    labels = dict(zip(cells_of(table), table["label"], strict=True))
    ends = zip(heads["likeness"], heads["low"], heads["high"], strict=True)
    values = heads | {
        "label": [labels[cell] for cell in cells_of(heads)],
        "name": [", ".join(names.get(cell, ())) for cell in cells_of(heads)],
        "spelled": [
            f"{value:.0%}" + ("" if low is None else f" ({low:.0%} to {high:.0%})") for value, low, high in ends
        ],
    }
    columns = {
        "layer": tables.Column("layer", "whole"),
        "head": tables.Column("head", "whole"),
        "likeness": tables.Column("likeness", "share", words="spelled", help=cached.glossary("likeness of heads")),
        "label": tables.Column("label", help=cached.glossary("label of a head")),
    }
    if names:
        columns["name"] = tables.Column("name", help=cached.glossary("name of a head"))
    head_table(columns, values, "heads_alike", "Heads like this one", run.id, None)
    widgets.notes(run)


# --- names ------------------------------------------------------------------------------------------------------------


def known_names() -> Names:
    """(layer, head) -> the names of a head, what ablation confirms first, where they were asked for before."""
    run = cached.store().find(_names())
    labels: dict[tuple[int, int], list[str]] = {}
    for row in sorted(run.numbers["rows"] if run else [], key=lambda row: row["verdict"] != "confirmed"):
        labels.setdefault((row["layer"], row["head"]), []).append(row["name"] + MARKS.get(row["verdict"], ""))
    return labels


def _names() -> NamesOfHeads:
    return NamesOfHeads(model=st.session_state["model"])


def named(table: dict, layer: int, head: int) -> None:
    """The names of all heads, with what they rest on; `table`: the statistics of the heads on the reader's text."""
    widgets.prose(
        "A name says what a head does on a text made to show it: random tokens that come twice, or a fact hidden in a "
        "story. The reader's text has no part in it.",
        "more",
    )
    is_stored = cached.store().find(_names()) is not None
    run = asking.ask(_names(), "Reading the texts made for names")
    if not is_stored:
        # The map and the finder show them too.
        st.rerun()
    widgets.prose(run.numbers["sentence"])
    place = {cell: row for row, cell in enumerate(cells_of(table))}
    rows = []
    for row in run.numbers["rows"]:
        cell, statistic = (row["layer"], row["head"]), HERE.get(row["name"])
        here = table[statistic][place[cell]] if statistic and cell in place else None
        rise = [row[name] and signed(row[name], ".3f") for name in ("rise", "low_rise", "high_rise")]
        words = {"score_words": f"{row['score']:.0%} ({row['low']:.0%} to {row['high']:.0%})"}
        words |= {"rise_words": "–" if row["rise"] is None else "{} ({} to {})".format(*rise)}
        sure = "clear" if row["clear"] else "close"
        rows.append(row | {"cell": "{}.{}".format(*cell), "here": here, "clear": sure} | words)
    listed = plots.columns(rows, *NAMED, "score_words", "rise_words", "layer", "head")
    head_table(NAMED, listed, "heads_names", "Heads with a name", run.id, (layer, head))
    widgets.notes(run)
    with st.expander("What each name means", icon=":material/menu_book:"):
        defined = [about | {"letter": LETTERS[about["name"]]} for about in run.numbers["definitions"]]
        plots.listed(DEFINED, defined, "heads_definitions", "Definitions", run.id, height=330)


# --- evidence ---------------------------------------------------------------------------------------------------------


def evidence() -> None:
    """Whether induction heads carry repetition, and which models get them at all."""
    widgets.each(_without_induction, _trained)


def _without_induction() -> None:
    """What the model in use loses without its induction heads."""
    help = cached.glossary("induction score")
    st.header("Do induction heads carry what repetition gains?", anchor=False, help=help)
    numbers = studied.opened("induction", "Whether induction heads carry repetition", reads=False)
    if numbers is not None:
        studied.drawn(numbers, "heads_induction", help)


def _trained() -> None:
    """Small models trained to look back, with and without normalised queries and keys, whichever model is in use."""
    help = cached.glossary("induction score")
    st.header("Which models learn to look back?", anchor=False, help=help)
    numbers = asking.study(TRAINED_WITH, "circuit")[0]
    if numbers is None:
        studied.missing("Which models learn to look back", "circuit", reads=False)
        return
    widgets.prose(numbers.sentence, "more")
    studied.badge(numbers)
    studied.drawn(numbers, "heads_circuit", help)
