"""Stored studies on a page: what was found, how it was made, and one honest sentence when there is none."""

import streamlit as st

from analysis.commandline import commandline
from analysis.runs.conclusions import changed
from analysis.runs.studies import other_version, other_weights
from analysis.studies.registry import LAB
from app import cached
from app.ui import asking, jobs, widgets


def study(name: str) -> dict | None:
    """The stored study of this name for the model in use, or None; a damaged file is said."""
    found, damage = asking.study(st.session_state["model"], name)
    widgets.prose([damage] if damage else [], "note")
    return found


EARLIER = "The model was trained on or replaced since: what is said here was true of its earlier weights."
OTHERWISE = "The study measures otherwise by now: these numbers wait to be measured again."
SMALL = {"length": 256, "windows": 8}  # of a study that a button runs on the bundled texts


def missing(what: str, name: str, small: bool = False, reads: bool = True, **chosen: object) -> None:
    """Say that the study `name` has not been run for this model, and which command runs it; `chosen`: its arguments.
    `small`: it trains nothing and needs no texts of its own, so a button runs it on a little of the bundled ones;
    `reads`: it reads a folder of texts."""
    model = st.session_state["model"]
    st.info(f"{widgets.plain(what)}: not measured on this machine yet for the model {widgets.plain(model)}.")
    if not LAB.is_dir():
        widgets.prose("A checkout of Focuscope's repository measures stored studies; this package shows them.", "quiet")
        return
    if small:
        length, windows = min(SMALL["length"], asking.card(model)["max_positions"]), SMALL["windows"]
        texts = cached.corpus()
        args = {"name": name, "model": model, **chosen, "corpus": texts, "windows": windows, "length": length}
        label = "Measure it small, on the bundled texts"
        jobs.run_button(label, "study", args, f"small_{name}", windows * length)
        said = f"{windows} windows of {length} tokens show which way the numbers go; their intervals are wide."
        widgets.prose(said, "quiet")
    widgets.prose("This command measures and stores all of it, and continues where it was stopped:", "quiet")
    folder = {"corpus": "DIR"} if reads else {}
    command = commandline("study", {"name": name, **folder, **chosen, "model": model})
    st.code(command, language=None, wrap_lines=True)


def opened(
    name: str, what: str, kind: str = "more", small: bool = False, reads: bool = True, **chosen: object
) -> dict | None:
    """The stored study `name` with its sentence and what it was measured on; None where it is `missing`, which is
    said."""
    found = study(name)
    if found is None:
        missing(what, name, small, reads, **chosen)
        return None
    told(name, found, kind)
    return found


def told(name: str, found: dict, kind: str = "more") -> None:
    """What the stored study `name` says, which of its headlines came out otherwise on the first bundled model, and what
    it was measured on."""
    widgets.prose(found["sentence"], kind)
    if st.session_state["model"] == "demo":
        widgets.prose(changed(name, found), "note")
    badge(found)


def badge(found: dict) -> None:
    """That these numbers were measured before, when, and on what."""
    about = found["protocol"]
    facts = [about.get("corpus"), f"{about['steps']:,} steps" if about.get("steps") else None]
    facts += [f"windows of {about['window']:,} tokens" if about.get("window") else None, f"model {about.get('model')}"]
    near = about.get("sizes", {}).get("window")
    read = f" read with a window of {near:,} tokens" if near else ""
    facts += [f"router {about['router']}{read}"] if about.get("router") else []
    facts += [f"units: {about['units']:,} {about['unit']}"] if about.get("units") else []
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        date = str(about.get("date", ""))[:10]
        st.badge(f"stored study{f', {date}' * bool(date)}", icon=":material/inventory_2:", color="gray")
        if other_weights(about, asking.card(st.session_state["model"])["revision"]):
            st.badge("earlier weights", icon=":material/history:", color="orange", help=EARLIER)
        if other_version(about):
            st.badge("earlier version", icon=":material/history:", color="orange", help=OTHERWISE)
        widgets.prose(" · ".join(fact for fact in facts if fact), "quiet")


def made(found: dict) -> None:
    """The command that makes a study again, and its protocol."""
    about = found["protocol"]
    with st.expander("The command, and how it was made", icon=":material/terminal:"):
        if about.get("command"):
            st.code(about["command"], language=None, wrap_lines=True)
        facts = {name: about[name] for name in ("revision", "seed", "dtype", "device", "kernel") if about.get(name)}
        facts |= about.get("versions", {}) | {"date": about.get("date", "")}
        widgets.prose(" · ".join(f"{name} {value}" for name, value in facts.items()), "quiet")
