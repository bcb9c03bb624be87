"""From all reads down to 2%: the mean hardly moves, then positions break, and the text shows which words."""

import streamlit as st

from analysis.commands.budgets import LostKeys, ReadsText
from analysis.runs import Run
from app import cached
from app.budgets import budget_charts, policy as budgets
from app.budgets.budget_words import ALLOWED, positions, share, shared, signed, span
from app.quality import painted_change
from app.selection import state
from app.selection.sparsify import BUDGET_BARS, READ_SHARES
from app.ui import asking, fields, jobs, painted, plots, tables, widgets

NO_CAP = 1 << 20
KEYS = {
    "position": tables.Column("token", "whole", help="its place in the text"),
    "piece": tables.Column("key", "token"),
    "distance": tables.Column("tokens back", "whole"),
    "mass": tables.Column("lost attention", "number", 3, help="summed over heads; each head spreads a weight of 1"),
    "heads": tables.Column("heads that dropped it", "whole"),
}


def _request() -> ReadsText:
    """The text and policy in use."""
    chosen = st.session_state
    settings = {"policy": chosen["budget_policy"], "shares": list(READ_SHARES), "window": None, "seed": 0}
    return ReadsText(**state.study_args(chosen, **settings))


def found() -> Run | None:
    """The stored measurement of this text, or None."""
    return cached.store().find(_request())


def _example() -> Run | None:
    """The same of another text, to look at until this one is measured, or None where none is."""
    request = _request().but(long_text="windows")
    candidates = (cached.store().find(request.but(text=key)) for key in cached.texts())
    return next((run for run in candidates if run is not None), None)


def tab(stored: dict[str, dict]) -> None:
    """The slider and what it shows, or the job that measures this text."""
    refused = budgets.refused(stored)
    run = None if refused else found()
    drawn = run or _example()
    text = drawn.request["text"] if drawn else st.session_state["text"]
    if st.session_state.setdefault("budget_text_seen", text) != text:
        st.session_state["budget_text_seen"] = text
        # A marked token means nothing in another text.
        state.choose(st.session_state, budget_token=None)
    if run is None and not refused:
        widgets.prose(
            f"The text is read {len(READ_SHARES)} times with fewer and fewer keys, shared out by the ranks of the "
            "policy. After that a slider shows every step at once.",
            "more",
        )
        jobs.run_button("Measure this text", _request(), "budget_reads_run", type="primary")
    if drawn is None:
        return
    if run is None:
        name = cached.texts()[drawn.request["text"]]
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.badge("example", icon=":material/inventory_2:", color="gray")
            widgets.prose(f"Until then: another text, “{name}”, measured before with the same policy.", "quiet")
    fields.alone(_live, drawn)


def _live(run: Run) -> None:
    chosen, rows = st.session_state, run.numbers["rows"]
    look = {"format_func": share, "help": cached.glossary("KV reads (% of causal)"), "on_change": _to_the_worst}
    st.select_slider("Share of the causal pairs that is read", READ_SHARES, key="budget_reads", **look)
    place = next(i for i, row in enumerate(rows) if row["share"] == chosen["budget_reads"])
    row = rows[place]
    _figures(row)
    with st.grid(2, min_column_width=360, gap="medium"):
        with st.container():
            figure = budget_charts.perplexity(row)
            if chosen["budget_bins"] == "change":
                figure = budget_charts.by_position(row, budget_charts.ends_of(rows), ALLOWED)
            title = f"By position, reading {share(row['share'])}"
            plots.draw(figure, row["bins"], title, "budget_positions", "worst position bin")
            look = {"format_func": BUDGET_BARS.get, "required": True, "label_visibility": "collapsed"}
            st.segmented_control("Bars", list(BUDGET_BARS), key="budget_bins", **look)
        figure = budget_charts.by_reads(rows, row["share"])
        plots.draw(figure, rows, "Mean, last and worst positions", "budget_shares", "worst position bin")
    cells = row["bins"]
    stretches = f"{len(cells)} stretches of {cells[0]['n']:,} predicted tokens each; {row['state']}"
    st.caption(f"{stretches}. Dotted: {share(ALLOWED)} either way. Keys are shared out by rank, without a cap.")
    _text(run, place)
    widgets.notes(run)
    widgets.source(run)


def _to_the_worst() -> None:
    """The mark goes back to the worst token."""
    state.choose(st.session_state, budget_token=None)


def _figures(row: dict) -> None:
    last, paired = row["bins"][-1], cached.glossary("paired difference")
    reads = cached.glossary("KV reads (% of causal)")
    facts = (
        ("All positions", signed(row["difference"]), span(row).partition(" (")[2].rstrip(")"), paired),
        ("Last positions", signed(last["difference"]), f"{last['first']:,} to {last['last'] - 1:,}", paired),
        ("Worst positions", signed(row["worst_bin_difference"]), positions(row, False), paired),
        ("Reads", share(row["reads_causal"]), f"{shared(row)} per key-value head", reads),
        ("Reads of T × T", share(row["reads_full"]), "of all pairs", cached.glossary("two denominators of reads")),
    )
    with st.container(horizontal=True, gap="large"):
        widgets.metrics(facts)


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
            lost_run = asking.ask(_lost_keys(run, place, token), "Looking up the keys it lost")
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


def _lost_keys(run: Run, place: int, token: int) -> LostKeys:
    policy = {"name": st.session_state["budget_policy"], "reads": run.numbers["rows"][place]["share"]}
    about = {name: run.request[name] for name in ("model", "text", "long_text")}
    return LostKeys(**about, policy=policy, cap=NO_CAP, position=token, window=run.numbers["window"], top=20)
