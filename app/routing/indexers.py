"""Learned indexers on texts of one's own: what each finds at equal keys read, and the heads that sharing starves."""

from statistics import fmean
from typing import Any

import streamlit as st

from analysis.commands.heads import Names
from analysis.commands.quality import ExportEviction
from analysis.commands.routing import RouteVisit
from analysis.declaration import fields_of
from analysis.runs import Run
from app import cached
from app.routing import inside, one_token
from app.routing.bucket_routers import ROUTERS
from app.selection import state
from app.ui import asking, jobs, plots, studied, tables, take, widgets
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
    widgets.prose(f"{ROUTERS[best['kind']].title} finds {best['recall']:.0%} of the far attention.", "more")
    # MoBA's heads choose for themselves, so that none of them starves.
    shared = next((row["kind"] for row in rows if row["kind"] in {head["kind"] for head in starved}), None)
    if shared is not None:
        _starved(run, [row for row in starved if row["kind"] == shared], key)
    titled = [row | {"title": ROUTERS[row["kind"]].title} for row in rows]
    plots.listed(COLUMNS, titled, f"{key}_indexers", "Indexers", f"{run.id}{run.created}")
    lines, points = [], []
    for row in rows:
        # Divergence on selection documents.
        router, steps = ROUTERS[row["kind"]], [point["step"] for point in row["curve"]]
        divergence = [point["selection"] for point in row["curve"]]
        if steps:
            lines.append(line(router.title, steps, divergence, *router.look))
        pairs = zip(steps, divergence, strict=True)
        points += [{"indexer": row["kind"], "step": step, "divergence": value} for step, value in pairs]
    if lines:
        plots.draw(figure(lines, "step", "divergence, nats"), points, "Learning curves", f"{key}_learned")
    inside.show(run, key)
    _export(run, key)
    widgets.prose("They are kept for this model: the method Indexer reads by them on Methods and Generate.", "quiet")


def _export(run: Run, key: str) -> None:
    """The weights of one of them as a zip with their certificate, made by a job of its own."""
    (leaves,) = [entry.declared.options for entry in fields_of(ExportEviction) if entry.name == "kind"]
    kinds = [row["kind"] for row in run.numbers["indexers"] if row["kind"] in (leaves or ())]
    texts = run.request.get("texts")
    if not kinds or not texts or take.in_a_class():
        return
    with st.popover("Export", icon=":material/folder_zip:", key=f"{key}_export"):
        look: dict[str, Any] = {"format_func": lambda kind: ROUTERS[kind].title, "key": f"{key}_leaves"}
        kind = st.selectbox("Indexer", kinds, **look)
        widgets.prose(
            "Weights as transformers names them, their sizes, and a certificate. It is fitted anew on the first half "
            "of the texts and measured on the others.",
            "quiet",
        )
        about = {"model": run.request["model"], "texts": texts, "method": "indexer", "kind": kind}
        request = cached.request(ExportEviction, **about)
        made = cached.store().find(request)
        if made is None:
            jobs.run_button("Fit and certify", request, f"{key}_certify", tokens=run.protocol["tokens"])
        else:
            widgets.prose(made.numbers["sentence"], "more")
            take.download(made, f"{kind}.zip", key)


def _names(model: str) -> dict[tuple[int, int], str]:
    """The first name of each head that has one, as it stands behind its number."""
    rows = asking.ask(cached.request(Names, model=model), "Reading the texts made for names").numbers["rows"]
    return {(row["layer"], row["head"]): f" {row['name']}" for row in reversed(rows)}


def _starved(run: Run, starved: list[dict], key: str) -> None:
    """How many heads get little under the selection that they share, the hungriest first; then the text in use, painted
    by what a chosen head reads and its indexer did not offer."""
    chosen, shared, names = st.session_state, starved[0]["kind"], _names(run.request["model"])
    heads = [
        row | {"name": f"{row['layer']}.{row['head']}{names.get((row['layer'], row['head']), '')}"} for row in starved
    ]
    hungry = [row for row in heads if row["recall"] < row["alone"] / 2]
    words = f"{len(hungry)} of {len(heads)} heads get less than half of their best"
    if 0 < len(hungry) < len(heads):
        # How much of their attention is far at all.
        far, others = fmean(row["far"] for row in hungry), fmean(row["far"] for row in heads if row not in hungry)
        words += f": {far:.0%} of what they read is far, and {others:.0%} of what the others read"
    widgets.prose(f"{words}.", "more")
    looks = (
        ("recall", "under its indexer", HERE, "circle"),
        ("shared", "best selection of its layer", CHANCE, "diamond"),
        ("alone", "best of its own", RANDOM, "star"),
    )
    x, data = [row["name"] for row in heads], []
    for column, name, colour, symbol in looks:
        hover = f"head %{{x}}<br>{name}: %{{y:.1%}}"
        data.append(line(name, x, [row[column] for row in heads], colour, "dot", symbol, hover, mode="markers"))
    drawn = figure(data, "head (layer.head)", "far attention found", xaxis=NAMES, yaxis=SHARE)
    title = f"Heads under the selection of {ROUTERS[shared].title}, the hungriest first"
    plots.draw(drawn, heads, title, f"{key}_starved", "recall@l")
    # What it has to read first may wait for its button: the rest stands all the same.
    with widgets.guarded():
        cells = {(row["layer"], row["head"]): row for row in heads}
        now = (chosen["layer"], chosen["head"])
        now = now if now in cells else next(iter(cells))
        chosen["route_starved"] = now

        def on_change() -> None:
            state.choose(chosen, **dict(zip(("layer", "head"), chosen["route_starved"], strict=True)), query=None)

        look: dict[str, Any] = {"format_func": lambda cell: cells[cell]["name"], "on_change": on_change, "width": 300}
        st.selectbox("What was this head not offered?", list(cells), key="route_starved", **look)
        tokens = asking.inspected()["tokens"]
        widgets.settled("query", [None, *range(tokens)], None)
        about = {"model": run.request["model"], "text": chosen["text"], "layer": now[0], "head": now[1]}
        about |= {name: run.request[name] for name in ("min_distance", "sinks")} | {"made": run.created}
        request = cached.request(RouteVisit, **about, router=shared, position=chosen["query"])
        visit = asking.ask(request, "Looking at what one token is offered", tokens)
        # One key in 32 of those that are far.
        one_token.visited_text(visit, max(1, -(-sum(cached.columns(visit, "tokens")["far"]) // 32)))


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
