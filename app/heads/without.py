"""What a text loses without a head: exactly for the one on the card beside another of its layer, by estimate for all,
and the text painted by what gets worse."""

import math
from typing import Any

import streamlit as st

from analysis.claims import Comparison, signed
from analysis.commands.heads import Ablate
from analysis.runs import Run
from app import cached
from app.heads import scope
from app.heads.head_statistics import spelled
from app.heads.numbers import head_table
from app.selection import state
from app.selection.look import ABLATION_WAYS
from app.ui import asking, fields, offers, painted, plots, tables, widgets

LEVELS = ((0.1, "0.1–0.3"), (0.3, "0.3–1"), (1.0, "1–2"), (2.0, "2–4"), (4.0, "over 4"))  # nats per token
TERM = "ablation of a head"
# Names in runs of an earlier version.
BEFORE = {"change": "loss_change", "divergence": "kl"}
ROWS = {
    "without": tables.Column("without", heads=True),
    "estimate": tables.Column("estimate", "number", 4, help="of first order, in nats per token"),
    "loss_change": tables.Column("loss rises by", "number", 4, words="rise", help="measured in a pass of its own"),
    "kl": tables.Column("KL to all heads", "number", 4, help="how far the predictions move, in nats per token"),
    "worst": tables.Column("suffers most", words="suffers"),
}


def _way() -> str:
    """What takes a head's place."""
    return st.session_state["without_by"] or next(iter(ABLATION_WAYS))


# --- the head on the card ---------------------------------------------------------------------------------------------


def prove(tokens: dict, layer: int, head: int, heads: int) -> None:
    """The head taken away exactly, and another one of its layer, which has so many `heads`; it waits for its button
    until somebody has asked for one head."""
    name = spelled(layer, head)
    rival = spelled(layer, (head + heads // 2) % heads)
    listed = name if rival == name else f"{name},{rival}"
    request = Ablate(**state.study_args(st.session_state, heads=listed, by=_way()))
    part = scope.place(tokens)[0]
    size = tokens["window"].count(part)
    if not st.session_state["without"]:
        price = cached.due(request.but(part=part), size).price
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            look: dict[str, Any] = {"type": "primary", "icon": ":material/play_arrow:", "on_click": offers.set_off}
            look |= {"args": (Ablate.verb,), "kwargs": {"without": True}}
            look["help"] = f"{price.sentence}. {cached.glossary(TERM)}"
            st.button(f"Prove it, {price.short}", key="heads_prove", **look)
            widgets.prose("Predicts the text without this head.", "quiet")
        return
    with widgets.guarded():
        asked, size = scope.windows("without_all", request, tokens)
        run = asking.ask(request.but(part=asked), f"Reading the text without head {name}", size)
        rows = {row["without"]: row for row in _rows(run)}
        widgets.prose(f"Without it: {rows[name]['rise']} nats per token.", "more")
        if rival in rows and rival != name:
            widgets.prose(f"Without head {rival} instead: {signed(rows[rival]['loss_change'], '.4f')}.", "quiet")
        _worst(rows[name], f"heads_worst_{name}")


def _worst(row: dict, key: str) -> None:
    label = f"Suffers most: “{widgets.plain(row['worst_word'].strip())}” ({signed(row['worst_change'], '.2f')})"
    look: dict[str, Any] = {"type": "tertiary", "icon": ":material/my_location:", "on_click": state.choose}
    st.button(label, key=key, args=(st.session_state,), kwargs={"query": row["worst"]}, **look)


# --- all heads --------------------------------------------------------------------------------------------------------


def all_heads(tokens: dict, layer: int, head: int) -> None:
    """The passes without the heads that the estimate puts first, and the chosen head on the text."""
    st.subheader("What is lost without a head?", anchor=False, help=cached.glossary(TERM))
    look = {"format_func": ABLATION_WAYS.get, "help": cached.glossary(TERM)}
    fields.pick(st.segmented_control, "In its place", list(ABLATION_WAYS), "without_by", _way(), **look)
    request = Ablate(**state.study_args(st.session_state, heads="top", by=_way()))
    part = scope.place(tokens)[0]
    size = tokens["window"].count(part)
    run = asking.ask(request.but(part=part), "Reading the text without heads", size)
    _measured(run, (layer, head))
    widgets.notes(run)
    wanted = spelled(layer, head)
    if wanted not in [row["without"] for row in run.numbers["rows"]]:
        run = asking.ask(request.but(heads=wanted, part=part), f"Reading the text without head {wanted}", size)
    _text(run, wanted, tokens)


def _rows(run: Run) -> list[dict]:
    """The exact passes, with the rise in words."""
    # What an earlier version stored under other names.
    rows = [{BEFORE.get(name, name): value for name, value in row.items()} for row in run.numbers["rows"]]
    return [row | {"rise": Comparison.of(row, "loss_change", "").bracketed} for row in rows]


def _measured(run: Run, now: tuple[int, int]) -> None:
    """The exact passes; a row chooses its head."""
    rows = [
        row | {"suffers": f"{row['worst_word'].strip()} ({signed(row['worst_change'], '.2f')})"} for row in _rows(run)
    ]
    listed = plots.columns(rows, *ROWS, "rise", "suffers", "layer", "head")
    head_table(ROWS, listed, "heads_without_rows", "Exact passes without one head", run.id, now)
    blocks, few = f"{rows[0]['units']} blocks of {run.numbers['scope']}", rows[0]["low"] is None
    st.caption(f"{blocks}, too few for an interval." if few else f"Brackets: 95% interval over {blocks}.")


def _text(run: Run, wanted: str, tokens: dict) -> None:
    """The text painted by how much worse each token is predicted without one head, and a way to the worst."""
    rows = _rows(run)
    place = [row["without"] for row in rows].index(wanted)
    row, changes = rows[place], cached.array(run, "change")[place]
    # The first token of a window is not predicted.
    first = row["offset"] + 1
    rises: list[float | None] = [None] * len(tokens["piece"])
    rises[first : first + len(changes)] = [None if math.isnan(change) else change for change in changes.tolist()]
    paint, palette = painted.classes(rises, LEVELS, " nats worse")
    _worst(row, "heads_without_worst")
    painted.painted(
        tokens,
        paint,
        palette,
        key="heads_without_text",
        identity=f"{run.id}.{wanted}",
        place=f"heads_without_text.{len(paint)}",
        tips=[("loss rises by", [None if rise is None else f"{rise:+.3f}".replace("-", "−") for rise in rises])],
        legend=f"predicted worse without head {wanted}; unpainted: by less than 0.1 nats",
        hint="Hover to see a token, click to make it the query.",
        locked=row["worst"],
        on_token=lambda: state.choose(st.session_state, query=painted.clicked("heads_without_text", "token")),
    )
