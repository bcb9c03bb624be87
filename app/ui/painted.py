"""Text painted token by token, and two places of it side by side. Drawing happens in the browser (app/parts)."""

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import streamlit as st

from app.ui.charts import GROUPS

PARTS = Path(__file__).parent / "parts"
# Beside the colour, so that it is never the only channel.
LINES = ("solid", "dotted", "dashed", "double")
LEVELS = ((1.0, "1–2"), (2.0, "2–4"), (4.0, "4–8"), (8.0, "8–16"), (16.0, "over 16"))  # times chance
# What is read from afar, as everywhere on the pages (--fs-far).
HEAT = "#C97A14"
ACTS = ("token", "arc", "class", "head", "pasted")
# Per cent of the colour in the light and in the dark.
MIXES = ((13, 18), (26, 32), (42, 48), (60, 62), (82, 76))


def part(name: str, html: str, *libraries: str, isolated: bool = True) -> Callable[..., Any]:
    """A component whose script and style are files of app/ui/parts; data reaches the page as text nodes only. What
    `libraries` there define, scripts that export nothing and styles, stands before its own. `isolated`: in a shadow
    root of its own, where no style of the page reaches it, nor its own the page."""
    files = {kind: [PARTS / f"{file}.{kind}" for file in (*libraries, name)] for kind in ("js", "css")}
    js, css = ("\n".join(file.read_text(encoding="utf-8") for file in files[kind] if file.exists()) for kind in files)
    component = st.components.v2.component(f"focuscope_{name}", html=html, css=css, js=js, isolate_styles=isolated)

    def mount(data: dict, **look: Any) -> Any:
        # A bare dict would be searched for data frames, which loads pandas (50 MB) into the app.
        return component(data=[data], **look)

    return mount


_STRIP = """<div class="strip"><svg aria-hidden="true"></svg><canvas title="the whole text; click to go there"></canvas>
      <div class="seen"></div></div>"""
_PAINTED = part(
    "painted",
    f"""<section class="painted"><style class="ink"></style>
    <div class="bar"><button class="spaces" type="button">Spaces and line breaks</button>
      <span class="hint"></span></div>
    {_STRIP}
    <div class="columns"><div class="text" tabindex="0" role="document"></div><div class="legend"></div></div>
    <div class="tip" role="status" hidden></div></section>""",
    *("numbers", "text"),
)
_READ = part(
    "read",
    (PARTS / "read.html").read_text(encoding="utf-8"),
    *("numbers", "text", "card", "keep", "map"),
)
_CONTEXTS = part("contexts", '<div class="contexts"></div>\n')


def classes(
    values: Sequence[float | None], levels: Sequence[tuple[float, str]] = LEVELS, unit: str = ""
) -> tuple[list[int], list[dict]]:
    """(the class of paint of each token, the palette): a class for each step of `levels`, (lowest value, name); less,
    and None, is bare (-1). The usual levels are those of attention received, in times chance."""
    lows = [low for low, _ in levels]
    paint = [-1 if value is None else bisect_right(lows, value) - 1 for value in values]
    return paint, heat(paint, [f"{name}{unit}" for _, name in levels])


def heat(paint: Sequence[int], names: Sequence[str]) -> list[dict]:
    """Palette of five classes in one colour, each stronger than the one before, with how often it is painted."""
    levels = enumerate(zip(names, MIXES, strict=True))
    return [entry(name, paint.count(level), HEAT, mixes) for level, (name, mixes) in levels]


def entry(name: str, count: int, colour: str, mixes: tuple[int, int], line: str = "") -> dict:
    """A class of a palette with how often it is painted: `mixes` per cent of the colour in the light and in the dark,
    and how it is underlined."""
    look = {"light": colour, "dark": colour, "mix": mixes[0], "mix_dark": mixes[1], "line": line}
    return {"tag": "Aa", "name": name, "note": f"{count:,}"} | look


def by_group(labels: Sequence[str], shares: Sequence[float]) -> list[dict]:
    """Palette of learned groups: a colour and an underline for each, its label and its share of the tokens."""
    return [
        {"tag": str(group), "name": label, "note": f"{share:.0%}", "line": LINES[group % len(LINES)]}
        | {"mix": 24, "mix_dark": 34}
        | dict.fromkeys(("light", "dark"), GROUPS[group % len(GROUPS)])
        for group, (label, share) in enumerate(zip(labels, shares, strict=True))
    ]


def painted(
    tokens: dict,
    paint: Sequence[int],
    palette: list[dict],
    *,
    key: str,
    identity: str,
    tips: Sequence[tuple[str, Sequence]],
    legend: str,
    hint: str,
    arcs: Sequence[dict] = (),
    locked: int | None = None,
    place: str | None = None,
    crossed: dict | None = None,
    bare: bool = False,
    on_token: Callable | None = None,
) -> None:
    """Show the `tokens` table (columns of every study) with one paint class per token.

    `identity` names what is shown: a new one scrolls back to the top, unless `place` stays the same. `locked` is the
    marked token: a new one is scrolled to. `tips`: (label, value per token) shown on hover with the token and its
    index. `arcs`: pairs drawn over the overview strip, dicts of query, key and label. A click on a token calls
    `on_token` after its index was stored under `key` (-1 = released); read it with `clicked`. `crossed`: what
    tokens read and who reads them, see `crossing`; hovering marks both. `bare`: text and strip alone, in a card.
    """
    data = described(tokens, paint, palette, identity=identity, tips=tips, legend=legend, place=place) | {
        "hint": hint,
        "arcs": list(arcs),
        "locked": locked,
        "clickable": on_token is not None,
        "crossed": crossed,
        "bare": bare,
    }
    # A state of a component needs a callback to be kept.
    _PAINTED(key=key, data=data, on_token_change=on_token or (lambda: None))


def described(
    tokens: dict,
    paint: Sequence[int],
    palette: list[dict],
    *,
    identity: str,
    tips: Sequence[tuple[str, Sequence]],
    legend: str,
    place: str | None = None,
) -> dict:
    """What the browser needs to write and to paint a text."""
    windows = tokens["window"]
    return {
        "id": identity,
        "place": place or identity,
        "pieces": tokens["piece"],
        "characters": characters(tokens),
        "paint": list(paint),
        "palette": palette,
        "tips": [{"label": label, "values": list(values)} for label, values in tips],
        "breaks": [i for i in range(1, len(windows)) if windows[i] != windows[i - 1]],
        "faint": [i for i, (a, b) in enumerate(zip(tokens["start"], tokens["end"], strict=True)) if a == b],
        "legend_title": legend,
        "code": looks_like_code(tokens["piece"]),
    }


def read(data: dict, *, key: str, **acts: Callable[[], None]) -> None:
    """The first screen of Read: a text with its links, the card beside it and the slider under it; `data` is from
    `described` and from `app.start.screen`. `acts`: what `on_token`, `on_arc`, `on_class`, `on_head` and `on_pasted`
    call after the value was stored under `key`."""
    called = {f"on_{name}_change": acts.get(f"on_{name}", lambda: None) for name in ACTS}
    _READ(key=key, data=data, **called)


def characters(tokens: dict) -> list[tuple[int, int, str]]:
    """The characters that several tokens spell byte by byte, as (first token, past the last, what they spell)."""
    spelled_out = []
    spans = list(zip(tokens["window"], tokens["start"], tokens["end"], strict=True))
    for _, run in groupby(range(len(spans)), key=spans.__getitem__):
        places = list(run)
        if len(places) == 1:
            continue
        pieces = [tokens["piece"][i] for i in places]
        if all(re.fullmatch(r"(⟨[0-9A-F]{2}⟩)+", piece) for piece in pieces):
            spelled = bytes.fromhex("".join(pieces).replace("⟨", "").replace("⟩", "")).decode(errors="ignore")
            # A window may end inside a character.
            if spelled:
                spelled_out.append((places[0], places[-1] + 1, spelled))
    return spelled_out


def visible(piece: str) -> str:
    """A token as it can be seen: line breaks, tabs and spaces have signs."""
    return piece.replace("\n", "↵").replace("\t", "⇥").replace(" ", "·")


def arcs(tokens: dict, pairs: dict) -> list[dict]:
    """The arcs of a table of pairs, with the tokens of both words to mark when one is open."""
    columns = (pairs[name] for name in ("query_position", "key_position", "query", "key", "distance"))
    return [
        {
            "query": query,
            "key": key,
            "label": f"{reader} ← {read}, {distance:,} tokens back",
            "mark": [*range(*word_at(tokens, query)), *range(*word_at(tokens, key))],
        }
        for query, key, reader, read, distance in zip(*columns, strict=True)
    ]


def clicked(key: str, name: str) -> int | None:
    """What was clicked last in a part: its index, or None when it was released."""
    value = st.session_state.get(key, {}).get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def picked(key: str, rows: Sequence) -> Any:
    """The entry of `rows` that the last click in a table took; None when it was released."""
    row = clicked(key, "row")
    return rows[row] if row is not None and row < len(rows) else None


def contexts(tokens: dict, query: int, key: int, *, notes: tuple[str, str], around: int = 60) -> None:
    """The text around the key and around the query, side by side in reading order, each with its word highlighted.

    `notes`: what is said of the key and of the query. Other places of either word are underlined.
    """
    words, repeated = tokens["word"], {tokens["word"][token].lower() for token in (query, key)} - {""}
    pieces, home = list(tokens["piece"]), dict[int, int]()
    # A whole character stands at its first token.
    for start, stop, spelled in characters(tokens):
        pieces[start:stop] = [spelled, *[""] * (stop - start - 1)]
        home |= dict.fromkeys(range(start, stop), start)
    panels = []
    for role, token, note in zip(("key", "query"), (key, query), notes, strict=True):
        first, last = context(tokens, token, around)
        start, stop = word_at(tokens, token)
        panels.append(
            {
                "role": role,
                "title": f"{role} ({'is attended' if role == 'key' else 'attends'}) · token {token:,}",
                "note": note,
                "pieces": pieces[first:last],
                "hit": home.get(token, token) - first,
                "word": [start - first, stop - first],
                "same": [
                    i - first for i in range(first, last) if words[i].lower() in repeated and not start <= i < stop
                ],
                "cut_before": first > 0 and tokens["window"][first - 1] == tokens["window"][token],
                "cut_after": last < len(words) and tokens["window"][last] == tokens["window"][token],
            }
        )
    beside(panels, key="contexts", identity=f"{query}.{key}.{len(words)}", code=looks_like_code(tokens["piece"]))


def beside(panels: list[dict], *, key: str, identity: str, code: bool = False) -> None:
    """Two stretches of text side by side: dicts of role, title, note, pieces, `word` (first and past-the-last piece
    that is marked), `hit` (the piece that stands out; -1 = none), `same` (underlined pieces), cut_before, cut_after."""
    _CONTEXTS(key=key, data={"id": identity, "panels": panels, "code": code})


def context(tokens: dict, token: int, around: int) -> tuple[int, int]:
    """First and past-the-last token shown around a token: inside its window, without blank ends."""
    window, blank = tokens["window"], [not piece.strip() for piece in tokens["piece"]]
    first, last = max(0, token - around), min(len(window), token + around + 1)
    while first < token and (window[first] != window[token] or blank[first]):
        first += 1
    while last - 1 > token and (window[last - 1] != window[token] or blank[last - 1]):
        last -= 1
    return first, last


def word_at(tokens: dict, token: int) -> tuple[int, int]:
    """First and past-the-last token of the word that a token is a piece of."""
    first, last = token, token + 1
    while first > 0 and tokens["word"][first - 1] == tokens["word"][token] and not tokens["piece"][first][:1].isspace():
        first -= 1
    while (
        last < len(tokens["word"])
        and tokens["word"][last] == tokens["word"][token]
        and not tokens["piece"][last][:1].isspace()
    ):
        last += 1
    return first, last


def looks_like_code(pieces: Sequence[str]) -> bool:
    """Whether a text is better set in a fixed-width face: many of its lines are indented."""
    lines = "".join(pieces).split("\n")
    return len(lines) > 10 and sum(line.startswith(("    ", "\t")) for line in lines) > 0.25 * len(lines)
