"""What `stress` does to the app, in small: a reader without a browser, hostile input into pages and in Chromium."""

import asyncio
import contextlib
import html
import random

import pytest
from streamlit.testing.v1 import AppTest

from tests.conftest import all_of_them
from tests.made.in_process import PATIENCE
from tests.stress import chromium, judges, load, pages, server, ways
from tests.stress.hostile import MARKUP
from tests.stress.parts import stress
from tests.stress.scene import Broken
from tests.stress.session import Session


@pytest.mark.parametrize("way", pages.WAYS)
def test_no_hostile_input_breaks_a_page(client, way, pytestconfig):
    dice = random.Random(11)
    for _ in range(2 if all_of_them(pytestconfig) else 1):
        pages.sound(pages.WAYS[way](dice))


@pytest.mark.parametrize("live", [*MARKUP[:4], "<p ONCLICK='x'>", "<a href=' java\nscript:x'>", "<base href=//x>"])
def test_live_markup_is_seen_and_words_about_it_are_none(live):
    assert pages.Live(f"<p>{live}</p>").found
    words = html.escape(f"{live} javascript:x onload=x")
    assert not pages.Live(f"<style>p {{}}</style><p class='fs-lead'>{words}</p>").found


def test_a_chart_without_a_line_says_so():
    def page():
        from app.ui import widgets

        empty = {"data": [], "layout": {}}
        assert widgets.chart(empty, {}, title="By distance", key="some", alt="Nothing", select="points") == []
        assert widgets.chart(empty, {}, title="By layer", key="other", alt="Nothing") is None

    app = AppTest.from_function(page, default_timeout=PATIENCE).run()
    assert not app.exception and len(app.caption) == 2 and "nothing to draw" in app.caption[0].value


def test_no_hostile_input_gets_past_what_the_app_judges():
    rows = judges.tried(60, seed=7)
    assert len(rows) == len(judges.JUDGES) and all(row.held == row.tried for row in rows), rows


def test_a_part_that_cannot_be_tried_says_why(tmp_path, monkeypatch):
    running = server.Server("127.0.0.1:1", None, tmp_path)
    monkeypatch.setattr(server, "served", lambda folder: contextlib.nullcontext(running))
    monkeypatch.setattr(chromium.shutil, "which", lambda name: None)
    (row,) = stress(["chromium"], chromium=1).numbers["rows"]
    assert not row["holds"] and "install it" in row["said"]


def test_a_reader_without_a_browser_speaks_as_a_page_does(app_server):
    async def reads():
        async with Session(app_server.removeprefix("http://")) as reader:
            await reader.open()
            assert {"", "token-groups", "kv-budgets"} <= set(reader.pages) and "text=" in reader.query
            await reader.visit("token-groups")
            layers = reader.options()["layer_pick"]
            await reader.choose("layer_pick", layers[-1])
            assert f"layer={layers[-1]}" in reader.query and reader.failures == [] and reader.received > 100_000
            assert not reader.timers, "the page asks again and again for what nobody looks at"

    asyncio.run(reads())


def test_a_page_that_never_comes_counts_as_stuck(monkeypatch):
    monkeypatch.setattr(load, "STUCK", 0.01)
    waits = load.Waits()

    async def reads():
        await waits.timed(asyncio.sleep(0, 3.0))
        await waits.timed(asyncio.sleep(0, 1.0), "routing")
        await waits.timed(asyncio.Event().wait(), "routing")

    asyncio.run(reads())
    assert (waits.opened, waits.taken, waits.stuck) == ([3.0], [1.0], 1)
    assert [load.at([*range(100)], share) for share in (0.5, 0.95, 1)] == [50, 95, 99]
    assert load.at([], 0.95) > load.FIRST, "a page that nobody got is no quick one"


@pytest.mark.browser
def test_input_that_does_not_arrive_does_not_hold(page):
    page.set_content("<h1>Silent</h1><div data-testid='stAlert'>The text is empty.</div>")
    say = "document.body.insertAdjacentHTML('beforeend', '<p data-testid=stAlert>{}</p>')"
    for expected in ({}, {"said": "The text is empty."}, {"taken": "0123"}):
        with pytest.raises(Broken, match="did not arrive"):
            ways.arrived(page, "text", lambda: None, wait=0.5, **expected)
    with pytest.raises(Broken, match="did not arrive"):
        ways.arrived(page, "text", lambda: page.evaluate(say.format("No.")), said="Another sentence.", wait=0.5)
    ways.arrived(page, "text", lambda: page.evaluate(say.format("No *text*.")), said="No text.", wait=0.5)


@pytest.mark.browser
@pytest.mark.parametrize(
    "shown",
    [
        "<h1>x</h1><script>window.pwned=1</script>",
        "<h1>x</h1><iframe srcdoc='<script>window.pwned=1</script>'></iframe>",
        "<h1>x</h1><div data-testid='stException'>x</div>",
        "<h1>x</h1><p>Traceback (most recent call last)</p>",
        f"<h1>x</h1><p>{pages.FAILED} with KeyError</p>",
        "<p>all is gone</p>",
    ],
)
def test_what_hostile_input_must_not_do_is_seen(page, shown):
    page.set_content("<h1>x</h1><p>a text of somebody</p>")
    chromium.sound(page)
    page.set_content(shown)
    with pytest.raises(Broken):
        chromium.sound(page)
