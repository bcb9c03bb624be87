"""The bar on top of every page: the text, the model and the groups in use as chips, and the page's link.

A page shows the chips it uses. Every error stays in its own corner, and the choice in use is kept.
"""

import contextlib
from collections.abc import Collection, Sequence
from io import BytesIO
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.runtime.scriptrunner import get_script_run_ctx

from analysis import documents
from analysis.errors import AnalysisError, BadText
from analysis.limits import limits
from app import cached, model_box
from app.selection import state
from app.serve import sharing
from app.ui import asking, chips, share, widgets
from app.ui.spelled import plain

FILES = "Plain text in UTF-8 (.txt, .md, .py …), PDF, Word (.docx), HTML and notebooks (.ipynb); several at once."
KEPT_HERE = "Texts and results are kept in the folder models_cache/state and are sent nowhere."
MOST = 20  # files of one upload
MOST_MB = documents.MAX_BYTES // 10**6  # of each
# Characters of a text in its chip.
SHOWN = 20_000


def topbar(uses: Collection[str]) -> DeltaGenerator:
    """Draw the bar; returns the place of what *Share* holds, which is known when the page has been drawn. `uses` names
    the chips that the page has: text, model, groups. Which groups there are is known when the model is: a new one is
    waited for under the bar."""
    parts = {"text": _text, "model": model_box.chip}
    with st.container(key="topbar", horizontal=True, vertical_alignment="center", gap="small"):
        widgets.each(*(draw for name, draw in parts.items() if name in uses))
        groups = st.container(width="content") if "groups" in uses else None
        st.space("stretch")
        place = share.popover()
    # It stays until the next text: a rerun must not swallow it.
    widgets.trouble("text_trouble")
    # What became of the files that were uploaded last: on the page where they came, until another one or another text
    # is chosen.
    page, uploads = st.session_state.get("text_arrived") or (None, [])
    arrived, now = [key for key in uploads if key in cached.texts()], st.session_state["text"]
    if page != st.session_state["page_shown"]:
        st.session_state["text_arrived"] = None
    elif now in arrived:
        sentences, description = [f"{cached.texts()[now]} was read."], cached.store().said(now)
        sentences += [description, "Check it in the chip Text."] if description else []
        sentences += [f"The list there has all {len(arrived)} files."] if len(arrived) > 1 else []
        if len(sentences) > 1:
            widgets.prose(" ".join(sentences), "note")
    if groups is not None:
        _groups(groups)
    card = cached.card(st.session_state["model"]) if "model" in uses else None
    if card is not None and card.numbers.get("caution"):
        widgets.prose(card.numbers["caution"], "quiet")
    return place


def _text() -> None:
    offered, key = sharing.shown(cached.texts(), [sample for sample, _ in cached.samples()]), st.session_state["text"]
    chips.chip("text", offered.get(key, key), "article", lambda: _texts(offered, key))
    # Nobody chose it: some pages open with the bundled text in which reading far decides.
    followed, shown = st.session_state["text_unchosen"] == key, st.session_state.get("text_shown", key)
    st.session_state["text_shown"] = key
    if followed and shown != key:
        st.toast(f"This page opens with “{widgets.plain(offered.get(key, key))}”.", icon=":material/article:")


def _texts(offered: dict[str, str], key: str) -> None:
    chips.choice("text", "Text", list(offered), key, use_text, lambda k: offered.get(k, k))
    nonce = st.session_state["text_chosen"]
    upload, paste = f"upload_{nonce}", f"paste_{nonce}"
    st.file_uploader(
        "Upload text, PDF, Word, HTML or notebook files",
        key=upload,
        on_change=_uploaded,
        args=(upload,),
        accept_multiple_files=True,
        max_upload_size=MOST_MB,
        help=FILES,
    )
    look: dict[str, Any] = {"height": 140, "placeholder": "A page or two shows most; 900 words read in a second."}
    st.text_area("or paste it here", key=paste, **look)
    st.button("Read this text", on_click=_pasted, args=(paste,), type="primary", key="read_paste")
    st.caption(sharing.SHARED if limits().demo else sharing.AT_HOME, help=KEPT_HERE)
    with st.expander("What was read", on_change="rerun", key=f"text_read_{nonce}") as expander:
        if expander.open:
            # The text in use as the model gets it, to check a document against.
            name, text = cached.store().text(key)
            description = cached.store().said(key) or f"Plain text: {len(text.split()):,} words."
            cut = f" Its first {SHOWN:,} characters are shown." if len(text) > SHOWN else ""
            widgets.prose(description + cut, "quiet")
            with st.container(height=260, border=True):
                st.text(text[:SHOWN])


def use_text(key: str) -> None:
    """Another text: what was selected inside the old one means nothing in it."""
    state.choose(st.session_state, text=key, **dict.fromkeys(state.INSIDE_A_TEXT))
    st.session_state["text_trouble"] = st.session_state["text_arrived"] = None


def _uploaded(name: str) -> None:
    files = [file for file in st.session_state.get(name) or [] if isinstance(file, BytesIO)]
    # An interrupted run calls this again, when the files have been released.
    if files:
        take(files)


def release(file: Any) -> None:
    """Drop an upload: Streamlit would keep the bytes of an upload in the app's memory as long as the tab is open."""
    context: Any = get_script_run_ctx()
    remove = getattr(getattr(context, "uploaded_file_mgr", None), "remove_file", None)
    if remove is not None:
        remove(session_id=context.session_id, file_id=file.file_id)


def _pasted(name: str) -> None:
    take(text=st.session_state.get(name) or "")


def take(uploads: Sequence[Any] = (), text: str = "") -> None:
    """Store uploads and a text that was pasted, and use the first; of those that are none, a sentence each says why.
    Without any, the text in use stays."""
    files = [(file.getvalue(), file.name) for file in uploads]
    if text.strip() or not files:
        files.append((text.encode("utf-8", "surrogatepass"), "The pasted text"))
    arrived, refused = [], []
    with widgets.attempt("text_trouble"):
        for data, name in files[:MOST]:
            try:
                arrived.append(bring(data, name))
            except BadText as error:
                refused.append(str(error))
        if len(files) > MOST:
            refused.append(f"{len(files)} files are more than the {MOST} that are read at once: upload the rest again.")
        if arrived:
            use_text(arrived[0])
            st.session_state["text_arrived"] = st.session_state.get("page_shown"), arrived
        if refused:
            raise BadText(" ".join(refused))
    for file in uploads:
        release(file)
    chips.close("text")


def bring(data: bytes, name: str) -> str:
    """Store a text that this session brought; its hash. A document is read by the worker. Errors: BadText."""
    limits().check_text(data, name)
    if documents.kind(name, data) is None:
        key = cached.store().put_bytes(data, name)
    else:
        with st.spinner(f"Reading {plain(name)}"):
            key = cached.jobs().read(data, name, cached.PATIENCE)
    sharing.mine(key)
    return key


def _groups(place: DeltaGenerator) -> None:
    # A model that cannot be loaded is said once, on the page.
    with contextlib.suppress(AnalysisError):
        offered = asking.routers(st.session_state["model"])
        widgets.settled("router", offered, offered[0])
        with place:
            chips.chip("groups", st.session_state["router"], "workspaces", lambda: _routers(offered))


def _routers(offered: list[str]) -> None:
    label, now = "Groups, by the router that made them", st.session_state["router"]
    chips.choice("groups", label, offered, now, chips.use_router, help=cached.glossary("router"))
