"""Methods that decide once, at the end of a prompt: what follows it, against the KV cache that is held or the blocks of
the prompt that are read."""

from collections.abc import Sequence

import streamlit as st

from analysis.commands.quality import Continuation
from analysis.runs import Run
from app import cached
from app.quality import evidence, quality_charts, search, timing
from app.quality.asked import NEAR, Asked, Shown, change, changes, counted
from app.quality.cards import Picker, cards
from app.selection import state
from app.ui import asking, fields, plots, repeat, tables, take, widgets
from app.ui.spelled import size
from app.ui.tabs import drawer

# Tokens that are scored, stretches of the text.
AFTER, CUTS = 256, 4
PREFIXES = tuple(1 << power for power in range(7, 18))
# Tokens of a prompt when nothing was chosen, fewer of a text that has no two stretches of so many.
FIRST = 1024
COLUMNS = {
    "label": tables.Column("method"),
    "difference": tables.Column(
        "perplexity against dense", "number", words="change_words", help=cached.glossary("paired difference")
    ),
    "perplexity": tables.Column("perplexity", "number", help=cached.glossary("perplexity")),
    "kv_bytes": tables.Column("KV cache held", "number", words="held_words", help=cached.glossary("KV cache")),
    "kv_share": tables.Column("of dense", "share"),
    "kv_most_bytes": tables.Column(
        "at most, reading the prompt", "number", words="most_words", help=cached.glossary("KV cache at most")
    ),
    "kept_keys": tables.Column("keys a head holds", "number", 1),
    "blocks": tables.Column("blocks of the prompt read", "share"),
    "prefill": tables.Column("prompt, times dense", "number"),
    "per_token": tables.Column("each token, times dense", "number"),
}
# What the methods save -> the columns that the others lack.
ONLY = {
    "memory": ("kv_bytes", "kv_share", "kv_most_bytes", "kept_keys", "prefill", "per_token"),
    "prefill": ("blocks", "prefill"),
}
TITLES = {
    "memory": ("Quality against memory", "eviction"),
    "prefill": ("Quality against time of the prompt", "quality against speed"),
}
CAPTIONS = {
    "memory": "Bytes of keys and values really held when the prompt has been read.",
    "prefill": "Hollow: the most the blocks allow, not timed. Solid: the prompt timed here, its estimate included.",
}


def tab(saves: str, share: float | None) -> None:
    """The tab of the methods that save memory, or prefill time; `share`: a budget for all of them."""
    answer = st.container()
    card, tokens = asking.card(st.session_state["model"]), asking.inspected()["tokens"]
    described, context = cached.saving(saves), card["max_positions"]
    offered = tuple(name for name in described if name != "dense")
    picker = Picker(f"quality_{saves}", offered, len(offered))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        prefix = _prefix(tokens, context)
        chosen_methods = picker.choose(described)
        picker.all_of_them(chosen_methods)
    with st.grid(2, min_column_width=420, gap="large"):
        drawn, beside = st.container(), st.container()
    with beside:
        choices = cards(picker, described, chosen_methods, {"name": ""}, prefix, share is not None)
    with drawn:
        results, waits = _computed(choices, prefix, share, min(tokens, 2 * CUTS * (prefix + AFTER)), context)
    if results or not waits:
        with answer:
            widgets.prose(conclusion(results, saves, prefix))
    if not results:
        return
    with drawn:
        _chart(results, saves)
        timing.buttons([result.asked for result in results], card, prefix)
    widgets.source(results[0].run)
    widgets.prose(list(dict.fromkeys(note for result in results for note in result.run.numbers["notes"])), "note")
    take.offer({result.row["label"]: (result.run, result.asked.spec) for result in results}, f"quality_{saves}")
    _table(results, saves)
    if duo := next((choice for choice in choices if choice.name == evidence.DUO), None):
        title = "Which heads does DuoAttention let keep every key?"
        drawer("quality_split", lambda: evidence.split(duo), title=title, icon=":material/call_split:")
    with widgets.guarded():
        search.section(saves, choices, prefix, tokens, context)
    request = _request([choice.spec for choice in choices], prefix, share)
    repeat.drawer(request.but(texts=["TEXT"]).command_line())


def _prefix(tokens: int, context: int) -> int:
    longest = min(tokens, context) - AFTER
    fits = [length for length in PREFIXES if length <= longest] or [max(8, longest)]
    twice = [length for length in fits if length <= FIRST and 2 * (length + AFTER) <= tokens]  # enough for an interval
    if st.session_state["quality_prefix"] not in (None, *fits):
        state.choose(st.session_state, quality_prefix=None)  # it was right for another text
    now = st.session_state["quality_prefix"] or (twice[-1] if twice else fits[0])
    look = {"format_func": lambda length: f"{length:,} tokens", "width": 150}
    help = f"What follows is scored: {AFTER} tokens, in up to {CUTS} stretches of the text."
    return fields.pick(st.selectbox, "Prompt", fits, "quality_prefix", now, help=help, **look)


def _request(specs: list[dict], prefix: int, share: float | None) -> Continuation:
    chosen = st.session_state
    about = {"model": chosen["model"], "texts": [chosen["text"]], "methods": specs}
    return Continuation(**about, prefix=prefix, continuation=AFTER, cuts=CUTS, share=share, seed=0)


def _computed(
    choices: list[Asked], prefix: int, share: float | None, tokens: int, context: int
) -> tuple[list[Shown], bool]:
    """What the methods show that are stored or computed now, at the settings that a budget may have chosen; and whether
    others wait for their button."""
    requests = [_request([choice.spec], prefix, share) for choice in choices]
    doing = f"Reading with {counted(len(requests), 'method')}"
    runs, waits = asking.several(requests, doing, "method", tokens)
    results = []
    for choice, request, run in zip(choices, requests, runs, strict=True):
        with widgets.guarded():
            if run is None and not waits:
                run = asking.compute(request, f"Reading with {choice.title}", tokens)
            if run is not None:
                row = _row(run)
                settled = choice.at(row["settings"])
                results.append(Shown(settled, run, row, timing.timed_method(settled, context)))
    return results, waits


def _row(run: Run) -> dict:
    """The row of a method in the words of the other tab, so that both are told and drawn alike."""
    row = run.numbers["rows"][1]
    columns = {"difference_low": row["low"], "difference_high": row["high"], "ceiling": False, "reads_future": False}
    part = row["kv_share"] if row["blocks"] is None else row["blocks"]
    return row | columns | {"reads_causal": part, "reads_kv": part, "sharing": 1.0}


def conclusion(results: Sequence[Shown], saves: str, prefix: int) -> str:
    """The cheapest method that keeps the quality, or the nearest where none does."""
    if not results:
        return "Choose a method to compare with dense attention."
    near = [result for result in results if result.near]
    best = min(near or results, key=lambda result: result.row["reads_causal" if near else "difference"])
    part = f"{best.row['reads_causal']:.0%} of"
    part = f"holds {part} dense attention's KV cache" if saves == "memory" else f"reads {part} the prompt's blocks"
    where = f"after prompts of {prefix:,} tokens of this text"
    if near:
        return f"{best.title} {part} and predicts what follows at {change(best.row)} perplexity, {where}."
    sentence = f"No chosen method stays within {NEAR:.0%} of dense {where}: the nearest, {best.title}, {part}"
    return f"{sentence} at {change(best.row)} perplexity."


def _chart(results: Sequence[Shown], saves: str) -> None:
    dense = results[0].run.numbers["rows"][0]["kv_bytes"]
    figure = quality_charts.memory(results, dense) if saves == "memory" else quality_charts.trade(results)
    names = ("perplexity", "difference", "low", "high", "kv_bytes", "kv_share", "blocks")
    rows = [
        {"method": result.title, "settings": changes(result.asked)} | {name: result.row[name] for name in names}
        for result in results
    ]
    title, term = TITLES[saves]
    plots.draw(figure, rows, title, f"quality_{saves}_chart", term)
    row = results[0].row
    bars = f" Bars: 95% intervals over {row['units']:,} {row['unit']}." if row["low"] is not None else ""
    st.caption(CAPTIONS[saves] + bars)


def _table(results: Sequence[Shown], saves: str) -> None:
    st.subheader("The numbers", anchor=False, help=cached.glossary("interval"))
    rows = [results[0].run.numbers["rows"][0] | {"prefill": 1.0, "per_token": 1.0, "change_words": "–"}]
    for result in results:
        times = {phase: result.speed and result.speed.of(phase) for phase in ("prefill", "per_token")}
        rows.append(result.row | times | {"change_words": change(result.row)})
    rows = [row | {"held_words": size(row["kv_bytes"]), "most_words": size(row["kv_most_bytes"])} for row in rows]
    columns = {
        name: about for name, about in COLUMNS.items() if name in ("label", "difference", "perplexity", *ONLY[saves])
    }
    plots.listed(columns, rows, f"quality_{saves}_table", "Methods", height=420)
    row = results[0].row
    widgets.prose(f"Intervals of the change hold 95%, from {row['units']:,} {row['unit']}.", "quiet")
