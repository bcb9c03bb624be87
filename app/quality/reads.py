"""Methods that read less for each query: what they cost on this text, live, and what they can gain; dense is always
the reference."""

from collections.abc import Sequence

import streamlit as st

from analysis.commands.quality import EqualBudget, Evaluate
from analysis.corpus import sample_texts, text_hash
from analysis.runs import Run
from app import cached
from app.quality import painted_change, quality_charts, search, timing, verdict
from app.quality.asked import Asked, Shown, change, changes, counted, signed
from app.quality.cards import Picker, cards
from app.selection import state
from app.speed import inherited
from app.ui import asking, plots, tables, take, widgets
from app.ui.offers import Waiting

DENSE = {"name": "dense", "settings": {}}
# Tokens read of a long text when nothing was chosen: a pass of the bundled model takes a second.
FIRST = 1024
# A text of so many tokens is read whole when nothing was chosen.
SHORT = 2048
SIZES = tuple(1 << power for power in range(7, 18))
COLUMNS = {
    "method": tables.Column("method"),
    "perplexity": tables.Column("perplexity", "number", words="perplexity_words", help=cached.glossary("perplexity")),
    "difference": tables.Column(
        "against dense", "number", words="change_words", help=cached.glossary("paired difference")
    ),
    "kl_mean": tables.Column("KL, mean / 99%", "number", words="kl_words", help=cached.glossary("KL to dense")),
    "same_top1": tables.Column("same top-1", "share", help=cached.glossary("same top-1")),
    "attended": tables.Column("keys of a query", "number", 1, help=cached.glossary("KV reads (% of causal)")),
    "attended_kv": tables.Column(
        "keys of a key-value head", "number", 1, help=cached.glossary("reads per key-value head")
    ),
    "kv_read": tables.Column("KV reads", "share", help=cached.glossary("KV reads (% of causal)")),
    "worst_bin_difference": tables.Column(
        "worst bin", "number", words="worst_words", help=cached.glossary("worst position bin")
    ),
    "bound": tables.Column("speed", "number", words="speed_words", help=cached.glossary("quality against speed")),
}
# Of a row, in the CSV alone.
FURTHER = ("difference_low", "difference_high", "reads_causal", "reads_kv", "kl_p99")


def tab(share: float | None) -> None:
    """Conclusion, controls, quality against speed, the numbers, where in the window and where in the text; `share` of
    the causal pairs that every method is to read."""
    chosen, answer = st.session_state, st.container()
    card = asking.card(chosen["model"])
    asking.settle_router()
    text_tokens, context, described = asking.inspected()["tokens"], card["max_positions"], cached.saving("reads")
    picker = Picker("quality", tuple(name for name in described if name != "dense"), len(described), "quality_paint")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        reading = what_is_read(text_tokens, context)
        chosen_methods = picker.choose(described)
        picker.all_of_them(chosen_methods)
    size, tokens = _sizes(reading, text_tokens, context)
    router = next((made for made in card["routers"] if made["name"] == chosen["router"]), {"name": chosen["router"]})
    with st.grid(2, min_column_width=420, gap="large"):
        drawn, beside = st.container(), st.container()
    with beside:
        widgets.prose("A moved slider measures quality, not speed, in a masked pass: a button times a kernel.", "quiet")
        selected = cards(picker, described, chosen_methods, router, size, share is not None)
    with drawn:
        able, budgets = (selected, []) if share is None else _at_budget(selected, share, reading, tokens)
        dense, results = _computed(able, reading, tokens, context)
    with answer:
        alone = f"On {_where(dense)}, dense attention has perplexity {dense.numbers['rows'][0]['perplexity']:.1f}."
        widgets.prose(verdict.headline(results) if results else alone)
    if not selected:
        st.info("Only dense attention is chosen: choose a method to compare with it.")
    if results:
        with drawn:
            _trade(results)
            timing.buttons(selected, card, dense.numbers["window"])
        widgets.prose(verdict.quality(results, _where(dense)) or [])
    widgets.source(results[0].run if results else dense)
    widgets.notes(dense)
    widgets.prose(list(dict.fromkeys(_notes(results, dense))), "note")
    _tell_budgets(budgets)
    take.offer({result.row["label"]: (result.run, result.asked.spec) for result in results}, "quality")
    if results:
        _table(results, dense)
        _positions(results)
    with widgets.guarded():
        search.section("reads", selected, 0, text_tokens, context)
    if results:
        painted_change.text(results, cached.columns(dense, "tokens"))
    with widgets.guarded():
        verdict.card(results, context, _command(selected, reading))


# --- what is read -----------------------------------------------------------------------------------------------------


def what_is_read(tokens: int, longest: int) -> dict:
    """The choice of what is read, as arguments of `evaluate`; `tokens` in the text, `longest` in a context. In the URL
    `1024` is the first window of 1,024 tokens, `1024w` all of them, `all` the fewest windows of equal length."""
    fits = [size for size in SIZES if size <= min(tokens, longest)]
    spelled = {f"{size}": f"the first {size:,} tokens" for size in fits}
    spelled["all"] = f"the whole text, {tokens:,} tokens"
    spelled |= {f"{size}w": f"the whole text in windows of {size:,}" for size in fits if 2 * size <= tokens}
    default = f"{FIRST}" if SHORT < tokens and FIRST in fits else "all"
    if st.session_state["quality_read"] in {f"{size}{kind}" for size in SIZES for kind in ("", "w")} - set(spelled):
        state.choose(st.session_state, quality_read=default)  # it was right for another text
    widgets.settled("quality_read", list(spelled), default)
    help = cached.glossary("window (context)")
    st.selectbox("Read", list(spelled), format_func=spelled.get, key="quality_read", width=290, help=help)
    choice = st.session_state["quality_read"]
    if choice == "all":
        return {"window": None, "long_text": "windows"}
    return {"window": int(choice.rstrip("w")), "long_text": "windows" if choice.endswith("w") else "first"}


def _sizes(reading: dict, tokens: int, longest: int) -> tuple[int, int]:
    """(tokens of a window, as `evaluate` cuts a text; tokens that are read in all, which is what it costs)."""
    size = min(reading["window"], tokens) if reading["window"] else tokens // -(-tokens // longest)
    return size, size if reading["long_text"] == "first" else tokens


def _about_text() -> dict:
    return {name: st.session_state[name] for name in ("model", "text")}


def _evaluated(spec: dict, reading: dict) -> Evaluate:
    """One method on the chosen text, a stored run of its own."""
    return cached.request(Evaluate, **_about_text(), **reading, methods=[spec], seed=0)


def _computed(choices: list[Asked], reading: dict, tokens: int, context: int) -> tuple[Run, list[Shown]]:
    """Dense attention, and the methods that are stored or computed now; one button for all that wait."""
    launched = inherited.launches()
    requests = [_evaluated(spec, reading) for spec in (DENSE, *(choice.spec for choice in choices))]
    doing = f"Reading with dense attention and {counted(len(choices), 'method')}"
    (dense, *runs), waits = asking.several(requests, doing, "method", tokens)
    if waits and dense is None:
        raise Waiting
    dense = dense or asking.compute(requests[0], "Reading with dense attention", tokens)
    results = []
    for choice, request, run in zip(choices, requests[1:], runs, strict=True):
        with widgets.guarded():
            if run is None and not waits:
                run = asking.compute(request, f"Reading with {choice.title}", tokens)
            if run is not None:
                speed = timing.measured(choice, dense.numbers["window"], context, launched)
                results.append(Shown(choice, run, run.numbers["rows"][0], speed))
    return dense, results


# --- the same budget for all ------------------------------------------------------------------------------------------


def _at_budget(
    choices: list[Asked], share: float, reading: dict, tokens: int
) -> tuple[list[Asked], list[tuple[Asked, Run | None]]]:
    """(methods at a budget that they reach, every one with the run that set it); `choices` takes the settings too. A
    method without a setting that counts keys is shown as it is."""
    wanted = [_budgeted(choice, share, reading) for choice in choices]
    doing = f"Setting every method to {share:.0%} of the reads"
    if asking.several([request for request in wanted if request], doing, "budget", tokens)[1]:
        raise Waiting
    able, budgets = [], []
    for place, (choice, request) in enumerate(zip(list(choices), wanted, strict=True)):
        with widgets.guarded():
            run = request and asking.ask(request, f"Setting {choice.title} to {share:.0%} of the reads", tokens)
            if run:
                (spec,) = run.numbers["methods"]
                choices[place] = choice.at(spec["settings"], spec.get("policy"))
            budgets.append((choices[place], run))
            able += [choices[place]] * (run is None or run.numbers["rows"][0]["reached"])
    return able, budgets


def _budgeted(choice: Asked, share: float, reading: dict) -> EqualBudget | None:
    """What sets one method to a share of the reads; None where it has no setting that counts keys."""
    if choice.about["budget"] is None:
        return None
    counts = (choice.about["budget"], *choice.about["competing"])
    free = choice.at({name: value for name, value in choice.settings.items() if name not in counts})
    return EqualBudget(**_about_text(), **reading, methods=[free.spec], share=share, windows=1, seed=0)


def _tell_budgets(budgets: list[tuple[Asked, Run | None]]) -> None:
    """What the budget is, whom it cannot be given to, and who does not reach it."""
    if numbers := next((run.numbers for _, run in budgets if run), None):
        widgets.prose(
            f"Every method is set so that a query reads {numbers['target']:,.1f} keys on average over all layers and "
            f"heads in the first {numbers['window']:,} tokens; what it fetches to choose them is not counted.",
            "more",
        )
    for choice, run in budgets:
        if run is None:
            widgets.prose(f"{choice.title} reads every key, so it cannot be given a budget.", "note")
        elif not run.numbers["rows"][0]["reached"]:
            widgets.prose(f"Left out: {run.numbers['notes'][-1]}", "note")


# --- what is shown ----------------------------------------------------------------------------------------------------


def _trade(results: Sequence[Shown]) -> None:
    figure = quality_charts.trade(results)
    plots.draw(figure, _numbers(results), "Quality against speed", "quality_trade", "quality against speed")
    caption = "Hollow: the most its reads allow, not timed. Solid: timed on this machine. Bars: 95% intervals."
    if any(result.shares and not result.row["ceiling"] for result in results):
        caption += " Upright tick: the most where heads that share keys fetch all that any of them reads."
    if beyond := quality_charts.far(results):
        named = ", ".join(f"{result.title} ({signed(result.row['difference'])})" for result in beyond)
        caption += f" Beyond the chart, at its edge: {named}."
    st.caption(caption)


def _numbers(results: Sequence[Shown]) -> dict:
    rows = [
        {"method": result.title, "settings": changes(result.asked)}
        | {name: result.row[name] for name in ("perplexity", "difference", *FURTHER)}
        | {"speed at most": result.bound, "by keys fetched": result.bound_kv}
        | {f"measured {end}": result.speed and getattr(result.speed.best, end) for end in ("median", "low", "high")}
        | {"measured length": result.speed and result.speed.best.length}
        for result in results
    ]
    return plots.columns(rows)


def _table(results: Sequence[Shown], dense: Run) -> None:
    """Dense and every method, and what the intervals stand on."""
    st.subheader("The numbers", anchor=False, help=cached.glossary("interval"))
    names = [name for name in (*COLUMNS, *FURTHER) if name not in ("method", "bound")]
    reference = dense.numbers["rows"][0]
    rows = [{"method": "Dense", "bound": 1.0} | {name: reference[name] for name in names}]
    rows[0] |= {"change_words": "–", "worst_words": "–", "speed_words": "1.0 times"} | _words(reference)
    for result in results:
        row = result.row
        worst = row["bins"][row["worst_bin"]]
        rows.append({"method": result.asked.label} | {name: row[name] for name in names} | _words(row))
        rows[-1] |= {"bound": None if row["ceiling"] else result.bound, "speed_words": _speed(result)}
        rows[-1] |= {"change_words": change(row)}
        rows[-1] |= {"worst_words": f"{signed(worst['difference'])} at {worst['first'] + 1:,}–{worst['last']:,}"}
    plots.listed(COLUMNS, plots.columns(rows), "quality_table", "Methods and their numbers", height=420)
    row, windows = results[0].row, dense.protocol["tokens"] // dense.numbers["window"]
    few = "" if row["difference_low"] is not None else ", too few for one"
    widgets.prose(
        f"{counted(row['tokens'], 'predicted token')} in {counted(windows, 'window')}. Intervals hold 95%, from "
        f"{row['difference_units']:,} {row['difference_unit']}{few}: how even the change is inside this text, not what "
        "another text would give.",
        "quiet",
    )


def _words(row: dict) -> dict[str, str]:
    spread = "" if row["low"] is None else f" ({row['low']:.2f}–{row['high']:.2f})"
    perplexity = f"{row['perplexity']:.2f}{spread}"
    return {"perplexity_words": perplexity, "kl_words": f"{row['kl_mean']:.3f} / {row['kl_p99']:.2f}"}


def _speed(result: Shown) -> str:
    """What was measured, else what it can be at most; a ceiling is no faster itself."""
    if result.row["ceiling"]:
        return "ceiling"
    bound = f"≤ {result.bound:.1f} times"
    bound += f", by keys fetched ≤ {result.bound_kv:.1f} times" if result.shares else ""
    return bound if result.speed is None else f"{result.speed.best.median:.2f} times, {bound}"


def _positions(results: Sequence[Shown]) -> None:
    names = ("first", "last", "n", "perplexity", "difference", "low", "high")
    rows = [
        {"method": result.title} | {name: cell[name] for name in names}
        for result in results
        for cell in result.row["bins"]
    ]
    figure = quality_charts.by_position(results)
    plots.draw(figure, rows, "Where in the window it loses", "quality_bins", "worst position bin")
    cells = results[0].row["bins"]
    st.caption(f"{counted(len(cells), 'bin')} of {counted(cells[0]['n'], 'predicted token')} each, 95% intervals.")


def _notes(results: Sequence[Shown], dense: Run) -> list[str]:
    return [note for result in results for note in result.run.numbers["notes"] if note not in dense.numbers["notes"]]


def _where(dense: Run) -> str:
    """What was read, for a sentence."""
    tokens, size = dense.protocol["tokens"], dense.numbers["window"]
    return f"{counted(tokens, 'token')} of this text" + (f" in {tokens // size:,} windows" if tokens > size else "")


def _command(choices: Sequence[Asked], reading: dict) -> str:
    """The command line that gives the same numbers."""
    text = st.session_state["text"]
    place = {text_hash(words): name for name, (_, words) in sample_texts().items()}.get(text, "TEXT")
    methods = [{"name": "dense"}, *(choice.spec for choice in choices)]
    return Evaluate(text=place, model=st.session_state["model"], methods=methods, **reading).command_line()
