"""Methods that decide once, at the end of a prompt: what follows it, against the KV cache that is held or the blocks of
the prompt that are read."""

from collections.abc import Sequence

import streamlit as st

from analysis.commands import commandline
from analysis.runs import Run
from app import cached
from app.quality import cards, charts, search, speed as quality_speed, split, words
from app.quality.words import NEAR, Asked, Shown
from app.selection import state
from app.ui import asking, fields, repeat, tables, take, widgets
from app.ui.spelled import size
from app.ui.tabs import drawer

AFTER, CUTS = 256, 4  # tokens that are scored, stretches of the text
PREFIXES = tuple(1 << power for power in range(7, 18))
FIRST = 1024  # tokens of a prompt when nothing was chosen, fewer of a text that has no two stretches of so many
COLUMNS = {
    "method": tables.Column("method"),
    "change": tables.Column(
        "perplexity against dense", "number", words="change_words", help=cached.glossary("paired difference")
    ),
    "perplexity": tables.Column("perplexity", "number", help=cached.glossary("perplexity")),
    "held": tables.Column("KV cache held", "number", words="held_words", help=cached.glossary("KV cache")),
    "share": tables.Column("of dense", "share"),
    "most": tables.Column(
        "at most, reading the prompt", "number", words="most_words", help=cached.glossary("KV cache at most")
    ),
    "keys": tables.Column("keys a head holds", "number", 1),
    "blocks": tables.Column("blocks of the prompt read", "share"),
    "speed": tables.Column("prompt, times dense", "number"),
    "token": tables.Column("each token, times dense", "number"),
}
ONLY = {"memory": ("held", "share", "most", "keys", "speed", "token"), "prefill": ("blocks", "speed")}


def tab(saves: str, share: float | None) -> None:
    """The tab of the methods that save memory, or prefill time; `share`: a budget for all of them."""
    answer = st.container()
    card, inspected = asking.card(st.session_state["model"]), asking.inspected()
    described = cached.saving(saves)
    offered = tuple(name for name in described if name != "dense")
    picker = cards.Picker(f"quality_{saves}", offered, len(offered))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        prefix = _prefix(inspected["tokens"], card["max_positions"])
        chosen_methods = picker.choose(described)
        picker.all_of_them(f"All {len(offered)}", chosen_methods)
    with st.grid(2, min_column_width=420, gap="large"):
        drawn, beside = st.container(), st.container()
    with beside:
        choices = cards.cards(picker, described, chosen_methods, {"name": ""}, prefix, share is not None)
    results, work = [], min(inspected["tokens"], 2 * CUTS * (prefix + AFTER))
    with drawn:
        wanted = [_request(choice.spec, prefix, share) for choice in choices]
        doing = f"Reading with {words.counted(len(wanted), 'method')}"
        stored, wait = asking.several("continuation", wanted, doing, "method", work)
    for choice, args, run in zip(choices, wanted, stored, strict=True):
        with drawn, widgets.guarded():
            if run is None and not wait:
                run = asking.compute("continuation", args, f"Reading with {choice.about['title']}", work)
            if run is None:
                continue
            result = Shown(choice, run, _row(run), None)
            results.append(
                Shown(
                    result.asked, result.run, result.row, quality_speed.timed_prompt(_at(result), card["max_positions"])
                )
            )
    with answer:
        if results or not wait:
            widgets.prose(conclusion(results, saves, prefix))
    if not results:
        return
    with drawn:
        _chart(results, saves)
        quality_speed.buttons([_at(choice) for choice in results], card, prefix)
    widgets.source(results[0].run)
    for sentence in dict.fromkeys(note for choice in results for note in choice.run.numbers["notes"]):
        widgets.prose(sentence, "note")
    take.offer({choice.row["label"]: (choice.run, _at(choice).spec) for choice in results}, f"quality_{saves}")
    _table(results, saves)
    if duo := next((choice for choice in choices if choice.name == split.METHOD), None):
        title = "Which heads does DuoAttention let keep every key?"
        drawer("quality_split", lambda: split.show(duo), title=title, icon=":material/call_split:")
    with widgets.guarded():
        search.section(saves, choices, prefix, inspected["tokens"], card["max_positions"])
    request = _request({"name": "dense"}, prefix, share) | {"methods": [choice.asked.spec for choice in results]}
    repeat.drawer(commandline("continuation", request | {"texts": ["TEXT"]}))


def _prefix(tokens: int, context: int) -> int:
    longest = min(tokens, context) - AFTER
    fits = [length for length in PREFIXES if length <= longest] or [max(8, longest)]
    twice = [length for length in fits if length <= FIRST and 2 * (length + AFTER) <= tokens]  # enough for an interval
    default = twice[-1] if twice else fits[0]
    if st.session_state["quality_prefix"] not in (None, *fits):
        state.choose(st.session_state, quality_prefix=None)  # it was right for another text
    now = st.session_state["quality_prefix"] or default
    look = {"format_func": lambda length: f"{length:,} tokens", "width": 150}
    help = f"What follows is scored: {AFTER} tokens, in up to {CUTS} stretches of the text."
    return fields.pick(st.selectbox, "Prompt", fits, "quality_prefix", now, help=help, **look)


def _request(spec: dict, prefix: int, share: float | None) -> dict:
    chosen = st.session_state
    args = {"model": chosen["model"], "texts": [chosen["text"]], "methods": [spec], "prefix": prefix}
    return args | {"continuation": AFTER, "cuts": CUTS, "share": share, "seed": 0}


def _row(run: Run) -> dict:
    """The row of a method in the words of the other tab, so that both are told and drawn alike."""
    (_, row) = run.numbers["rows"]
    columns = {"difference_low": row["low"], "difference_high": row["high"], "ceiling": False, "reads_future": False}
    part = row["kv_share"] if row["blocks"] is None else row["blocks"]
    return row | columns | {"reads_causal": part, "reads_kv": part, "sharing": 1.0}


def _at(result: Shown) -> Asked:
    """The method with the settings that were run, which a budget may have chosen."""
    changed = {
        name: value for name, value in result.row["settings"].items() if value != result.asked.defaults.get(name)
    }
    return Asked(result.asked.name, result.asked.about, None, result.asked.defaults, changed, result.asked.place)


def conclusion(results: Sequence[Shown], saves: str, prefix: int) -> str:
    """The cheapest method that keeps the quality, or the nearest where none does."""
    if not results:
        return "Choose a method to compare with dense attention."
    near = [result for result in results if result.row["difference"] <= NEAR]
    best = (
        min(near, key=lambda result: result.row["reads_causal"])
        if near
        else min(results, key=lambda result: result.row["difference"])
    )
    share_words = f"holds {best.row['reads_causal']:.0%} of dense attention's KV cache"
    part = share_words if saves == "memory" else f"reads {best.row['reads_causal']:.0%} of the prompt's blocks"
    where = f"after prompts of {prefix:,} tokens of this text"
    if near:
        return f"{best.title} {part} and predicts what follows at {words.change(best.row)} perplexity, {where}."
    sentence = f"No chosen method stays within {NEAR:.0%} of dense {where}: the nearest, {best.title}, {part}"
    return f"{sentence} at {words.change(best.row)} perplexity."


def _chart(results: Sequence[Shown], saves: str) -> None:
    memory = saves == "memory"
    dense = results[0].run.numbers["rows"][0]["kv_bytes"]
    values = {
        "method": [result.title for result in results],
        "settings": [words.changes(_at(result)) for result in results],
    }
    for name in ("perplexity", "difference", "low", "high", "kv_bytes", "kv_share", "blocks"):
        values[name] = [result.row[name] for result in results]
    widgets.chart(
        charts.memory(results, dense) if memory else charts.trade(results),
        values,
        title="Quality against memory" if memory else "Quality against time of the prompt",
        key=f"quality_{saves}_chart",
        alt="Change of perplexity on what follows a prompt, by what each method holds or how fast it reads the prompt",
        help=cached.glossary("eviction" if memory else "quality against speed"),
    )
    caption = (
        "Bytes of keys and values really held when the prompt has been read."
        if memory
        else "Hollow: the most the blocks allow, not timed. Solid: the prompt timed here, its estimate included."
    )
    row = results[0].row
    bars = f" Bars: 95% intervals over {row['units']:,} {row['unit']}." if row["low"] is not None else ""
    st.caption(caption + bars)


def _table(results: Sequence[Shown], saves: str) -> None:
    st.subheader("The numbers", anchor=False, help=cached.glossary("interval"))
    dense = results[0].run.numbers["rows"][0]
    rows = [dense, *(result.row for result in results)]
    values = {"method": ["Dense", *(result.run.numbers["rows"][1]["label"] for result in results)]}
    values |= {"change": [0.0, *(result.row["difference"] for result in results)]}
    values |= {"change_words": ["–", *(words.change(result.row) for result in results)]}
    for column, name in {
        "perplexity": "perplexity",
        "share": "kv_share",
        "keys": "kept_keys",
        "blocks": "blocks",
    }.items():
        values[column] = [row[name] for row in rows]
    for column, name in {"held": "kv_bytes", "most": "kv_most_bytes"}.items():
        values |= {column: [row[name] for row in rows], f"{column}_words": [size(row[name]) for row in rows]}
    for column, phase in (("speed", "the prompt"), ("token", "later tokens")):
        values[column] = [1.0, *(_times(result, phase) for result in results)]
    columns = {
        name: result for name, result in COLUMNS.items() if name in ("method", "change", "perplexity", *ONLY[saves])
    }
    tables.table(
        columns, values, key=f"quality_{saves}_table", identity=f"quality_{saves}", label="Methods", height=420
    )
    plain = {name: cells for name, cells in values.items() if not name.endswith("_words")}
    widgets.numbers(plain, f"quality-{saves}", f"quality_{saves}_rows")
    row = results[0].row
    widgets.prose(f"Intervals of the change hold 95%, from {row['units']:,} {row['unit']}.", "quiet")


def _times(result: Shown, phase: str) -> float | None:
    phases_ = result.speed["phases"] if result.speed else []
    return next((timed.median for timed in phases_ if timed.name == phase), None)
