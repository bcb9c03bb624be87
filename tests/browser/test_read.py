"""The first screen of Read in a real browser: the card follows the pointer with Python's numbers, the slider fades what
is no longer read within a frame, a text is brought by dropping it, keys reach everything."""

import base64
import re
import statistics

import numpy as np
import pytest
from playwright.sync_api import expect

from analysis.commands.text import Keep, Start
from analysis.corpus import sample_texts, text_hash
from analysis.runs import RunStore
from app.selection.menu import address
from tests.browser import script
from tests.conftest import ROOT
from tests.made.browsing import PATIENCE, painted, settle, visit

pytestmark = pytest.mark.browser

OPENED = "of the attention goes 128 or more tokens back"
FRAME = 50  # milliseconds from an input to the picture
CLOSE = 1e-3
FRAMES = script("fade")
TOUCHED = script("touch")
DROPPED = script("drop")


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The stored answers about the bundled story: (of `start`, of `keep`)."""
    store = RunStore(tmp_path_factory.mktemp("state"), examples=ROOT / "models_cache" / "demo" / "examples")
    about = {"model": "demo", "text": text_hash(sample_texts()["story"][1])}
    yield (
        store.find(Start(**about, router="k8-top1", long_text="windows")),
        store.find(Keep(**about, long_text="first")),
    )


def rows(page) -> list[dict]:
    """The bars of the card: whose they are, token, head and share."""
    elements = page.locator(".read .card .row[data-token]").all()
    names = ("class", "data-token", "data-head", "data-share")
    return [{name: row.get_attribute(name) for name in names} for row in elements]


@pytest.mark.parametrize("width", [1440, 390])
def test_the_card_follows_the_pointer_with_the_numbers_of_python(app_server, page, stored, width):
    page.set_viewport_size({"width": width, "height": 900})
    start, _ = stored
    links, shares, pairs = start.array("links"), start.array("link_share"), start.table("pairs")
    heads = 8
    visit(page, app_server, OPENED)
    measured = page.locator(".read .measured")
    assert measured.get_attribute("data-head") == f"{pairs['layer'][0]}.{pairs['head'][0]}"
    assert abs(float(measured.get_attribute("data-share")) - pairs["attention"][0]) <= CLOSE
    assert abs(float(measured.get_attribute("data-chance")) - pairs["uniform"][0]) <= CLOSE
    for token in (1200, 1203, 1500):
        span = painted(page).locator(f".t[data-i='{token}']")
        if not span.count():
            continue
        span.evaluate("span => span.scrollIntoView({ block: 'center' })")
        span.dispatch_event("pointerover")
        following = iter(rows(page))
        for side, name in ((0, "key"), (1, "reader")):
            for n in range(links.shape[2]):
                place, cell = links[side, token, n].tolist()
                if place < 0:
                    continue
                row = next(following)
                assert name in row["class"] and int(row["data-token"]) == place
                assert row["data-head"] == f"{cell // heads}.{cell % heads}"
                assert abs(float(row["data-share"]) - shares[side, token, n]) <= CLOSE
        assert next(following, None) is None
    title = page.locator(".read .card h3").inner_text()
    assert "|" not in title and re.match(r"“.+” (looks back|is read)", title), "whole words"
    wider = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
    assert wider <= 0


@pytest.mark.alone
@pytest.mark.parametrize("tab", ["text", "groups"])
def test_the_card_follows_the_pointer_within_a_frame(app_server, page, tab):
    page.goto(f"{app_server}{address(tab)}")
    expect(painted(page).locator(".t").first).to_be_visible(timeout=PATIENCE)
    settle(page)
    took = painted(page).evaluate(TOUCHED)
    assert len(took) >= 30 and statistics.median(took) <= FRAME, took


@pytest.mark.alone
def test_the_slider_fades_what_is_no_longer_read_within_a_frame(app_server, page, stored):
    _, run = stored
    visit(page, app_server, OPENED)
    slider = page.locator(".read .keep input")
    expect(slider).to_be_enabled(timeout=PATIENCE)
    assert int(slider.get_attribute("max")) + 1 == len(run.numbers["rows"])
    took = slider.evaluate(FRAMES)
    assert statistics.median(took) <= FRAME, took
    slider.focus()
    page.keyboard.press("End")
    row = run.numbers["rows"][-1]
    expect(page.locator(".read .keep .share")).to_have_text(f"{row['share'] * 100:.1g}%")
    loss = float(page.locator(".read .keep output").get_attribute("data-loss"))
    assert abs(loss - row["loss"]) <= CLOSE
    opacities = painted(page).evaluate(
        "text => [...text.querySelectorAll('.t')].filter((s) => s.style.opacity)"
        ".map((s) => [Number(s.dataset.i), Number(s.style.opacity)])"
    )
    wanted = run.array("kept")[-1]
    assert len(opacities) > 50
    for token, opacity in opacities:
        share = wanted[token] if token < len(wanted) and not np.isnan(wanted[token]) else 1.0
        assert abs(opacity - (0.16 + 0.84 * share)) <= 0.84 / 254


def test_keys_reach_tokens_and_links(app_server, page):
    visit(page, app_server, OPENED)
    status, text = page.locator(".read .card .said span"), painted(page)
    expect(status).to_have_text("strongest link 1 of 40")
    text.focus()
    page.keyboard.press("ArrowDown")
    expect(status).to_have_text("link 2 of 40")
    page.wait_for_url(re.compile("pair="))
    settle(page)
    text.focus()
    page.keyboard.press("ArrowRight")
    expect(status).to_contain_text("token 0")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("query=0"))


def test_a_dropped_file_and_a_pasted_text_are_read(app_server, page):
    visit(page, app_server, OPENED)
    words = "The ferry at Thornwick was kept by Marguerite Vassal. " * 20
    page.evaluate(DROPPED, ["ferry.txt", base64.b64encode(words.encode()).decode()])
    expect(page.locator(".st-key-bring")).to_contain_text("ferry.txt", timeout=PATIENCE)
    page.locator(".st-key-bring button").last.click()
    expect(painted(page)).to_contain_text("Thornwick", timeout=PATIENCE)
    settle(page)
    field = page.locator(".st-key-bring textarea")
    field.fill("Another text about the lamp of Gannet House, and about the lamp. " * 20)
    field.press("Enter")
    expect(painted(page)).to_contain_text("Gannet House", timeout=PATIENCE)
