"""Is it worth it?: one row of inputs, the answer in large numbers, the gain by context, and what to do with it."""

import json
from typing import Any

import streamlit as st

from analysis.runs import Run
from app import cached
from app.selection import state
from app.selection.decide import CONTEXTS, GPUS, KEEPS, SEQUENCES
from app.ui import export, fields, widgets
from app.ui.painted import part
from app.ui.reading import rows_of
from app.ui.tabs import drawer
from app.worth import details, measured_here, shapes, use_in

_WORTH = part("worth", '<section class="worth"></section>', *("numbers", "costs"), isolated=False)
SCOPE = "Counted from the configuration: at most. A machine gains less."
ROOFLINE = (
    "Estimated from the data sheet, a lower bound in time: every byte is read once at full bandwidth and every "
    "multiplication runs at the full bfloat16 rate. Real programs take one and a half to two times as long."
)
# Tokens shown first when the config does not say how long a context the model was made for.
UNSTATED = 4096
# The control of each slider, by its name in the browser.
CONTROLS = {"context": "context", "batch": "sequences", "keep": "keep"}
SLIDERS: list[dict[str, Any]] = [
    {"name": "context", "label": "Context", "options": CONTEXTS, "help": "tokens of each sequence"},
    {
        "name": "batch",
        "label": "Batch",
        "options": SEQUENCES,
        "help": "sequences at once: each has its own keys, the weights are read once",
    },
    {"name": "keep", "label": "Keep", "options": KEEPS, "help": "share of the keys that is read, or held"},
]


def show() -> None:
    """Redrawn alone when something is chosen."""
    fields.alone(_live)


def _live() -> None:
    """The controls and all that they count."""
    chosen, models = st.session_state, shapes.offered()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="worth_inputs_row"):
        shapes.choose(models)
        sliders = st.container(key="worth_sliders")
    widgets.trouble("shape_trouble")
    run = shapes.ask(shapes.chosen(chosen["shape"]))
    # Until a context is chosen, the longest that the model was made for.
    longest = run.numbers["shape"]["max_positions"] or UNSTATED
    fitting = [context for context in CONTEXTS if context <= longest]
    context, batch = chosen["context"] or max(fitting, default=CONTEXTS[0]), chosen["sequences"]
    row = at(run, context, batch)
    now = {"context": context, "batch": batch, "keep": chosen["keep"]}
    with sliders:
        _mount("inputs", run, now, sliders=SLIDERS)
    hint = f"{row['further']} {ROOFLINE} {run.numbers['gpu']['source']}."
    _mount("numbers", run, now, hint=hint, scope=SCOPE)
    widgets.notes(run)
    picture, aside = st.columns([1.0, 0.85], gap="large")
    with picture:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.subheader("Gain by context", anchor=False)
            rows = rows_of(cached.columns(run, "rows"), batch=batch)
            export.menu(lambda: rows, "gain-by-context", "worth_gains", "Gain by context")
        _mount("picture", run, now, contexts=CONTEXTS, label="Context: the largest gain by context")
        with widgets.guarded():
            measured_here.show()
    with aside, widgets.guarded():
        use_in.show(context)
    drawer(
        "worth_details",
        lambda: details.show(run, models, context, batch),
        title="Details",
        icon=":material/more_horiz:",
    )


def at(run: Run, context: int, batch: int) -> dict[str, Any]:
    """A row of the counts, with its sentences."""
    rows, said = cached.columns(run, "rows"), cached.columns(run, "said")
    place = list(zip(rows["context"], rows["batch"], strict=True)).index((context, batch))
    return {name: cells[place] for name, cells in (rows | said).items()}


def _mount(role: str, run: Run, now: dict[str, Any], **more: Any) -> None:
    """A place of the live part: `role` is what it draws."""
    numbers, key = run.numbers, f"worth_{role}"
    about = {"role": role, "id": run.id, "now": now, "made": numbers["made_of"], "gpu": numbers["gpu"]}
    about |= {"longest": numbers["shape"]["max_positions"], "gpu_title": GPUS[shapes.gpu()]}
    _WORTH(about | more, key=key, on_released_change=lambda: _released(key))


def _released(key: str) -> None:
    """The hand let go of a slider."""
    released = st.session_state.get(key, {}).get("released")
    values = json.loads(released) if isinstance(released, str) else {}
    for slider in SLIDERS:
        value = values.get(slider["name"])
        if value in slider["options"]:
            state.choose(st.session_state, **{CONTROLS[slider["name"]]: value})
