"""Hostile input in a real browser: what it shows, what it asks of the network, and whether a script of somebody ran."""

import random
import shutil
from urllib.parse import urlencode

from analysis.errors import AnalysisError
from analysis.stress.hostile import MARKUP, hostile_bytes, hostile_json, hostile_text
from analysis.stress.rows import Row
from analysis.stress.scene import hold
from analysis.stress.server import Server
from analysis.stress.validators import CONFIG, POLICY
from app import state

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking"]
PATIENCE = 180_000  # milliseconds for one step
PLACES = ("", "token-groups", "long-range-pairs", "attention-heads", "kv-budgets", "quality-vs-speed", "runs")
RUNNING = "[data-testid='stApp'][data-test-script-state='running']"


def tried(server: Server, count: int, seed: int = 0) -> list[Row]:
    """`count` inputs on the running app, each in a fresh tab; one row per way in. AnalysisError without a browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise AnalysisError("Playwright is not installed: pip install -r requirements-dev.txt.") from None
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise AnalysisError("There is no chromium on this machine: install it (Debian: apt install chromium).")
    dice, times, held, said = random.Random(seed), {}, {}, {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        for number in range(count):
            name = list(WAYS)[number % len(WAYS)]
            times[name] = times.get(name, 0) + 1
            try:
                attempt(browser, server.address, WAYS[name], dice)
                held[name] = held.get(name, 0) + 1
            except Exception as error:
                said.setdefault(name, f"{type(error).__name__}: {error}".split("\n")[0][:160])
        browser.close()
    return [Row(f"chromium: {name}", times[name], held.get(name, 0), said.get(name, "")) for name in times]


def attempt(browser, address: str, way, dice: random.Random) -> None:
    """One input in a tab of its own; Broken when it did what it must not."""
    tab = browser.new_page()
    tab.set_default_timeout(PATIENCE)
    alerts, outside = [], []
    tab.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
    tab.on("request", lambda request: outside.append(request.url) if _leaves(request.url, address) else None)
    try:
        way(tab, f"http://{address}", dice)
        _settle(tab)
        hold(not alerts and not tab.evaluate("window.pwned"), "a script of the input ran")
        hold(tab.locator("[data-testid='stException']").count() == 0, "an exception box")
        hold("Traceback" not in tab.locator("body").inner_text(), "a traceback")
        hold(tab.locator("h1").count() >= 1, "the page has no title any more")
        hold(not outside, f"it asked {outside[:1]}")
    finally:
        tab.close()


def _leaves(url: str, address: str) -> bool:
    kind, _, rest = url.partition("://")
    return kind in ("http", "https", "ws", "wss") and rest.split("/")[0] != address


def _settle(tab) -> None:
    """Wait until the script has run to its end, twice over: one run may ask for the next."""
    tab.locator("h1").first.wait_for()
    for _ in range(2):
        tab.wait_for_timeout(300)
        tab.locator(RUNNING).wait_for(state="detached")


def _typed(dice: random.Random) -> str:
    text = hostile_text(dice) if dice.random() < 0.6 else dice.choice(MARKUP)
    return text.encode("utf-8", "replace").decode()[:1500]


def _file(name: str, data: bytes) -> dict:
    return {"name": name.replace("/", "_").replace("\0", "")[:60] or "x", "mimeType": "text/plain", "buffer": data}


def _linked(tab, address: str, dice: random.Random) -> None:
    names = dice.sample(sorted(state.CONTROLS), dice.randrange(1, 5))
    query = urlencode({name: _typed(dice)[:400] for name in names})
    tab.goto(f"{address}/{dice.choice(PLACES)}?{query}")


def _uploaded(tab, address: str, dice: random.Random) -> None:
    tab.goto(address)
    tab.get_by_role("button", name="Use your own text").click()
    box = tab.locator("input[type='file']").first
    box.set_input_files(_file(_typed(dice), hostile_bytes(dice)))


def _pasted(tab, address: str, dice: random.Random) -> None:
    tab.goto(address)
    tab.get_by_role("button", name="Use your own text").click()
    tab.get_by_label("or paste it here").fill(" ".join(_typed(dice) for _ in range(dice.randrange(1, 5))))
    tab.get_by_role("button", name="Read this text").click()


def _model(tab, address: str, dice: random.Random) -> None:
    tab.goto(address)
    tab.get_by_role("button", name="Model: demo").click()
    tab.get_by_label("Hugging Face id, or a folder in models_cache").fill(_typed(dice)[:200])
    tab.get_by_role("button", name="Load this model").click()


def _policy(tab, address: str, dice: random.Random) -> None:
    tab.goto(f"{address}/kv-budgets")
    tab.locator(".st-key-budget_upload_open button").first.click()
    box = tab.locator("input[type='file'][accept*='json']").first
    box.set_input_files(_file("policy.json", hostile_json(dice, POLICY).encode("utf-8", "replace")))


def _config(tab, address: str, dice: random.Random) -> None:
    tab.goto(f"{address}/is-it-worth-it")
    tab.get_by_role("button", name="Use your own config.json").click()
    text = hostile_json(dice, CONFIG)[:4000].encode("utf-8", "replace").decode()
    tab.get_by_label("or paste it here").fill(text)
    tab.get_by_role("button", name="Read this config").click()


WAYS = {
    "links": _linked,
    "uploaded texts": _uploaded,
    "pasted texts": _pasted,
    "model names": _model,
    "policies": _policy,
    "config.json": _config,
}
