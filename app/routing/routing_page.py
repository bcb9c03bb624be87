"""Routers: how much of the far attention a router finds, one picture that follows a slider, and what is folded."""

import json
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from analysis.commands.routing import RouteAt
from analysis.errors import NotFitted
from analysis.runs import Run
from analysis.runs.stored import study_folders
from app import cached
from app.routing import cost, curves, indexers, layers, live, one_token, own_texts, routed_heads
from app.routing.bucket_routers import LEFT_OUT
from app.selection import state
from app.selection.sparsify import PARTITIONS, RECALL_OF, ROUTE_ON, ROUTE_TABS
from app.ui import asking, fields, jobs, screen, take, widgets
from app.ui.tabs import folds

READING = "Reading the stored curves"
# As the stored curves open.
USUAL = {"min_distance": None, "sinks": None, "partition": "raw keys"}
# Distances that are offered where no curves are stored.
DISTANCES = (16, 64, 256, 1024)


def show() -> None:
    """Redrawn alone: a released slider redraws this page's own part and nothing else."""
    fields.alone(_live)


def _live() -> None:
    card = asking.card(st.session_state["model"])
    try:
        opened = asking.ask(_request(USUAL), READING)
    except NotFitted:
        opened = None
    answer, run = st.container(), None
    picture, beside = screen.picture_and_card("routing", card=0.36)
    with beside, st.container(border=True):
        cell, more = _controls(opened, card)
    with picture, widgets.guarded():
        run = _ask(opened, cell)
        if run is None:
            # No curves are stored for this model.
            request, tokens = _request(cell, None, st.session_state["text"]), asking.inspected()["tokens"]
            jobs.run_button("Fit routers and test them on this text", request, "route_first", tokens, type="primary")
            hint = "The bundled texts calibrate. Below, texts of your own do, with the trained router beside."
            widgets.prose(hint, "quiet")
        else:
            live.show(run, "routing_live", lambda visited: state.choose(st.session_state, route_l=visited))
    with answer:
        if run is None:
            screen.answer(f"No router was tested on this {'text' if opened else 'model'} yet.")
        else:
            _answer(run)
    if run is None:
        folds("route_tab", ROUTE_TABS, {"indexers": indexers.stored, "fit": lambda: own_texts.show(card)})
        return
    cached.drawing().runs[run.id] = run
    if run.request["partition"] == "raw keys":
        with more:
            take.offer({"Bucket routing": (run, {"name": "bucket_routing"})}, "routing")
    distances = {name: cell[name] for name in ("min_distance", "sinks")} | {"made": run.request["made"]}
    rooms = {
        "table": lambda: curves.table(run, "routing"),
        "closure": lambda: curves.closure(run.numbers),
        "heads": lambda: routed_heads.show(opened or run, run),
        "token": lambda: one_token.show(opened or run, run, distances),
        "cost": lambda: cost.show(opened or run, run),
        "indexers": indexers.stored,
        "layers": lambda: layers.show(card["layers"]),
        "fit": lambda: own_texts.show(card),
    }
    folds("route_tab", ROUTE_TABS, rooms)


def _answer(run: Run) -> None:
    numbers, about = run.numbers, run.protocol
    means = {row["router"]: row for row in numbers["means"]}
    best = means[live.best_of(numbers)]
    hint = f"{run.numbers['sentence']} {cached.glossary('recall@l')}"
    ends = f"chance {means['random']['recall']:.0%}, best possible {means['oracle']['recall']:.0%}"
    if run.request["text"]:
        where = " · ".join(["this text", *numbers["notes"]])
    else:
        calibrated, tested = about.get("documents") or ("?", "?")
        where = f"fitted on {calibrated} documents, tested on {tested} others"
    visited = f"Visiting {best['share']:.0%} of the buckets"
    # Stored curves are all of the far attention.
    of = RECALL_OF[run.request.get("recall_of", "far")]
    found = f"{visited}, the best router finds {best['recall']:.0%} of {of}."
    screen.answer(found, hint, f"{ends} · {where}")


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


def _controls(opened: Run | None, card: dict) -> tuple[dict, DeltaGenerator]:
    """(the setting that is looked at, where more of its controls have room)."""
    chosen = st.session_state
    cells = opened.numbers["cells"] if opened else []
    fits = [distance for distance in DISTANCES if distance <= card["max_positions"] // 4] or [1]
    distances = sorted({cell["min_distance"] for cell in cells}) or fits
    if chosen["route_distance"] == state.CONTROLS["route_distance"].default not in distances:
        state.choose(chosen, route_distance=distances[0])
    widgets.settled("route_distance", distances, distances[0])
    if len(distances) > 1:
        look: dict[str, Any] = {"format_func": "{:,}".format, "help": cached.glossary("far attention")}
        st.select_slider("At least so many tokens back", distances, key="route_distance", **look)
    else:
        chosen["route_distance"] = distances[0]
    if opened is not None:
        fields.choose("Tested on", ROUTE_ON, "route_on")
    more = st.popover("More", icon=":material/more_horiz:", key="route_more")
    with more:
        st.toggle(f"Leave out the first {LEFT_OUT} tokens", key="route_sinks", help=cached.glossary("attention sink"))
        cell: dict[str, Any] = {"min_distance": chosen["route_distance"], "sinks": LEFT_OUT * chosen["route_sinks"]}
        if opened is None or chosen["route_on"] != "stored":
            fields.choose("Recall is a share of", RECALL_OF, "route_recall_of", "recall@l")
            cell |= {"recall_of": chosen["route_recall_of"]} if chosen["route_recall_of"] != "far" else {}
            return cell | {"partition": "raw keys"}, more
        # Which keys the buckets are made of; the variants are stored for one distance only.
        stored_here = [row["partition"] for row in cells if cell.items() <= row.items()]
        offered = {name: title for name, title in PARTITIONS.items() if name in stored_here}
        state.settle(chosen, "route_partition", list(offered), "raw keys")
        if len(offered) > 1:
            fields.choose("Buckets of", offered, "route_partition", "own partition")
        return cell | {"partition": chosen["route_partition"]}, more


def _ask(opened: Run | None, cell: dict) -> Run | None:
    """The curves that are meant, at the budget of the slider: the stored ones, or those of the text in use; None where
    a button has to ask for them first."""
    chosen = st.session_state
    if opened is not None and (chosen["route_l"] or 1) > opened.numbers["buckets"]:
        widgets.settled("route_l", [None], None)
    visited, text = chosen["route_l"], chosen["text"]
    if opened is None:
        if cached.store().find(_request(cell, None, text)) is None:
            return None
    elif chosen["route_on"] == "stored":
        is_same = all(opened.numbers[name] == cell[name] for name in cell) and visited is None
        return opened if is_same else asking.ask(_request(cell, visited), READING)
    doing = "Routing this text with the stored routers"
    return asking.ask(_request(cell, visited, text), doing, asking.inspected()["tokens"])
