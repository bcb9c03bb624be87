"""The five steps of the tour: each one picture and one sentence, from stored examples, in type for the last row."""

import streamlit as st

from analysis.declaration import in_address as to_url
from app import cached
from app.budgets import budget_charts
from app.budgets.budget_words import share
from app.heads import painted_weights
from app.selection import state
from app.selection.look import TOUR_STEPS
from app.temperature import temperature_charts
from app.tour import words
from app.tour.story import STORY
from app.ui import asking, charts, classroom, painted, widgets

STYLE = """<style>
.fs-said { font-size: clamp(1.2rem, 2.1vw, 1.9rem); line-height: 1.4; font-weight: 600; margin: 0 0 0.6rem;
  text-wrap: pretty; unicode-bidi: plaintext; }
.stMain { --fs-type: 1.35; }
</style>"""
KEYS = 8  # of the chart of one query


def show() -> None:
    """The step that stands in the URL, and the way back and on."""
    st.html(STYLE)
    step, text = st.session_state["step"], cached.samples()[STORY.sample][0]
    verb, request = STORY.requests(text)[step]
    place = list(TOUR_STEPS).index(step)
    with st.container(horizontal=True, vertical_alignment="center", key="tour_on"):
        st.title(f"{place + 1} of {len(TOUR_STEPS)} · {TOUR_STEPS[step]}", anchor=False, width="stretch")
        _on(place)
    run = asking.ask(verb, request, "Reading the text of the tour")
    with widgets.guarded():
        SHOWN[step](run, cached.columns(run, "tokens"))
    view, title, link = STORY.links(text)[step]
    controls = {name: to_url(value) for name, value in link.items()}
    look = {"icon": ":material/open_in_new:", "query_params": controls}
    st.page_link(f"views/{view}.py", label=f"Try it yourself: {title}", **look)


def _on(place: int) -> None:
    """The way back and on; after the last step, to Start."""
    names = list(TOUR_STEPS)
    back, on = names[max(place - 1, 0)], names[min(place + 1, len(names) - 1)]
    look = {"on_click": _go, "shortcut": "Left"}
    st.button("Back", icon=":material/arrow_back:", key="tour_back", disabled=place == 0, args=(back,), **look)
    if place + 1 < len(names):
        look |= {"shortcut": "Right", "type": "primary"}
        st.button("Next", icon=":material/arrow_forward:", key="tour_next", args=(on,), **look)
    else:
        st.page_link("views/start.py", label="Now a text of your own", icon=":material/upload_file:")


def _go(step: str) -> None:
    state.choose(st.session_state, step=step)


def _said(sentence: str) -> None:
    widgets.prose(sentence.replace(" %", "\N{NO-BREAK SPACE}%"), "said")


def _token(run, tokens: dict) -> None:
    _said(words.token(len(tokens["piece"]), run.numbers["min_distance"]))
    paint, palette = painted.by_received(tokens["received"])
    painted.painted(
        tokens,
        paint,
        palette,
        key="tour_token",
        identity=run.id,
        tips=[("read from afar", [widgets.times_chance(value) for value in tokens["received"]])],
        legend=f"attention from {run.numbers['min_distance']:,} or more tokens later",
        hint="Hover to see a token.",
    )


def _head(run, tokens: dict) -> None:
    numbers, query = run.numbers, run.numbers["query"]
    row = cached.array(run, "row")
    best = max(range(query + 1), key=lambda key: row[key])
    card = asking.card("demo")
    facts = tokens["piece"][query].strip(), tokens["word"][query], *(numbers[name] for name in ("layer", "head"))
    _said(words.head(*facts, card["layers"] * card["heads"], float(row[best]), query - best))
    weights = painted_weights.spread(row, numbers["offset"], query, len(tokens["piece"]))
    paint, palette = painted_weights.by_weight(weights)
    painted.painted(
        tokens,
        paint,
        palette,
        key="tour_head",
        identity=run.id,
        tips=[("attention", [None if weight is None else f"{weight:.2%}" for weight in weights])],
        legend=f"read from “{painted.visible(tokens['piece'][query])}”, which is framed",
        hint="The framed token reads; the coloured ones are read.",
        locked=query,
        arcs=[_arc(tokens, query, best)],
        open_arc=0,
    )


def _arc(tokens: dict, query: int, key: int) -> dict:
    return {"query": query, "key": key, "label": f"{query - key:,} tokens back", "mark": [query, key]}


def _pair(run, tokens: dict) -> None:
    query, key, piece = STORY.query, STORY.key, [token.strip() for token in tokens["piece"]]
    _said(words.pair(piece[query], piece[key], piece[key - 1], query - key))
    weight = float(cached.array(run, "row")[key])
    painted.contexts(
        tokens, query, key, notes=("what is read", f"reads it with {share(round(weight, 2))} of the attention")
    )


def _sharpen(run, tokens: dict) -> None:
    numbers, weights = run.numbers, cached.array(run, "weights")
    places = [numbers["t"].index(t) for t in (1.0, STORY.t)]
    before, after = (numbers["reads"][row]["effective_support"] for row in places)
    _said(words.sharpen(numbers["layer"], numbers["head"], before, after, STORY.t))
    table = dict(cached.columns(run, "query"))
    table["before"], table["after"] = (weights[row].tolist() for row in places)
    table["piece"] = table["word"]
    strongest = sorted(range(len(table["key"])), key=lambda row: -max(table["before"][row], table["after"][row]))[:KEYS]
    widgets.chart(
        charts.larger(temperature_charts.query(table, strongest, STORY.t), classroom.TYPE),
        {name: [table[name][row] for row in strongest] for name in ("position", "word", "before", "after")},
        title="The tokens it reads most",
        key="tour_sharpen",
        alt="Attention of the tokens that get most, before and after sharpening",
    )


def _cut(run, tokens: dict) -> None:
    rows = run.numbers["rows"]
    row = next(row for row in rows if row["share"] == STORY.share)
    _said(words.cut(row["share"], row["difference"], row["worst_bin_difference"]))
    widgets.chart(
        charts.larger(budget_charts.by_reads(rows, row["share"]), classroom.TYPE),
        {
            name: [budget[name] for budget in rows]
            for name in ("share", "difference", "low", "high", "worst_bin_difference")
        },
        title="Reading less and less",
        key="tour_cut",
        alt="Change of perplexity against the share of the pairs that is read",
    )


SHOWN = {"token": _token, "head": _head, "pair": _pair, "sharpen": _sharpen, "cut": _cut}
