"""The ways in which somebody's input reaches the app in a browser. Each one knows what the app must answer to this very
input, from the same functions the app judges it with, and raises Broken unless the page shows that: no input counts as
held because it never arrived.

Every way is called with a fresh tab (Playwright's page), the app's address and the dice.
"""

import random
import tempfile
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

from analysis.errors import AnalysisError
from analysis.runs import RunStore
from app.budgets.policy import read_json
from app.selection import state
from tests.stress.bundles import hostile_bundle
from tests.stress.hostile import CONFIG, MARKUP, hostile_bytes, hostile_json, hostile_text
from tests.stress.scene import hold

ARRIVAL = 120.0  # seconds until the page must have answered an input
PLACES = (
    "", "token-groups", "long-range-pairs", "attention-heads", "kv-budgets", "softmax-temperature", "routing",
    "is-it-worth-it", "quality-vs-speed", "generate", "speed", "long-context-tests", "train-a-router",
    "papers-vs-measured", "runs",
)  # fmt: skip
POLICY = {"layers": 6, "heads": 8, "policy": [8] * 48 + [64]}  # of the bundled model
RUNNING = "[data-testid='stApp'][data-test-script-state='running']"


def settle(tab) -> None:
    """Wait until the script has run to its end, twice over: one run may ask for the next."""
    tab.locator("h1").first.wait_for()
    for _ in range(2):
        tab.wait_for_timeout(300)
        tab.locator(RUNNING).wait_for(state="detached")


def arrived(tab, name: str, act: Callable, said: str = "", taken: str = "", wait: float = ARRIVAL) -> None:
    """Do something on a settled page and hold that the page answers: with a new box that says `said`, or with the value
    `taken` of the control `name` in the address; where neither is known before, with any new box or any other value."""
    settle(tab)
    boxes, value = _boxes(tab), _value(tab, name)
    act()
    end = time.monotonic() + wait
    while True:
        new, now = [box for box in _boxes(tab) if box not in boxes], _value(tab, name)
        if said and any(letters(said) in letters(box) for box in new):
            return
        if taken and now == taken or not said and not taken and (new or now != value):
            return
        wanted = f"{said[:80]!r}" if said else f"{name}={taken or '...'}"
        hold(
            time.monotonic() < end, f"the input did not arrive: {wanted} was to come, there is {name}={now}, {new[:1]}"
        )
        tab.wait_for_timeout(200)


def letters(text: str) -> str:
    """The plain letters and digits of a text: what every way of writing it on a page keeps."""
    return "".join(sign for sign in text if sign.isascii() and sign.isalnum())


def _boxes(tab) -> list[str]:
    return tab.get_by_test_id("stAlert").all_inner_texts()


def _value(tab, name: str) -> str | None:
    return parse_qs(urlsplit(tab.url).query).get(name, [None])[0]


def _typed(dice: random.Random) -> str:
    text = hostile_text(dice) if dice.random() < 0.6 else dice.choice(MARKUP)
    return text.encode("utf-8", "replace").decode()[:1500]


def _file(name: str, data: bytes) -> dict:
    return {"name": name.replace("/", "_").replace("\0", "")[:60] or "x", "mimeType": "text/plain", "buffer": data}


def _sent(name: str) -> str:
    """The name of a file as it comes out of a browser's form."""
    return name.replace("\n", "%0A").replace("\r", "%0D").replace('"', "%22")


def _judged(act: Callable[[RunStore], str]) -> dict:
    """What the app must answer, by the same act on a store that is thrown away: `taken` or `said`."""
    with tempfile.TemporaryDirectory(prefix="focuscope-judged-") as folder:
        store = RunStore(Path(folder))
        try:
            return {"taken": act(store)}
        except AnalysisError as error:
            return {"said": str(error)}
        finally:
            store.close()


def _linked(tab, address: str, dice: random.Random) -> None:
    """Values in a link, one of them of a control that does not exist, so that there is always something to be said."""
    names = dice.sample(sorted(state.CONTROLS), dice.randrange(1, 5))
    link = {name: _typed(dice)[:400] for name in names} | {f"no_control_{_typed(dice)[:20]}": _typed(dice)[:100]}
    tab.goto(f"{address}/{dice.choice(PLACES)}?{urlencode(link)}")
    settle(tab)
    captions = letters(" ".join(tab.get_by_test_id("stCaptionContainer").all_inner_texts()))
    for sentence in state.read({}, link):
        hold(letters(sentence) in captions, f"the page does not say: {sentence[:80]!r}")


def _own_text(tab, address: str) -> None:
    tab.goto(address)
    settle(tab)
    tab.get_by_role("button", name="Text:").click()


def _uploaded(tab, address: str, dice: random.Random) -> None:
    file = _file(_typed(dice), hostile_bytes(dice))
    _own_text(tab, address)
    box = tab.locator("[class*='st-key-upload_'] input[type='file']")
    judged = _judged(lambda store: store.put_bytes(file["buffer"], _sent(file["name"])))
    arrived(tab, "text", lambda: box.set_input_files(file), **judged)


def _pasted(tab, address: str, dice: random.Random) -> None:
    text = " ".join(_typed(dice) for _ in range(dice.randrange(1, 5)))

    def act() -> None:
        tab.locator("[class*='st-key-paste_'] textarea").fill(text)
        tab.get_by_role("button", name="Read this text").click()

    _own_text(tab, address)
    arrived(tab, "text", act, **_judged(lambda store: store.put_bytes(text.encode(), "The pasted text")))


def _model(tab, address: str, dice: random.Random) -> None:
    name = _typed(dice).replace("\n", "").replace("\r", "")[:200]  # as a line of text takes it
    name = f"{name}x" if name.strip() == "demo" else name  # the model in use

    def act() -> None:
        tab.locator(".st-key-model_name input").fill(name)
        tab.get_by_role("button", name="Load this model").click()

    tab.goto(address)
    settle(tab)
    tab.get_by_role("button", name="Model: demo").click()
    arrived(tab, "model", act, said=name.strip()[:60] or "is not the name of a model")


def _policy(tab, address: str, dice: random.Random) -> None:
    file = _file("policy.json", hostile_json(dice, POLICY).encode("utf-8", "replace"))
    said = ""
    try:
        read_json(file["buffer"])  # the worker judges it further
    except AnalysisError as error:
        said = str(error)
    tab.goto(f"{address}/kv-budgets")
    settle(tab)
    tab.locator(".st-key-budget_upload_open button").first.click()
    box = tab.locator("[class*='st-key-budget_upload_'] input[type='file']")
    arrived(tab, "budget_policy", lambda: box.set_input_files(file), said=said)


def _config(tab, address: str, dice: random.Random) -> None:
    text = hostile_json(dice, CONFIG)[:4000].encode("utf-8", "replace").decode()
    file = _file(_typed(dice), text.encode()) if dice.random() < 0.5 else None

    def act() -> None:
        if file:
            tab.locator("[class*='st-key-config_upload_'] input[type='file']").set_input_files(file)
        else:
            tab.locator("[class*='st-key-config_paste_'] textarea").fill(text)
            tab.get_by_role("button", name="Read this config").click()

    tab.goto(f"{address}/is-it-worth-it")
    settle(tab)
    tab.get_by_role("button", name="Use your own config.json").click()
    arrived(tab, "shape", act)


def _bundle(tab, address: str, dice: random.Random) -> None:
    file = _file(_typed(dice), hostile_bundle(dice))
    tab.goto(f"{address}/runs")
    settle(tab)
    tab.get_by_role("button", name="Bring in a bundle").click()
    box = tab.locator("[class*='st-key-runs_upload_'] input[type='file']")
    judged = _judged(lambda store: store.unbundle(BytesIO(file["buffer"])).new[0])
    arrived(tab, "run", lambda: box.set_input_files(file), **judged)


WAYS = {
    "links": _linked,
    "uploaded texts": _uploaded,
    "pasted texts": _pasted,
    "model names": _model,
    "policies": _policy,
    "config.json": _config,
    "run bundles": _bundle,
}
