"""Somebody's input in a tab of Chromium, where it has to arrive: none counts as held because the page never got it."""

import contextlib
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from analysis.errors import AnalysisError
from analysis.runs import RunStore
from app.selection import menu, state
from tests.stress.chromium import PATIENCE, launched
from tests.stress.inputs import FAILED, PAGES, WAYS, Sent, Way, typed
from tests.stress.rows import Row, deal
from tests.stress.scene import hold

ARRIVAL = 120.0  # seconds until the page must have answered an input
RUNNING = "[data-testid='stApp'][data-test-script-state='running']"
IN_BROWSER = {name: way for name, way in WAYS.items() if name != "names of routers"}


def in_chromium(address: str, count: int, seed: int = 0) -> list[Row]:
    """`count` inputs on the app that answers at `address` (host:port), each in a fresh tab; one row per way in.
    AnalysisError without a browser."""
    dice = random.Random(seed)
    with launched() as browser:
        return deal("chromium", IN_BROWSER, count, lambda way: _in_tab(browser, address, way, dice))


def _in_tab(browser, address: str, way: Way | None, dice: random.Random) -> None:
    """One input in a tab of its own; Broken when it did not arrive, or did what it must not."""
    alerts, outside, refused = [], [], []
    with contextlib.closing(browser.new_page()) as tab:
        tab.set_default_timeout(PATIENCE)
        tab.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
        tab.on("request", lambda request: outside.append(request.url) if _leaves(request.url, address) else None)
        tab.on("console", lambda entry: refused.append(entry.text) if "Content Security Policy" in entry.text else None)
        if way is None:
            _link(tab, f"http://{address}", dice)
        else:
            _send(tab, f"http://{address}", way, dice)
        settle(tab)
        hold(not alerts, f"a script of the input said {alerts[:1]}")
        hold(not refused, f"only the security policy kept a script of the input from running: {refused[:1]}")
        hold(not outside, f"it asked {outside[:1]}")
        sound_in_tab(tab)


def _link(tab, address: str, dice: random.Random) -> None:
    """Values in a link, one of them of a control that does not exist, so that there is always something to be said."""
    link = {name: typed(dice)[:400] for name in dice.sample(sorted(state.CONTROLS), dice.randrange(1, 5))}
    link[f"no_control_{typed(dice)[:20]}"] = typed(dice)[:100]
    tab.goto(address + menu.address(dice.choice(PAGES), link))
    settle(tab)
    captions = letters(" ".join(tab.get_by_test_id("stCaptionContainer").all_inner_texts()))
    for sentence in state.read({}, link):
        hold(letters(sentence) in captions, f"the page does not say: {sentence[:80]!r}")


def _send(tab, address: str, way: Way, dice: random.Random) -> None:
    sent = way.make(dice)

    def act() -> None:
        if sent.name is not None:
            file = {"name": sent.name, "mimeType": "text/plain", "buffer": sent.data}
            tab.locator(f"[class*='st-key-{way.upload}'] input[type='file']").set_input_files(file)
            return
        tab.locator(f"[class*='st-key-{way.box}'] :is(textarea, input)").fill(sent.text)
        tab.locator(f".st-key-{way.button} button").click()

    tab.goto(address + menu.address(way.pages[0]))
    settle(tab)
    tab.locator(f"[class*='st-key-{way.opens}'] button").first.click()
    arrived(tab, way.control, act, **(_judged(way.answer, sent) if way.answer else {}))


def _judged(answer: Callable[[RunStore, Sent], str], sent: Sent) -> dict[str, str]:
    """What the app must answer, by the same act on a store that is thrown away: `choice` or `sentence`."""
    with tempfile.TemporaryDirectory(prefix="focuscope-judged-") as folder:
        try:
            return {"choice": answer(RunStore(Path(folder)), sent)}
        except AnalysisError as error:
            return {"sentence": str(error)}


def settle(tab) -> None:
    """Wait until the script has run to its end, twice over: one run may ask for the next."""
    tab.locator("h1").first.wait_for()
    for _ in range(2):
        tab.wait_for_timeout(300)
        tab.locator(RUNNING).wait_for(state="detached")


def arrived(tab, name: str, act: Callable, sentence: str = "", choice: str = "", wait: float = ARRIVAL) -> None:
    """Do something on a settled page and hold that the page answers: with a new box that says `sentence`, or with the
    value `choice` of the control `name` in the address; where neither is known before, with any new box or any other
    value."""

    def value() -> str | None:
        return parse_qs(urlsplit(tab.url).query).get(name, [None])[0]

    settle(tab)
    boxes, before = tab.get_by_test_id("stAlert").all_inner_texts(), value()
    act()
    end = time.monotonic() + wait
    while True:
        new = [box for box in tab.get_by_test_id("stAlert").all_inner_texts() if box not in boxes]
        if sentence and any(letters(sentence) in letters(box) for box in new):
            return
        if choice and value() == choice or not sentence and not choice and (new or value() != before):
            return
        wanted = f"{sentence[:80]!r}" if sentence else f"{name}={choice or '...'}"
        hold(time.monotonic() < end, f"the input did not arrive: {wanted} was to come, not {name}={value()}, {new[:1]}")
        tab.wait_for_timeout(200)


def letters(text: str) -> str:
    """The plain letters and digits of a text: what every way of writing it on a page keeps."""
    return "".join(sign for sign in text if sign.isascii() and sign.isalnum())


def sound_in_tab(tab) -> None:
    """Hold that a page shows its title, no exception and no traceback, and that no script of the input ran in it."""
    hold(not any(frame.evaluate("window.pwned") for frame in tab.frames), "a script of the input ran")
    hold(tab.get_by_test_id("stException").count() == 0, "an exception box")
    body = tab.locator("body").inner_text()
    for words in ("Traceback", FAILED):
        hold(words not in body, words)
    hold(tab.locator("h1").count() >= 1, "the page has no title any more")


def _leaves(url: str, address: str) -> bool:
    kind, _, remainder = url.partition("://")
    return kind in ("http", "https", "ws", "wss") and remainder.split("/")[0] != address
