"""One token under bucket routing: the buckets that it visits, painted on the text with the attention it really has."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.routing import charts as routing_charts, heads
from app.routing.words import ABLATIONS, ROUTERS
from app.selection import state
from app.ui import asking, painted, tables, widgets
from app.ui.charts import HERE

LEVELS = ((0.002, "0.2–1%"), (0.01, "1–5%"), (0.05, "over 5%"))  # of the far attention
MIXES = ((16, 22), (38, 42), (72, 66))
BUCKETS = {
    "place": tables.Column("place", "whole", help="in the router's order"),
    "bucket": tables.Column("bucket", "whole", help="The number is only a name, the same in every text."),
    "seen": tables.Column("visited"),
    "mass": tables.Column("far attention in it", "share", full=1.0, help="what the head really reads there"),
    "keys": tables.Column("keys", "whole", help="far enough back in this text"),
}


def show(opened: Run, run: Run, cell: dict) -> None:
    """The choice of head, router and token, then the text. `opened` the stored curves as the page found them, `run`
    those in use, `cell` the distance and the sinks."""
    chosen, l = st.session_state, run.numbers["l"]  # noqa: E741
    layer, head = heads.chosen(opened.numbers["heads"])
    _choices(layer, head)
    inspected = asking.inspected()
    widgets.settled("query", [None, *range(inspected["tokens"])], None)
    args = {"model": chosen["model"], "text": chosen["text"], "layer": layer, "head": head} | cell
    args |= {"router": chosen["route_router"], "position": chosen["query"]}
    visit = asking.ask("route-visit", args, "Looking at what one token visits", inspected["tokens"])
    widgets.prose(sentence(visit, cached.columns(visit, "buckets"), l), "more")
    widgets.notes(visit)
    _painted(visit, l)
    _buckets(visit, l)


def _choices(layer: int, head: int) -> None:
    card, chosen = asking.card(st.session_state["model"]), st.session_state
    chosen["route_head_pick"] = head
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        widgets.layer_pills(card["layers"], layer)
        st.pills(
            "Head",
            list(range(card["heads"])),
            key="route_head_pick",
            required=True,
            help=cached.glossary("attention head"),
            on_change=lambda: state.choose(chosen, head=chosen["route_head_pick"]),
        )
        st.selectbox(
            "Router",
            [kind for kind in ROUTERS if kind not in ABLATIONS],
            key="route_router",
            width=230,
            format_func=lambda kind: ROUTERS[kind].title,
            help=cached.glossary("bucket routers"),
            on_change=lambda: state.choose(chosen, route_router=chosen["route_router"]),
        )


def sentence(visit: Run, buckets: dict, visited: float) -> str:
    """What the router finds for this token at so many whole buckets, and what the best ones would hold."""
    about, count = visit.numbers["query"], int(visited)
    keys, mass = sum(buckets["keys"]), sum(buckets["mass"][:count])
    inside, best = sum(buckets["keys"][:count]), sum(sorted(buckets["mass"], reverse=True)[:count])
    return (
        f"From {about['word']!r} (token {about['position']:,}), {ROUTERS[about['router']].title} visits {count:,} of "
        f"{visit.numbers['buckets']:,} buckets with {inside / max(keys, 1):.1%} of the {keys:,} far keys, and finds "
        f"{mass:.0%} of what head {about['head']} of layer {about['layer']} reads there; the best {count:,} would hold "
        f"{best:.0%}. The far keys have {visit.numbers['far_mass']:.0%} of all that it reads."
    )


def paint(tokens: dict, bucket_rank: dict[int, int], visited: float, far_mass: float) -> tuple[list[int], list[dict]]:
    """A class for every token and their palette: far attention that is found and that is missed in three steps each,
    what is visited for little, and what is too near to be routed."""
    count = len(LEVELS)
    paint = []
    for token, bucket in enumerate(tokens["bucket"]):
        if bucket < 0:
            paint.append(-1)
            continue
        if not tokens["far"][token]:
            paint.append(2 * count + 1)
            continue
        share = tokens["attention"][token] / far_mass if far_mass > 0 else 0.0
        level = sum(share >= low for low, _ in LEVELS) - 1
        inside = bucket_rank[bucket] < int(visited)
        paint.append(level if inside and level >= 0 else count + level if level >= 0 else 2 * count if inside else -1)
    return paint, _palette(paint)


def _palette(paint: list[int]) -> list[dict]:
    looks = []
    inks = (("found", HERE, HERE, "solid"), ("missed", painted.HEAT, painted.HEAT_DARK, "dashed"))
    for label, ink, dark, line in inks:
        for (_, name), (mix, mix_dark) in zip(LEVELS, MIXES, strict=True):
            looks.append((f"{label}, {name}", ink, dark, mix, mix_dark, line))
    looks.append(("visited, less than 0.2%", HERE, HERE, 5, 8, "dotted"))
    looks.append(("too near to be routed, or left out", "#7C8796", "#7C8796", 10, 16, ""))
    return [
        {"tag": "Aa", "name": name, "note": f"{paint.count(kind):,}", "light": light, "dark": dark}
        | {"mix": mix, "mix_dark": mix_dark, "line": line}
        for kind, (name, light, dark, mix, mix_dark, line) in enumerate(looks)
    ]


def _painted(visit: Run, visited: float) -> None:
    tokens, buckets = cached.columns(visit, "tokens"), cached.columns(visit, "buckets")
    ranks = dict(zip(buckets["bucket"], buckets["rank"], strict=True))
    far, position = visit.numbers["far_mass"], visit.numbers["query"]["position"]
    classes, palette = paint(tokens, ranks, visited, far)
    token_buckets = tokens["bucket"]
    shares = zip(tokens["attention"], token_buckets, strict=True)
    tips = [
        ("attention", [f"{share:.2%}" if bucket >= 0 else None for share, bucket in shares]),
        ("bucket", [f"{bucket}" if bucket >= 0 else None for bucket in token_buckets]),
        ("router's place", [f"{ranks[bucket] + 1}" if bucket >= 0 else None for bucket in token_buckets]),
    ]
    painted.painted(
        tokens,
        classes,
        palette,
        key="routing_text",
        identity=f"{visit.id}{visit.created}.{int(visited)}",
        place=f"routing_text.{len(classes)}",
        tips=tips,
        legend="share of the far attention of the marked token; unpainted: less than 0.2% and not visited",
        hint="Hover to see a token, click to make it the query; a second click or Esc goes back.",
        locked=position,
        on_token=lambda: state.choose(st.session_state, query=painted.clicked("routing_text", "token")),
    )


def _buckets(visit: Run, visited: float) -> None:
    table = cached.columns(visit, "buckets")
    values = {
        "place": [rank + 1 for rank in table["rank"]],
        "bucket": table["bucket"],
        "seen": ["yes" if rank < int(visited) else "" for rank in table["rank"]],
        "mass": table["mass"],
        "keys": table["keys"],
    }
    with st.grid(2, min_column_width=420, gap="large"):
        widgets.chart(
            routing_charts.query(table, visited),
            {"place": values["place"], **{name: table[name] for name in ("bucket", "score", "keys", "mass")}},
            title="Its buckets in the router's order",
            key="routing_query",
            alt="The far attention in each bucket, in the router's order, those visited marked",
            help=cached.glossary("bucket of keys"),
        )
        with st.container():
            st.subheader("The first buckets", anchor=False, help=cached.glossary("bucket of keys"))
            tables.table(
                BUCKETS,
                values,
                key="routing_buckets",
                identity=f"{visit.id}{visit.created}.{int(visited)}",
                label="Buckets in the router's order",
                height=340,
            )
