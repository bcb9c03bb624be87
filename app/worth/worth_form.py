"""Is it worth it?: the controls, and a reader's own config.json."""

import contextlib
from io import BytesIO

import streamlit as st

from analysis.corpus import read_text
from analysis.errors import AnalysisError
from app import cached, topbar
from app.selection import state
from app.selection.decide import CONTEXTS, COUNTED, GPUS, KEEPS, LOADED, SEQUENCES
from app.ui import fields, widgets
from app.worth import shape_costs

# Tokens shown first when the config does not say how long a context the model was made for.
UNSTATED = 4096


def whose(shapes: dict[str, str]) -> None:
    """Whose shape is looked at, and what is counted; a config.json that was refused is said here."""
    widgets.settled("shape", list(shapes), LOADED)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        look = {"format_func": lambda key: shapes.get(key, key), "width": 280, "on_change": _picked}
        st.selectbox("Model shape", list(shapes), key="shape", **look)
        _own_config()
        help = "All weights: feed-forward blocks, projections and the output head. Feed-forward only: CSA's count."
        look = {"format_func": COUNTED.get, "required": True, "help": help}
        st.segmented_control("Counted beside attention", list(COUNTED), key="counted", **look)
    widgets.trouble("shape_trouble")


def where(max_positions: int | None) -> tuple[int, int]:
    """The sliders; returns (tokens of context, sequences at once). Until one is chosen, the context is the longest
    that the model was made for."""
    long = [context for context in CONTEXTS if context <= (max_positions or UNSTATED)]
    value = st.session_state["context"] or (long[-1] if long else CONTEXTS[0])
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        look = {"format_func": "{:,}".format, "width": 330}
        context = fields.pick(st.select_slider, "Context, tokens", CONTEXTS, "context", value, **look)
        help = "Each reads its own keys and values; the weights are read once for all of them."
        st.select_slider("Sequences at once (batch)", SEQUENCES, key="sequences", width=270, help=help)
        help = "Sparse attention reads this share of the keys that dense attention reads, and pays for nothing else."
        look = {"format_func": "{:.0%}".format, "width": 270, "help": help}
        st.select_slider("Keys that are read", KEEPS, key="keep", **look)
    return context, st.session_state["sequences"]


def beside(shapes: dict[str, str]) -> None:
    """Which GPU, and which second model; neither has to be chosen."""
    further = {key: name for key, name in shapes.items() if key != st.session_state["shape"]}
    widgets.settled("shape_beside", [None, *further], None)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        help = cached.glossary("estimated and measured")
        look = {"index": None, "placeholder": "none: shares only", "width": 280}
        st.selectbox("On a GPU", list(GPUS), key="gpu", format_func=GPUS.get, help=help, **look)
        look["placeholder"] = "none"
        st.selectbox("Beside another model", list(further), key="shape_beside", format_func=further.get, **look)


def offered() -> dict[str, str]:
    """shape -> its name, of all that can be chosen here; this session's own configurations last."""
    shapes = {LOADED: f"{st.session_state['model']} (loaded here)", **shape_costs.SHAPES}
    for key in dict.fromkeys([*st.session_state.get("shape_configs", []), st.session_state["shape"]]):
        if key not in shapes:
            # A link to what is not stored here: said by `settled`.
            with contextlib.suppress(AnalysisError):
                name = cached.store().text(key)[0]
                if name.startswith(cached.CONFIG):
                    shapes[key] = name.removeprefix(cached.CONFIG)
    return shapes


def _picked() -> None:
    st.session_state["shape_trouble"] = None


def _own_config() -> None:
    nonce = st.session_state.setdefault("config_nonce", 0)
    upload, paste = f"config_upload_{nonce}", f"config_paste_{nonce}"
    with st.popover("Use your own config.json", icon=":material/upload_file:", key=f"config_popover_{nonce}"):
        look = {"on_change": _uploaded, "args": (upload,), "help": "A few KB; no weights."}
        st.file_uploader("Upload a config.json", key=upload, **look)
        st.text_area("or paste it here", key=paste, height=140, placeholder='{"model_type": "llama", …}')
        st.button("Read this config", key="read_config", on_click=_pasted, args=(paste,), type="primary")
        st.caption("It stays on this machine.")


def _uploaded(name: str) -> None:
    file = st.session_state.get(name)
    if isinstance(file, BytesIO):
        _take(file.getvalue(), file.name)
        topbar.release(file)


def _pasted(name: str) -> None:
    _take((st.session_state.get(name) or "").encode("utf-8", "surrogatepass"), "the pasted config")


def _take(data: bytes, name: str) -> None:
    """Store a config.json and use it once the worker has read a shape in it; else the shape in use stays and one
    sentence says why."""
    st.session_state["config_nonce"] += 1  # a fresh, empty uploader, closed
    with widgets.attempt("shape_trouble"):
        key = cached.store().put_text(read_text(data, name), cached.CONFIG + name)
        shape_costs.ask(shape_costs.request(key, st.session_state["keep"], st.session_state["counted"]))
        st.session_state["shape_configs"] = [*st.session_state.get("shape_configs", []), key]
        state.choose(st.session_state, shape=key, context=None)
