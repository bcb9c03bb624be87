"""The page on bucket routing: one answer and its controls, live, over five looks at the same curves."""

import json

import streamlit as st

from analysis.commands.routing import RouteAt
from analysis.errors import NotFitted
from analysis.runs import Run
from analysis.runs.stored import study_folders
from app import cached
from app.routing import cost, curves, one_token, own_texts, routed_heads
from app.routing.bucket_routers import LEFT_OUT
from app.selection import state
from app.selection.sparsify import PARTITIONS, ROUTE_ON, ROUTE_TABS
from app.ui import asking, fields, studied, take, widgets
from app.ui.tabs import tabs

READING = "Reading the stored curves"
# As the stored curves open.
USUAL = {"min_distance": None, "sinks": None, "partition": "raw keys"}


def show() -> None:
    """What the page is about, and the rest redrawn alone: the slider redraws this page's own part and nothing else."""
    widgets.header(
        "Can a router find what a token would read?",
        "Keys are sorted into buckets and a query visits a few of them: GWR Linear and Saap, with controls the papers "
        "lack",
    )
    fields.alone(_live)


def _live() -> None:
    card = asking.card(st.session_state["model"])
    try:
        opened = asking.ask(_request(USUAL), READING)
    except NotFitted:
        _without(card)
        return
    answer = st.container()
    cell = _controls(opened)
    with widgets.guarded():
        run = _ask(opened, cell)
        with answer:
            _source(run)
            widgets.prose(run.numbers["sentence"])
            widgets.prose(run.numbers["notes"] if run.request["text"] else [], "quiet")
        distances = {name: cell[name] for name in ("min_distance", "sinks")} | {"made": run.request["made"]}
        identity = f"{run.id}{run.created}"
        rooms = {
            "recall": lambda: curves.recall(run.numbers, "routing", identity),
            "closure": lambda: curves.closure(run.numbers),
            "heads": lambda: routed_heads.show(opened, run),
            "token": lambda: one_token.show(opened, run, distances),
            "cost": lambda: cost.show(opened, run),
            "fit": lambda: own_texts.show(card),
        }
        tabs("route_tab", ROUTE_TABS, rooms)
        if run.request["partition"] == "raw keys":
            take.offer({"Bucket routing": (run, {"name": "bucket_routing"})}, "routing")


def _request(cell: dict, visited: float | None = None, text: str = "") -> RouteAt:
    model = st.session_state["model"]
    return RouteAt(model=model, visited=visited, **cell, text=text, made=_made(model))


def _made(model: str) -> str:
    """When the stored curves of a model were made: part of every request, so that new ones are never answered from
    the cache of old ones. Empty where there are none."""
    for folder in study_folders(cached.store(), model, asking.card(model)["revision"]):
        try:
            return json.loads((folder.parent / "routing" / "curves.json").read_text(encoding="utf-8"))["about"]["date"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return ""


def _without(card: dict) -> None:
    """Nothing is stored for this model: the command, and the form that measures on the reader's texts."""
    studied.missing("Bucket routing", "routing")
    _distance([{"min_distance": distance} for distance in (16, 64, 256, 1024)])
    with widgets.guarded():
        own_texts.show(card)


def _controls(opened: Run) -> dict:
    chosen, cells, buckets = st.session_state, opened.numbers["cells"], opened.numbers["buckets"]
    limit = max(4.0, buckets / 4)
    if chosen["route_l"] is None or not 1 <= chosen["route_l"] <= limit:
        widgets.settled("route_l", [None], None)
    chosen["route_l_pick"] = chosen["route_l"] or min(opened.numbers["l"], limit)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        look = {"step": 0.25, "width": 300, "format": "%g", "help": cached.glossary("recall@l")}
        look |= {"on_change": fields.keep_pick, "args": ("route_l",)}
        st.slider(f"Buckets that each query visits, of {buckets:,}", 1.0, limit, key="route_l_pick", **look)
        _distance(cells)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        st.toggle(f"Leave out the first {LEFT_OUT} keys", key="route_sinks", help=cached.glossary("attention sink"))
        cell = {"min_distance": chosen["route_distance"], "sinks": LEFT_OUT * chosen["route_sinks"]}
        look = {"format_func": ROUTE_ON.get, "required": True, "help": cached.glossary("corpus")}
        st.segmented_control("Tested on", list(ROUTE_ON), key="route_on", **look)
        partition = _partition(cells, cell) if chosen["route_on"] == "stored" else "raw keys"
    return cell | {"partition": partition}


def _distance(cells: list[dict]) -> None:
    distances = sorted({cell["min_distance"] for cell in cells})
    if st.session_state["route_distance"] == state.CONTROLS["route_distance"].default not in distances:
        state.choose(st.session_state, route_distance=distances[0])
    widgets.settled("route_distance", distances, distances[0])
    look = {"required": True, "format_func": "{:,}".format, "help": cached.glossary("far attention")}
    st.segmented_control("Keys at least so far back, tokens", distances, key="route_distance", **look)


def _partition(cells: list[dict], cell: dict) -> str:
    """Which keys the buckets are made of; the variants are stored for one distance only."""
    stored_here = [row["partition"] for row in cells if {name: row[name] for name in cell} == cell]
    offered = [name for name in PARTITIONS if name in stored_here]
    state.settle(st.session_state, "route_partition", offered, "raw keys")
    if len(offered) > 1:
        look = {"format_func": PARTITIONS.get, "width": 300, "help": cached.glossary("own partition")}
        st.selectbox("Buckets of", offered, key="route_partition", **look)
    return st.session_state["route_partition"]


def _ask(opened: Run, cell: dict) -> Run:
    """The curves that are meant, at the budget of the slider: the stored ones, or those of the chosen text."""
    visited, numbers = st.session_state["route_l"], opened.numbers
    if st.session_state["route_on"] == "text":
        request, tokens = _request(cell, visited, st.session_state["text"]), asking.inspected()["tokens"]
        return asking.ask(request, "Routing this text with the stored routers", tokens)
    is_same = all(numbers[name] == cell[name] for name in cell) and visited is None
    return opened if is_same else asking.ask(_request(cell, visited), READING)


def _source(run: Run) -> None:
    about = run.protocol
    if run.request["text"]:
        widgets.source(run)
        return
    calibrated, tested = about.get("documents") or ("?", "?")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge(f"stored study, {about.get('measured', '')[:10]}", icon=":material/inventory_2:", color="gray")
        widgets.prose(
            f"calibrated on {calibrated} documents, tested on {tested} others · prompts of "
            f"{about.get('window', 0):,} tokens · model {about.get('model')}",
            "quiet",
        )
