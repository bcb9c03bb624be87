"""A chart for a paper: its size, its letters, what stands in the file, and the button."""

import io
import re
from types import SimpleNamespace

import pytest
from pypdf import PdfReader

from app.ui import charts, press
from tests.made.in_process import HOSTILE, at, put

KNOWN = {"title": HOSTILE, "model": "demo"}
LONG = "distance from query (attends) to key (is attended), in tokens of the text"


def figure() -> dict:
    """Two lines, a legend below, a long title on the axis."""
    data = [charts.line(name, [1, 2], [0.1, 0.2], "#1483B0", "solid", "circle") for name in ("this text", "chance")]
    return charts.figure(data, LONG, "share", yaxis=charts.SHARE)


def test_the_figure_has_its_printed_size_and_letters():
    given = figure()
    made = press.for_print(given, 3.25)["layout"]
    assert made["width"] == 312 and made["paper_bgcolor"] == "white" and made["font"]["size"] == pytest.approx(8 / 0.75)
    assert made["xaxis"]["title"]["text"].replace("<br>", " ") == LONG and "<br>" in made["xaxis"]["title"]["text"]
    assert made["yaxis"]["tickformat"] == ".0%" and made["legend"]["yanchor"] == "bottom"
    assert press.for_print(given, 6.75)["layout"]["xaxis"]["title"]["text"] == LONG  # two columns have room
    assert given == figure()  # the page's own stays as it is


def test_a_legend_takes_as_many_rows_as_it_needs():
    assert [press.legend_rows(["x" * 20] * count, 648 + 2 * press.BELOW) for count in (0, 1, 4, 5)] == [0, 1, 1, 2]


@pytest.mark.browser
@pytest.mark.skipif(not press.ready(), reason="kaleido or Chrome is missing")
@pytest.mark.parametrize("kind", press.KINDS)
def test_chrome_draws_it_and_the_file_says_where_it_comes_from(kind):
    data = press.drawn(figure(), kind, 3.25, KNOWN)
    if kind == "PDF":
        read = PdfReader(io.BytesIO(data))
        assert float(read.pages[0].mediabox.width) == pytest.approx(3.25 * 72, abs=1)
        assert read.metadata["/Title"] == HOSTILE and read.metadata["/Subject"] == "model: demo"
        assert "share" in read.pages[0].extract_text()  # letters stay letters
    else:
        words = data.decode()
        assert re.search(r'<svg[^>]* width="312"', words) and "model: demo</desc>" in words
        assert HOSTILE not in words and "http-equiv" not in words


def test_the_button_offers_both_kinds_or_says_what_is_missing(client, monkeypatch):
    for there, labels in ((True, {"PDF", "SVG"}), (False, set())):
        monkeypatch.setattr(press, "ready", lambda there=there: there)
        app = at("views/token_groups.py", text=put(client, "a text of some length " * 4))
        app.session_state["groups_shares_press"] = True
        app.run()
        assert not app.exception
        downloads = {one.proto.label for one in app.get("download_button")}
        assert downloads & {"PDF", "SVG"} == labels
        assert (press.MISSING in [one.value for one in app.caption]) != there


@pytest.mark.parametrize("there", [True, False])
def test_without_the_package_nothing_is_offered(monkeypatch, there):
    made = []
    monkeypatch.setattr(press, "find_spec", lambda name: there or None)
    monkeypatch.setattr(press.st, "popover", lambda *given, **look: made.append(given) or SimpleNamespace(open=False))
    press.popover(figure(), "name", "key", KNOWN)
    assert len(made) == there


def test_a_shared_demo_starts_no_browser(monkeypatch):
    monkeypatch.setenv("FOCUSCOPE_DEMO", "1")
    assert press.popover(figure(), "name", "key", KNOWN) is None
