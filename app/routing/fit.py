"""Calibrating and testing routers on texts of the reader's own: a form with its price, the job, and what it found."""

import re

import streamlit as st

from analysis.commands import commandline
from analysis.runs.brought import TEXTS
from app import cached
from app.routing import recall, texts as own_texts
from app.routing.words import head_columns
from app.selection import state
from app.selection.sparsify import PARTITIONS, ROUTE_HEADS
from app.ui import asking, jobs, repeat, tables, widgets
from app.ui.offers import Scope

PROMPTS = 12


def show(card: dict) -> None:
    """The form and its button, then the stored result of exactly this request."""
    widgets.prose(
        "The first half of the texts calibrates buckets and routers, the second half tests them. Each half needs at "
        "least three texts, each longer than the minimum distance.",
        "more",
    )
    _form(card)
    args = arguments()
    if args is None:
        widgets.prose(
            f"Choose at least {own_texts.LEAST} texts above, upload several, or cut one long text into parts.", "note"
        )
    else:
        stored = cached.store().find("route", args)
        jobs.run_button(
            "Calibrate and test again" if stored else "Calibrate and test",
            "route",
            args,
            "route_run",
            tokens=2 * PROMPTS * args["length"],
            instead_of=stored.id if stored else None,
            smaller=lambda: [Scope("without the MLP router", {"route_mlp": False})] * args["mlp"],
            type="secondary" if stored else "primary",
        )
        if stored is not None:
            _found(stored)
    repeat.drawer(command(), more="With --store, this page shows these buckets, routers and curves from then on.")


def arguments() -> dict | None:
    """The arguments of `route` for the present form; None while too few texts are chosen."""
    chosen = st.session_state
    corpus = chosen["route_corpus"] or ""
    texts = corpus.split("+") if corpus and TEXTS.fullmatch(corpus) else []
    if not corpus or (texts and len(texts) < own_texts.LEAST):
        return None
    return {"texts": texts or None, "corpus": "" if texts else corpus} | _settings()


def _settings() -> dict:
    chosen = st.session_state
    args = {"model": chosen["model"], "length": _length(chosen["model"])}
    args |= {"heads": chosen["route_heads"].replace(" ", "").replace("~", ",")}
    args |= {"min_distance": chosen["route_distance"], "sinks": 4 * chosen["route_sinks"], "prompts": PROMPTS}
    args |= {"buckets": chosen["route_buckets"], "own": chosen["route_own"], "mlp": chosen["route_mlp"]}
    return args | {"seed": chosen["route_seed"]}


def _length(model: str) -> int:
    return min(asking.card(model)["max_positions"], 2048)


def command() -> str:
    """The same without a browser; the corpus is a folder there."""
    return commandline("route", {"corpus": "DIR"} | _settings())


def _form(card: dict) -> None:
    own_texts.show()
    length = _length(card["name"])
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.number_input(
            "Buckets (C)",
            2,
            1 << 16,
            key="route_buckets",
            value=None,
            placeholder=f"{max(2, length // 32)}",
            width=130,
            help=cached.glossary("bucket of keys"),
        )
        st.text_input(
            "Heads",
            key="route_heads",
            width=190,
            max_chars=200,
            on_change=_heads,
            help="all, or layer:head with commas between, as in 2:0,4:3",
        )
        st.number_input("Seed", 0, 9999, key="route_seed", step=1, width=110, help=cached.glossary("protocol"))
        st.toggle("Also each router's own buckets", key="route_own", help=cached.glossary("own partition"))
        st.toggle("Train the MLP", key="route_mlp", help=cached.glossary("bucket routers"))
    widgets.prose("Minimum distance and sinks are those chosen above.", "quiet")


def _heads() -> None:
    """What names no heads becomes all of them."""
    typed = st.session_state["route_heads"].replace(" ", "")
    state.choose(st.session_state, route_heads=typed if re.fullmatch(ROUTE_HEADS, typed) else "all")


def _found(run) -> None:
    widgets.source(run)
    widgets.prose(run.numbers["sentence"])
    widgets.prose(run.numbers["notes"], "quiet")
    identity = f"{run.id}{run.created}"
    recall.show(run.numbers, "route_own", identity, paper=False)
    for cell in run.numbers["cells"]:
        if (name := cell["partition"]) != "raw keys":
            numbers = {**cell, "buckets": run.numbers["buckets"]}
            recall.table(numbers, [], f"route_{name}", identity, f"Buckets of {PARTITIONS[name]},")
    heads = run.numbers["heads"]
    columns = {name: column for name, column in head_columns().items() if name in heads[0]}
    values = {name: [row[name] for row in heads] for name in columns}
    st.subheader("Recall of each head", anchor=False, help=cached.glossary("gap closure"))
    tables.table(columns, values, key="route_found_heads", identity=identity, label="Heads", height=300)
    widgets.numbers(values, "heads", "route_found_heads_numbers")
