"""One token under bucket routing: the buckets that it visits, painted on the text with the attention it really has."""

from collections.abc import Sequence

import streamlit as st

from analysis.commands.routing import RouteVisit
from analysis.runs import Run
from app import cached
from app.routing import routed_heads, routing_charts
from app.routing.bucket_routers import ABLATIONS, INDEXERS, ROUTERS
from app.selection import state
from app.ui import asking, fields, painted, plots, widgets
from app.ui.charts import HERE

LEVELS = ((0.002, "0.2–1%"), (0.01, "1–5%"), (0.05, "over 5%"))  # of the far attention
MIXES = ((16, 22), (38, 42), (72, 66))
NEAR = "#7C8796"
INKS = (("found", HERE, "solid"), ("missed", painted.HEAT, "dashed"))
# The first class of each kind.
FOUND, MISSED, LITTLE, TOO_NEAR = 0, len(LEVELS), 2 * len(LEVELS), 2 * len(LEVELS) + 1


def show(opened: Run, run: Run, distances: dict) -> None:
    """The choice of head, router and token, then the text. `opened` the stored curves as the page found them, `run`
    those in use, `distances` with the sinks that are left out."""
    chosen, visited = st.session_state, int(run.numbers["l"])
    layer, head = routed_heads.chosen(opened.numbers["heads"])
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        fields.choose_cell(asking.layers(chosen["model"]), asking.card(chosen["model"])["heads"], (layer, head))
        offered = {kind: router.title for kind, router in ROUTERS.items() if kind not in ABLATIONS}
        fields.choose("Router", offered, "route_router", "bucket routers", width=230)
    tokens = asking.inspected()["tokens"]
    widgets.settled("query", [None, *range(tokens)], None)
    about = {"model": chosen["model"], "text": chosen["text"], "layer": layer, "head": head}
    request = cached.request(RouteVisit, **about, **distances, router=chosen["route_router"], position=chosen["query"])
    visit = asking.ask(request, "Looking at what one token visits", tokens)
    visited_text(visit, visited)
    table = dict(cached.columns(visit, "buckets"))
    table |= {"place": [rank + 1 for rank in table["rank"]]}
    table |= {"seen": ["yes" if rank < visited else "" for rank in table["rank"]]}
    figure = routing_charts.query(table, visited)
    plots.draw(figure, table, "Its buckets in the router's order", "routing_query", "bucket of keys")


def visited_text(visit: Run, visited: int) -> None:
    """What a router or an indexer finds for one token, and the text painted by it."""
    tokens, buckets = cached.columns(visit, "tokens"), cached.columns(visit, "buckets")
    widgets.prose(_sentence(visit, buckets, visited), "more")
    widgets.notes(visit)
    ranks = dict(zip(buckets["bucket"], buckets["rank"], strict=True))
    classes, palette = paint(tokens, ranks, visited, visit.numbers["far_mass"])
    inside = [bucket if bucket >= 0 else None for bucket in tokens["bucket"]]
    shares = zip(tokens["attention"], inside, strict=True)
    tips: list[tuple[str, Sequence]] = [
        ("attention", [None if bucket is None else f"{share:.2%}" for share, bucket in shares]),
        ("bucket", [None if bucket is None else f"{bucket}" for bucket in inside]),
        ("router's place", [None if bucket is None else f"{ranks[bucket] + 1}" for bucket in inside]),
    ]
    painted.painted(
        tokens,
        classes,
        palette,
        key="routing_text",
        identity=f"{visit.id}{visit.created}.{visited}",
        place=f"routing_text.{len(classes)}",
        tips=tips,
        legend="share of the far attention of the marked token; unpainted: less than 0.2% and not visited",
        hint="Hover to see a token, click to make it the query; a second click or Esc goes back.",
        locked=visit.numbers["query"]["position"],
        on_token=lambda: state.choose(st.session_state, query=painted.clicked("routing_text", "token")),
    )


def _sentence(visit: Run, buckets: dict, visited: int) -> str:
    """What the router finds for this token at so many whole buckets, and what the best ones would hold."""
    about = visit.numbers["query"]
    keys, mass = sum(buckets["keys"]), sum(buckets["mass"][:visited])
    inside, best = sum(buckets["keys"][:visited]), sum(sorted(buckets["mass"], reverse=True)[:visited])
    does = f"visits {visited:,} of {visit.numbers['buckets']:,} buckets with {inside / max(keys, 1):.1%} of"
    if about["router"] in INDEXERS:
        does = f"offers {visited:,} of"
    return (
        f"From “{about['word']}” (token {about['position']:,}), {ROUTERS[about['router']].title} {does} the {keys:,} "
        f"far keys, and finds {mass:.0%} of what head {about['layer']}.{about['head']} reads there; the best "
        f"{visited:,} would hold {best:.0%}. The far keys have {visit.numbers['far_mass']:.0%} of all that it reads."
    )


def paint(tokens: dict, ranks: dict[int, int], visited: int, far_mass: float) -> tuple[list[int], list[dict]]:
    """A class for every token and their palette: far attention that is found and that is missed in three steps each,
    what is visited for little, and what is too near to be routed. `ranks`: bucket -> its place for the router."""
    classes = []
    for bucket, far, attention in zip(tokens["bucket"], tokens["far"], tokens["attention"], strict=True):
        share = attention / far_mass if far_mass > 0 else 0.0
        level = sum(share >= low for low, _ in LEVELS) - 1
        inside = bucket >= 0 and ranks[bucket] < visited
        if bucket < 0:
            classes.append(-1)
        elif not far:
            classes.append(TOO_NEAR)
        elif level >= 0:
            classes.append((FOUND if inside else MISSED) + level)
        else:
            classes.append(LITTLE if inside else -1)
    looks = [
        (f"{kind}, {name}", colour, mixes, line)
        for kind, colour, line in INKS
        for (_, name), mixes in zip(LEVELS, MIXES, strict=True)
    ]
    looks.append(("visited, less than 0.2%", HERE, (5, 8), "dotted"))
    looks.append(("too near to be routed, or left out", NEAR, (10, 16), ""))
    counts = map(classes.count, range(len(looks)))
    return classes, [painted.entry(look[0], count, *look[1:]) for look, count in zip(looks, counts, strict=True)]
