"""A text longer than the model reads at once: painted window by window, cancelled and gone on with."""

import pytest

from analysis.commands.text import Start
from analysis.declaration.undeclared import Undeclared
from app.ui import asking, painted
from tests.made.in_process import at, markup, opened, part, put
from tests.made.results import CONTEXT, ROUTER, STUDIES, start


@pytest.fixture
def long_text(client, monkeypatch):
    """(text of four windows, what was asked of it: `first`, a number or `windows`, tokens of each picture of it)."""
    scopes, drawn, real, read = [], [], STUDIES["start"], painted.read

    def answer(arguments, words):
        scopes.append(arguments.get("windows") or arguments["long_text"])
        count = {"first": 1, "windows": 4}.get(scopes[-1], scopes[-1])
        return real(arguments, " ".join(words.split()[: count * CONTEXT]))

    def show(data, **options):
        drawn.append(len(data["pieces"]))
        read(data, **options)

    monkeypatch.setitem(STUDIES, "start", answer)
    monkeypatch.setattr(asking, "SOON", 0.0)
    monkeypatch.setattr(painted, "read", show)
    return put(client, " ".join(["word"] * (4 * CONTEXT))), scopes, drawn


def test_a_long_text_is_painted_window_by_window(client, long_text):
    text, scopes, drawn = long_text
    app = opened(text=text)
    assert scopes == ["first", 2, 3, "windows"] and not app.error
    assert drawn[:4] == [CONTEXT, 2 * CONTEXT, 3 * CONTEXT, 4 * CONTEXT]
    assert [run.request for run in client.store.list("start") if run.request["text"] == text] == [
        {"model": "demo", "text": text, "long_text": "windows", "router": ROUTER["name"]}
    ], "the parts have gone"
    assert len(part(app, "read")["pieces"]) == 4 * CONTEXT


def test_a_long_text_that_is_cancelled_stays_at_its_window_and_goes_on_from_there(client, long_text):
    text, scopes, drawn = long_text
    args = {"model": "demo", "text": text, "long_text": "windows", "router": ROUTER["name"]}
    app = at("text", text=text)
    app.session_state["_stopped"] = Start(**args, windows=3)
    app.run()
    assert scopes == ["first", 2] and len(part(app, "read")["pieces"]) == 2 * CONTEXT
    assert "Windows 1 to 2 of 4" in markup(app)
    run = [button for button in app.button if button.key.startswith("run_start_")]
    assert len(run) == 1 and "window 3 of 4" in run[0].label
    run[0].click().run()
    assert scopes == ["first", 2, 3, "windows"] and len(part(app, "read")["pieces"]) == 4 * CONTEXT


def test_where_a_window_takes_long_one_button_is_for_the_first_and_then_the_others(client, long_text):
    text, scopes, _ = long_text
    for size in (1, 2):  # so that the price is known
        args = {"model": "demo", "router": ROUTER["name"], "text": put(client, f"other {size} " * 10)}
        request = Undeclared("start", args | {"long_text": "windows"})
        client.store.put(request, start(args, "words " * 30), {"tokens": 2, "model": "demo"}, 100.0)
    app = opened(text=text)
    assert not scopes
    next(button for button in app.button if button.key.startswith("run_start_")).click().run()
    assert scopes == ["first", "windows"] and len(part(app, "read")["pieces"]) == 4 * CONTEXT and not app.error


def test_a_link_into_a_later_window_is_followed_once_that_is_read(client, long_text):
    text, _, drawn = long_text
    place = 3 * CONTEXT + 5
    app = opened(text=text, query=place)
    assert drawn[0] == CONTEXT and part(app, "read")["locked"] == place
    assert app.session_state["query"] == place and not any("not available here" in words.value for words in app.caption)
