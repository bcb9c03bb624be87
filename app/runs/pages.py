"""Which page shows a run, and with which controls: as it was asked for, or as far as its arguments say."""

from pathlib import Path

import streamlit as st

from analysis.runs import Run
from app.selection import state

VIEWS = Path(__file__).resolve().parents[1] / "views"
BUDGETS = {"cap-sweep": "cap", "calibrate": "calibrate", "calibrations": "calibrate", "topk-cost": "cost"}
BUDGETS |= {
    "reads-text": "reads",
    "reads-sweep": "reads",
    "lost-keys": "reads",
    "import-policy": "map",
    "budgets": "map",
}
ROUTES = {"route": "fit", "route-at": "recall", "route-visit": "token", "route-time": "cost"}
PAGES = {  # verb -> the address of its page
    **dict.fromkeys(("inspect", "model", "start"), ""),
    **dict.fromkeys(("statistics", "head"), "attention-heads"),
    **dict.fromkeys(("groups", "umap", "fit-router", "group-controls", "compare"), "token-groups"),
    "pairs": "long-range-pairs",
    **dict.fromkeys(BUDGETS, "kv-budgets"),
    **dict.fromkeys(("temperature", "temperature-curve"), "softmax-temperature"),
    **dict.fromkeys(ROUTES, "routing"),
    "worth": "is-it-worth-it",
    **dict.fromkeys(("evaluate", "launch", "bench"), "quality-vs-speed"),
    "probe": "long-context-tests",
    **dict.fromkeys(("train-router", "balance"), "train-a-router"),
}
OTHER_NAMES = {"min_distance": "distance", "t": "softmax", "factor": None, "top": None}


def link(run: Run) -> dict | None:
    """{"page": address, "controls": name -> text} of the page that shows a run; None where no page does. `exact` says
    whether it is the selection that asked for it, and not what its arguments tell."""
    if run.marks.link is not None and view(run.marks.link["page"]).is_file():
        return run.marks.link | {"exact": True}
    if run.verb not in PAGES:
        return None
    controls = {}
    for name, value in run.request.items():
        control = OTHER_NAMES.get(name, name)
        if control in state.CONTROLS and _fits(control, value):
            controls[control] = state.to_url(value)
    if run.verb == "pairs" and _fits("top", run.request.get("top")):
        controls["top"] = str(run.request["top"])
    controls |= {"budgets": BUDGETS[run.verb]} if run.verb in BUDGETS else {}
    controls |= {"route_tab": ROUTES[run.verb]} if run.verb in ROUTES else {}
    controls |= {"tab": "speed"} if run.verb in ("launch", "bench") else {}
    controls |= {"probe": run.request["probes"][0]} if run.verb == "probe" else {}
    return {"page": PAGES[run.verb], "controls": controls, "exact": False}


def _fits(name: str, value: object) -> bool:
    try:
        return value is not None and state.CONTROLS[name].parse(state.to_url(value)) == value
    except ValueError:
        return False


def view(page: str) -> Path:
    """The file of the page at an address."""
    return VIEWS / f"{page.replace('-', '_') or 'start'}.py"


def title(page: str) -> str:
    """What the menu calls the page at an address."""
    words = (page.replace("-", " ") or "start").capitalize()
    return f"{words}?" if page.startswith("is-") else words.replace("Kv ", "KV ")


def title_of(verb: str) -> str:
    """The title of the page that shows the runs of a verb, or a dash."""
    return title(PAGES[verb]) if verb in PAGES else "–"


def go(wanted: dict) -> None:
    """A callback: every control as the link has it, all others at their default; `leave` then opens the page."""
    values = {name: control.default for name, control in state.CONTROLS.items()}
    for name, raw in wanted["controls"].items():
        if name in state.CONTROLS:
            try:
                values[name] = state.CONTROLS[name].parse(raw)
            except ValueError:
                continue  # a note from elsewhere may say anything; what is no value stays at its default
    state.choose(st.session_state, **values)
    st.session_state["runs_go"] = wanted["page"]


def leave() -> None:
    """Open the page that `go` chose, at the start of this one."""
    page = st.session_state.pop("runs_go", None)
    if page is not None:
        st.switch_page(f"views/{view(page).name}")
