"""The page on bucket routing: one answer and its controls, live, over five looks at the same curves."""

import json

import streamlit as st

from analysis.errors import NotFitted
from analysis.runs import Run
from analysis.runs.stored import study_folders
from app import cached
from app.routing import closure, cost, fit, heads, recall, token
from app.routing.words import LEFT_OUT
from app.selection import state
from app.selection.sparsify import PARTITIONS, ROUTE_ON, ROUTE_TABS
from app.ui import asking, fields, stored, take, widgets
from app.ui.tabs import tabs

STEPS = 0.25  # buckets


def live() -> None:
    """Redrawn alone: the slider redraws this page's own part and nothing else."""
    fields.alone(_live)


def _live() -> None:
    card = asking.card(st.session_state["model"])
    try:
        opened = asking.ask("route-at", _request(None, None), "Reading the stored curves")
    except NotFitted:
        _without(card)
    else:
        _shown(opened, card)


def _shown(opened: Run, card: dict) -> None:
    """`opened`: the stored curves as the page finds them when nothing was chosen."""
    answer = st.container()
    cell = _controls(opened)
    with widgets.guarded():
        run = _ask(opened, cell)
        with answer:
            _source(run)
            widgets.prose(run.numbers["sentence"])
            widgets.prose(run.numbers["notes"] if run.request["text"] else [], "quiet")
        distances = {name: cell[name] for name in ("min_distance", "sinks")} | {"made": run.request["made"]}
        _tabs(opened, run, distances, card)
        if run.request["partition"] == "raw keys":
            take.offer({"Bucket routing": (run, {"name": "bucket_routing"})}, "routing")


def made(model: str) -> str:
    """When the stored curves of a model were made: part of every request, so that new ones are never answered from
    the cache of old ones. Empty where there are none."""
    for folder in study_folders(cached.store(), model, asking.card(model)["revision"]):
        try:
            return json.loads((folder.parent / "routing" / "curves.json").read_text(encoding="utf-8"))["about"]["date"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return ""


def _request(
    min_distance: int | None, sinks: int | None, partition: str = "raw keys", visited: float | None = None
) -> dict:
    where = {"min_distance": min_distance, "sinks": sinks, "partition": partition}
    model = st.session_state["model"]
    return {"model": model, "visited": visited, **where, "text": "", "made": made(model)}


def _without(card: dict) -> None:
    """Nothing is stored for this model: the command, and the form that measures on the reader's texts."""
    stored.missing("Bucket routing", "routing")
    _distance([{"min_distance": distance, "sinks": 0} for distance in (16, 64, 256, 1024)])
    with widgets.guarded():
        fit.show(card)


def _controls(opened: Run) -> dict:
    chosen, cells, buckets = st.session_state, opened.numbers["cells"], opened.numbers["buckets"]
    limit = max(4.0, buckets / 4)
    fits = chosen["route_l"] is not None and 1 <= chosen["route_l"] <= limit
    if not fits:
        widgets.settled("route_l", [None], None)
    chosen["route_l_pick"] = chosen["route_l"] or min(opened.numbers["l"], limit)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        st.slider(
            f"Buckets that each query visits, of {buckets:,}",
            1.0,
            limit,
            step=STEPS,
            key="route_l_pick",
            width=300,
            format="%g",
            help=cached.glossary("recall@l"),
            on_change=fields.keep_pick,
            args=("route_l",),
        )
        _distance(cells)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        st.toggle(f"Leave out the first {LEFT_OUT} keys", key="route_sinks", help=cached.glossary("attention sink"))
        cell = {"min_distance": chosen["route_distance"], "sinks": LEFT_OUT * chosen["route_sinks"]}
        st.segmented_control(
            "Tested on",
            list(ROUTE_ON),
            format_func=ROUTE_ON.get,
            key="route_on",
            required=True,
            help=cached.glossary("corpus"),
        )
        if chosen["route_on"] == "stored":
            return cell | {"partition": _partition(cells, cell)}
    return cell | {"partition": "raw keys"}


def _distance(cells: list[dict]) -> None:
    distances = sorted({cell["min_distance"] for cell in cells})
    if st.session_state["route_distance"] == state.CONTROLS["route_distance"].default not in distances:
        state.choose(st.session_state, route_distance=distances[0])
    widgets.settled("route_distance", distances, distances[0])
    st.segmented_control(
        "Keys at least so far back, tokens",
        distances,
        key="route_distance",
        required=True,
        format_func=lambda value: f"{value:,}",
        help=cached.glossary("far attention"),
    )


def _partition(cells: list[dict], cell: dict) -> str:
    """Which keys the buckets are made of; the variants are stored for one distance only."""
    stored = [row["partition"] for row in cells if {name: row[name] for name in cell} == cell]
    offered = [name for name in PARTITIONS if name in stored]
    state.settle(st.session_state, "route_partition", offered, "raw keys")
    if len(offered) > 1:
        st.selectbox(
            "Buckets of",
            offered,
            format_func=PARTITIONS.get,
            key="route_partition",
            width=300,
            help=cached.glossary("own partition"),
        )
    return st.session_state["route_partition"]


def _ask(opened: Run, cell: dict) -> Run:
    """The curves that are meant, at the budget of the slider: the stored ones, or those of the chosen text."""
    chosen = st.session_state
    args = _request(**cell, visited=chosen["route_l"])
    if chosen["route_on"] == "text":
        args["text"] = chosen["text"]
        tokens = asking.inspected()["tokens"]
        return asking.ask("route-at", args, "Routing this text with the stored routers", tokens)
    is_same = all(opened.numbers[name] == cell[name] for name in cell) and chosen["route_l"] is None
    return opened if is_same else asking.ask("route-at", args, "Reading the stored curves")


def _source(run: Run) -> None:
    about = run.protocol
    if run.request["text"]:
        widgets.source(run)
        return
    documents = about.get("documents") or ["?", "?"]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge(f"stored study, {about.get('measured', '')[:10]}", icon=":material/inventory_2:", color="gray")
        widgets.prose(
            f"calibrated on {documents[0]} documents, tested on {documents[1]} others · prompts of "
            f"{about.get('window', 0):,} tokens · model {about.get('model')}",
            "quiet",
        )


def _tabs(opened: Run, run: Run, distances: dict, card: dict) -> None:
    identity = f"{run.id}{run.created}"
    rooms = {
        "recall": lambda: recall.show(run.numbers, "routing", identity),
        "closure": lambda: closure.show(run.numbers),
        "heads": lambda: heads.show(opened, run),
        "token": lambda: token.show(opened, run, distances),
        "cost": lambda: cost.show(opened, run),
        "fit": lambda: fit.show(card),
    }
    tabs("route_tab", ROUTE_TABS, rooms)
