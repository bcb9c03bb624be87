"""The smallest cap that changes no position: a sweep of this text, tolerances judged at once; as evidence, several
corpora and the paper's table."""

import re

import streamlit as st

from analysis import papers
from analysis.errors import BadSetting
from analysis.runs.caps import judged
from app import cached
from app.budgets import charts, policy as budgets
from app.budgets.by_hand import sweep_arguments
from app.budgets.words import positions, shared, signed, span
from app.selection import state
from app.ui import fields, jobs, stored, tables, widgets
from app.ui.offers import Scope

MOST_CAPS = 32
PAPER, TABLE = "calibrated_sparse_attention", "table 1"
COLUMNS = {
    "cap": tables.Column("cap", "whole"),
    "verdict": tables.Column("verdict"),
    "change": tables.Column("change (95% interval)"),
    "worst": tables.Column("worst stretch"),
    "reads_causal": tables.Column("reads", "share", help="of the causal pairs"),
    "reads_full": tables.Column("of T × T", "share", help=cached.glossary("two denominators of reads")),
    "shared": tables.Column("per key-value head", help=cached.glossary("reads per key-value head")),
    "attended": tables.Column("keys", "number", 1, help="that a query reads on average"),
    "perplexity": tables.Column("perplexity", "number"),
}
STUDY = {
    "corpus": tables.Column("corpus"),
    "context": tables.Column("context", "whole"),
    "perplexity_dense": tables.Column("dense", "number", help="perplexity of dense attention"),
    "cap": tables.Column("cap", "whole"),
    "beta": tables.Column("beta", "number", 0, help="keys in total, divided by the sum of the ranks"),
    "reads_causal": tables.Column("reads, of causal pairs", "share"),
    "reads_full": tables.Column("reads, of T × T", "share"),
    "difference": tables.Column("change", "share", help="of perplexity, on documents that chose nothing"),
    "upper": tables.Column("at most", "share", help="one-sided 95% limit over those documents"),
    "worst_bin_difference": tables.Column("change, worst stretch", "share"),
    "worst_bin_upper": tables.Column("at most", "share", help="one-sided 95% limit over those documents"),
    "units": tables.Column("documents", "whole"),
    "verdict": tables.Column("on other texts"),
}


def caps(raw: str) -> list[int]:
    """The caps of a list such as "32, 64, 1k". Errors: BadSetting."""
    words = re.split(r"[ ,]+", raw.strip(" ,"))
    try:
        values = [int(word[:-1]) * 1024 if word[-1:] in "kK" and word[:-1] else int(word) for word in words]
    except ValueError:
        values = []
    if not 1 <= len(values) <= MOST_CAPS or not all(1 <= cap <= 1 << 20 for cap in values):
        raise BadSetting(
            f"“{raw[:40]}” is not a list of caps: give 1 to {MOST_CAPS} whole numbers such as 32, 64, 128."
        )
    return sorted(set(values))


def tab(policies: dict[str, dict]) -> None:
    """The form, the sweep and its judgement."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.text_input("Caps, keys", key="budget_caps", width=260, max_chars=80, help=cached.glossary("cap"))
        for label, name, term in (
            ("Allowed on average, at most %", "budget_tolerance", "tolerances of the cap"),
            ("Allowed at any stretch, at most %", "budget_tolerance_bin", "tolerances of the cap"),
        ):
            fields.number(label, name, 0.0, 100.0, term, step=0.5, width=190)
    _sweep(policies)


def _sweep(policies: dict[str, dict]) -> None:
    if budgets.refused(policies):
        return
    policy = {key: value for key, value in budgets.recipe().items() if key != "cap"}
    args = sweep_arguments(policy, caps(st.session_state["budget_caps"]))
    run = cached.store().find("cap-sweep", args)
    if run is None:
        jobs.run_button(
            f"Try {len(args['caps'])} caps on this text",
            "cap-sweep",
            args,
            "budget_sweep_run",
            smaller=lambda: smaller(args["caps"]),
            type="primary",
        )
        return
    allowed, allowed_bin = (st.session_state[name] / 100 for name in ("budget_tolerance", "budget_tolerance_bin"))
    verdicts = judged(run.numbers["sweep"], allowed, allowed_bin)
    widgets.prose(verdicts["sentence"], "more")
    rows, cap = verdicts["sweep"], verdicts["cap"]
    values = {
        "cap": [row["cap"] for row in rows],
        "verdict": [_verdict(row, cap, allowed, allowed_bin) for row in rows],
        "perplexity": [row["perplexity"] for row in rows],
        "change": [span(row) for row in rows],
        "worst": [f"{signed(row['worst_bin_difference'])} at {positions(row, False)}" for row in rows],
    } | {name: [row[name] for row in rows] for name in ("reads_causal", "reads_full", "attended")}
    values["shared"] = [shared(row) for row in rows]
    values = {name: values[name] for name in COLUMNS}
    tables.table(
        COLUMNS,
        values,
        key="budget_sweep",
        identity=f"{run.id}.{allowed}.{allowed_bin}",
        label="Caps, the chosen one marked",
        selected=values["cap"].index(cap) if cap else None,
        height=300,
    )
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        widgets.numbers(values, "caps", "budget_sweep_rows")
        if cap is None:
            st.button("Try it with twice the keys", key="budget_twice", on_click=_twice)
        if cap and cap != st.session_state["budget_cap"]:
            st.button(
                f"Put the cap {cap:,} into the policy",
                key="budget_cap_use",
                on_click=lambda: state.choose(st.session_state, budget_cap=cap),
                icon=":material/check:",
            )
    widgets.chart(
        charts.sweep(rows, cap, allowed_bin),
        {name: cached.columns(run, "bins")[name] for name in cached.columns(run, "bins")},
        title="Change by position under each cap",
        key="budget_sweep_chart",
        alt="Change of perplexity by position, a line for each cap",
        help=cached.glossary("worst position bin"),
    )
    st.caption(f"Dense perplexity {rows[0]['perplexity_dense']:.2f}. Dotted: ± {100 * allowed_bin:g}%.")
    widgets.notes(run)
    widgets.source(run)


def smaller(tried: list[int]) -> list[Scope]:
    """The first half of the caps."""
    fewer = tried[: len(tried) // 2]
    share = (1 + len(fewer)) / (1 + len(tried))
    return (
        [Scope(f"{len(fewer)} cap{'s' * (len(fewer) > 1)}", {"budget_caps": ", ".join(map(str, fewer))}, share)]
        if fewer
        else []
    )


def _verdict(row: dict, cap: int | None, allowed: float, allowed_bin: float) -> str:
    if row["passes"]:
        return "chosen" if row["cap"] == cap else "passes"
    side = row["select"]
    if side["upper"] is None or side["worst_bin_upper"] is None:
        return "too little text"
    failures = ["average"] * (side["upper"] > allowed) + ["stretch"] * (side["worst_bin_upper"] > allowed_bin)
    return f"fails: {' and '.join(failures)}"


def _twice() -> None:
    beta = 2 * budgets.ask(budgets.recipe()).numbers["beta"]
    state.choose(st.session_state, budget_way="beta", budget_size=float(f"{beta:.3g}"))


def study() -> None:
    """Several corpora and contexts, as they were measured and stored, and the paper's own table."""
    st.header("Corpora and contexts", anchor=False, help=cached.glossary("cap"))
    numbers = stored.opened("calibration", "The table of corpora and contexts", small=True)
    if numbers is not None:
        rows = numbers.rows
        about_columns = {
            name: about for name, about in STUDY.items() if name in rows[0]
        }  # not all, where stored before
        values = {name: [row[name] for row in rows] for name in about_columns}
        tables.table(
            about_columns, values, key="budget_study", identity="study", label="Corpora and contexts", height=280
        )
        widgets.numbers(values, "calibration", "budget_study_rows")
        stored.made(numbers)
    with st.expander("What the paper printed", icon=":material/menu_book:"):
        cells = papers.find(PAPER, TABLE)
        rows, columns = (list(dict.fromkeys(getattr(cell, side) for cell in cells)) for side in ("row", "column"))
        printed = {(cell.row, cell.column): cell.value for cell in cells}
        values = {"model": rows} | {name: [str(printed.get((row, name), "–")) for row in rows] for name in columns}
        paper_columns = {name: tables.Column(name) for name in values}
        tables.table(
            paper_columns, values, key="budget_paper", identity="paper", label="Table 1 of the paper", height=330
        )
        widgets.prose(
            "The paper used other models and text, so its numbers share no scale with ours. It does not state its "
            "tolerances.",
            "quiet",
        )
