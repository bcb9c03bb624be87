"""One self-contained page about a text: what is read from afar, computed anew while its sliders move; which pairs
belong together; what the groups hold."""

import html
import json
import math
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pandas as pd

from ...answer import Answer, doc, record
from ...commands.groups import Groups, Pairs
from ...commands.text import Report, Start
from ...errors import BadSetting
from ...files import write_text
from ...pages.page import body, whole
from ...sheet import STYLE
from ..context import Context
from ..groups.contents import groups
from ..groups.pairs import pairs
from .live import Live, live
from .start import FirstLook, start

# Tokens shown on either side of a paired token.
CONTEXT = 12
PAIRS = 12
SCRIPTS = ("workers", "reading", "view", "report")


@record
class WrittenReport(Answer):
    """A page that was written."""

    path: str = doc("the file")
    bytes: int = doc("its size")


def report(request: Report, *, context: Context) -> WrittenReport:
    """Write one HTML file that needs no network: the text with queries and keys of a window, from which it computes
    links at any temperature and with ever fewer keys, and the numbers of Start, Token groups and Long-range pairs.
    Errors: BadSetting when it cannot be written, BadModel where no layer's attention can be computed from them."""
    path, seed = Path(request.output), request.seed
    if path.suffix.lower() not in (".html", ".htm") or not path.parent.is_dir() or path.is_dir():
        raise BadSetting(f"{request.output} cannot be written: name an .html file in a folder that exists.")
    common: dict[str, Any] = {"model": request.model, "text": request.text, "router": request.router}
    first = start(Start(**common, min_distance=request.min_distance), context=context)
    distant = common | {"min_distance": first.min_distance, "top": PAIRS, "seed": seed}
    far = pairs(Pairs(**distant), context=context)
    contents = groups(Groups(**common, seed=seed), context=context)
    page = _page(*context.text(request.text), first, far, contents, live(context, request, first))
    try:
        write_text(path, page)
    except OSError as error:
        raise BadSetting(f"{path} cannot be written ({error.strerror}): name another file.") from error
    about = first.protocol | {"verb": "report", "seed": seed}
    return WrittenReport(path=str(path), bytes=len(page.encode()), protocol=about)


def _page(name: str, text: str, first: FirstLook, far: Answer, contents: Answer, held: Live) -> str:
    # The layer whose groups are purest over chance, weighted by their tokens, says most to a reader.
    members = contents.tables["groups"]
    gain = (members["purity"] - members["purity_random"]).fillna(0) * members["share"]
    layer = int(gain.groupby(members["layer"]).sum().idxmax())
    # Share of attention per distance, beside what even reading gives.
    rows = ["<tr><th>tokens back</th><th></th><th>read</th><th>even reading</th></tr>"]
    longest = first.distance[["mass", "uniform"]].max(axis=None)
    for low, high, mass, uniform in first.distance[["low", "high", "mass", "uniform"]].itertuples(index=False):
        bars = "".join(
            f'<div class="bar {kind}" style="width:{100 * share / longest:.1f}%"></div>'
            for kind, share in (("mass", mass), ("uniform", uniform))
        )
        distances = f"{int(low)}" if high == low + 1 else f"{int(low)} to {int(high) - 1}"
        rows.append(f"<tr><th>{distances}</th><td class=bars>{bars}</td><td>{mass:.1%}</td><td>{uniform:.1%}</td></tr>")
    words = {"name": name, "far": far.numbers["sentence"], "held": contents.numbers["sentence"]}
    words |= {"kind": first.router["kind"]}
    words |= {"protocol": json.dumps(first.protocol | {"router": first.router}, indent=1)}
    markup = body(
        "report.html",
        **{key: html.escape(word) for key, word in words.items()},
        lead="".join(f"<p class=lead>{html.escape(sentence)}</p>" for sentence in first.sentences),
        notes="".join(f"<p class=note>{html.escape(note)}</p>" for note in first.notes),
        scope=html.escape(held.scope),
        bars=f"<table class=chart>{''.join(rows)}</table>",
        controls=_table(_controls(far.tables["controls"])),
        pairs="".join(pair(row, first.tokens) for row in far.tables["pairs"].head(PAIRS).to_dict("records")),
        layer=str(layer),
        router=first.router["name"],
        members=_table(_members(contents, layer)),
    )
    tokens = first.tokens.head(held.read["length"])
    spans = list(zip(tokens["start"], tokens["end"], strict=True))
    # A character of several tokens is written by the last of them.
    pieces = [text[slice(*span)] if span != after else "" for span, after in zip_longest(spans, spans[1:])]
    code = sum(piece.startswith(("    ", "\n    ")) for piece in pieces) > 0.02 * len(pieces)
    data = {"read": {"read": held.read, "pieces": pieces, "code": code}, "queries": held.queries, "keys": held.keys}
    return whole(f"{name} - Focuscope", markup, SCRIPTS, data, STYLE)


def painted(text: str, tokens: pd.DataFrame) -> str:
    """The text, each token coloured by the logarithm of what it draws; a character in several tokens is shown once."""
    received = tokens.groupby(["start", "end"], sort=False)["received"].max()
    top = max(2.0, received.max())
    spans = []
    for (first, last), times in received.items():
        piece = html.escape(text[first:last])
        if not times > 1:
            spans.append(piece)
            continue
        strength = round(100 * math.log(times) / math.log(top))
        spans.append(f'<span style="--s:{strength}%" title="{times:.1f} times chance">{piece}</span>')
    return "".join(spans)


def pair(row: dict, tokens: pd.DataFrame) -> str:
    """Both contexts of a pair, side by side."""
    sides = ""
    for side in ("key", "query"):
        position = row[f"{side}_position"]
        sides += f"<blockquote><cite>{side} {position}</cite>{_around(tokens, position)}</blockquote>"
    head = f"head {row['layer']}.{row['head']}; reading all alike gives {row['uniform']:.4f}"
    caption = f"{row['distance']:,} tokens apart; attention {row['attention']:.2f} ({head})"
    caption += f"; affinity {row['affinity']:.2f}, group {row['group']}"
    return f"<section class=pair>{sides}<p>{caption}</p></section>"


def _around(tokens: pd.DataFrame, position: int) -> str:
    near = tokens.iloc[max(0, position - CONTEXT) : position + CONTEXT + 1]
    near = near[near["window"] == tokens["window"].iloc[position]]
    return "".join(
        f"<mark>{html.escape(piece)}</mark>" if place == position else html.escape(piece)
        for place, piece in zip(near["position"], near["piece"], strict=True)
    )


def _controls(controls: pd.DataFrame) -> pd.DataFrame:
    mean = controls.groupby("arm", sort=False)[["pairs_share", "mass_share"]].mean().reset_index()
    return mean.assign(lift=mean["mass_share"] / mean["pairs_share"]).rename(
        columns={"pairs_share": "share of far pairs", "mass_share": "share of far attention", "lift": "times chance"}
    )


def _members(contents: Answer, layer: int) -> pd.DataFrame:
    members, words = (table[table["layer"] == layer] for table in (contents.tables["groups"], contents.tables["words"]))
    marks = words.groupby("group")["word"].agg(lambda w: ", ".join(w.head(8)))
    table = members.set_index("group")[["share", "label", "purity", "purity_random"]].assign(words=marks)
    named = {"purity_random": "purity of a random set", "words": "words that mark it"}
    return table.fillna({"words": ""}).reset_index().rename(columns=named)


def _table(frame: pd.DataFrame) -> str:
    # Long cells would be cut.
    with pd.option_context("display.max_colwidth", None):
        return frame.to_html(index=False, border=0, float_format=lambda x: f"{x:.2f}", na_rep="–", escape=True)
