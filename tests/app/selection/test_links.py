"""Every page: each control is moved, and the address restores all of them for a stranger. In-process, on the bundled
model.

A control is whatever the page draws to choose with; nothing here names one, so a new control is tried by itself.
"""

import json

import pytest
import streamlit as st
from streamlit.proto.WidgetStates_pb2 import WidgetState

from analysis.jobs import Jobs
from analysis.runs import RunStore
from app import cached
from app.selection.menu import PAGES
from tests.conftest import ROOT
from tests.made.in_process import at, redrawn

EXAMPLES = [json.loads(path.read_text()) for path in (ROOT / "models_cache/demo/examples").glob("*/manifest.json")]
GROUPS = [example["id"] for example in EXAMPLES if example["verb"] == "groups"]
FOLDED = ("budgets", "route_tab")  # controls of details that are folded one below the other
MORE = {  # what a page shows only when it is asked for
    "runs": {"run": GROUPS[0], "run_other": GROUPS[1]},
    "links": {"pairs_filters": "yes"},
    "map": {"heads_evidence": "yes"},
}
TABBED = ("budgets", "routers", "tests", "training")  # pages that have tabs themselves
KINDS = {"pills", "segmented_control", "button_group", "selectbox", "select_slider", "slider", "toggle", "checkbox"}
KINDS |= {"number_input", "multiselect", "text_input"}
MOST = 4  # rounds on one tab: what is moved brings out other controls


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A store with the stored examples, and a worker; the last tabs, or details that fold one below the other."""
    store = RunStore(tmp_path_factory.mktemp("links") / "state")
    jobs, last, tabs, expander = Jobs(store), {}, st.tabs, st.expander

    def told(labels, **how):
        # Those of the door lead to other pages.
        last.update(how if how["args"][0] != "at" else {})
        return tabs(labels, **how)

    def folded(label, **how):
        control, *name = how.get("args", ("",))
        if name:
            before = last["args"][1] if last.get("args", ("",))[0] == control else {}
            last.update(args=(control, before | {name[0]: label}))
        return expander(label, **how)

    with pytest.MonkeyPatch.context() as patched:
        st.cache_data.clear()
        st.cache_resource.clear()
        patched.setattr(cached, "store", lambda: store)
        patched.setattr(cached, "jobs", lambda: jobs)
        patched.setattr(st, "tabs", told)
        patched.setattr(st, "expander", folded)
        yield last
    jobs.close()


def widgets(block) -> list:
    """Every widget below a block with a key of its own; what is folded away is no choice of a page, except for what
    stands behind its "Settings"."""
    below = []
    for child in block.children.values():
        if hasattr(child, "children"):
            closed = child.type == "popover" and child.proto.popover.label != "Settings"
            closed |= child.type == "expander" and not child.proto.expanded
            below += [] if closed else widgets(child)
        elif child.type in KINDS and getattr(child, "key", None):
            below.append(child)
    return below


def shown(app) -> dict[str, str]:
    """key -> value of every control there is, also of the sidebar."""
    return {widget.key: str(widget.value) for part in (app.main, app.sidebar) for widget in widgets(part)}


def choose(widget, word: str) -> None:
    """Choose an option as a browser does, by its label: AppTest wants the value behind it."""

    class Chosen(type(widget)):
        @property
        def _widget_state(self) -> WidgetState:
            if self.type == "selectbox":
                return WidgetState(id=self.id, string_value=word)
            return WidgetState(id=self.id, string_array_value={"data": [word]})

    widget.__class__ = Chosen


def move(widget) -> bool:
    """Give a control another value; whether it has one."""
    if widget.disabled or widget.type in ("multiselect", "text_input") or isinstance(widget.value, (tuple, list)):
        return False
    if widget.type in ("toggle", "checkbox"):
        widget.set_value(not widget.value)
    elif widget.type in ("slider", "number_input"):
        up, down = (round((widget.value or 0) + step, 9) for step in (widget.step, -widget.step))
        widget.set_value(up if widget.max is None or up <= widget.max else down)
    elif len(widget.options) > 1:
        now = None if widget.value is None else str(widget.format_func(widget.value))
        choose(widget, [word for word in widget.options if word != now][-1])
    else:
        return False
    return True


# Walked with `--all`, because the worker computes long for them.
LATER = {"routers", "links", "generate", "text", "methods", "map", "groups"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] * (page in LATER)) for page in PAGES],
)
def test_the_address_restores_every_control_for_a_stranger(drawn, page):
    drawn.clear()
    app, moved, tried = at(page, **MORE.get(page, {})).run(), [], set()
    control, titles = drawn.get("args", ("", [""]))
    for tab in titles:
        if tab:
            app.query_params[control] = tab
            app.run()
        for _ in range(MOST):
            new = [widget for widget in widgets(app.main) if widget.key not in tried]
            tried |= {widget.key for widget in new}
            if not (now := [widget.key for widget in new if move(widget)]):
                break
            moved += now
            app.run()
            assert not app.exception, app.exception[0].message
        address = dict(app.query_params)
        values, theirs = shown(app), shown(at(page, **address).run())
        assert {key: (values[key], theirs.get(key)) for key in values if values[key] != theirs.get(key)} == {}, address
    print(f"{page}: {len(moved)} moved: {', '.join(moved)}")
    assert moved or page == "text"


def turn(app, control: str, tab: str) -> dict[str, str]:
    """Open a tab; what the page's controls show then."""
    app.session_state[control] = tab  # what the tabs' own callback does
    redrawn(app, f"{control}_{tab}_open" if control in FOLDED else f"{control}_pick")
    return {widget.key: str(widget.value) for widget in widgets(app.main)}


@pytest.mark.slow
@pytest.mark.parametrize("page", [pytest.param(page, marks=[pytest.mark.slow] * (page in LATER)) for page in TABBED])
def test_a_tab_shows_again_what_was_chosen_on_it(drawn, page):
    app = at(page).run()
    control, titles = drawn["args"]
    tabs, walked = list(titles), []
    for place, tab in enumerate(tabs):
        turn(app, control, tab)
        tried = set()
        for _ in range(MOST):
            new = [widget for widget in widgets(app.main) if widget.key not in tried]
            tried |= {widget.key for widget in new}
            if not (now := [widget.key for widget in new if move(widget)]):
                break
            redrawn(app, *now)
            walked += now
        values, address = turn(app, control, tab), dict(app.query_params)
        turn(app, control, tabs[place - 1])
        assert turn(app, control, tab) == values
        assert dict(app.query_params) == address
    print(f"{page}: {len(walked)} moved: {', '.join(walked)}")
    assert walked
