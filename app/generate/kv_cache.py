"""What is still in the KV cache of an answer, painted on the text; what a new token read, and what it could not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from analysis.runs import Run
from app import cached
from app.generate import missed
from app.selection import state
from app.ui import asking, fields, painted, tables, widgets
from app.ui.charts import GROUPS, RANDOM
from app.ui.reading import rows_of

# First tokens of a text, and last ones before the query, that are told apart from other kept keys.
SINKS, NEAR = 4, 64
# What a key of one head is: (name, colour, line, per cent of the colour in the light and in the dark).
KINDS = (
    ("evicted: gone for good", RANDOM, "dotted", (34, 44)),
    (f"sink: the first {SINKS} tokens, held", GROUPS[5], "double", (30, 40)),
    (f"recent: the last {NEAR} tokens, held", GROUPS[2], "dashed", (22, 30)),
    ("held", GROUPS[0], "solid", (26, 36)),
    ("outside the layer's sliding window", RANDOM, "dashed", (14, 20)),
)
EVICTED, SINK, RECENT, HELD, OUTSIDE = range(len(KINDS))
# Of the heads that hold a key, above which a class begins.
SHARES = (0.0, 0.25, 0.5, 0.75, 0.9999)
SPELLED = ("up to 25% of the heads hold it", "up to 50%", "up to 75%", "most heads", "every head")
ROW = {
    "position": tables.Column("token", "whole", help="its place in the prompt and the answer"),
    "weight": tables.Column("attention", "share", full=1.0, help=cached.glossary("attention mass")),
    "context": tables.Column("in its context", wrap=True, help="the token in brackets"),
    "back": tables.Column("back", "whole", help=cached.glossary("distance")),
}
# Tokens of context in a row.
BEFORE = 6
EVICTS = ("What it could not read", "could not read", "of its attention would have gone to keys that are gone.")
SKIPS = ("What it passed over", "passed over", "of dense attention would have gone to keys it passes over.")
GONE = {"memory": EVICTS, "reads": SKIPS, "prefill": SKIPS}


@dataclass(frozen=True)
class Place:
    """Where one looks: the place of a layer among those with heads and a query head, or None for all of them."""

    layer: int | None
    head: int | None

    @property
    def single(self) -> bool:
        """Whether it is one head."""
        return self.layer is not None and self.head is not None

    def row(self, layers: int, heads: int) -> int:
        """Its row in the arrays of `generate`: all heads, then the layers, then the heads of each."""
        if self.layer is None:
            return 0
        return 1 + self.layer if self.head is None else 1 + layers + self.layer * heads + self.head


def shown(run: Run, prompt: dict) -> None:
    """The painted text of one answer with its controls; `prompt`: its tokens."""
    side, place = _controls(run)
    look = _look(run, prompt, side, place)
    numbers, size, first = run.numbers, len(look.tokens["piece"]), len(prompt["piece"])
    shares, passed = held(numbers, _alive(run, side, look), place)
    classes, palette = paint(shares, passed, place, size)
    heads = 1 if place.single else numbers["kv_heads"] * (1 if place.layer is not None else numbers["layers"])
    # How many of so many key-value heads hold each token.
    if heads == 1:
        states = ("evicted", "held", "outside the window")
        tips = [states[2 if gone else bool(share)] for share, gone in zip(shares, passed, strict=True)]
    else:
        tips = [f"{round(share * heads):,} of {heads:,} heads hold it" for share in shares]
    legend = "key-value heads that hold the token; unpainted: gone from all of them, or not written yet"
    if place.single:
        group = numbers["heads"] // numbers["kv_heads"]
        shared = f", which shares its keys with {group - 1} more" if group > 1 else ""
        legend = f"head {st.session_state['generate_layer']}.{place.head}{shared}; unpainted: not written yet"
    # An arc from the new token to each key that it read, and to each that it could not.
    query, arcs = look.query + 1, []
    if look.reads:
        for kind, words in (("read", "read"), ("gone", GONE[numbers["rows"][side]["saves"]][1])):
            for key, weight in look.reads[kind]:
                name = painted.visible(look.tokens["piece"][key])
                label = f"{words} {name!r}, {query - key:,} tokens back: {weight:.1%}"
                arcs.append({"query": query, "key": key, "label": label, "mark": [query, key]})
    painted.painted(
        look.tokens,
        classes,
        palette,
        key="generate_text",
        identity=f"{run.id}{run.created}.{side}.{look.step}.{place}",
        place=f"{run.id}.{side}",
        tips=[("KV cache", [*tips, *[None] * (size - len(tips))])],
        legend=legend,
        hint="Click a new token (they stand at the end) to see what it read.",
        arcs=arcs,
        locked=query,
        on_token=lambda: _clicked(first, size - first),
    )


def reads(run: Run, prompt: dict) -> None:
    """What the marked new token read, and what it could not."""
    chosen = st.session_state
    side, place = chosen["generate_side"], _place(chosen["generate_layer"], chosen["generate_head"])
    look, row = _look(run, prompt, side, place), run.numbers["rows"][side]
    if look.reads is None:
        widgets.prose("The prompt is too long here to keep what each token read.", "note")
        return
    name, (title, _, gone) = painted.visible(look.tokens["piece"][look.query + 1]), GONE[row["saves"]]
    missing = f"{look.reads['lost']:.1%} {gone}"
    if row["method"] == "dense":
        missing = "Dense attention reads every key."
    elif row["saves"] == "memory" and look.step == 0 and run.protocol["known"]:
        missing = "The prompt's last token made this one, before keys were dropped: nothing was gone yet."
    elif look.reads["lost"] < 0.0005:
        missing = "Nothing that it would have read is missing here."
    with st.grid(2, min_column_width=420, gap="large"):
        for kind, heading in (("read", f"What “{name}” read"), ("gone", title)):
            with st.container():
                st.markdown(f"**{widgets.plain(heading)}**")
                if kind == "gone":
                    widgets.prose(missing, "quiet")
                if keys := look.reads[kind]:
                    _keys(look.tokens, look.query + 1, keys, f"generate_{kind}", f"{run.id}.{side}.{look.step}.{keys}")


@dataclass(frozen=True)
class Look:
    """One new token of one answer: the `tokens` of prompt and answer, its `step` in the answer, the place of the token
    that was read when it was made, and what that `reads`."""

    tokens: dict
    step: int
    query: int
    reads: dict | None


def _look(run: Run, prompt: dict, side: int, place: Place) -> Look:
    """The new token that was clicked, the last one where none was."""
    answer = rows_of(cached.columns(run, "answers"), side=side)
    count = len(answer["piece"])
    widgets.settled("generate_at", [None, *range(1, count + 1)], None)
    step = (st.session_state["generate_at"] or count) - 1
    read = _reads(run, side, step, place) if run.numbers["traced"] else None
    # Prompt and answer as one table to paint.
    end, piece = prompt["end"][-1], list(answer["piece"])
    tokens = {"piece": prompt["piece"] + piece, "window": [0] * (len(prompt["piece"]) + count)}
    tokens["word"] = prompt["word"] + [word.strip() for word in piece]
    tokens |= {name: prompt[name] + [end + char for char in answer[name]] for name in ("start", "end")}
    return Look(tokens, step, len(prompt["piece"]) + step - 1, read)


# --- controls ---------------------------------------------------------------------------------------------------------


def _controls(run: Run) -> tuple[int, Place]:
    """Which answer is painted, and which head."""
    labels = dict(enumerate(row["label"] for row in run.numbers["rows"]))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        if st.session_state["generate_side"] not in labels:
            state.choose(st.session_state, generate_side=max(labels))
        now, look = st.session_state["generate_side"], {"format_func": labels.get, "required": True}
        side = fields.pick(st.segmented_control, "Painted answer", list(labels), "generate_side", now, **look)
        layer = _one_of("layer", asking.layers(st.session_state["model"]))
        head = None if layer is None else _one_of("head", range(run.numbers["heads"]))
    if run.numbers.get("missed"):
        # The step of the answer that is painted, the last one unless another was chosen.
        chosen, count = st.session_state, run.numbers["rows"][side]["tokens"]
        widgets.settled("generate_at", [None, *range(1, count + 1)], None)
        step, label = chosen["generate_at"] or count, "New token: what the KV cache still holds"
        fields.pick(st.slider, label, 1, "generate_at", step, max_value=max(2, count))
    return side, _place(layer, head)


def _place(layer: int | None, head: int | None) -> Place:
    """The place of a layer, by the model's own number of it, and one of its heads."""
    return Place(None, None) if layer is None else Place(asking.layers(st.session_state["model"]).index(layer), head)


def _one_of(axis: str, offered: Sequence[int]) -> int | None:
    """A layer or head to look at, None for all of them."""
    name, chosen = f"generate_{axis}", st.session_state
    widgets.settled(name, [None, *offered], None)
    now = chosen[name]
    # A select box takes None for nothing chosen.
    chosen[f"{name}_pick"] = -1 if now is None else now

    def picked() -> None:
        place = chosen[f"{name}_pick"]
        state.choose(chosen, **{name: None if place < 0 else place})

    look: dict[str, Any] = {
        "format_func": lambda place: f"all {axis}s" if place < 0 else f"{axis} {place}",
        "on_change": picked,
    }
    st.selectbox(axis.capitalize(), [-1, *offered], key=f"{name}_pick", width=140, **look)
    return now


def _clicked(first: int, count: int) -> None:
    token = painted.clicked("generate_text", "token")
    if token is not None and first <= token < first + count:
        state.choose(st.session_state, generate_at=token - first + 1)


# --- what the cache holds ---------------------------------------------------------------------------------------------


def _alive(run: Run, side: int, look: Look) -> np.ndarray:
    """bool [L, G, query + 1]: the keys that are there when the marked token is made, its query's own among them."""
    numbers = run.numbers
    if numbers.get("missed"):
        left = cached.array(run, "left")[side]
        # an answer that was cut to no budget has lost nothing here
        if left.min() < np.iinfo(left.dtype).max:
            return left[:, :, : look.query + 1] > look.step
    shape = numbers["layers"], numbers["kv_heads"], numbers["cut"]
    alive = np.ones((*shape[:2], look.query + 1), bool)
    bits = cached.array(run, "kept")[side]
    alive[:, :, : shape[2]] = np.unpackbits(bits, count=int(np.prod(shape))).reshape(shape)
    return alive


def held(numbers: dict, alive: np.ndarray, place: Place) -> tuple[list[float], list[float]]:
    """(share of the heads that hold each token up to the query, share whose own sliding window has passed it), of
    `alive` bool [L, G, query + 1], what no method dropped."""
    query = alive.shape[2] - 1
    passed = np.zeros_like(alive)
    for layer, window in enumerate(numbers["windows"]):
        if window is not None:
            passed[layer, :, : max(0, query + 1 - window)] = True
    group = numbers["heads"] // numbers["kv_heads"]
    layers = slice(None) if place.layer is None else slice(place.layer, place.layer + 1)
    heads = slice(None) if place.head is None else slice(place.head // group, place.head // group + 1)
    share, gone = (x[layers, heads].mean((0, 1)).tolist() for x in (alive & ~passed, passed))
    return share, gone


def paint(shares: Sequence[float], passed: Sequence[float], place: Place, size: int) -> tuple[list[int], list[dict]]:
    """The class of each of `size` tokens, -1 beyond those that exist yet, and the palette."""
    last, later = len(shares) - 1, [-1] * (size - len(shares))
    if not place.single:
        classes = [sum(share > low for low in SHARES) - 1 for share in shares]
        return classes + later, painted.heat(classes, SPELLED)
    classes = []
    for token, (share, gone) in enumerate(zip(shares, passed, strict=True)):
        kept = SINK if token < SINKS else RECENT if last - token < NEAR else HELD
        classes.append(OUTSIDE if gone else kept if share else EVICTED)
    palette = [
        painted.entry(name, classes.count(kind), colour, mixes, line)
        for kind, (name, colour, line, mixes) in enumerate(KINDS)
    ]
    return classes + later, palette if any(passed) else palette[:OUTSIDE]


# --- what a new token read --------------------------------------------------------------------------------------------


def _reads(run: Run, side: int, step: int, place: Place) -> dict:
    """The keys of one new token: `read` and `gone` as [(place, weight)], and `lost`, the share that was gone."""
    row = place.row(run.numbers["layers"], run.numbers["heads"])
    reads: dict = {"lost": float(cached.array(run, "lost")[side, step, row])}
    for kind in ("read", "gone"):
        keys, weights = (cached.array(run, kind + name)[side, step, row] for name in ("", "_weight"))
        reads[kind] = [(int(key), float(weight)) for key, weight in zip(keys, weights, strict=True) if key >= 0]
    return reads


def _keys(tokens: dict, query: int, keys: list[tuple[int, float]], key: str, identity: str) -> None:
    values: dict[str, Sequence] = {
        "position": [token for token, _ in keys],
        "context": [missed.context(tokens["piece"], token, BEFORE) for token, _ in keys],
        "back": [query - token for token, _ in keys],
        "weight": [weight for _, weight in keys],
    }
    tables.table(ROW, values, key=key, identity=identity, label="Keys with the most attention", height=330)
