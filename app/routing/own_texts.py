"""Calibrating and testing routers on texts of the reader's own: several files at once, or one long text in parts; a
form with its price, the job, and what it found."""

import re
from io import BytesIO
from typing import Any

import streamlit as st

from analysis.commands.routing import SPARE, STEPS, Route
from analysis.runs.brought import TEXTS
from app import cached, topbar
from app.routing import curves, indexers, live
from app.routing.bucket_routers import HEAD_COLUMNS, ROUTERS, named
from app.selection import state
from app.selection.sparsify import OPTIMISERS, PARTITIONS, RECALL_OF, ROUTE_HEADS
from app.ui import fields, jobs, plots, repeat, widgets
from app.ui.offers import Scope

# Texts: three calibrate and three test.
LEAST = 6
ALIKE = "Parts of one text are more alike than texts of several authors, so a router finds a little more in them."


def show(card: dict) -> None:
    """The form and its button, then the stored result of exactly this request."""
    widgets.prose(
        "The first half of the texts calibrates buckets and routers, the second half tests them. Each half needs at "
        "least three texts, each longer than the minimum distance.",
        "more",
    )
    usual = min(card["max_positions"], 2048)
    _texts()
    settings, corpus = _form(card["max_positions"], usual), st.session_state["route_corpus"] or ""
    texts = corpus.split("+") if TEXTS.fullmatch(corpus) else None
    if not corpus or texts and len(texts) < LEAST:
        widgets.prose(f"Choose at least {LEAST} texts above, upload several, or cut one long text into parts.", "note")
    else:
        request = Route(texts=texts, corpus="" if texts else corpus, **settings)
        stored = cached.store().find(request)
        jobs.run_button(
            "Calibrate and test",
            request,
            "route_run",
            tokens=_tokens(request),
            stored=stored,
            smaller=lambda: [Scope("without the MLP router", {"route_mlp": False})] * request.mlp,
            type="primary",
        )
        indexers.growing()
        if stored is not None:
            widgets.source(stored)
            indexers.show(stored, "route_own")
            widgets.prose(stored.numbers["sentence"], "more")
            widgets.prose(stored.numbers["notes"], "quiet")
            live.show(stored, "route_own_live", lambda visited: None)
            curves.table(stored, "route_own", paper=False)
            for cell in stored.numbers["cells"]:
                if (name := cell["partition"]) != "raw keys":
                    curves.table(stored, f"route_{name}", cell, f"Buckets of {PARTITIONS[name]},", paper=False)
            heads = named(stored.numbers["heads"])
            st.subheader("Recall of each head", anchor=False, help=cached.glossary("gap closure"))
            columns = {name: column for name, column in HEAD_COLUMNS.items() if name in heads[0]}
            identity = f"{stored.id}{stored.created}"
            plots.listed(columns, heads, "route_found_heads", "Heads", identity, height=300)
    command = Route(corpus="DIR", **settings).command_line()
    repeat.drawer(command, more="With --store, this page shows these buckets, routers and curves from then on.")


def _kinds() -> list[str]:
    """The indexers that are ticked; `yes`, of older links, means all."""
    words = (st.session_state["route_indexers"] or "").split("~")
    return [kind for kind in indexers.FITTED if kind in words or words == ["yes"]]


def _tokens(request: Route) -> int:
    """How many tokens the prompts of both halves have, about: a text is cut into as many as its characters fill."""
    length, keys = request.length or 1, request.texts or []
    if not keys:
        return 2 * request.prompts * length
    of_each = -(-request.prompts // (len(keys) // 2))
    characters = [len(cached.store().text(key)[1]) for key in keys]
    prompts = [max(1, min(of_each, count // (SPARE * length))) for count in characters]
    return sum(min(many * length, count // 3) for many, count in zip(prompts, characters, strict=True))


def _distances() -> list[int]:
    """The minimum distances that were typed, in their order; none where that of above counts."""
    words = re.findall(r"[0-9]+", st.session_state["route_distances"] or "")
    return list(dict.fromkeys(max(1, int(word[:7])) for word in words))


def _form(longest: int, usual: int) -> dict:
    """The controls; returns what they ask of `route`."""
    chosen = st.session_state
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        fields.number("Tokens in a prompt", "route_length", 8, longest, placeholder=f"{usual:,}", width=140)
        fields.number("Prompts, each side", "route_prompts", 1, 4096, width=130)
        look: dict[str, Any] = {"placeholder": f"{chosen['route_distance']:,}", "width": 190}
        look |= {"help": cached.glossary("far attention"), "on_change": _typed}
        st.text_input("Minimum distances", key="route_distances", max_chars=80, **look)
        fields.choose("Recall is a share of", RECALL_OF, "route_fit_recall_of", "recall@l", width=230)
    length = chosen["route_length"] or usual
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        look = {"value": None, "placeholder": f"{max(2, length // 32)}", "width": 130}
        st.number_input("Buckets (C)", 2, 1 << 16, key="route_buckets", help=cached.glossary("bucket of keys"), **look)
        look = {"on_change": _typed, "help": "all, or layer.head with commas between, as in 2.0,4.3"}
        st.text_input("Heads", key="route_heads", width=190, max_chars=200, **look)
        st.number_input("Seed", 0, 9999, key="route_seed", step=1, width=110, help=cached.glossary("protocol"))
        st.toggle("Also each router's own buckets", key="route_own", help=cached.glossary("own partition"))
        st.toggle("Train the MLP", key="route_mlp", help=cached.glossary("bucket routers"))
        if chosen["route_mlp"]:
            fields.choose("Trained by", OPTIMISERS, "route_optimiser", "bucket routers", width=220)
    chosen["route_kinds_pick"] = _kinds()
    st.pills(
        "Fit indexers",
        indexers.FITTED,
        selection_mode="multi",
        format_func=lambda kind: ROUTERS[kind].title,
        key="route_kinds_pick",
        on_change=lambda: state.choose(
            chosen, route_indexers="~".join(sorted(chosen["route_kinds_pick"], key=indexers.FITTED.index)) or None
        ),
        help=cached.glossary("indexer"),
    )
    widgets.prose(
        "Sinks are left out as chosen above. The slider is of the first distance. Training the MLP takes most of the "
        f"time: without it the rest is there sooner. Indexers are trained for at most {STEPS} steps and stop when "
        "selection texts gain no more.",
        "quiet",
    )
    args = {"model": chosen["model"], "length": chosen["route_length"] or usual, "prompts": chosen["route_prompts"]}
    args |= {"heads": chosen["route_heads"].replace(" ", "").replace("~", ",")}
    first, *further = _distances() or [chosen["route_distance"]]
    args |= {"min_distance": first, "sinks": 4 * chosen["route_sinks"]}
    beside = {"distances": further or None, "recall_of": chosen["route_fit_recall_of"]}
    beside |= {"optimiser": chosen["route_optimiser"]}
    args |= {name: value for name, value in beside.items() if value != Route.defaults[name]}
    kinds = _kinds()
    if kinds and args["heads"] == "all" and "recall_of" not in args:
        args |= {"kinds": kinds}
    return args | {name: chosen[f"route_{name}"] for name in ("buckets", "own", "mlp", "seed")}


def _typed() -> None:
    """What names no distances is the distance of above, and what names no heads becomes all of them."""
    distances, heads = ", ".join(map(str, _distances())), st.session_state["route_heads"].replace(" ", "")
    heads = heads if re.fullmatch(ROUTE_HEADS, heads) else "all"
    state.choose(st.session_state, route_distances=distances or None, route_heads=heads)


# --- the texts --------------------------------------------------------------------------------------------------------


def _texts() -> None:
    """The choice among stored texts, a box for several files, and the text in use in parts."""
    fields.corpus("route_corpus", "", ("Texts from", "Texts"), f"Choose at least {LEAST}", "corpus")
    nonce = st.session_state.setdefault("route_nonce", 0)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        with st.popover("Upload several texts", icon=":material/upload_file:", key=f"route_popover_{nonce}"):
            name = f"route_upload_{nonce}"
            look: dict[str, Any] = {"accept_multiple_files": True, "on_change": _uploaded, "args": (name,)}
            st.file_uploader(f"At least {LEAST} files", key=name, help=topbar.FILES, **look)
        label = f"Cut the text in use into {LEAST} parts"
        st.button(label, key="route_cut", icon=":material/content_cut:", help=ALIKE, on_click=_cut)
    widgets.trouble("route_trouble")


def _uploaded(name: str) -> None:
    files = st.session_state.get(name) or []
    with widgets.attempt("route_trouble"):
        uploads = [(file.getvalue(), file.name) for file in files if isinstance(file, BytesIO)]
        _take([topbar.bring(data, title) for data, title in uploads])
    for file in files:
        topbar.release(file)
    st.session_state["route_nonce"] += 1  # a fresh, empty uploader


def _cut() -> None:
    name, text = cached.store().text(st.session_state["text"])
    with widgets.attempt("route_trouble"):
        pieces = enumerate(parts(text, LEAST), 1)
        state.choose(st.session_state, route_corpus=None)
        _take([topbar.bring(piece.encode(), f"{name}, part {number} of {LEAST}") for number, piece in pieces])


def _take(keys: list[str]) -> None:
    """Texts that came in are chosen, beside those that were."""
    before = (st.session_state["route_corpus"] or "").split("+")
    offered = cached.texts()
    chosen = [key for key in dict.fromkeys([*before, *keys]) if key in offered]
    state.choose(st.session_state, route_corpus="+".join(chosen[: fields.MOST_TEXTS]) or None)


def parts(text: str, count: int) -> list[str]:
    """A text in `count` parts of about the same length, cut where a line ends, or a word."""
    ends = [0]
    for part in range(1, count):
        goal = len(text) * part // count
        near = text.find("\n", goal, goal + len(text) // (4 * count))
        space = re.compile(r"\s").search(text, goal)
        ends.append(max(ends[-1], near + 1 if near >= 0 else space.end() if space else goal))
    return [text[first:last] for first, last in zip(ends, [*ends[1:], len(text)], strict=True)]
