"""Learned indexers on texts of one's own: what each finds at equal keys read, and the heads that sharing starves."""

from typing import Any

import streamlit as st

from analysis.runs import Run
from app import cached
from app.routing.bucket_routers import ROUTERS
from app.ui import jobs, plots, studied, tables, widgets
from app.ui.charts import CHANCE, HERE, NAMES, RANDOM, SHARE, figure, line

# Those that a switch asks for.
FITTED = ["dsa", "qsa", "m3", "seer", "moba", "low_rank"]
COLUMNS = {
    "title": tables.Column("indexer"),
    "shares": tables.Column("one selection for each"),
    "recall": tables.Column("far attention found", "share", full=1.0),
    "whole": tables.Column("all attention, near keys read too", "share", full=1.0),
    "cached": tables.Column("bytes a token", "number", digits=0),
    "multiplied": tables.Column("multiply-adds a pair", "number", digits=0),
    "seconds": tables.Column("fitted in, s", "number", digits=0),
}


def show(run: Run, key: str) -> None:
    """The heads under the selection that they share, the hungriest first, then every indexer. Without indexers in the
    run, nothing."""
    rows, starved = run.numbers.get("indexers"), run.numbers.get("starved") or []
    if not rows:
        return
    best = rows[0]
    heads = [row for row in starved if row["kind"] == best["kind"]]
    hungry = sum(row["recall"] < row["alone"] / 2 for row in heads)
    told = f"{ROUTERS[best['kind']].title} finds {best['recall']:.0%}"
    starve = f"; {hungry} of {len(heads)} heads get less than half of their best" if heads else ""
    widgets.prose(f"{told} of the far attention{starve}.", "more")
    if heads:
        title = f"Heads under the selection of {ROUTERS[best['kind']].title}, the hungriest first"
        plots.draw(heads_figure(heads), heads, title, f"{key}_starved", "recall@l")
    titled = [row | {"title": ROUTERS[row["kind"]].title} for row in rows]
    plots.listed(COLUMNS, titled, f"{key}_indexers", "Indexers", f"{run.id}{run.created}")
    curves = [(row, row["curve"]) for row in rows if row["curve"]]
    if curves:
        plots.draw(learning(curves), _points(curves), "Learning curves", f"{key}_learned")
    widgets.prose("They are kept for this model: the method Indexer reads by them on Methods and Generate.", "quiet")


def growing() -> None:
    """The learning curve of an indexer that is being fitted, as far as it is."""
    job = jobs.current()
    if job is not None and job.verb == "route" and job.state in jobs.WAITING:
        st.fragment(_so_far, run_every=2)(job.id)


def _so_far(job_id: str) -> None:
    """The layer that learns now."""
    log = cached.jobs().curve(job_id)
    if not log or len(log.get("step", ())) < 2:
        return
    (name,) = [column for column in log if column != "step"][:1]
    drawn = figure([line(name, log["step"], log[name], HERE, "solid", "circle")], "step", "divergence, nats")
    plots.draw(drawn, log, f"{name}, so far", "route_growing")


def stored() -> None:
    """What the stored study of indexers found."""
    study = studied.opened("indexers", "Learned indexers")
    if study is not None:
        studied.drawn(study, "route_indexers", name="indexers")


def heads_figure(heads: list[dict]) -> dict[str, Any]:
    """What each head finds under its indexer, under its layer's best selection, and by itself."""
    names = [f"{row['layer']}.{row['head']}" for row in heads]
    looks = (
        ("recall", "under its indexer", HERE, "circle"),
        ("shared", "best selection of its layer", CHANCE, "diamond"),
        ("alone", "best of its own", RANDOM, "star"),
    )
    data = []
    for column, title, colour, symbol in looks:
        hover = f"head %{{x}}<br>{title}: %{{y:.1%}}"
        data.append(line(title, names, [row[column] for row in heads], colour, "dot", symbol, hover, mode="markers"))
    return figure(data, "head (layer.head)", "far attention found", xaxis=NAMES, yaxis=SHARE)


def learning(curves: list[tuple[dict, list[dict]]]) -> dict[str, Any]:
    """Divergence on selection documents against the step, a line for each indexer."""
    data = []
    for row, points in curves:
        router = ROUTERS[row["kind"]]
        x, y = [point["step"] for point in points], [point["selection"] for point in points]
        data.append(line(router.title, x, y, router.look.colour, router.look.dash, router.look.symbol))
    return figure(data, "step", "divergence, nats")


def _points(curves: list[tuple[dict, list[dict]]]) -> dict[str, list]:
    """The numbers behind the learning curves."""
    flat = [(row["kind"], point["step"], point["selection"]) for row, points in curves for point in points]
    return dict(zip(("indexer", "step", "divergence"), map(list, zip(*flat, strict=True)), strict=True))
