"""The curves of the routers that follow their slider in the browser."""

from collections.abc import Callable

import streamlit as st

from analysis.runs import Run
from app.routing.bucket_routers import ORACLES, ROUTERS
from app.ui import export
from app.ui.painted import part

# Beside the best router: what a query alone, no query, no choice and the best choice find.
BESIDE = ("oracle", "gwr_linear", "static_prior", "random")
_ROUTING = part(
    "routing",
    """<section class="routing"><div class="picture">
      <svg class="chart" role="img" aria-label="Far attention found, by the share of the buckets visited"></svg>
      <div class="dial"><span></span><input class="visits" type="range" aria-label="Buckets that each query visits">
        <output class="now"></output></div></div>
    <div class="beside"><div class="head"><span></span><span></span><span>● finds</span><span>◇ reads</span></div>
      <ul class="list"></ul><button class="more" type="button"></button></div></section>""",
    *("numbers", "picture"),
)


def show(run: Run, key: str, released: Callable[[float], None]) -> None:
    """The curves of `route` or `route-at`, and every router at the slider; `released` takes the buckets at which the
    slider was let go. `key` begins the keys of what is drawn."""
    numbers = run.numbers
    means = {row["router"]: row for row in numbers["means"]}
    best = best_of(numbers)
    data = {
        "id": f"{run.id}{run.created}",
        "buckets": numbers["buckets"],
        "visited": numbers["l"],
        "lines": numbers["lines"],
        "shown": [kind for kind in means if len(means) < len(BESIDE) or kind in (best, *BESIDE)],
        "routers": [_about(kind, numbers) for kind in ROUTERS if kind in means],
    }

    def on_visited() -> None:
        visited = st.session_state.get(key, {}).get("visited")
        if isinstance(visited, float | int) and 1 <= visited <= numbers["buckets"]:
            released(float(visited))

    rows = [row for row in numbers["curve"] if row["router"] in means]
    columns = ("router", "l", "share", "recall", "recall_low", "recall_high", "selectivity")
    values = {name: [row.get(name) for row in rows] for name in columns}
    title = "Recall and selectivity against buckets visited"
    legend = [(ROUTERS[kind].title, ROUTERS[kind].look.colour) for kind in data["shown"]]
    legend.append(("filled marks: found; hollow ones: tokens read", ""))
    export.corner(lambda: values, "routing", f"{key}_numbers", title, chart=key, legend=legend)
    _ROUTING(key=key, data=data, on_visited_change=on_visited)


def _about(kind: str, numbers: dict) -> dict:
    """A router as the browser draws it, with the intervals of its recall where there are any."""
    router = ROUTERS[kind]
    ends = [
        (row["l"], row["recall_low"], row["recall_high"])
        for row in numbers["curve"]
        if row["router"] == kind and row["recall_low"] is not None
    ]
    look = {"colour": router.look.colour, "dash": router.look.dash}
    return {"kind": kind, "title": router.title, "about": router.about, "intervals": ends} | look


def best_of(numbers: dict) -> str:
    """The router that finds most; an oracle, which looks at the answer, is none."""
    rows = [row for row in numbers["means"] if row["router"] not in ORACLES]
    return max(rows, key=lambda row: row["recall"] or 0.0)["router"]
