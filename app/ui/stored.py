"""Stored studies on a page: what was found, how it was made, and one honest sentence when there is none."""

import streamlit as st

from analysis.commands import commandline
from analysis.runs.conclusions import changed
from analysis.runs.stored import StoredStudy
from analysis.studies.registry import LAB
from app import cached
from app.ui import asking, jobs, widgets

EARLIER = "The model was trained on or replaced since: what is said here was true of its earlier weights."
OTHERWISE = "The study measures otherwise by now: these numbers wait to be measured again."
LENGTH, WINDOWS = 256, 8  # of a study that a button runs on the bundled texts


def study(name: str) -> StoredStudy | None:
    """The stored study of this name for the model in use, or None; a damaged file is reported."""
    stored, damage = asking.study(st.session_state["model"], name)
    if damage:
        widgets.prose(damage, "note")
    return stored


def missing(title: str, name: str, small: bool = False, reads: bool = True, **chosen: object) -> None:
    """Say that the study `name` has not been run for this model, and which command runs it; `chosen`: its arguments.
    `small`: it trains nothing and needs no texts of its own, so a button runs it on a little of the bundled ones;
    `reads`: it reads a folder of texts."""
    model = st.session_state["model"]
    st.info(f"{widgets.plain(title)}: not measured on this machine yet for the model {widgets.plain(model)}.")
    if not LAB.is_dir():
        widgets.prose("A checkout of Focuscope's repository measures stored studies; this package shows them.", "quiet")
        return
    if small:
        length = min(LENGTH, asking.card(model)["max_positions"])
        size = {"corpus": cached.corpus(), "windows": WINDOWS, "length": length}
        args = {"name": name, "model": model, **chosen, **size}
        label = "Measure it small, on the bundled texts"
        jobs.run_button(label, "study", args, f"small_{name}", WINDOWS * length)
        caveat = f"{WINDOWS} windows of {length} tokens show which way the numbers go; their intervals are wide."
        widgets.prose(caveat, "quiet")
    widgets.prose("This command measures and stores all of it, and continues where it was stopped:", "quiet")
    folder = {"corpus": "DIR"} if reads else {}
    command = commandline("study", {"name": name, **folder, **chosen, "model": model})
    st.code(command, language=None, wrap_lines=True)


def opened(
    name: str, title: str, kind: str = "more", small: bool = False, reads: bool = True, **chosen: object
) -> StoredStudy | None:
    """The stored study `name` with its sentence and what it was measured on; None where it is `missing`, which is
    said."""
    stored = study(name)
    if stored is None:
        missing(title, name, small, reads, **chosen)
        return None
    told(name, stored, kind)
    return stored


def told(name: str, stored: StoredStudy, kind: str = "more") -> None:
    """What the stored study `name` says, which of its headlines came out otherwise on the first bundled model, and what
    it was measured on."""
    widgets.prose(stored.sentence, kind)
    if st.session_state["model"] == "demo":
        widgets.prose(changed(name, stored.numbers), "note")
    badge(stored)


def badge(stored: StoredStudy) -> None:
    """That these numbers were measured before, when, and on what."""
    about = stored.protocol
    near = about.sizes.get("window")
    read = f" read with a window of {near:,} tokens" if near else ""
    facts = [
        about.corpus,
        about.steps and f"{about.steps:,} steps",
        about.window and f"windows of {about.window:,} tokens",
        f"model {about.model}",
        about.router and f"router {about.router}{read}",
        about.units and f"units: {about.units:,} {about.unit}",
    ]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        date = f", {about.date[:10]}" if about.date else ""
        st.badge(f"stored study{date}", icon=":material/inventory_2:", color="gray")
        if about.other_weights(asking.card(st.session_state["model"])["revision"]):
            st.badge("earlier weights", icon=":material/history:", color="orange", help=EARLIER)
        if about.other_version:
            st.badge("earlier version", icon=":material/history:", color="orange", help=OTHERWISE)
        widgets.prose(" · ".join(fact for fact in facts if fact), "quiet")


def made(stored: StoredStudy) -> None:
    """The command that makes a study again, and its protocol."""
    about = stored.protocol
    with st.expander("The command, and how it was made", icon=":material/terminal:"):
        if about.command:
            st.code(about.command, language=None, wrap_lines=True)
        facts = {name: getattr(about, name) for name in ("revision", "seed", "dtype", "device", "kernel")}
        facts |= about.versions | {"date": about.date}
        widgets.prose(" · ".join(f"{name} {value}" for name, value in facts.items() if value), "quiet")
