"""The ways in which somebody's input reaches a page: tried in this process without a browser (AppTest), on the real
worker, and in tabs of Chromium (`in_tabs`)."""

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from io import BytesIO

from streamlit.testing.v1 import AppTest

from analysis.errors import AnalysisError
from analysis.runs import RunStore
from app.budgets.policy import read_json
from app.selection import menu, state
from tests.made.in_process import at
from tests.stress.hostile import CONFIG, MARKUP, POLICY, hostile_bundle, hostile_bytes, hostile_json, hostile_text
from tests.stress.rows import Row, deal
from tests.stress.scene import hold

LIVE = {"script", "img", "iframe", "object", "embed", "link", "meta", "base", "svg"}  # tags that load or run something
FAILED = "This part of the page failed"  # how a page speaks of an error that is none of ours
PAGES = sorted(menu.PAGES)
TEXTS = ("text", "groups", "links", "map")
BUNDLED = POLICY | {"layers": 6, "heads": 8, "policy": [8] * 48 + [64]}  # fits the bundled model


@dataclass(frozen=True)
class Sent:
    """What somebody sends: the file `name` with `data`, or without a name `data` as typed text."""

    data: bytes
    name: str | None = None

    @property
    def text(self) -> str:
        """What is typed."""
        return self.data.decode()


@dataclass(frozen=True)
class Way:
    """One way in: on one of `pages`, behind the popover `opens`, an upload or a box with a button, by their keys; the
    value shows as `control` in the address. `answer(store, sent)`: what the app must take, or refuse, of this input;
    None where only the worker can tell."""

    make: Callable[[random.Random], Sent]
    pages: tuple[str, ...]
    control: str
    opens: str
    upload: str = ""
    box: str = ""
    button: str = ""
    answer: Callable[[RunStore, Sent], str] | None = None


def typed(dice: random.Random) -> str:
    """A hostile text as a browser can send it: without half characters."""
    text = hostile_text(dice) if dice.random() < 0.6 else dice.choice(MARKUP)
    return text.encode("utf-8", "replace").decode()[:1500]


def _line(dice: random.Random) -> Sent:
    name = re.sub(r"[\r\n]", "", typed(dice))[:200]
    return Sent(f"{name}x".encode() if name.strip() == "demo" else name.encode())  # `demo` is in use already


def _model_name(dice: random.Random) -> Sent:
    """A line that no model has as its name: of one that might have it the page asks the Hub, which is no box."""
    while True:
        sent = _line(dice)
        try:
            state.CONTROLS["model"].from_address(sent.text.strip())
        except ValueError:
            return sent


def _file(dice: random.Random, data: bytes) -> Sent:
    return Sent(data, typed(dice).replace("/", "_").replace("\0", "")[:60] or "x")


def _config(dice: random.Random) -> Sent:
    data = hostile_json(dice, CONFIG)[:4000].encode("utf-8", "replace")
    return _file(dice, data) if dice.random() < 0.5 else Sent(data)


def _uploaded(store: RunStore, sent: Sent) -> str:
    # As a browser's form sends it.
    name = str(sent.name).replace("\n", "%0A").replace("\r", "%0D").replace('"', "%22")
    return store.put_bytes(sent.data, name)


def _named(store: RunStore, sent: Sent) -> str:
    raise AnalysisError(sent.text.strip()[:60] or "is not the name of a model")


def _policy(store: RunStore, sent: Sent) -> str:
    # The worker judges it further.
    read_json(sent.data)
    return ""


WAYS: dict[str, Way | None] = {
    # The values in the address of a page.
    "links": None,
    "uploaded texts": Way(
        lambda dice: _file(dice, hostile_bytes(dice)), TEXTS, "text", "text_chip_", upload="upload_", answer=_uploaded
    ),
    "pasted texts": Way(
        lambda dice: Sent(" ".join(typed(dice) for _ in range(dice.randrange(1, 5))).encode()),
        TEXTS,
        "text",
        "text_chip_",
        box="paste_",
        button="read_paste",
        answer=lambda store, sent: store.put_bytes(sent.data, "The pasted text"),
    ),
    "model names": Way(
        _model_name, ("text",), "model", "model_chip_", box="model_name", button="load_model", answer=_named
    ),
    "policies": Way(
        lambda dice: Sent(hostile_json(dice, BUNDLED).encode("utf-8", "replace"), "policy.json"),
        ("budgets",),
        "budget_policy",
        "budget_more",
        upload="budget_upload_",
        answer=_policy,
    ),
    "config.json": Way(
        _config,
        ("worth",),
        "shape",
        "config_popover_",
        upload="config_upload_",
        box="config_paste_",
        button="read_config",
    ),
    "names of routers": Way(
        lambda dice: Sent(_line(dice).text[:16].encode()),
        ("training",),
        "train_label",
        "",
        box="train_label",
    ),
    "run bundles": Way(
        lambda dice: _file(dice, hostile_bundle(dice)),
        ("runs",),
        "run",
        "runs_menu",
        upload="runs_upload_",
        answer=lambda store, sent: store.unbundle(BytesIO(sent.data)).new[0],
    ),
}


def in_process(count: int, seed: int = 0) -> list[Row]:
    """`count` inputs, each to a page of its own in this process; one row per way in."""
    dice = random.Random(seed)

    def attempt(way: Way | None) -> None:
        app = drawn(way, dice)
        sound(app)
        failed = [element.value for element in app.error if FAILED in element.value]
        hold(not failed, str(failed[:1]))

    return deal("page", WAYS, count, attempt)


def drawn(way: Way | None, dice: random.Random) -> AppTest:
    """The page after one input."""
    if way is None:
        names = dice.sample(sorted(state.CONTROLS), dice.randrange(1, 5))
        return at(dice.choice(PAGES), **{name: typed(dice) for name in names}).run()
    app, sent = at(dice.choice(way.pages)).run(), way.make(dice)
    if sent.name is not None:
        app.file_uploader(key=f"{way.upload}0").upload(sent.name, sent.data)
        return app.run()
    key = f"{way.box}0" if way.box.endswith("_") else way.box
    next(box for kind in ("text_area", "text_input") for box in app.get(kind) if box.key == key).set_value(sent.text)
    return app.button(key=way.button).click().run() if way.button else app.run()


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


def sound(app: AppTest) -> None:
    """Hold that a page shows no exception, no traceback, and no live markup that somebody else wrote."""
    hold(not app.exception, f"an exception box: {[box.message for box in app.exception]}")
    texts = [element.value for kind in ("error", "warning", "info", "markdown", "caption") for element in app.get(kind)]
    hold("Traceback" not in " ".join(map(str, texts)), "a traceback")
    for element in app.html:
        hold(not (live := Live(element.value).found), f"live markup: {live[:1]}")
    hold(app.title or _counted(app), "the page has no title any more")


def _counted(app: AppTest) -> list[dict]:
    """What *Is it worth it?* hands to the browser, which spells its title from it: the verdicts of each setting."""
    mounted = [
        element.proto for element in app.get("bidi_component") if element.proto.component_name == "focuscope_worth"
    ]
    sent = [json.loads(proto.json)[0] for proto in mounted]
    return [data["made"] for data in sent if data["role"] == "numbers" and data["made"]["verdicts"]]
