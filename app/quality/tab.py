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
        chosen_methods = picker.choose(described)
        picker.all_of_them(f"All {len(offered)}", chosen_methods)
    facts = next(
        (fitted for fitted in card["routers"] if fitted["name"] == chosen["router"]), {"name": chosen["router"]}
    )
    with st.grid(2, min_column_width=420, gap="large"):
        drawn, beside = st.container(), st.container()
    with beside:
        widgets.prose(
            "A moved slider reads the text again in a masked pass: that measures quality, not speed. The button "
            "“Measure the speed” times the kernel.",
            "quiet",
        )
        selected = cards.cards(picker, described, chosen_methods, facts, size, share is not None)
    launched = inherited.launches()
    results, budgets, able = [], [], list(selected)
    with drawn:
        if share is not None:
            able, budgets = _settled(selected, share, reading, tokens)
        wanted = [request(spec, reading) for spec in (DENSE, *(choice.spec for choice in able))]
        doing = f"Reading with dense attention and {words.counted(len(able), 'method')}"
        (dense, *runs), wait = asking.several("evaluate", wanted, doing, "method", tokens)
        if wait and dense is None:
            raise Waiting
        dense = dense or asking.compute("evaluate", wanted[0], "Reading with dense attention", tokens)
        size = dense.numbers["window"]
        for choice, args, run in zip(able, wanted[1:], runs, strict=True):
            with widgets.guarded():
                if run is None and not wait:
                    run = asking.compute("evaluate", args, f"Reading with {choice.about['title']}", tokens)
                if run is not None:
                    speed = quality_speed.measured(choice, size, card["max_positions"], launched)
                    results.append(Shown(choice, run, run.numbers["rows"][0], speed))
    sentences = words.conclusion(results, dense.numbers["rows"][0], words.where(dense))
    with answer:
        widgets.prose(headline.headline(results) if results else sentences[0])
    if not selected:
        st.info("Only dense attention is chosen: choose a method to compare with it.")
    if results:
        with drawn:
            _trade(results, tried(selected, reading))
            quality_speed.buttons(selected, card, size)
    if results:
        widgets.prose(sentences[:1])
    widgets.source(results[0].run if results else dense)
    widgets.prose(sentences[1:], "more")
    widgets.notes(dense)
    for sentence in {note for choice in results for note in choice.run.numbers["notes"]} - set(dense.numbers["notes"]):
        widgets.prose(sentence, "note")
    equal.said(budgets)
    take.offer({choice.row["label"]: (choice.run, choice.asked.spec) for choice in results}, "quality")
    if results:
        quality_table.table(results, dense)
        widgets.prose(words.sharing(results, dense.numbers["heads_sharing"]), "quiet")
        _positions(results)
    with widgets.guarded():
        search.section("reads", selected, 0, inspected["tokens"], card["max_positions"])
    if results:
        quality_text.text(results, cached.columns(dense, "tokens"))
    with widgets.guarded():
        decision.card(results, card["max_positions"], words.command(selected, chosen["text"], chosen["model"], reading))


def _settled(
    choices: list[Asked], share: float, reading: dict, tokens: int
) -> tuple[list[Asked], list[tuple[Asked, Run | None]]]:
    """(methods at a budget that they reach, every one with the run that set it); `choices` takes the settings too."""
    wanted = [equal.request(choice, share, reading) for choice in choices]
    doing = f"Setting every method to {share:.0%} of the reads"
    if asking.several("equal-budget", [args for args in wanted if args], doing, "budget", tokens)[1]:
        raise Waiting
    able, budgets = [], []
    for place, (choice, args) in enumerate(zip(list(choices), wanted, strict=True)):
        with widgets.guarded():
            budgets.append(equal.settled(choice, args, share, tokens))
            choices[place], budget_run = budgets[-1]
            able += [choices[place]] * equal.reaches(budget_run)
    return able, budgets


def request(spec: dict, reading: dict) -> dict:
    """The arguments of `evaluate` for one method on the chosen text, a stored run of its own."""
    args = {name: st.session_state[name] for name in ("model", "text")} | reading
    return args | {"methods": [spec], "seed": SEED}


def tried(choices: Sequence[Asked], reading: dict) -> list[Shown]:
    """Other settings of these methods that were read on this text before, as far as they are stored here."""
    args = {name: st.session_state[name] for name in ("model", "text")} | reading | {"seed": SEED}
    results = []
    for run in cached.store().list("evaluate", TRAIL):
        (spec, *further), row = run.request["methods"] or [{}], run.numbers["rows"][0]
        choice = next((choice for choice in choices if not further and spec.get("name") == choice.name), None)
        alike = all(run.request.get(name) == value for name, value in args.items())
        if choice and alike and spec.get("router") == choice.router and row["settings"] != choice.settings:
            changed = {name: value for name, value in row["settings"].items() if value != choice.defaults.get(name)}
            results.append(Shown(replace(choice, changed=changed), run, row, None))
    return results


def _trade(results: Sequence[Shown], before: Sequence[Shown]) -> None:
    widgets.chart(
        charts.trade(results, before),
        _values(results),
        title="Quality against speed",
        key="quality_trade",
        alt="Change of perplexity against speed of attention for each method, with intervals",
        help=cached.glossary("quality against speed"),
    )
    caption = "Hollow: the most its reads allow, not timed. Solid: timed on this machine. Bars: 95% intervals."
    if any(result.shares and not result.row["ceiling"] for result in results):
        caption += " Upright tick: the most where heads that share keys fetch all that any of them reads."
    if beyond := charts.far(results):
        names = ", ".join(f"{result.title} ({words.signed(result.row['difference'])})" for result in beyond)
        caption += f" {'Arrow' if len(beyond) == 1 else 'Arrows'}, beyond the chart: {names}."
    st.caption(f"{caption} Small: settings tried before." if before else caption)


def _positions(results: Sequence[Shown]) -> None:
    widgets.chart(
        charts.by_position(results),
        _bins(results),
        title="Where in the window it loses",
        key="quality_bins",
        alt="Change of perplexity by position in the window for each method, with intervals",
        help=cached.glossary("worst position bin"),
    )
    cells = results[0].row["bins"]
    per_bin = words.counted(cells[0]["n"], "predicted token")
    st.caption(f"{words.counted(len(cells), 'bin')} of {per_bin} each. Bars: 95% intervals.")


def _bins(results: Sequence[Shown]) -> dict:
    cells = [(result.title, cell) for result in results for cell in result.row["bins"]]
    values = {"method": [title for title, _ in cells]}
    values |= {"from token": [cell["first"] + 1 for _, cell in cells], "to token": [cell["last"] for _, cell in cells]}
    names = {"n": "n", "perplexity": "perplexity", "difference": "against dense", "low": "low", "high": "high"}
    return values | {label: [cell[name] for _, cell in cells] for name, label in names.items()}


def _values(results: Sequence[Shown]) -> dict:
    rows = [result.row for result in results]
    values = {
        "method": [result.title for result in results],
        "settings": [words.changes(result.asked) for result in results],
    }
    for name in ("perplexity", "difference", "difference_low", "difference_high", "reads_causal", "reads_kv"):
        values[name] = [row[name] for row in rows]
    values["speed at most"] = [result.bound for result in results]
    values["by keys fetched"] = [result.bound_kv for result in results]
    for name in ("median", "low", "high", "length"):
        values[f"measured {name}"] = [result.speed and result.speed[name] for result in results]
    return values
