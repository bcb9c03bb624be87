"""Which page shows a run, and with which controls: as it was asked for, or as far as its arguments say."""

from urllib.parse import parse_qsl, urlsplit

import streamlit as st

from analysis.commands import COMMANDS
from analysis.declaration import fields_of
from analysis.runs import Run
from analysis.studies.registry import STORED
from app.selection import state
from app.selection.menu import PAGES, page_at
from app.ui import foot

# Arguments whose control has another name.
CONTROLS = {"min_distance": "distance", "t": "softmax"}


def link(run: Run) -> dict | None:
    """{"page": name, "controls": name -> text} of the page that shows a run; None where no page does. `exact` says
    whether it is the selection that asked for it, and not what its arguments tell."""
    asked_from = page_at(run.marks.link["page"]) if run.marks.link is not None else None
    if run.marks.link is not None and asked_from is not None:
        return run.marks.link | {"page": asked_from.name, "exact": True}
    place = shows(run.verb, run.request)
    if place is None:
        return None
    page, tab = place
    declared = {item.name: item.declared for item in fields_of(COMMANDS[run.verb])} if run.verb in COMMANDS else {}
    controls = {}
    for name, value in run.request.items():
        about = declared.get(name)
        # An argument that the command line spells in its own way is no control of its name.
        control = CONTROLS.get(name, name) if about is None or not about.option else ""
        control = about.control or control if about else control
        if control in state.CONTROLS and _fits(control, value):
            controls[control] = state.to_url(value)
    if run.verb == "probe":
        controls["probe"] = run.request["probes"][0]
    return {"page": page, "controls": controls | tab, "exact": False}


def shows(verb: str, request: dict | None = None) -> tuple[str, dict[str, str]] | None:
    """(name, controls that it opens with) of the page that shows the runs of a verb, or of the named study that a
    request of `study` asks for; None where no page does."""
    name = (request or {}).get("name")
    command = STORED.get(str(name)) if verb == "study" else COMMANDS.get(verb)
    if command is None or not command.page:
        return None
    address = urlsplit(command.page)
    page = page_at(address.path.strip("/"))
    return (page.name, dict(parse_qsl(address.query))) if page else None


def _fits(name: str, value: object) -> bool:
    try:
        return value is not None and state.CONTROLS[name].from_address(state.to_url(value)) == value
    except ValueError:
        return False


def title_of(verb: str) -> str:
    """The title of the page that shows the runs of a verb, or a dash."""
    place = shows(verb)
    return PAGES[place[0]].called if place else "–"


def go(wanted: dict) -> None:
    """A callback: every control as the link has it, all others at their default; `leave` then opens the page."""
    values = {name: control.default for name, control in state.CONTROLS.items()}
    for name, raw in wanted["controls"].items():
        # A note from elsewhere may say anything; what is no value stays at its default.
        try:
            values |= {name: state.CONTROLS[name].from_address(raw)} if name in values else {}
        except ValueError:
            continue
    state.choose(st.session_state, **values)
    st.session_state["runs_go"] = wanted["page"]


def leave() -> None:
    """Open the page that `go` chose, at the start of this one."""
    page = st.session_state.pop("runs_go", None)
    if page is not None:
        foot.go(page)
