"""The bar on top of every page: the text, the model and the groups in use as chips, and the page's link.

A page shows the chips it uses. Every error stays in its own corner, and the choice in use is kept.
"""

import contextlib
from collections.abc import Callable
from io import BytesIO

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from analysis.corpus import MAX_BYTES
from analysis.errors import AnalysisError
from analysis.limits import limits
from app import cached
from app.selection import state
from app.serve import sharing
from app.ui import asking, basket, jobs, reading, widgets

WORKER = {"cold": "not started", "starting": "loading the model", "ready": "ready", "busy": "working"}
RECENT = 8  # models loaded here before that are offered


def topbar(uses: str) -> None:
    """Draw the bar; `uses` names the chips that the page has: text, model, groups."""
    chips = {"text": _text, "model": _model, "groups": _groups}
    with st.container(key="topbar", horizontal=True, vertical_alignment="center", gap="small"):
        widgets.each(*(draw for name, draw in chips.items() if name in uses.split()))
        st.space("stretch")
        widgets.each(basket.popover, widgets.copy_link)
    widgets.trouble("text_trouble")  # it stays until the next text: a rerun must not swallow it
    if "model" in uses.split():
        _caution()


def _caution() -> None:
    """What to bear in mind about every number of the model in use."""
    known = cached.card(st.session_state["model"])
    if known is not None and known.numbers.get("caution"):
        widgets.prose(known.numbers["caution"], "quiet")


def _chip(kind: str, name: str, icon: str, draw: Callable[[], None]) -> None:
    """What is in use as a button that opens the choice; choosing closes it, by a new key."""
    key = f"{kind}_chip_{st.session_state.setdefault(f'{kind}_chosen', 0)}"
    with st.popover(f"{kind.capitalize()}: {widgets.plain(name)}", icon=f":material/{icon}:", key=key):
        draw()


def close(kind: str) -> None:
    """A callback: the chip of this kind closes, and its fields are empty when it opens again."""
    st.session_state[f"{kind}_chosen"] = st.session_state.get(f"{kind}_chosen", 0) + 1


def _text() -> None:
    offered = sharing.shown(cached.texts(), [sample for sample, _ in cached.samples()])
    key = st.session_state["text"]
    _chip("text", offered.get(key, key), "article", lambda: _texts(offered, key))


def _texts(offered: dict[str, str], key: str) -> None:
    _choice("text", "Text", list(offered), key, _picked, lambda k: offered.get(k, k))
    nonce = st.session_state["text_chosen"]
    st.file_uploader(
        "Upload a plain text file",
        key=f"upload_{nonce}",
        on_change=_uploaded,
        args=(f"upload_{nonce}",),
        max_upload_size=MAX_BYTES // 10**6,
        help="Any text in UTF-8: .txt, .md, .py …",
    )
    st.text_area(
        "or paste it here",
        key=f"paste_{nonce}",
        height=140,
        placeholder="A page or two shows most; 900 words read in a second.",
    )
    st.button("Read this text", on_click=_pasted, args=(f"paste_{nonce}",), type="primary", key="read_paste")
    st.caption(
        sharing.private(), help="Texts and results are kept in the folder models_cache/state and are sent nowhere."
    )


def _choice(kind: str, label: str, options: list, now: object, chosen: Callable, shown: Callable = str, **look) -> None:
    """A list inside a chip, `now` being in use: each value in use has a list of its own, which begins with it. The
    browser tells of the list of a chip that has closed once more, with the next page: that is no choice."""
    key = f"{kind}_pick_{now}"

    def picked() -> None:
        if st.session_state[key] != now:
            chosen(st.session_state[key])

    st.selectbox(label, options, options.index(now), shown, key=key, on_change=picked, **look)


def _picked(key: str) -> None:
    use_text(key)
    close("text")


def use_text(key: str) -> None:
    """Another text: what was selected inside the old one means nothing in it."""
    state.choose(st.session_state, text=key, pair=None, quality_token=None, query=None, tile=None)
    st.session_state["text_trouble"] = None


def _uploaded(name: str) -> None:
    file = st.session_state.get(name)
    if isinstance(file, BytesIO):  # an interrupted run calls this again, when the file has been released
        _take(file.getvalue(), file.name)
        release(file)


def release(file) -> None:
    """Drop an upload: Streamlit would keep the bytes of an upload in the app's memory as long as the tab is open."""
    context = get_script_run_ctx()
    remove = getattr(getattr(context, "uploaded_file_mgr", None), "remove_file", None)
    if remove is not None:
        remove(session_id=context.session_id, file_id=file.file_id)


def _pasted(name: str) -> None:
    _take((st.session_state.get(name) or "").encode("utf-8", "surrogatepass"), "The pasted text")


def _take(data: bytes, name: str) -> None:
    """Store a text and use it; when it is none, the text in use stays and one sentence says why."""
    with widgets.attempt("text_trouble"):
        use_text(bring(data, name))
    close("text")


def bring(data: bytes, name: str) -> str:
    """Store a text that this session brought; its hash. Errors: BadText."""
    limits().check_text(data, name)
    key = cached.store().put_bytes(data, name)
    sharing.mine(key)
    return key


def _model() -> None:
    _chip("model", st.session_state["model"], "memory", _models)


def _models() -> None:
    """The models that may be chosen, or that were loaded here before and any other by its name; what is loaded."""
    current, listed = st.session_state["model"], limits().models
    offered = listed or dict.fromkeys(["demo", current, *_recent()])
    label, now = "Model" if listed else "Loaded here before", current if current in offered else listed[0]
    _choice("model", label, list(offered), now, _chosen, disabled=len(offered) == 1)
    if listed is None:
        st.text_input(
            "Another one: a Hugging Face id, or a folder in models_cache",
            key="model_name",
            placeholder="HuggingFaceTB/SmolLM2-135M",
            help="Only safetensors weights are read and no code of a repository is run.",
        )
        name = (st.session_state["model_name"] or "").strip()
        widgets.prose(_price(name), "quiet")
        if st.button("Load this model", key="load_model", type="primary"):
            st.session_state["model_trouble"] = None
            _load(name)
        widgets.trouble("model_trouble")
    _loaded()


def _recent() -> list[str]:
    """Models loaded here before, the last one first."""
    return list(dict.fromkeys(asked["model"] for _, _, asked in cached.store().past("model")))[:RECENT]


def _chosen(name: str) -> None:
    use_model(name)
    close("model")


def _price(name: str) -> str:
    """What loading costs, before it is begun; what is wrong with a name is said when it is asked for."""
    try:
        return cached.load_price(state.CONTROLS["model"].parse(name))
    except (ValueError, AnalysisError):
        return "Type a model name and press Enter to see what loading it costs."


def _load(name: str) -> None:
    """Let the worker judge a model; the one in use stays until the new one is there."""
    try:
        try:
            state.CONTROLS["model"].parse(name)
        except ValueError:
            raise AnalysisError(
                f"“{name[:60]}” is not the name of a model: give a Hugging Face id such as owner/name, or the name of "
                "a folder in models_cache."
            ) from None
        asking.ask("model", {"model": name}, f"Loading {widgets.plain(name)}")
    except AnalysisError as error:
        st.session_state["model_trouble"] = error
        return
    st.session_state["model_wanted"] = name
    close("model")
    st.rerun()


def use_model(name: str) -> None:
    """Another model: its routers, layers and heads are others."""
    state.choose(st.session_state, model=name, router=None, layer=None, group=None, head=None, pair=None)


def _loaded() -> None:
    """What is loaded, kept up to date: often while the worker starts or works, seldom when it is ready."""
    card = cached.card(st.session_state["model"])
    if card is not None:
        widgets.prose(reading.sizes(card.numbers), "quiet")
    idle = cached.jobs().status()["state"] == "ready" and st.session_state["job"] is None
    st.fragment(_worker, run_every=15 if idle else 2)()


def _worker() -> None:
    now = cached.jobs().status()
    memory = f", {now['memory'] / 1e6:,.0f} MB" if now["memory"] else ""
    st.caption(
        f"Worker: {WORKER.get(now['state'], now['state'])}{memory}",
        help="The model runs in a process of its own; stored results are shown without waiting for it.",
    )


def _groups() -> None:
    with contextlib.suppress(AnalysisError):  # a model that cannot be loaded is said once, on the page
        offered = asking.routers(st.session_state["model"])
        widgets.settled("router", offered, offered[0])
        _chip("groups", st.session_state["router"], "workspaces", lambda: _routers(offered))


def _routers(offered: list[str]) -> None:
    label, now = "Groups, by the router that made them", st.session_state["router"]
    _choice("groups", label, offered, now, _routed, help=cached.glossary("router"))


def _routed(name: str) -> None:
    jobs.use_router(name)
    close("groups")
