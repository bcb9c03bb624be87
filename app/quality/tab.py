"""The quality tab: what reading less costs on this text, live, and what it can gain; dense is always the reference."""

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from analysis.runs import Run
from app import cached
from app.quality import (
    cards,
    charts,
    decision,
    equal,
    extent,
    followed,
    headline,
    search,
    speed as quality_speed,
    table as quality_table,
    text as quality_text,
    words,
)
from app.quality.words import Asked, Shown
from app.selection.decide import SAVES
from app.speed import inherited
from app.ui import asking, take, widgets
from app.ui.offers import Waiting

SEED = 0  # of the intervals
DENSE = {"name": "dense", "settings": {}}
TRAIL = 60  # stored runs that are looked through for settings tried before


def page() -> None:
    """What the methods save, a budget for all of them, and the tab of that family."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        look = {"format_func": SAVES.get, "required": True}
        st.segmented_control("What the methods save", list(SAVES), key="quality_saves", **look)
        share = equal.choice()
    saves = st.session_state["quality_saves"]
    if saves == "reads":
        tab(share)
    else:
        followed.tab(saves, share)


def tab(share: float | None) -> None:
    """Methods that read less for each query: conclusion, controls, quality against speed, the numbers, where in the
    window and where in the text."""
    chosen = st.session_state
    answer = st.container()
    card = asking.card(chosen["model"])
    asking.settle_router()
    inspected = asking.inspected()
    choices = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
    with choices:
        reading = extent.what_is_read(inspected["tokens"], card["max_positions"])
    tokens = extent.tokens_read(reading, inspected["tokens"])
    described, size = cached.saving("reads"), extent.window_of(reading, inspected["tokens"], card["max_positions"])
    offered = tuple(name for name in described if name != "dense")
    picker = cards.Picker("quality", offered, len(offered), "quality_paint")
    with choices:
        mine = picker.choose(described)
        picker.all_of_them(f"All {len(offered)}", mine)
    facts = next((made for made in card["routers"] if made["name"] == chosen["router"]), {"name": chosen["router"]})
    with st.grid(2, min_column_width=420, gap="large"):
        drawn, beside = st.container(), st.container()
    with beside:
        widgets.prose(
            "A moved slider reads the text again in a masked pass: that measures quality, not speed. The button "
            "“Measure the speed” times the kernel.",
            "quiet",
        )
        asked = cards.cards(picker, described, mine, facts, size, share is not None)
    launched = inherited.launches()
    shown, budgets, able = [], [], list(asked)
    with drawn:
        if share is not None:
            able, budgets = _settled(asked, share, reading, tokens)
        wanted = [request(spec, reading) for spec in (DENSE, *(one.spec for one in able))]
        doing = f"Reading with dense attention and {words.counted(len(able), 'method')}"
        (dense, *found), wait = asking.several("evaluate", wanted, doing, "method", tokens)
        if wait and dense is None:
            raise Waiting
        dense = dense or asking.compute("evaluate", wanted[0], "Reading with dense attention", tokens)
        size = dense.numbers["window"]
        for one, args, run in zip(able, wanted[1:], found, strict=True):
            with widgets.guarded():
                if run is None and not wait:
                    run = asking.compute("evaluate", args, f"Reading with {one.about['title']}", tokens)
                if run is not None:
                    speed = quality_speed.measured(one, size, card["max_positions"], launched)
                    shown.append(Shown(one, run, run.numbers["rows"][0], speed))
    said = words.conclusion(shown, dense.numbers["rows"][0], words.where(dense))
    with answer:
        widgets.prose(headline.headline(shown) if shown else said[0])
    if not asked:
        st.info("Only dense attention is chosen: choose a method to compare with it.")
    if shown:
        with drawn:
            _trade(shown, tried(asked, reading))
            quality_speed.buttons(asked, card, size)
    if shown:
        widgets.prose(said[:1])
    widgets.source(shown[0].run if shown else dense)
    widgets.prose(said[1:], "more")
    widgets.notes(dense)
    for sentence in {note for one in shown for note in one.run.numbers["notes"]} - set(dense.numbers["notes"]):
        widgets.prose(sentence, "note")
    equal.said(budgets)
    take.offer({one.row["label"]: (one.run, one.asked.spec) for one in shown}, "quality")
    if shown:
        quality_table.table(shown, dense)
        widgets.prose(words.sharing(shown, dense.numbers["heads_sharing"]), "quiet")
        _positions(shown)
    with widgets.guarded():
        search.section("reads", asked, 0, inspected["tokens"], card["max_positions"])
    if shown:
        quality_text.text(shown, cached.columns(dense, "tokens"))
    with widgets.guarded():
        decision.card(shown, card["max_positions"], words.command(asked, chosen["text"], chosen["model"], reading))


def _settled(
    asked: list[Asked], share: float, reading: dict, tokens: int
) -> tuple[list[Asked], list[tuple[Asked, Run | None]]]:
    """(methods at a budget that they reach, every one with the run that set it); `asked` takes the settings too."""
    wanted = [equal.request(one, share, reading) for one in asked]
    doing = f"Setting every method to {share:.0%} of the reads"
    if asking.several("equal-budget", [args for args in wanted if args], doing, "budget", tokens)[1]:
        raise Waiting
    able, budgets = [], []
    for at, (one, args) in enumerate(zip(list(asked), wanted, strict=True)):
        with widgets.guarded():
            budgets.append(equal.settled(one, args, share, tokens))
            asked[at], found = budgets[-1]
            able += [asked[at]] * equal.reaches(found)
    return able, budgets


def request(spec: dict, reading: dict) -> dict:
    """The arguments of `evaluate` for one method on the chosen text, a stored run of its own."""
    args = {name: st.session_state[name] for name in ("model", "text")} | reading
    return args | {"methods": [spec], "seed": SEED}


def tried(asked: Sequence[Asked], reading: dict) -> list[Shown]:
    """Other settings of these methods that were read on this text before, as far as they are stored here."""
    args = {name: st.session_state[name] for name in ("model", "text")} | reading | {"seed": SEED}
    found = []
    for run in cached.store().list("evaluate", TRAIL):
        (spec, *more), row = run.request["methods"] or [{}], run.numbers["rows"][0]
        one = next((one for one in asked if not more and spec.get("name") == one.name), None)
        alike = all(run.request.get(name) == value for name, value in args.items())
        if one and alike and spec.get("router") == one.router and row["settings"] != one.settings:
            changed = {name: value for name, value in row["settings"].items() if value != one.defaults.get(name)}
            found.append(Shown(replace(one, changed=changed), run, row, None))
    return found


def _trade(shown: Sequence[Shown], before: Sequence[Shown]) -> None:
    widgets.chart(
        charts.trade(shown, before),
        _values(shown),
        title="Quality against speed",
        key="quality_trade",
        alt="Change of perplexity against speed of attention for each method, with intervals",
        help=cached.glossary("quality against speed"),
    )
    said = "Hollow: the most its reads allow, not timed. Solid: timed on this machine. Bars: 95% intervals."
    if any(one.shares and not one.row["ceiling"] for one in shown):
        said += " Upright tick: the most where heads that share keys fetch all that any of them reads."
    if beyond := charts.far(shown):
        names = ", ".join(f"{one.title} ({words.signed(one.row['difference'])})" for one in beyond)
        said += f" {'Arrow' if len(beyond) == 1 else 'Arrows'}, beyond the chart: {names}."
    st.caption(f"{said} Small: settings tried before." if before else said)


def _positions(shown: Sequence[Shown]) -> None:
    widgets.chart(
        charts.by_position(shown),
        _bins(shown),
        title="Where in the window it loses",
        key="quality_bins",
        alt="Change of perplexity by position in the window for each method, with intervals",
        help=cached.glossary("worst position bin"),
    )
    cells = shown[0].row["bins"]
    each = words.counted(cells[0]["n"], "predicted token")
    st.caption(f"{words.counted(len(cells), 'bin')} of {each} each. Bars: 95% intervals.")


def _bins(shown: Sequence[Shown]) -> dict:
    cells = [(one.title, cell) for one in shown for cell in one.row["bins"]]
    values = {"method": [title for title, _ in cells]}
    values |= {"from token": [cell["first"] + 1 for _, cell in cells], "to token": [cell["last"] for _, cell in cells]}
    names = {"n": "n", "perplexity": "perplexity", "difference": "against dense", "low": "low", "high": "high"}
    return values | {label: [cell[name] for _, cell in cells] for name, label in names.items()}


def _values(shown: Sequence[Shown]) -> dict:
    rows = [one.row for one in shown]
    values = {"method": [one.title for one in shown], "settings": [words.changes(one.asked) for one in shown]}
    for name in ("perplexity", "difference", "difference_low", "difference_high", "reads_causal", "reads_kv"):
        values[name] = [row[name] for row in rows]
    values["speed at most"] = [one.bound for one in shown]
    values["by keys fetched"] = [one.bound_kv for one in shown]
    for name in ("median", "low", "high", "length"):
        values[f"measured {name}"] = [one.speed and one.speed[name] for one in shown]
    return values
