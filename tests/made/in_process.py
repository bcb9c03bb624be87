"""The app in-process for the tests of its pages: opening one, and what it shows."""

import functools
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from streamlit import util
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest, app_test, local_script_runner

from app.selection.menu import address, place
from tests.made.results import FakeJobs

PATIENCE = 250  # seconds for one run of a page; the first one may load a model
ENTRY = str(Path(__file__).resolve().parents[2] / "app" / "streamlit_app.py")
TITLES = {
    "text": "A third of the attention goes 8 or more tokens back.",
    "groups": "Layer 1: the largest of 4 groups holds 40% of the tokens.",
    "links": "Far apart, tokens of one group read each other 1.2 times chance.",
}
PLACED = getattr(util, "calc_hash", None) or util.calc_md5  # how Streamlit knows a page by its place in the URL
HOSTILE = "<script>alert(1)</script> **bold** [link](http://x) $a$ :red[b] <img src=x> \n# head\n=1+1 "
HOSTILE += "مرحبا بالعالم 你好世界 👩‍👩‍👧"

# AppTest looks through every installed package for components of others before each first run (0.3 s): once is enough.
manifest_scanner.scan_component_manifests = functools.cache(manifest_scanner.scan_component_manifests)
# And it compiles the app's script and the page's before each run: all runs share what was compiled once.
app_test.ScriptCache = local_script_runner.ScriptCache = functools.cache(app_test.ScriptCache)


def at(page: str, /, **link: object) -> AppTest:
    """The app at one page, by its name in the menu, with what a link carried, before its first run: it begins there."""
    return at_address(urlsplit(address(page)).path.strip("/"), **{"at": page, **link})


def at_address(place: str, /, **link: object) -> AppTest:
    """The app at a place of its URL, with what a link carried, before its first run."""
    app = AppTest.from_file(ENTRY, default_timeout=PATIENCE)
    app._page_hash = PLACED(place)  # AppTest itself begins at the first page
    for key, value in link.items():
        app.query_params[key] = str(value)
    return app


def opened(page: str = "text", /, **link: object) -> AppTest:
    """The app at one page, as a link opens it."""
    app = at(page, **link).run()
    assert not app.exception, app.exception[0].message
    return app


def go(app: AppTest, page: str) -> AppTest:
    """To another page, as a link of the app leads there."""
    view, query = place(page)
    app.switch_page(view)
    app.query_params.clear()
    app.query_params.update(query)
    return app.run()


def redrawn(app: AppTest, *keys: str) -> None:
    """Run the app as a browser makes it run when these widgets change: their fragment alone, where they are drawn in
    one. AppTest by itself runs the whole page; it shows only what was drawn."""
    state = app._session_state._state
    widgets = [state._new_widget_state.widget_metadata[state._get_widget_id(key)] for key in keys]
    fragments = {widget.fragment_id for widget in widgets}
    with pytest.MonkeyPatch.context() as patched:
        alone = functools.partial(local_script_runner.RerunData, fragment_id=fragments.pop())
        if not fragments:
            patched.setattr(local_script_runner, "RerunData", alone)
        app.run()
    assert not app.exception, app.exception[0].message


def part(app: AppTest, name: str, place: int = 0) -> dict:
    """The data of one of the app's own components."""
    protos = [element.proto for element in app.get("bidi_component")]
    return json.loads([proto.json for proto in protos if proto.component_name == f"focuscope_{name}"][place])[0]


def tables(app: AppTest) -> list[dict]:
    """The data of all tables of the page."""
    protos = [element.proto for element in app.get("bidi_component")]
    return [json.loads(proto.json)[0] for proto in protos if proto.component_name == "focuscope_table"]


def columns(app: AppTest, place: int = 0) -> dict[str, list]:
    """A table of the page as it is shown: label -> cells."""
    return {column["label"]: column["shown"] for column in tables(app)[place]["columns"]}


def figures(app: AppTest) -> list[dict]:
    """The charts of the page."""
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


def captions(app: AppTest) -> str:
    """All captions of the page, as they are read."""
    return " ".join(caption.value.replace("\\", "") for caption in app.caption)


def keys(app: AppTest) -> list[str]:
    """The keys of the buttons that are there."""
    return [button.key for button in app.button]


def select(app: AppTest, key: str, *cells: list[int], box: dict | None = None) -> AppTest:
    """Click points of a chart that stand for these cells, or drag a `box`, and run the page."""
    chosen = {"points": [{"customdata": cell} for cell in cells], "point_indices": [0] * len(cells)}
    app.session_state[key] = {"selection": chosen | {"box": [box] if box else [], "lasso": []}}
    return app.run()


def markup(app: AppTest) -> str:
    """All HTML of the page."""
    return "\n".join(element.value for element in app.html)


def put(client: FakeJobs, text: str, name: str = "mine") -> str:
    """Store a text; its hash."""
    return client.store.put_text(text, name)


def in_chip(app, kind: str):
    """The list inside a chip of the top bar."""
    (selectbox,) = [box for box in app.selectbox if box.key.startswith(f"{kind}_pick_")]
    return selectbox
