"""What the page on long-context tests asks for: the task, methods, lengths, and the arguments of its two requests."""

import streamlit as st

from app import cached
from app.probes.words import title
from app.quality import cards
from app.quality.asked import Asked
from app.selection import state
from app.selection.decide import PROBE_CHOICES, PROBE_ITEMS, PROBE_REACHES, PROBE_TASKS, PROBE_WAYS
from app.ui import asking, widgets
from app.ui.offers import Scope

DEPTHS = [0.0, 0.25, 0.5, 0.75, 1.0]
STEPS = (4, 2, 1)  # the lengths of a map are its longest divided by these
EXAMPLES = (1, 4, 16)  # times as many examples as candidates
FIRST = ["streaming_llm"]  # methods beside dense when nothing was chosen
USUAL = 1024  # tokens of the longest prompt when nothing was chosen
MOST = 5
TURNS = 3  # times that a method is asked which decides at the end of a prompt
EVERY = {"length": 1024, "items": 16, "depth": 0.5}  # of the chart of every task
FURTHER = 2.0  # times the model's context, where positions go beyond it


def request(**changes: object) -> dict:
    """The arguments of `probe` for the chosen model and text; `changes` beside the defaults."""
    chosen = st.session_state
    args = {"model": chosen["model"], "text": chosen["text"], "choices": 4, "too_long": "refuse", "seed": 0}
    return args | {"rope": "as_trained", "factor": FURTHER} | changes


def every_task() -> dict:
    """The request of the chart of every task: dense attention and a window, one length, one place."""
    deepest = asking.card(st.session_state["model"])["max_positions"]
    return request(
        **{
            "probes": list(PROBE_TASKS),
            "methods": [{"name": name, "settings": {}} for name in FIRST],
            "lengths": [min(EVERY["length"], deepest)],
        },
        **{"depths": [EVERY["depth"]], "examples": [16], "items": EVERY["items"]},
    )


def chosen_map(picked: list[Asked]) -> dict:
    """The request of the map of the chosen task."""
    chosen = st.session_state
    reach, choices = chosen["probe_reach"], chosen["probe_choices"]
    return request(
        **{"probes": [chosen["probe"]], "methods": [choice.spec for choice in picked]},
        **{"lengths": [reach // step for step in STEPS], "depths": DEPTHS},
        **{"examples": [choices * times for times in EXAMPLES], "items": chosen["probe_items"]},
        **{"choices": choices, "rope": chosen["probe_rope"]},
    )


def tokens(args: dict) -> int:
    """Tokens that a request reads, which is what it costs."""
    places = sum(
        {"depth": len(args["depths"]), "examples": len(args["examples"]), None: 1}[PROBE_TASKS[task][1]]
        for task in args["probes"]
    )
    described = cached.catalogue()
    turns = sum(1 if described[spec["name"]]["saves"] == "reads" else TURNS for spec in args["methods"])
    return sum(args["lengths"]) * places * args["items"] * (1 + turns)


def smaller(args: dict) -> list[Scope]:
    """The map with less to do."""
    reach, scopes = st.session_state["probe_reach"], []
    if args["items"] > 4:
        scopes.append(Scope("4 questions in a cell", {"probe_items": 4}, 4 / args["items"]))
    if args["methods"]:
        scopes.append(Scope("dense attention only", {"probe_methods": "none"}, 1 / (1 + len(args["methods"]))))
    if reach and reach > 256:
        scopes.append(Scope(f"prompts up to {reach // 2:,} tokens", {"probe_reach": reach // 2}, 0.5))
    return scopes


def controls() -> list[Asked]:
    """Task, methods and sizes; returns what is asked for beside dense."""
    deepest = asking.card(st.session_state["model"])["max_positions"]
    st.segmented_control(
        "Task", list(PROBE_TASKS), format_func=title, key="probe", required=True, help=cached.glossary("forced choice")
    )
    widgets.prose(cached.glossary(PROBE_TASKS[st.session_state["probe"]][2]), "quiet")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        choices = methods()
        st.selectbox(
            "Positions",
            list(PROBE_WAYS),
            format_func=PROBE_WAYS.get,
            key="probe_rope",
            width=190,
            help=cached.glossary("dynamic NTK"),
        )
        _reach(deepest if st.session_state["probe_rope"] == "as_trained" else int(FURTHER * deepest))
        st.selectbox(
            "Questions in a cell",
            PROBE_ITEMS,
            key="probe_items",
            width=150,
            help="More questions narrow the intervals and take longer in proportion.",
        )
        st.selectbox("Candidates", PROBE_CHOICES, key="probe_choices", width=110, help=cached.glossary("forced choice"))
    return choices


def _reach(longest: int) -> None:
    fits = [size for size in PROBE_REACHES if size <= longest] or [longest]
    default = USUAL if USUAL in fits else fits[-1]
    if st.session_state["probe_reach"] in set(PROBE_REACHES) - set(fits):
        state.choose(st.session_state, probe_reach=default)  # it was right for another model
    widgets.settled("probe_reach", fits, default)
    st.selectbox("Longest prompt", fits, format_func=lambda size: f"{size:,} tokens", key="probe_reach", width=170)


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
    st.multiselect(
        "Methods, beside dense",
        offered,
        key="probe_pick",
        format_func=lambda name: described[name]["title"],
        max_selections=MOST,
        placeholder="Choose up to five",
        on_change=_picked,
        width=280,
    )
    words = {"reads": "quality", "memory": "quality_memory", "prefill": "quality_prefill"}  # of the page on quality
    picked = {name: cards.parse(chosen[words[described[name]["saves"]]], offered) for name in chosen["probe_pick"]}
    return [_asked(name, described[name], settings.get(name, {}), offered) for name, settings in picked.items()]


def _asked(name: str, about: dict, settings: dict, offered: list[str]) -> Asked:
    fields = {field["name"]: field for field in about["fields"]}
    defaults = {field: about["default"] for field, about in fields.items()}
    router = st.session_state["router"] if about["needs"] == "router" else None
    changed, _ = cards.read(fields, settings, defaults)  # what was refused is said on the page on quality
    return Asked(name, about, router, defaults, changed, offered.index(name))


def _picked() -> None:
    state.choose(st.session_state, probe_methods="~".join(st.session_state["probe_pick"]) or "none")
