"""The door Cut, what methods lose: the answer, the curves with the card beside them, and what stands beneath."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from analysis.commands.quality import FitMethod
from analysis.runs.run import command
from app import cached
from app.quality import ahead, curves, details, evidence, painted_change, search, steps, timing
from app.quality.asked import Asked, counted
from app.quality.picker import Picker
from app.quality.steps import Found, Step, Subject
from app.selection import state
from app.selection.controls import CONTROLS, named
from app.selection.decide import MAY_LOSE, SAVES
from app.speed import speed_requests
from app.ui import asking, fields, foot, jobs, repeat, take, widgets
from app.ui.screen import answer, picture_and_card
from app.ui.tabs import drawer

# Tokens read of a long text when nothing was chosen; a text of so many is read whole then.
FIRST, SHORT = 1024, 2048
SIZES = tuple(1 << power for power in range(7, 18))
# Tokens that are scored after a prompt, stretches of the text.
AFTER, CUTS = 256, 4
# The share, in per cent, that the page opens at where nothing of a text is stored.
USUAL = 50
# What methods save -> those that the page opens with where nothing of a text is stored; the second chooses nothing,
# or is the rule that most others are compared with.
OPENS = {
    "reads": ("sparq", "streaming_llm"),
    "memory": ("tova", "snapkv"),
    "prefill": ("xattention", "vertical_slash"),
}
VERBS = {"reads": "Read", "memory": "Keep", "prefill": "Read"}
FITTED = ("magicpig", "routing_transformer", "focal_learned")


def show(beneath: Callable[[Asked], None]) -> None:
    """The whole page, which is redrawn alone; `beneath` draws what another room shows of the method in front. Links
    from when Speed was a tab here lead there; the oldest name it by its controls alone."""
    chosen = st.session_state
    timed = {name for name, one in named("speed_").items() if chosen[name] != one.default}
    if chosen["tab"] is None and timed:
        state.choose(chosen, tab="speed" if timed & chosen[state.LINKED] else "quality")
    if chosen["tab"] == "speed":
        state.choose(chosen, tab=None)
        foot.go("speed")
    if chosen["tab"] == "equal":
        state.choose(chosen, quality_evidence=True, tab="quality")
    fields.alone(_live, beneath)


def _live(beneath: Callable[[Asked], None]) -> None:
    with widgets.guarded():
        _screen(beneath)
    drawer("quality_evidence", evidence.show, ["equal_panel"])


def _screen(beneath: Callable[[Asked], None]) -> None:
    """The first screen, and what stands beneath it."""
    card, tokens = asking.card(st.session_state["model"]), asking.inspected()["tokens"]
    asking.settle_router()
    top = st.container()
    fields.switch("What the methods save", SAVES, "quality_saves", label_visibility="collapsed")
    saves = st.session_state["quality_saves"]
    picture, beside = picture_and_card("quality")
    with beside:
        methods = st.container()
        with st.popover("Settings", icon=":material/tune:", key="quality_settings"):
            look: dict[str, Any] = {"format_func": "+{}%".format}
            st.selectbox("The most that perplexity may rise", MAY_LOSE, key="quality_lose", **look)
            settings = st.container()
            subject = (_windows if saves == "reads" else _prompts)(saves, tokens, card)
    picker, opens_at = _picker(card, subject)
    choices = picker.chosen()
    with methods:
        picker.choose(choices)
    percent = st.session_state["quality_equal"] or opens_at
    with picture:
        if not choices:
            st.info("Choose a method to compare with dense attention.")
            return
        found, lead = _curves(subject, choices, picker.usual, percent)
    step = lead.at(percent) if lead else None
    with top:
        _answer(step, lead, subject, card)
    if lead is not None:
        with settings:
            picker.settings(lead.choice, subject.size)
    if step is None or lead is None:
        return
    searched = search.request(subject, choices, tokens)
    with beside:
        going = ahead.unasked(subject, ahead.wanted(subject, found, percent))
        _beside(step, lead.choice, subject, card, settled=not going)
        if searched[0] is not None:
            search.button(searched[0])
        if not subject.instead:
            take.offer({step.row["label"]: (step.run, step.asked.spec)}, f"quality_{saves}")
    question = st.container()
    if "bins" in step.row:
        # Only these runs scored every token.
        lost, question = st.columns([2, 1], gap="medium")
        with lost:
            painted_change.text(step)
    if not subject.instead:
        # what answers it keeps the model's own indexer
        with question, widgets.guarded():
            beneath(step.asked)
    _drawers([one for one in (each.at(percent) for each in found) if one], step, searched)
    repeat.drawer(_command(subject, choices, percent))


def _curves(
    subject: Subject, choices: Sequence[Asked], usual: Sequence[str], percent: int
) -> tuple[list[Found], Found | None]:
    """The picture; returns what is drawn of the methods, and the one in front."""
    found, unfitted, waits = steps.found(subject, choices, percent)
    by_name = {one.choice.name: one for one in found}
    widgets.settled("quality_paint", [None, *by_name], None)
    # In front stands what was chosen, else the first of those that the page opens with, which has a number.
    order = [by_name[name] for name in (*usual, *by_name) if name in by_name]
    lead = next((one for one in order if one.at(percent)), order[0] if order else None)
    lead = by_name.get(st.session_state["quality_paint"], lead)
    requests = ahead.wanted(subject, found, percent)
    if lead is not None:
        going = not waits and ahead.unasked(subject, requests)
        launched = speed_requests.launches() if any(choice.router for choice in choices) else []
        look: dict[str, Any] = {"launched": launched, "waits": "computing" if going else "not computed"}
        curves.draw(subject, found, lead.choice.name, percent, moved=_moved, **look)
    for choice in unfitted:
        widgets.prose(f"{choice.title} was never fitted to this model, so it has no curve.", "quiet")
        if choice.name in FITTED:
            request = cached.request(FitMethod, model=st.session_state["model"], method=choice.name)
            jobs.run_button("Fit", request, f"quality_fit_{choice.name}")
    if not waits:
        ahead.steps(subject, requests)
    return found, lead


def _picker(card: dict, subject: Subject) -> tuple[Picker, int]:
    """The methods that are offered, and the share at which the page opens: those of the best that is stored for this
    text, with one to beat."""
    chosen, described = st.session_state, cached.saving(subject.saves)
    control = "quality" if subject.saves == "reads" else f"quality_{subject.saves}"
    router = next(
        (candidate for candidate in card["routers"] if candidate["name"] == chosen["router"]),
        {"name": chosen["router"]},
    )
    usual = tuple(name for name in OPENS[subject.saves] if name in described)
    picker = Picker(control, described, len(described), usual, router if subject.saves == "reads" else {"name": ""})
    if chosen[control] is not None and chosen["quality_equal"] is not None:
        return picker, chosen["quality_equal"]
    names = picker.offered if chosen[control] is None else [name for name in picker.words() if name in picker.offered]
    best = steps.best(subject, [picker.asked(name)[0] for name in names], chosen["quality_lose"] / 100)
    if best is None:
        return replace(picker, usual=usual or tuple(picker.offered[:2])), USUAL
    beside = [name for name in reversed(usual) if name != best[0].name]
    return replace(picker, usual=(best[0].name, *beside[:1])), best[1]


def _moved(lead: str, percent: int | None) -> None:
    values: dict[str, object] = {"quality_paint": lead} | ({} if percent is None else {"quality_equal": percent})
    state.choose(st.session_state, **values)


def _answer(step: Step | None, lead: Found | None, subject: Subject, card: dict) -> None:
    """What the method in front loses at the chosen share."""
    where, others = subject.where, card.get("other_layers") or {}
    # Of a hybrid, what no method changes.
    if others:
        kinds = " and ".join(sorted(set(others.values())))
        where += f" {len(others)} of {len(others) + card['layers']} layers are {kinds}, which no method changes."
    if compressing := card.get("compressing"):
        where += f" In {compressing} of {card['layers']} layers compressed entries are always read beside the tokens."
    if step is None:
        told = f"{lead.choice.title}: {lead.least}" if lead else "No chosen method has a number yet"
        answer(widgets.plain(told), scope=where)
        return
    share = f"{round(100 * step.share) if step.percent is None else step.percent}%"
    cut = f"{VERBS[subject.saves]} {share} with {widgets.plain(step.asked.title)}"
    cut += " instead of the indexer" if subject.instead else ""
    dense = step.row["perplexity"] / (1 + step.change.value)
    hint = f"Perplexity against dense attention, which has {dense:.2f}; in brackets its 95% interval."
    answer(f"{cut}: {step.change.bracketed}", hint, scope=where)


def _beside(step: Step, choice: Asked, subject: Subject, card: dict, settled: bool) -> None:
    """In the card: whether the quality of the method in front holds, and what is known of its speed."""
    limit, high = st.session_state["quality_lose"] / 100, step.change.high
    holds = "Quality does not hold."
    if step.change.value <= limit:
        holds = "Quality holds." if high is None or high <= limit else "Quality holds in the mean."
    timed = timing.measured(step.asked, subject.size, speed_requests.launches() if choice.router else [])
    widgets.prose(f"{holds} {timing.verdict(step.asked, timed)}", "more")
    if not timed:
        timing.offer(step.asked, card, subject.size, settled)


def _drawers(shown: Sequence[Step], step: Step, searched: tuple) -> None:
    """What is folded: by position, the tokens that lose most; the search; the heads of DuoAttention."""
    look: dict[str, Any] = {"title": "By position, token by token", "icon": ":material/show_chart:"}
    drawer("quality_numbers", partial(details.show, shown, step), **look)
    look = {"title": "Search for a setting", "icon": ":material/search:"}
    drawer("quality_searching", partial(search.result, searched[0], searched[1], _moved), **look)
    if step.asked.name == evidence.DUO:
        look = {"title": "Which heads does DuoAttention let keep every key?", "icon": ":material/call_split:"}
        drawer("quality_split", partial(evidence.split, step.asked), **look)


# --- what is read -----------------------------------------------------------------------------------------------------


def _windows(saves: str, tokens: int, card: dict) -> Subject:
    """What a pass over a text scores. In the URL `1024` is the first window of 1,024 tokens, `1024w` all of them, `all`
    the fewest windows of equal length."""
    chosen, longest = st.session_state, card["max_positions"]
    fits = [size for size in SIZES if size <= min(tokens, longest)]
    spelled = {f"{size}": f"the first {size:,} tokens" for size in fits}
    spelled["all"] = f"the whole text, {tokens:,} tokens"
    spelled |= {f"{size}w": f"the whole text in windows of {size:,}" for size in fits if 2 * size <= tokens}
    default = f"{FIRST}" if SHORT < tokens and FIRST in fits else "all"
    if chosen["quality_read"] in {f"{size}{kind}" for size in SIZES for kind in ("", "w")} - set(spelled):
        state.choose(chosen, quality_read=default)  # it was right for another text
    widgets.settled("quality_read", list(spelled), default)
    help = cached.glossary("window (context)")
    st.selectbox("Read", list(spelled), format_func=spelled.__getitem__, key="quality_read", help=help)
    choice = chosen["quality_read"]
    window = None if choice == "all" else int(choice.rstrip("w"))
    long_text = "windows" if choice == "all" or choice.endswith("w") else "first"
    size = min(window, tokens) if window else tokens // -(-tokens // longest)
    read = size if long_text == "first" else tokens
    about = {"model": chosen["model"], "text": chosen["text"], "window": window, "long_text": long_text}
    if card.get("indexer"):
        # Whether methods choose in place of the model's own.
        control = CONTROLS["quality_instead"]
        label, help = (f"{words[:1].upper()}{words[1:]}" for words in (control.label, control.declared.help))
        about |= {"instead": True} if st.checkbox(label, key=control.name, help=f"{help}.") else {}
    where = f"Perplexity on this text: {read:,} of {tokens:,} tokens"
    where += f" in {counted(read // size, 'window')}." if read > size else "."
    return Subject(saves, about, size, read, where)


def _prompts(saves: str, tokens: int, card: dict) -> Subject:
    """What follows prompts of a text."""
    chosen, most = st.session_state, min(tokens, card["max_positions"]) - AFTER
    fits = [length for length in SIZES if length <= most] or [max(8, most)]
    # Enough for an interval.
    twice = [length for length in fits if length <= FIRST and 2 * (length + AFTER) <= tokens]
    if chosen["quality_prefix"] not in (None, *fits):
        state.choose(chosen, quality_prefix=None)  # it was right for another text
    now = chosen["quality_prefix"] or (twice[-1] if twice else fits[0])
    help = f"What follows is scored: {AFTER} tokens, in up to {CUTS} stretches of the text."
    prefix = fields.pick(
        st.selectbox, "Prompt", fits, "quality_prefix", now, help=help, format_func="{:,} tokens".format
    )
    about = {"model": chosen["model"], "texts": [chosen["text"]], "prefix": prefix, "continuation": AFTER, "cuts": CUTS}
    where = f"Perplexity of the {AFTER} tokens after prompts of {prefix:,}, in up to {CUTS} stretches of this text."
    return Subject(saves, about, prefix, min(tokens, 2 * CUTS * (prefix + AFTER)), where)


def _command(subject: Subject, choices: Sequence[Asked], percent: int) -> str:
    """The command line that gives the same numbers."""
    free = [choice for choice in choices if not choice.fixed]
    specs = [choice.free().spec for choice in free] or [choice.spec for choice in choices]
    asked = subject.request(choices[0], percent).but(methods=specs, share=percent / 100 if free else None)
    return command(asked.verb, asked.spelled)
