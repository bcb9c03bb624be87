"""Calibrate on texts of one's own, how early positions pull the ranks down, and two calibrations side by side."""

from typing import Any

import streamlit as st

from analysis.commands.budgets import Calibrate, Calibrations
from analysis.runs.brought import TEXTS
from app import cached
from app.budgets import budget_charts, policy
from app.budgets.effect import caps, tolerances
from app.selection import state
from app.selection.sparsify import FLOORED, SHARED_BY, SHARED_OUT
from app.ui import asking, fields, jobs, plots, widgets
from app.ui.offers import Scope


def show(policies: dict[str, dict]) -> None:
    """The form and its run, then the policy in use: early positions, and another policy beside it."""
    _form()
    with widgets.guarded():
        _run()
    first = st.session_state["budget_policy"]
    with widgets.guarded():
        # Early positions see few keys.
        st.subheader("Early positions pull the ranks down", anchor=False, help=cached.glossary("early-position bias"))
        about = policies.get(first, {})
        rows, bias, start = about.get("positions"), about.get("bias"), about.get("min_pos") or 0
        if rows and bias:
            words = f"Over all positions, {bias['all']:,.0f} keys hold {about['mass']:.0%} of a head's attention; over "
            words += f"the last sixteenth of the window {bias['last_sixteenth']:,.0f}, because late tokens have more "
            words += "keys to read."
            if start:
                words += f" This policy counts positions from {start:,} on: {bias['from_min_pos']:,.0f} keys."
            widgets.prose(words, "more")
            figure = budget_charts.ranks_by_position(rows, start)
            plots.draw(figure, rows, "Rank by position", "budget_bias", "early-position bias")
        else:
            widgets.prose("This policy stores no ranks by position: calibrate it here to see them.", "quiet")
    with widgets.guarded():
        st.subheader("Two calibrations", anchor=False, help=cached.glossary("agreement of calibrations"))
        names = [name for name in policies if name != first]
        if names:
            widgets.settled("budget_other", [None, *names], None)
            default = st.session_state["budget_other"] or names[0]
            second = fields.pick(st.selectbox, f"Beside {first}", names, "budget_other", default, width=240)
            request = cached.request(Calibrations, model=st.session_state["model"], policy=first, other=second)
            run = asking.ask(request, "Comparing two calibrations")
            widgets.prose(run.numbers["sentence"], "more")
            table = cached.columns(run, "cells")
            figure = budget_charts.two(table, (first, second))
            plots.draw(figure, table, "Rank of every head", "budget_two", "agreement of calibrations")
        else:
            words = "Only one policy is stored: calibrate another, under another name, to compare the two."
            widgets.prose(words, "quiet")


def _form() -> None:
    chosen = st.session_state
    real: dict[str, Any] = {"format": "%g", "width": 150}
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        fields.corpus("budget_texts", chosen["text"], ("Calibrate on", "Texts"), "The text in use", "calibration")
        fields.number("Tokens, each half", "budget_tokens", 64, 999_999, "calibration", width=140)
        look: dict[str, Any] = {"max_chars": 32, "width": 130, "on_change": _named, "help": cached.glossary("policy")}
        st.text_input("Name", key="budget_name", **look)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        fields.number("Mass p", "budget_mass", 0.01, 0.99, "top-p rank", step=0.05, **real)
        fields.number("First position", "budget_min_pos", 0, 1 << 20, "early-position bias", width=120)
        fields.choose("Keys set by", SHARED_OUT, "budget_by", "key budget", width=210)
        if chosen["budget_by"] == "beta":
            fields.number("beta", "budget_beta", 0.01, 1000.0, "key budget", step=0.5, **real)
        elif chosen["budget_by"] == "total":
            fields.number("Keys", "budget_total", 1, 1 << 29, "key budget", width=120)
        else:
            term = "KV reads (% of causal)"
            fields.number("% of the causal pairs", "budget_share", 0.1, 100.0, term, step=5.0, **real)
        fields.choose("Shared out by", SHARED_BY, "budget_shared", "keys shared out by ablation", width=210)
        fields.number("Floor", "budget_floor", 0, 1024, "key budget", width=90)
        fields.choose("Given", FLOORED, "budget_floored", "key budget", width=210)
        st.toggle("Find the smallest cap too", key="budget_sweep", help=cached.glossary("cap"))


def _request() -> Calibrate:
    """What the form asks for."""
    chosen = st.session_state
    args = {"model": chosen["model"]}
    args |= {name: chosen[f"budget_{name}"] for name in ("name", "tokens", "mass", "min_pos", "floor")}
    args |= dict(zip(("tolerance", "tolerance_bin"), tolerances(), strict=True))
    args["caps"] = caps(chosen["budget_caps"]) if chosen["budget_sweep"] else []
    changed = ("shared", "floored", "judged")
    args |= {name: chosen[f"budget_{name}"] for name in changed if chosen[f"budget_{name}"] != Calibrate.defaults[name]}
    way = chosen["budget_by"]
    args[way] = chosen["budget_share"] / 100 if way == "reads" else chosen[f"budget_{way}"]
    # Texts by their hashes, or the name of a folder.
    corpus = chosen["budget_texts"] or chosen["text"]
    return Calibrate(**args, **({"texts": corpus.split("+")} if TEXTS.fullmatch(corpus) else {"corpus": corpus}))


def smaller(request: Calibrate) -> list[Scope]:
    """The calibration with less to do."""
    scopes, fewer = [], max(request.tokens // 4, 1024)
    if fewer < request.tokens:
        scopes.append(Scope(f"{fewer:,} tokens", {"budget_tokens": fewer}, fewer / request.tokens))
    if request.caps:
        scopes.append(Scope("without the search for a cap", {"budget_sweep": False}, 1 / (1 + len(request.caps))))
    return scopes


def _run() -> None:
    request = _request()
    run = cached.store().find(request)
    jobs.run_button(
        "Calibrate",
        request,
        "budget_calibrate",
        request.tokens,
        stored=run,
        smaller=lambda: smaller(request),
        type="primary",
    )
    widgets.prose(
        "Calibration and measurement never share text. Of several texts the first half calibrates; one text is split "
        "in two; of a folder the held-out texts measure.",
        "quiet",
    )
    if run is None:
        return
    widgets.prose(run.numbers["sentence"], "more")
    widgets.notes(run)
    widgets.source(run)
    if request.name != st.session_state["budget_policy"]:
        st.button(f"Use the policy {request.name}", key="budget_use", on_click=policy.use, args=(request.name,))


def _named() -> None:
    """A name that no file can have is made one; that of the first policy stays its own."""
    signs = (sign if sign.isascii() and sign.isalnum() else "-" for sign in st.session_state["budget_name"].lower())
    name = "".join(signs).strip("-")[:32]
    usual = state.CONTROLS["budget_name"].default
    state.choose(st.session_state, budget_name=usual if name in ("", policy.DEFAULT) else name)
