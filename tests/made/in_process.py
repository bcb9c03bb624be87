"""The app in-process for the tests of its pages: opening one, and what it shows."""

import json
from pathlib import Path

from streamlit.testing.v1 import AppTest

from tests.made.results import FakeJobs

ENTRY = str(Path(__file__).resolve().parents[2] / "app" / "streamlit_app.py")
VIEWS = {
    "start": ("views/start.py", "What does the model read in this text?"),
    "groups": ("views/token_groups.py", "Which tokens did the model learn to treat alike?"),
    "pairs": ("views/long_range_pairs.py", "Which far-apart tokens belong together?"),
}
HOSTILE = "<script>alert(1)</script> **bold** [link](http://x) $a$ :red[b] <img src=x> \n# head\n=1+1 "
HOSTILE += "مرحبا بالعالم 你好世界 👩‍👩‍👧"


def opened(view: str = "start", **link: str) -> AppTest:
    """The app at one page, with what a link carried."""
    app = AppTest.from_file(ENTRY, default_timeout=30)
    for name, value in link.items():
        app.query_params[name] = value
    app.run()
    if view != "start":
        app.switch_page(VIEWS[view][0]).run()
    assert not app.exception, app.exception[0].message
    return app


def part(app: AppTest, name: str, at: int = 0) -> dict:
    """The data of one of the app's own components."""
    found = [element.proto for element in app.get("bidi_component")]
    return json.loads([proto.json for proto in found if proto.component_name == f"focuscope_{name}"][at])[0]


def markup(app: AppTest) -> str:
    """All HTML of the page."""
    return "\n".join(element.value for element in app.html)


def put(client: FakeJobs, text: str, name: str = "mine") -> str:
    """Store a text; its hash."""
    return client.store.put_text(text, name)
