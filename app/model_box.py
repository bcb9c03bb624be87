"""The chip of the model: what is here and whether it fits, how the one in use is held, and any other by its name."""

from typing import Any

import streamlit as st

from analysis import available, places
from analysis.commands.text import Fetch
from analysis.errors import AnalysisError
from analysis.limits import limits
from analysis.runs.memory import free_memory
from analysis.runs.price import predict, spell_bytes
from app import cached
from app.selection import state
from app.ui import asking, chips, jobs, reading, spelled, widgets

WORKER = {
    "cold": "not started",
    "starting": "loading the model",
    "ready": "ready",
    "busy": "working",
    "silent": "nothing is heard of it any more; it was stopped, or hangs",
}
# Models loaded here before that are offered.
RECENT = 8
FITS = {"float32": "fits", "bfloat16": "fits in bfloat16", "8bit": "needs 8-bit", None: "too large for this machine"}
PRECISIONS = ("auto", "float32", "bfloat16", "float16", "8bit", "4bit")
HELD = {
    "Precision": "auto: float32 on a processor, and above 100 million parameters bfloat16 where it multiplies faster "
    "in it; on a GPU the checkpoint's own type. 8bit and 4bit need torchao or bitsandbytes.",
    "Device": "spread: over all GPUs and main memory.",
}
# Bytes a second that a download brings, until one was made here.
ARRIVES = 1e7


def chip() -> None:
    """The model in use, by its name and how it is held; a click opens the box."""
    # A timer in every page would draw 30 parts a second for 60 readers, so it runs while somebody looks.
    watch = st.fragment(_worker, run_every=2)
    name = called(st.session_state["model"])
    chips.chip("model", name, "memory", _box, lambda is_open: watch() if is_open else _worker())


def called(name: str) -> str:
    """A model's name with its precision and device in words."""
    return ", ".join(part for part in places.how(name) if part != "auto")


@st.cache_data(ttl=20, max_entries=1, show_spinner=False)
def _models_here() -> list[available.OnHand]:
    """The models on this disk, looked for anew after a while."""
    return available.on_hand()


@st.cache_data(ttl=600, max_entries=50, show_spinner="Asking the Hugging Face Hub")
def _hub(name: str) -> available.OnTheHub:
    """What the Hub says of a model. Errors: BadModel, within seconds where the Hub cannot be reached."""
    return available.on_the_hub(name)


def _box() -> None:
    """The models that may be chosen, how the one in use is held, any other by its name, and what is loaded."""
    current, listed = st.session_state["model"], limits().models
    _choose(places.plain_name(current), listed)
    if not limits().demo:
        _held(current)
    if listed is None:
        # Any other model by its name: what the Hub says of it and what loading costs, before either begins.
        st.text_input(
            "Another one: a Hugging Face id, or a folder in models_cache",
            key="model_name",
            placeholder="HuggingFaceTB/SmolLM2-135M",
            help="Only safetensors weights are read and no code of a repository is run.",
        )
        name = (st.session_state["model_name"] or "").strip()
        try:
            price: str | None = _price(state.CONTROLS["model"].from_address(name))
        except (ValueError, AnalysisError):
            price = "Type a model name and press Enter to see what loading it costs."
        if price is None:
            _on_the_hub(places.plain_name(name))
        else:
            widgets.prose(price, "quiet")
            if st.button("Load this model", key="load_model", type="primary"):
                _load(name)
        widgets.trouble("model_trouble")
    if (card := cached.card(current)) is not None:
        facts = [reading.sizes(card.numbers), card.numbers.get("why", ""), *(card.numbers.get("own_reading") or [])]
        widgets.prose(" ".join(facts), "quiet")


def _choose(now: str, listed: tuple[str, ...] | None) -> None:
    """The list of models: those on this disk with their sizes, and those loaded here before, the last one first."""
    on_disk = {model.name: model for model in _models_here()} if listed is None else {}
    before = dict.fromkeys(places.plain_name(request["model"]) for _, _, request in cached.store().past("model"))
    offered = list(listed or dict.fromkeys(["demo", now, *list(before)[:RECENT], *on_disk]))
    fits = {name: available.fitting(model.parameters, free_memory()) for name, model in on_disk.items()}

    def labelled(name: str) -> str:
        if name not in on_disk:
            return name
        model = on_disk[name]
        reads = f", reads {model.context:,} tokens" if model.context else ""
        return f"{name} · {FITS[fits[name]]} · {model.family}, {spelled.parameters(model.parameters)} parameters{reads}"

    def chosen(name: str) -> None:
        precision = fits.get(name)
        chips.use_model(f"{name}@{precision}" if precision in ("bfloat16", "8bit") else name)

    help = "Whether its weights fit the main memory that is free now, in float32, bfloat16 or 8 bits."
    label = "Model" if listed else "Models on this machine"
    look: dict[str, Any] = {"disabled": len(offered) == 1, "help": None if listed else help}
    chips.choice("model", label, offered, now if now in offered else offered[0], chosen, labelled, **look)


def _held(current: str) -> None:
    """Precision and device of the model in use. Another choice is loaded by a button: it may take long."""
    name, *now = places.how(current)
    wanted = []
    with st.container(horizontal=True, gap="small"):
        for (label, help), kinds, kind in zip(HELD.items(), (PRECISIONS, available.devices()), now, strict=True):
            place = kinds.index(kind) if kind in kinds else 0
            key = f"{label}_{st.session_state['model_chosen']}"
            wanted.append(st.selectbox(label, kinds, place, key=key, help=help))
    if wanted != now:
        wanted_name = "@".join([name, *(part for part in wanted if part != "auto")])
        if st.button(f"Load {called(wanted_name)}", key="load_held", type="primary"):
            _load(wanted_name)


def _price(name: str) -> str | None:
    """What it costs to load a model, in words; None where it is not on this disk."""
    if cached.store().find(cached.card_request(name)) is not None:
        return "It was loaded here before, so it is ready at once."
    size = places.weight_bytes(name, places.CACHE)
    return None if size is None else f"{cached.loading(size).sentence}; {spell_bytes(size)} of weights on this disk."


def _on_the_hub(name: str) -> None:
    """What the Hub says of a model that is not on this disk, and its download as a job."""
    try:
        listing = _hub(name)
    except AnalysisError as error:
        widgets.prose(str(error), "note")
        return
    parameters = fits = ""
    if listing.parameters:
        parameters = f"{spelled.parameters(listing.parameters)} parameters, "
        fits = f", {FITS[available.fitting(listing.parameters, free_memory())]}"
    licence = f"licence {listing.licence}" if listing.licence else "no licence named"
    gated = ", gated: accept its licence on its page and set HF_TOKEN first" if listing.gated else ""
    sentence = f"{name}: {parameters}{spell_bytes(listing.size)} to download, {licence}{gated}{fits}."
    widgets.prose(sentence, "quiet")
    before = [(took, Fetch(**request)) for took, _, request in cached.store().past("fetch")]
    done = [(took, run.numbers["size"]) for took, fetch in before if (run := cached.store().find(fetch))]
    price = predict(done, listing.size, guess=lambda size: size / ARRIVES)
    jobs.run_button("Download it", Fetch(model=name), "fetch_model", price=price, type="primary")


def _load(name: str) -> None:
    """Let the worker judge a model; the one in use stays until the new one is there."""
    try:
        state.CONTROLS["model"].from_address(name)
    except ValueError:
        st.session_state["model_trouble"] = AnalysisError(
            f"“{name[:60]}” is not the name of a model: give a Hugging Face id such as owner/name, or the name of "
            "a folder in models_cache."
        )
        return
    with widgets.attempt("model_trouble"):
        asking.ask(cached.card_request(name), f"Loading {widgets.plain(name)}")
    if st.session_state["model_trouble"] is None:
        st.session_state["model_wanted"] = name
        chips.close("model")
        st.rerun()


def _worker() -> None:
    now = cached.jobs().status()
    memory = f", {now['memory'] / 1e6:,.0f} MB" if now["memory"] else ""
    help = "The model runs in a process of its own; stored results are shown without waiting for it."
    st.caption(f"Worker: {WORKER.get(now['state'], now['state'])}{memory}", help=help)
    if now["state"] == "silent":
        jobs.restart_button("worker_restart")
