"""What the page on long-context tests asks for: the task, methods and sizes, and the request they make."""

from typing import Any

import streamlit as st

from analysis.benchmarks import here
from analysis.commands.probes import Probe
from app import cached
from app.quality.asked import Asked, parse, read
from app.selection import state
from app.selection.decide import PROBE_CHOICES, PROBE_ITEMS, PROBE_REACHES, PROBE_SETS, PROBE_TASKS, PROBE_WAYS
from app.ui import asking, fields, widgets
from app.ui.offers import Scope

TASKS = PROBE_TASKS | PROBE_SETS
DEPTHS = [0.0, 0.25, 0.5, 0.75, 1.0]
# The lengths of a map are its longest divided by these.
STEPS = (4, 2, 1)
# Times as many examples as candidates.
EXAMPLES = (1, 4, 16)
# Methods beside dense when nothing was chosen.
FIRST = ["streaming_llm"]
# Tokens of the longest prompt when nothing was chosen.
USUAL = 1024
MOST = 5
# Times that a method is asked which decides at the end of a prompt.
TURNS = 3
# Times the model's context, where positions go beyond it.
FURTHER = 2.0
# Controls of Quality vs speed.
CHOICES = {"reads": "quality", "memory": "quality_memory", "prefill": "quality_prefill"}


def title(task: str) -> str:
    """The name of a task."""
    return TASKS[task][0]


def request(**changes: object) -> Probe:
    """The request of a test in the text in use; `changes`: what is not as usual."""
    chosen = {name: st.session_state[name] for name in ("model", "text")}
    usual = {"choices": 4, "too_long": "refuse", "seed": 0, "rope": "as_trained", "factor": FURTHER}
    return Probe.from_arguments(chosen | usual | changes)


def chosen_map(picked: list[Asked]) -> Probe:
    """The request of the map of the chosen task."""
    chosen = st.session_state
    reach, choices = chosen["probe_reach"], chosen["probe_choices"]
    return request(
        probes=[chosen["probe"]],
        methods=[choice.spec for choice in picked],
        lengths=[reach // step for step in STEPS],
        depths=DEPTHS,
        examples=[choices * times for times in EXAMPLES],
        items=chosen["probe_items"],
        choices=choices,
        rope=chosen["probe_rope"],
        # Maps of before are found where nothing is asked for that they did not have.
        **({"write": True} if chosen["probe_write"] else {}),
    )


def tokens(request: Probe) -> int:
    """Tokens that a request reads, which is what it costs."""
    depths, examples, lengths = request.depths, request.examples, request.lengths
    assert depths is not None and examples is not None and lengths is not None, "the page names them"
    assert request.probes is not None and request.methods is not None, "the page names them"
    places = {"depth": len(depths), "examples": len(examples), None: 1}
    cells = sum(places[TASKS[task][1]] for task in request.probes)
    saves = [cached.catalogue()[spec["name"]]["saves"] for spec in request.methods]
    turns = sum(1 if resource == "reads" else TURNS for resource in saves)
    # The prompt is read again where the answer is written.
    readings = (1 + turns) * (2 if request.write else 1)
    return sum(lengths) * cells * request.items * readings


def smaller(request: Probe) -> list[Scope]:
    """The map with less to do."""
    reach, scopes = st.session_state["probe_reach"], []
    if request.items > 4:
        scopes.append(Scope("4 questions in a cell", {"probe_items": 4}, 4 / request.items))
    if request.methods:
        scopes.append(Scope("dense attention only", {"probe_methods": "none"}, 1 / (1 + len(request.methods))))
    if reach and reach > 256:
        scopes.append(Scope(f"prompts up to {reach // 2:,} tokens", {"probe_reach": reach // 2}, 0.5))
    return scopes


def controls() -> list[Asked]:
    """Task, methods and sizes; returns what is asked for beside dense."""
    deepest, forced = asking.card(st.session_state["model"])["max_positions"], cached.glossary("forced choice")
    now = st.session_state["probe"]
    about, files = cached.glossary(TASKS[now][2]), here(names=PROBE_SETS)
    offered = [name for name in TASKS if name in PROBE_TASKS or name in files or name == now]
    st.selectbox("Task", offered, format_func=title, key="probe", help=f"{about} {forced}")
    choices = methods()
    with st.popover("Settings", icon=":material/tune:", key="probe_settings"):
        fields.choose("Positions", PROBE_WAYS, "probe_rope", "dynamic NTK")
        _reach(deepest if st.session_state["probe_rope"] == "as_trained" else int(FURTHER * deepest))
        about = "More questions narrow the intervals and take longer in proportion."
        st.selectbox("Questions in a cell", PROBE_ITEMS, key="probe_items", help=about)
        st.selectbox("Candidates", PROBE_CHOICES, key="probe_choices", help=forced)
        st.toggle("Let it write its answer too", key="probe_write", help=cached.glossary("written answers"))
        st.caption("Sets of texts from your files become tasks: docs/sets.md.", help=cached.glossary("sets of texts"))
    return choices


def _reach(longest: int) -> None:
    fits = [size for size in PROBE_REACHES if size <= longest] or [longest]
    default = USUAL if USUAL in fits else fits[-1]
    # It was right for another model: nothing is said.
    if st.session_state["probe_reach"] in set(PROBE_REACHES) - set(fits):
        state.choose(st.session_state, probe_reach=default)
    widgets.settled("probe_reach", fits, default)
    st.selectbox("Longest prompt", fits, format_func=lambda size: f"{size:,} tokens", key="probe_reach")


def methods() -> list[Asked]:
    """The choice of methods beside dense attention, each with its settings of the page Quality vs speed."""
    chosen, described = st.session_state, cached.catalogue()
    offered = [name for name in described if name != "dense"]
    raw = chosen["probe_methods"]
    named = FIRST if raw is None else [] if raw == "none" else raw.split("~")
    if strange := [name for name in named if name not in offered]:
        st.caption(widgets.plain(state.unusable("probe_methods", strange[0])))
        named = [name for name in named if name in offered]
        state.choose(chosen, probe_methods="~".join(named) or "none")
    chosen["probe_pick"] = [name for name in offered if name in named][:MOST]

    def picked() -> None:
        state.choose(chosen, probe_methods="~".join(chosen["probe_pick"]) or "none")

    look: dict[str, Any] = {
        "max_selections": MOST,
        "placeholder": "Choose up to five",
        "on_change": picked,
    }
    titles = {name: about["title"] for name, about in described.items()}
    st.multiselect("Methods, beside dense", offered, key="probe_pick", format_func=titles.__getitem__, **look)
    return [_asked(name, described[name], offered) for name in chosen["probe_pick"]]


def _asked(name: str, about: dict, offered: list[str]) -> Asked:
    word = st.session_state[CHOICES[about["saves"]]]
    fields = {field["name"]: field for field in about["fields"]}
    defaults = {field: described["default"] for field, described in fields.items()}
    router = st.session_state["router"] if about["needs"] == "router" else None
    # What was refused is said on the page on quality.
    changed, _ = read(fields, parse(word).get(name, {}), defaults)
    return Asked(name, about, router, defaults, changed, offered.index(name))
