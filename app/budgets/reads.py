"""From all reads down to 2%: the mean hardly moves, then positions break, and the text shows which words."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.budgets import charts, policy as budgets
from app.budgets.words import ALLOWED, bins as listed, positions, share, shared, signed, span
from app.quality import text as quality_text
from app.selection import state
from app.selection.sparsify import BUDGET_BARS, READ_SHARES
from app.ui import asking, fields, jobs, painted, tables, widgets

NO_CAP = 1 << 20
KEYS = {
    "position": tables.Column("token", "whole", help="its place in the text"),
    "piece": tables.Column("key", "token"),
    "distance": tables.Column("tokens back", "whole"),
    "mass": tables.Column("lost attention", "number", 3, help="summed over heads; each head spreads a weight of 1"),
    "heads": tables.Column("heads that dropped it", "whole"),
}


def arguments() -> dict:
    """The arguments of `reads-text` for the text and policy in use."""
    chosen = st.session_state
    settings = {"policy": chosen["budget_policy"], "shares": list(READ_SHARES), "window": None, "seed": 0}
    return state.study_args(chosen, **settings)


def found() -> Run | None:
    """The stored measurement of this text, or None."""
    return cached.store().find("reads-text", arguments())


def example() -> Run | None:
    """The same of another text, to look at until this one is measured, or None where none is."""
    request = arguments() | {"long_text": "windows"}
    candidates = (cached.store().find("reads-text", request | {"text": key}) for key in cached.texts())
    return next((run for run in candidates if run is not None), None)


def tab(stored: dict[str, dict]) -> None:
    """The slider and what it shows, or the job that measures this text."""
    refused = budgets.refused(stored)
    run = None if refused else found()
    drawn = run or example()
    _about_text(drawn)
    if run is None and not refused:
        widgets.prose(
            f"The text is read {len(READ_SHARES)} times with fewer and fewer keys, shared out by the ranks of the "
            "policy. After that a slider shows every step at once.",
            "more",
        )
        jobs.run_button("Measure this text", "reads-text", arguments(), "budget_reads_run", type="primary")
    if drawn is None:
        return
    if run is None:
        name = cached.texts()[drawn.request["text"]]
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.badge("example", icon=":material/inventory_2:", color="gray")
            widgets.prose(f"Until then: another text, “{name}”, measured before with the same policy.", "quiet")
    fields.alone(_live, drawn)


def _about_text(drawn: Run | None) -> None:
    """A marked token belongs to the text that is shown; of another one it means nothing."""
    chosen, text = st.session_state, drawn.request["text"] if drawn else st.session_state["text"]
    if chosen.setdefault("budget_text_seen", text) != text:
        chosen["budget_text_seen"] = text
        state.choose(chosen, budget_token=None)


def _live(run: Run) -> None:
    chosen, rows = st.session_state, run.numbers["rows"]
    st.select_slider(
        "Share of the causal pairs that is read",
        READ_SHARES,
        key="budget_reads",
        format_func=share,
        help=cached.glossary("KV reads (% of causal)"),
        on_change=_moved,
    )
    look = {"format_func": BUDGET_BARS.get, "required": True, "label_visibility": "collapsed"}
    place = next(i for i, row in enumerate(rows) if row["share"] == chosen["budget_reads"])
    row = rows[place]
    _figures(row)
    with st.grid(2, min_column_width=360, gap="medium"):
        with st.container():
            change = chosen["budget_bins"] == "change"
            ends = charts.ends_of(rows)
            widgets.chart(
                charts.by_position(row, ends, ALLOWED) if change else charts.perplexity(row),
                listed(row_columns(row["bins"])),
                title=f"By position, reading {share(row['share'])}",
                key="budget_positions",
                alt="Change of perplexity, or perplexity, by position in the window",
                help=cached.glossary("worst position bin"),
            )
            st.segmented_control("Bars", list(BUDGET_BARS), key="budget_bins", **look)
        widgets.chart(
            charts.by_reads(rows, row["share"]),
            by_share(rows),
            title="Mean, last and worst positions",
            key="budget_shares",
            alt="Change of perplexity against the share of reads, for all, the last and the worst positions",
            help=cached.glossary("worst position bin"),
        )
    cells = row["bins"]
    units = f"; {row['state']}"
    st.caption(
        f"{len(cells)} stretches of {cells[0]['n']:,} predicted tokens each{units}. Dotted: {share(ALLOWED)} either "
        "way. Keys are shared out by rank, without a cap."
    )
    _text(run, place)
    widgets.notes(run)
    widgets.source(run)


def _moved() -> None:
    """The mark goes back to the worst token."""
    state.choose(st.session_state, budget_token=None)


def row_columns(rows: list[dict]) -> dict:
    """Rows as columns."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def by_share(rows: list[dict]) -> dict:
    """The numbers behind the chart over the reads."""
    names = ("share", "reads_causal", "reads_full", "perplexity", "difference", "low", "high", "worst_bin_difference")
    columns = {name: [row[name] for row in rows] for name in names}
    return columns | {"last_bin_difference": [row["bins"][-1]["difference"] for row in rows]}


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
    places, apart, dense = (
        cached.array(run, "position"),
        cached.array(run, "difference")[place],
        cached.array(run, "loss"),
    )
    size = len(tokens["piece"])
    change, loss = [None] * size, [None] * size
    for position, difference, base in zip(places.tolist(), apart.tolist(), dense.tolist(), strict=True):
        change[position], loss[position] = difference, base + difference
    widgets.settled("budget_token", [None, *(i for i in range(size) if change[i] is not None)], None)
    st.subheader("Which words break", anchor=False, help=cached.glossary("change of loss"))
    keys = None
    if st.session_state["budget_token"] is not None:
        with widgets.guarded():
            lost_run = _ask(run, place)
            lost, keys = lost_run.numbers, cached.columns(lost_run, "keys")
    if lost is None:
        widgets.prose("No token is less likely than under dense attention.", "more")
    else:
        worst = st.session_state["budget_token"] is None
        widgets.prose(f"{'The worst token: ' if worst else ''}{lost['sentence']}", "more")
        if lost["key"]:
            key, predicts = lost["key"], lost["piece"].strip() or "white space"
            notes = f"dropped by {key['heads']} heads", f"predicts {predicts!r}"
            painted.contexts(tokens, lost["query"], key["position"], notes=notes, around=30)
        if keys and keys["position"]:
            label = "The keys it lost, most attention first"
            tables.table(
                KEYS, keys, key="budget_keys_lost", identity=f"{run.id}.{lost['position']}", label=label, height=220
            )
            widgets.numbers(keys, "lost-keys", "budget_keys_rows")
    quality_text.show(
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


def _ask(run: Run, place: int) -> Run:
    policy = {"name": st.session_state["budget_policy"], "reads": run.numbers["rows"][place]["share"]}
    args = {name: run.request[name] for name in ("model", "text", "long_text")}
    args |= {"policy": policy, "cap": NO_CAP, "position": st.session_state["budget_token"]}
    args |= {"window": run.numbers["window"], "top": 20}
    return asking.ask("lost-keys", args, "Looking up the keys it lost")
