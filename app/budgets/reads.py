"""Where reading less breaks: by position, and by word in the text."""

from typing import Any

import streamlit as st

from analysis.commands.budgets import LostKeys, ReadsText
from analysis.runs import Run
from app import cached
from app.budgets import budget_charts, live
from app.budgets.budget_words import ALLOWED, share
from app.quality import painted_change
from app.selection import state
from app.selection.sparsify import BUDGET_BARS, READ_SHARES
from app.ui import asking, fields, painted, plots, tables, widgets

KEYS = {
    "position": tables.Column("token", "whole", help="its place in the text"),
    "piece": tables.Column("key", "token"),
    "distance": tables.Column("tokens back", "whole"),
    "mass": tables.Column("lost attention", "number", 3, help="summed over heads; each head spreads a weight of 1"),
    "heads": tables.Column("heads that dropped it", "whole"),
}


def request() -> ReadsText:
    """The text and policy in use."""
    chosen = st.session_state
    settings = {"policy": chosen["budget_policy"], "shares": list(READ_SHARES), "window": None, "seed": 0}
    return ReadsText(**state.study_args(chosen, **settings))


def found() -> Run | None:
    """The stored measurement of this text, or None."""
    return cached.store().find(request())


def example() -> Run | None:
    """The same of another text, to look at until this one is measured, or None where none is."""
    asked = request().but(long_text="windows")
    candidates = (cached.store().find(asked.but(text=key)) for key in cached.texts())
    return next((run for run in candidates if run is not None), None)


def show(run: Run | None, at_share: float, refused: str | None) -> None:
    """The loss by position at the measured share nearest to the slider, and the words that break. `run`: of the text
    in use, where it was measured."""
    if refused:
        widgets.prose(refused, "note")
    elif run is None:
        widgets.prose("This text was not measured yet: the button beside the map does it.", "quiet")
    else:
        fields.alone(_drawn, run, at_share)


def _drawn(run: Run, at_share: float) -> None:
    rows = run.numbers["rows"]
    place = next(place for place, row in enumerate(rows) if row["share"] == at_share)
    row, cells = rows[place], rows[place]["bins"]
    with st.grid(2, min_column_width=360, gap="medium"):
        with st.container():
            figure = budget_charts.perplexity(row)
            if st.session_state["budget_bins"] == "change":
                figure = budget_charts.by_position(row, budget_charts.ends_of(rows), ALLOWED)
            title = f"By position, reading {share(at_share)}"
            plots.draw(figure, cells, title, "budget_positions", "worst position bin")
            fields.switch("Bars", BUDGET_BARS, "budget_bins", label_visibility="collapsed")
        figure = budget_charts.by_reads(rows, at_share)
        plots.draw(figure, rows, "Mean, last and worst positions", "budget_shares", "worst position bin")
    st.caption(f"{len(cells)} stretches of {cells[0]['n']:,} predicted tokens each; {row['state']}.")
    _text(run, place)
    widgets.notes(run)
    widgets.source(run)


def _text(run: Run, place: int) -> None:
    tokens, lost = cached.columns(run, "tokens"), run.numbers["lost"][place]
    apart = cached.array(run, "difference")[place]
    now, size = cached.array(run, "loss") + apart, len(tokens["piece"])
    change, loss = painted_change.placed(cached.array(run, "position").tolist(), size, apart.tolist(), now.tolist())
    widgets.settled("budget_token", [None, *(token for token in range(size) if change[token] is not None)], None)
    st.subheader("Which words break", anchor=False, help=cached.glossary("change of loss"))
    token, keys = st.session_state["budget_token"], None
    if token is not None:
        with widgets.guarded():
            recipe = {"name": st.session_state["budget_policy"], "reads": run.numbers["rows"][place]["share"]}
            about: dict[str, Any] = {name: run.request[name] for name in ("model", "text", "long_text")}
            about |= {"policy": recipe, "cap": live.NO_CAP, "window": run.numbers["window"], "top": 20}
            lost_run = asking.ask(LostKeys(**about, position=token), "Looking up the keys it lost")
            lost, keys = lost_run.numbers, cached.columns(lost_run, "keys")
    if lost is None:
        widgets.prose("No token is less likely than under dense attention.", "more")
    else:
        widgets.prose(f"{'The worst token: ' if token is None else ''}{lost['sentence']}", "more")
        if key := lost["key"]:
            predicts = lost["piece"].strip() or "white space"
            notes = f"dropped by {key['heads']} heads", f"predicts {predicts!r}"
            painted.contexts(tokens, lost["query"], key["position"], notes=notes, around=30)
        if keys and keys["position"]:
            label, identity = "The keys it lost, most attention first", f"{run.id}.{lost['position']}"
            plots.listed(KEYS, keys, "budget_keys_lost", label, identity, height=220)
    painted_change.show(
        tokens,
        change,
        loss,
        "now",
        key="budget_text",
        identity=f"{run.id}.{run.created}.{place}",
        place=f"{run.request['text']}.budgets",
        hint="Click a token to see the keys it lost; a second click or Esc goes back to the worst one.",
        locked=lost["position"] if lost else None,
        on_token=lambda: state.choose(st.session_state, budget_token=painted.clicked("budget_text", "token")),
    )
