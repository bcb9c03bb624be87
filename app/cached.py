"""The only place where the app meets the store and the worker. Everything here is bounded and keyed by content."""

import functools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from analysis import places
from analysis.commands.text import Model
from analysis.corpus import natural_samples, sample_texts, text_hash
from analysis.declaration.command import Command
from analysis.errors import AnalysisError
from analysis.jobs import Jobs
from analysis.runs import Price, Run, RunStore
from analysis.runs.keys import look_once
from analysis.runs.memory import free_memory
from analysis.runs.price import FIRST_SECONDS, counted as counted_in, predict, predicted
from analysis.runs.stored import StoredStudy, read_study, study_files, study_folders

Asks = TypeVar("Asks", bound=Command)
GLOSSARY = Path(__file__).parent / "ui" / "glossary.md"
# Seconds a request may take: the first one of a new model loads it.
PATIENCE = 600
MAKE_ROUTERS = ("fit-router", "train-router")
# Begins the name of a stored text that is a model's configuration.
CONFIG = "config.json: "
DRAWING = "_drawing"  # of the session
# Seconds that the first page has the processors for itself, unless it asks the worker.
BEGIN = 2.0
# Bytes of weights read and tried out a second, until a model was loaded here.
LOADED = 2e8


@dataclass
class Drawing:
    """What one drawing of a page, or of a part that is redrawn alone, has gathered so far."""

    cards: dict[str, Run] = field(default_factory=dict)  # model -> its card
    # Id -> run whose tables were read.
    runs: dict[str, Run] = field(default_factory=dict)
    # Predicted, of what was computed though nobody asked for it.
    seconds: float = 0.0
    wanted: list[Command] = field(default_factory=list)  # what one button asked for together
    # Verbs whose code the page has shown.
    coded: set[str] = field(default_factory=set)
    # Control -> value that is shown without being chosen.
    in_view: dict[str, object] = field(default_factory=dict)
    # Where the page says what it is waiting for, once it is drawn; None: at its end.
    place: DeltaGenerator | None = None


@dataclass(frozen=True)
class Due:
    """What a request will cost here: its price, what is too much about it in words (None: nothing), and whether that is
    memory, which it cannot do without."""

    price: Price
    over: str | None
    refused: bool = False


@st.cache_resource(show_spinner=False)
def store() -> RunStore:
    """The run store of this installation, one for all sessions."""
    return RunStore()


@st.cache_resource(show_spinner=False)
def jobs() -> Jobs:
    """The worker's client, one for all sessions. The bundled model begins to load once the first page had time to be
    drawn."""
    client = Jobs(store())
    client.warm(after=BEGIN)
    return client


def drawing() -> Drawing:
    """The present drawing of the page."""
    return st.session_state.setdefault(DRAWING, Drawing())


def drawn_anew() -> None:
    """A page, or a part of it, is about to be drawn."""
    st.session_state[DRAWING] = Drawing()
    look_once()


@st.cache_data(show_spinner=False)
def samples() -> Sequence[tuple[str, str]]:
    """(hash, title) of the bundled samples, put into the store."""
    return store().samples()


@st.cache_data(show_spinner=False)
def sample(name: str) -> str:
    """The hash of the bundled sample of this name, such as `story`."""
    samples()
    return text_hash(sample_texts()[name][1])


@st.cache_data(show_spinner=False)
def corpus() -> str:
    """The hashes of the bundled samples that stand in for a corpus, joined by +."""
    samples()
    return "+".join(text_hash(text) for text in natural_samples().values())


def texts() -> dict[str, str]:
    """hash -> title of every text that can be chosen: the samples first, then the reader's own, newest first. A model's
    configuration is stored beside them and is none, unless it is the text in use."""
    offered = dict(samples())
    for key, name, _, _ in store().texts():
        if not name.startswith(CONFIG) or key == st.session_state.get("text"):
            offered.setdefault(key, name)
    return offered


def catalogue() -> dict[str, dict]:
    """Every method as the worker describes it, by name: title, docstring, fields. Nothing stored or imported has a say
    in it: pages build their controls from it."""
    with st.spinner("Asking which methods there are"):
        return jobs().describe(PATIENCE)["methods"]


def saving(resource: str) -> dict[str, dict]:
    """The methods that save `resource`, and dense attention: "reads", which one pass over a text can score, "memory" or
    "prefill", which decide at the end of a prompt."""
    return {name: about for name, about in catalogue().items() if name == "dense" or about["saves"] == resource}


def find_run(run_id: str) -> Run | None:
    """The stored run of this id, or None when it is not here or damaged."""
    try:
        return store().open(run_id)
    except AnalysisError:
        return None


def request(command: type[Asks], **arguments: object) -> Asks:
    """The request of a command: one object for equal arguments, so that it is checked, spelled and hashed once however
    often pages are drawn."""
    made: Any = _request
    return made(command, json.dumps(arguments))


@functools.lru_cache(256)
def _request(command: Callable[..., Any], arguments: str) -> Any:
    return command(**json.loads(arguments))


def card_request(model: str) -> Model:
    """The request of a model's card."""
    return request(Model, model=model)


def card(model: str | None) -> Run | None:
    """The stored card of a model, looked up once while a page is drawn."""
    cards = drawing().cards
    if model and model not in cards and (run := store().find(card_request(model))) is not None:
        cards[model] = run
    return cards.get(model or "")


def due(request: Command, tokens: int | None = None, price: Price | None = None) -> Due:
    """What a request will cost on this machine: seconds, and memory beside the model's weights. `price`: where a page
    predicts it itself."""
    model = getattr(request, "model", None)
    loaded = card(model)
    if isinstance(request, Model) and (size := places.weight_bytes(request.model, places.CACHE)):
        price = loading(size)
    price = price or predicted(store(), request, tokens or counted(request)[0], loaded)
    in_memory = loaded is None or loaded.numbers["device"] == "cpu"
    free = free_memory() if in_memory else None
    return Due(price, price.over(free), price.lacks(free))


def loading(size: int) -> Price:
    """What loading a model of so many bytes of weights costs, from all that were loaded here."""
    # The bundled one is loaded before anybody asks for it, so that its time says nothing.
    loads = [(took, request["model"]) for took, _, request in store().past("model") if request["model"] != "demo"]
    cards = [(took, store().find(card_request(model))) for took, model in loads]
    done = [(took, run.numbers["weight_bytes"]) for took, run in cards if run is not None]
    return predict(done, size, guess=lambda size: FIRST_SECONDS + size / LOADED)


def counted(request: Command) -> tuple[int, int | None]:
    """(tokens, most the model reads at once) of the texts that a request names, as far as they were counted."""
    return counted_in(store(), request.spelled)


@st.cache_resource(max_entries=4, show_spinner=False)
def _columns(identity: str, name: str, _run: Run) -> dict:
    return _run.columns(name)


def columns(run: Run, name: str) -> dict:
    """A stored table as {column: list}, shared between sessions: not to be changed."""
    drawing().runs[run.id] = run
    return _columns(run.id + run.created, name, run)


@st.cache_resource(max_entries=8, show_spinner=False)
def _array(identity: str, name: str, _run: Run) -> Any:
    return _run.array(name)


def array(run: Run, name: str) -> Any:
    """A stored numpy array, shared between sessions: not to be changed."""
    drawing().runs[run.id] = run
    return _array(run.id + run.created, name, run)


@st.cache_resource(max_entries=2, show_spinner=False)
def _terms(changed: float) -> dict[str, str]:
    parts = re.split(r"^## +(.+)$", GLOSSARY.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {term.strip().lower(): text.strip() for term, text in zip(parts[1::2], parts[2::2], strict=True)}


def glossary(term: str) -> str:
    """The glossary's paragraph about a term; it feeds every tooltip. A term without one is a programming error."""
    return _terms(GLOSSARY.stat().st_mtime)[term.lower()]


@st.cache_resource(max_entries=2, show_spinner=False)  # a large one takes 2 MB, and a page shows one or two
def _study(file: Path, changed: float) -> tuple[StoredStudy | None, str]:
    return read_study(file)


def study(model: str, revision: str, name: str) -> tuple[StoredStudy | None, str]:
    """The study `name` stored for a model, shared between sessions and not to be changed, and "". None where there is
    none; then with one sentence if its file is damaged."""
    file = next((path for path in files_of_studies(model, revision) if path.stem == name), None)
    return (None, "") if file is None else _study(file, file.stat().st_mtime)


def files_of_studies(model: str, revision: str) -> list[Path]:
    """The files of the studies that are stored for a model, damaged ones among them."""
    return study_files(study_folders(store(), model, revision))


def router_name(args: dict) -> str:
    """The name of the router that a job with these arguments makes."""
    label = args.get("label")
    return f"k{args['groups']}-top{args['top']}{f'-{label}' if label else ''}"
