"""The choices that hold for every page: text, model, router; and how the worker is. Nothing else lives here."""

import contextlib
from io import BytesIO

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from analysis.errors import AnalysisError
from analysis.limits import limits
from app import cached
from app.selection import state
from app.serve import sharing
from app.ui import asking, jobs, widgets

WORKER = {"cold": "not started", "starting": "loading the model", "ready": "ready", "busy": "working"}


def sidebar() -> None:
    """Draw the sidebar. Every error stays in its own corner and the choice in use is kept."""
    with st.sidebar:
        widgets.each(_text, _model, _router, widgets.copy_link, worker)


def _text() -> None:
    offered = sharing.shown(cached.texts(), [sample for sample, _ in cached.samples()])
    key = st.session_state["text"]
    st.session_state["text_pick"] = key
    st.selectbox("Text", list(offered), format_func=lambda k: offered.get(k, k), key="text_pick", on_change=_picked)
    with st.popover("Use your own text", icon=":material/upload_file:", width="stretch"):
        nonce = st.session_state.setdefault("upload_nonce", 0)
        name = f"upload_{nonce}"
        st.file_uploader(
            "Upload a plain text file",
            key=name,
            on_change=_uploaded,
            args=(name,),
            help="Any text: .txt, .md, .py … up to 5 MB, UTF-8.",
        )
        st.text_area(
            "or paste it here",
            key=f"paste_{nonce}",
            height=140,
            placeholder="A page or two shows most; 900 words read in a second.",
        )
        st.button("Read this text", on_click=_pasted, args=(f"paste_{nonce}",), type="primary", key="read_paste")
        st.caption(sharing.private())
    widgets.trouble("text_trouble")  # it stays until the next text: a rerun must not swallow it
    st.caption(
        sharing.private(), help="Texts and results are kept in the folder models_cache/state and are sent nowhere."
    )


def _picked() -> None:
    use_text(st.session_state["text_pick"])


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
        limits().check_text(data, name)
        use_text(cached.store().put_bytes(data, name))
        sharing.mine(st.session_state["text"])
    st.session_state["upload_nonce"] += 1  # a fresh, empty uploader


def _model() -> None:
    current, listed = st.session_state["model"], limits().models
    if listed is not None:
        st.session_state["model_pick"] = current if current in listed else listed[0]
        st.selectbox("Model", listed, key="model_pick", on_change=_chosen, disabled=len(listed) == 1)
        return
    with st.popover(f"Model: {current}", icon=":material/memory:", width="stretch", key="model_popover"):
        st.text_input(
            "Hugging Face id, or a folder in models_cache",
            key="model_name",
            placeholder="HuggingFaceTB/SmolLM2-135M",
            help="Only safetensors weights are read and no code of a repository is run.",
        )
        name = (st.session_state["model_name"] or "").strip()
        widgets.prose(_price(name), "quiet")
        asked = st.button("Load this model", key="load_model", type="primary")
        if current != "demo":
            st.button("Back to the bundled model", on_click=use_model, args=("demo",), key="demo_model")
        if asked:
            st.session_state["model_trouble"] = None
            _load(name)
        widgets.trouble("model_trouble")


def _chosen() -> None:
    use_model(st.session_state["model_pick"])


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
    st.rerun()


def use_model(name: str) -> None:
    """Another model: its routers, layers and heads are others."""
    state.choose(st.session_state, model=name, router=None, layer=None, group=None, head=None, pair=None)


def _router() -> None:
    with contextlib.suppress(AnalysisError):  # a model that cannot be loaded is said once, on the page
        offered = asking.routers(st.session_state["model"])
        widgets.settled("router", offered, offered[0])
        st.session_state["router_pick"] = st.session_state["router"]
        st.selectbox("Router", offered, key="router_pick", on_change=_routed, help=cached.glossary("router"))


def _routed() -> None:
    jobs.use_router(st.session_state["router_pick"])


def worker() -> None:
    """The worker's state and memory, kept up to date: often while it starts or works, seldom when it is ready."""
    idle = cached.jobs().status()["state"] == "ready" and st.session_state["job"] is None
    st.fragment(_worker, run_every=15 if idle else 2)()


def _worker() -> None:
    now = cached.jobs().status()
    memory = f", {now['memory'] / 1e6:,.0f} MB" if now["memory"] else ""
    st.caption(
        f"Worker: {WORKER.get(now['state'], now['state'])}{memory}",
        help="The model runs in a process of its own; stored results are shown without waiting for it.",
    )
