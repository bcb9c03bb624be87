"""A painted text for the report: what is on the page, as HTML that loads nothing, every token escaped."""

import html
from collections.abc import Sequence
from itertools import groupby

import streamlit as st

from app.ui import basket, painted, stamp

MOST = 20_000  # tokens of a kept text


def keep(tokens: dict, paint: Sequence[int], palette: list[dict], *, title: str, key: str, legend: str) -> None:
    """A button below the painted text `key` that puts it into the report under its title; the first four arguments are
    those of `painted.painted`."""
    facts = stamp.facts(title)
    st.button(
        "Keep",
        key=f"{key}_keep",
        icon=":material/bookmark_add:",
        type="tertiary",
        help="Put the painted text into the report",
        on_click=basket.on_keep_text,
        args=(facts, lambda: marked(tokens, paint, palette, legend)),
    )


def marked(tokens: dict, paint: Sequence[int], palette: list[dict], legend: str) -> str:
    """The legend and the text as HTML; characters that several tokens spell are written once, as on the page."""
    pieces, strongest = list(tokens["piece"]), list(paint)
    for start, stop, spelled in painted.characters(tokens):
        pieces[start:stop] = [*[""] * (stop - start - 1), spelled]
        strongest[start:stop] = [max(paint[start:stop])] * (stop - start)
    shades = [entry["light"] + bytes([round(entry["mix"] * 2.55)]).hex() for entry in palette]
    names = (_shaded(entry["name"], shade) for entry, shade in zip(palette, shades, strict=True))
    runs = groupby(range(min(len(pieces), MOST)), key=strongest.__getitem__)
    body = [
        _shaded("".join(pieces[token] for token in run), shades[entry] if entry >= 0 else "") for entry, run in runs
    ]
    cut_note = f"<p class=note>The first {MOST:,} of {len(pieces):,} tokens.</p>" if len(pieces) > MOST else ""
    caption = f"<p>{html.escape(legend)}: {' '.join(names)}</p>"
    return f'{caption}<div style="white-space:pre-wrap;line-height:1.9">{"".join(body)}</div>{cut_note}'


def _shaded(words: str, shade: str) -> str:
    escaped = html.escape(words)
    return f'<span style="background:{shade}">{escaped}</span>' if shade else escaped
