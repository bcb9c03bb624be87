"""Hostile input through the pages, in this process and without a browser (AppTest): links, uploads, what is typed.

They run on the real worker; FOCUSCOPE_STATE names the state folder.
"""

import random
import re
from collections.abc import Callable
from html.parser import HTMLParser

from streamlit.testing.v1 import AppTest

from app.selection import state
from tests.made.in_process import at
from tests.stress.bundles import hostile_bundle
from tests.stress.deal import deal
from tests.stress.hostile import CONFIG, POLICY, hostile_bytes, hostile_json, hostile_text
from tests.stress.rows import Row
from tests.stress.scene import PROJECT, hold

ENTRY = PROJECT / "app" / "streamlit_app.py"
PATIENCE = 300  # seconds for one run of a page
LIVE = {"script", "img", "iframe", "object", "embed", "link", "meta", "base", "svg"}  # tags that load or run something
TEXTS = ("", "views/token_groups.py", "views/long_range_pairs.py", "views/attention_heads.py")
FAILED = "This part of the page failed"  # how a page speaks of an error that is none of ours
BOX = 4000  # characters that a text box takes at once


class Live(HTMLParser):
    """`found`: what of some HTML would load or run something. Words that only speak of markup are none."""

    def __init__(self, html: str):
        super().__init__()
        self.found: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag, judged by its name, the names of its attributes and where they lead."""
        for name, value in attrs:
            if name.startswith("on") or re.sub(r"[\s\0]", "", value or "").lower().startswith("javascript:"):
                self.found.append(f"<{tag} {name}={value}>")
        if tag in LIVE:
            self.found.append(f"<{tag}>")


def tried(count: int, seed: int = 0) -> list[Row]:
    """`count` inputs, each to a page of its own; one row per way in."""
    dice = random.Random(seed)

    def attempt(way: Callable) -> None:
        app = way(dice)
        sound(app)
        whole(app)

    return deal("page", WAYS, count, attempt)


def sound(app: AppTest) -> None:
    """Hold that a page shows no exception, no traceback, and no live markup that somebody else wrote."""
    hold(not app.exception, f"an exception box: {app.exception[0].message if app.exception else ''}")
    shown = [element.value for kind in ("error", "warning", "info", "markdown", "caption") for element in app.get(kind)]
    hold("Traceback" not in " ".join(map(str, shown)), "a traceback")
    for element in app.html:
        live = Live(element.value).found
        hold(not live, f"live markup: {live[:1]}")
    hold(app.title, "the page has no title any more")


def whole(app: AppTest) -> None:
    """Hold that no part of a page failed with an error that is none of ours."""
    failed = [element.value for element in app.error if FAILED in element.value]
    hold(not failed, failed[:1])


def _opened(view: str = "", /, **link: str) -> AppTest:
    return at(view or "views/start.py", **link).run(timeout=PATIENCE)


def _linked(dice: random.Random) -> AppTest:
    names = dice.sample(sorted(state.CONTROLS), dice.randrange(1, 5))
    views = sorted(path.name for path in (ENTRY.parent / "views").glob("*.py") if path.name != "start.py")
    return _opened(f"views/{dice.choice(views)}", **{name: _typed(dice) for name in names})


def _typed(dice: random.Random) -> str:
    """A hostile text as a browser can send it: without half characters."""
    return hostile_text(dice).encode("utf-8", "replace").decode()[:BOX]


def _uploaded(dice: random.Random) -> AppTest:
    app = _opened(dice.choice(TEXTS))
    app.file_uploader(key="upload_0").upload(_typed(dice)[:100] or "x", hostile_bytes(dice))
    return app.run()


def _pasted(dice: random.Random) -> AppTest:
    app = _opened(dice.choice(TEXTS))
    app.text_area(key="paste_0").set_value(" ".join(_typed(dice)[:300] for _ in range(dice.randrange(1, 6))))
    return app.button(key="read_paste").click().run()


def _model(dice: random.Random) -> AppTest:
    app = _opened()
    app.text_input(key="model_name").set_value(_typed(dice)[:200])
    return app.button(key="load_model").click().run()


def _policy(dice: random.Random) -> AppTest:
    app = _opened("views/kv_budgets.py")
    app.file_uploader(key="budget_upload_0").upload(
        "policy.json", hostile_json(dice, POLICY).encode("utf-8", "replace")
    )
    return app.run()


def _config(dice: random.Random) -> AppTest:
    app = _opened("views/is_it_worth_it.py")
    if dice.random() < 0.5:
        data = hostile_json(dice, CONFIG).encode("utf-8", "replace")
        app.file_uploader(key="config_upload_0").upload(_typed(dice)[:100] or "x", data)
        return app.run()
    app.text_area(key="config_paste_0").set_value(hostile_json(dice, CONFIG)[:BOX].encode("utf-8", "replace").decode())
    return app.button(key="read_config").click().run()


def _named(dice: random.Random) -> AppTest:
    app = _opened("views/train_a_router.py")
    return app.text_input(key="train_label").set_value(_typed(dice)[:16]).run()


def _bundle(dice: random.Random) -> AppTest:
    app = _opened("views/runs.py")
    app.file_uploader(key="runs_upload_0").upload(_typed(dice)[:60] or "x.zip", hostile_bundle(dice))
    return app.run()


WAYS = {
    "links": _linked,
    "uploaded texts": _uploaded,
    "pasted texts": _pasted,
    "model names": _model,
    "policies": _policy,
    "config.json": _config,
    "names of routers": _named,
    "run bundles": _bundle,
}
