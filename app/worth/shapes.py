"""Whose shape is decided on: the loaded model, a well-known one, any id, or a reader's own config.json."""

import contextlib
import re
from io import BytesIO
from typing import Any

import streamlit as st

from analysis.commands.speed import Worth
from analysis.corpus import read_text
from analysis.errors import AnalysisError
from analysis.runs import Run
from app import cached, topbar
from app.selection import state
from app.selection.decide import CACHES, CONTEXTS, GPUS, LOADED, SEQUENCES
from app.selection.patterns import HASH
from app.ui import fields, widgets

# The well-known models whose shapes the worker has, by their name there.
SHAPES = {
    "openai-community/gpt2": "GPT-2 small",
    "EleutherAI/pythia-410m": "Pythia 410M",
    "Qwen/Qwen2.5-0.5B": "Qwen 2.5 0.5B",
    "meta-llama/Llama-3.2-1B": "Llama 3.2 1B",
    "Qwen/Qwen2.5-1.5B": "Qwen 2.5 1.5B",
    "google/gemma-2-2b": "Gemma 2 2B",
    "mistralai/Mistral-7B-v0.1": "Mistral 7B (v0.1)",
    "Qwen/Qwen2.5-7B": "Qwen 2.5 7B",
    "meta-llama/Llama-3.1-8B": "Llama 3.1 8B",
    "google/gemma-2-9b-it": "Gemma 2 9B",
    "mistralai/Mixtral-8x7B-v0.1": "Mixtral 8x7B",
    "meta-llama/Llama-3.1-70B": "Llama 3.1 70B",
    "meta-llama/Llama-2-70b-hf": "Llama 2 70B",
    "openai/gpt-oss-20b": "gpt-oss 20B",
    "Qwen/Qwen3-30B-A3B": "Qwen3 30B-A3B",
    "Qwen/Qwen3-Next-80B-A3B-Instruct": "Qwen3-Next 80B-A3B",
    "openai/gpt-oss-120b": "gpt-oss 120B",
    "zai-org/GLM-4.5": "GLM-4.5",
    "deepseek-ai/DeepSeek-V3.2": "DeepSeek-V3.2",
}
# As long as no GPU was chosen.
USUAL_GPU = "H100-SXM"


def is_config(shape: str) -> bool:
    """Whether a shape is a stored config.json, by its hash."""
    return re.fullmatch(HASH, shape) is not None


def request(shape: str, keep: float, counted: str = "all", kv_bits: str = "weights") -> Worth:
    """The counting of a chosen shape, at every context and batch of the sliders."""
    return cached.request(
        Worth,
        model=st.session_state["model"] if shape == LOADED or is_config(shape) else shape,
        config=shape if is_config(shape) else None,
        contexts=list(CONTEXTS),
        batches=list(SEQUENCES),
        keep=keep,
        projections=counted == "all",
        kv_bytes=CACHES[kv_bits],
        gpu=gpu(),
    )


def chosen(shape: str) -> Worth:
    """The counting of a shape as it is chosen here."""
    return request(shape, *(st.session_state[name] for name in ("keep", "counted", "kv_bits")))


def ask(worth: Worth) -> Run:
    """The run of `worth` for a request; it takes milliseconds, so no price stands beside it."""
    stored = cached.store().find(worth)
    if stored is not None:
        return stored
    with st.spinner("Counting what the model's shape costs", show_time=True):
        return cached.jobs().request(worth, timeout=cached.PATIENCE)


def gpu() -> str:
    """The GPU that is chosen."""
    return st.session_state["gpu"] or USUAL_GPU


def spoken(shape: str) -> str:
    """A model's id for lines to copy; a config.json has none."""
    if is_config(shape):
        return "MODEL"
    return st.session_state["model"] if shape == LOADED else shape


def offered() -> dict[str, str]:
    """shape -> its name, of all that can be chosen here; this session's own configurations and ids last."""
    shapes = {LOADED: f"{st.session_state['model']} (loaded here)", **SHAPES}
    for key in dict.fromkeys([*st.session_state.get("shape_configs", []), st.session_state["shape"]]):
        if key in shapes:
            continue
        # Any id on the Hub; of a shape that is not here the page says so.
        if "/" in key:
            shapes[key] = key
            continue
        # A link to what is not stored here: said by `settled`.
        with contextlib.suppress(AnalysisError):
            name = cached.store().text(key)[0]
            if name.startswith(cached.CONFIG):
                shapes[key] = name.removeprefix(cached.CONFIG)
    return shapes


def choose(shapes: dict[str, str]) -> None:
    """The model and the GPU; a config.json that was refused is said below."""
    widgets.settled("shape", list(shapes), LOADED)
    look: dict[str, Any] = {"format_func": lambda key: shapes.get(key, key), "on_change": _picked, "width": 208}
    st.selectbox("Model, or its id", list(shapes), key="shape", accept_new_options=True, **look)
    nonce = st.session_state.setdefault("config_nonce", 0)
    upload, paste = f"config_upload_{nonce}", f"config_paste_{nonce}"
    with st.popover("config.json", icon=":material/upload_file:", key=f"config_popover_{nonce}"):
        st.text_area("Paste a config.json", key=paste, height=140, placeholder='{"model_type": "llama", …}')
        st.button("Read this config", key="read_config", on_click=_pasted, args=(paste,), type="primary")
        look = {"on_change": _uploaded, "args": (upload,)}
        st.file_uploader("or drop it here; no weights, and it stays on this machine", key=upload, **look)
    fields.pick(st.selectbox, "GPU", list(GPUS), "gpu", gpu(), format_func=GPUS.__getitem__, width=208)


def _picked() -> None:
    """A typed id that no model can have is refused, and the loaded model is back."""
    st.session_state["shape_trouble"] = None
    with widgets.attempt("shape_trouble"):
        typed = st.session_state["shape"].strip()
        try:
            state.choose(st.session_state, shape=state.CONTROLS["shape"].from_address(typed), context=None)
        except ValueError:
            state.choose(st.session_state, shape=LOADED, context=None)
            raise


def _uploaded(name: str) -> None:
    file = st.session_state.get(name)
    if isinstance(file, BytesIO):
        _take(file.getvalue(), getattr(file, "name", "config.json"))
        topbar.release(file)


def _pasted(name: str) -> None:
    _take((st.session_state.get(name) or "").encode("utf-8", "surrogatepass"), "the pasted config")


def _take(data: bytes, name: str) -> None:
    """Store a config.json and use it once the worker has read a shape in it; else the shape in use stays and one
    sentence says why."""
    st.session_state["config_nonce"] += 1  # a fresh, empty uploader, closed
    with widgets.attempt("shape_trouble"):
        key = cached.store().put_text(read_text(data, name), cached.CONFIG + name)
        ask(chosen(key))
        st.session_state["shape_configs"] = [*st.session_state.get("shape_configs", []), key]
        state.choose(st.session_state, shape=key, context=None)
