"""What leaves a page: stamped files, and the report that a session keeps."""

import io
from types import SimpleNamespace

import pandas as pd
import pytest
import streamlit as st

from analysis.errors import BadSetting
from app.ui import export, report
from app.ui.export import to_csv
from tests.made.in_process import HOSTILE, opened, part, put

FACTS = {"title": "How far", "page": "/?layer=1", "model": "demo", "text": "mine", "made with": "Focuscope"}
PICTURE = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


@pytest.fixture
def held(monkeypatch):
    """An empty report outside of a session."""
    monkeypatch.setattr(st, "session_state", SimpleNamespace(setdefault=lambda name, made: kept))
    kept = []
    return kept


def test_a_stamped_csv_is_read_by_pandas_and_starts_no_formula():
    values = {"word": ["# a", '"#"', "=1+1", None], "n": [1, 2, 3, None]}
    written = to_csv(values, {"title": 'a "b"\n,=1+1; -2', "model": "demo"})
    assert written.decode("utf-8-sig").splitlines()[:2] == ["# title: a 'b' ,'=1+1; '-2", "# model: demo"]
    read = pd.read_csv(io.BytesIO(written), comment="#")
    assert read["word"].tolist()[:3] == ["# a", '"#"', "'=1+1"] and read["n"].tolist()[:3] == [1, 2, 3]
    assert len(read) == 4 and read.iloc[3].isna().all()


def test_the_report_shows_hostile_words_as_they_are_and_runs_no_picture(held):
    values = {HOSTILE: [HOSTILE] * 250, "n": [None] * 250}
    report.keep(FACTS | {"title": HOSTILE, "text": HOSTILE}, PICTURE, report.numbers(values))
    page = report.page(held)
    assert "<script" not in page and "&lt;script&gt;" in page and "data:image/svg+xml;base64," in page
    assert "The first 200 of 250 rows" in page and page.count("<tr>") == 201
    assert 'src="http' not in page and "src=x" not in page.replace("&lt;img src=x&gt;", "")


def test_a_painted_text_is_kept_with_its_colours_and_every_token_escaped(client):
    text = put(client, HOSTILE)
    app = opened(text=text)
    assert app.button(key="start_text_keep").click().run() and not app.exception
    (kept,) = app.session_state[report.KEPT]
    assert kept.facts["title"] == "The text, painted by what is read from afar" and text in kept.facts["text"]
    page = report.page([kept])
    assert "attention received from" in page and "background:#E58A12" in page and "1–2 times chance" in page
    assert "<script" not in page and "<img" not in page and "&lt;script&gt;" in page


def test_characters_of_several_tokens_stand_once_in_a_kept_text():
    tokens = {"piece": ["a", "⟨E4⟩", "⟨BD⟩⟨A0⟩", " b"], "start": [0, 1, 1, 2], "end": [1, 2, 2, 4], "window": [0] * 4}
    palette = [{"light": "#112233", "mix": 20, "name": "<b>"}, {"light": "#445566", "mix": 100, "name": "two"}]
    said = export.text_as_html(tokens, [0, 0, 1, -1], palette, "x & y")
    _, body = said.split("<div")
    assert said.startswith("<p>x &amp; y: ") and "&lt;b&gt;" in said
    assert body.endswith(
        '<span style="background:#11223333">a</span><span style="background:#445566ff">你</span> b</div>'
    )


def test_what_has_no_room_is_refused_with_the_reason(held, monkeypatch):
    monkeypatch.setattr(report, "MOST_BYTES", 2_000)
    report.keep(FACTS, "", "1")
    with pytest.raises(BadSetting, match="remove something first"):
        report.keep(FACTS, "<svg" + "x" * 3_000, "1")
    monkeypatch.setattr(report, "MOST", 1)
    with pytest.raises(BadSetting, match="holds 1 things"):
        report.keep(FACTS, "", "1")
    assert len(held) == 1


def test_every_chart_says_where_it_is_from(client):
    text = put(client, " ".join(f"word{i}" for i in range(40)), "a, =1+1 <b>")
    app = opened(text=text)
    sent = part(app, "export")
    assert sent["chart"] == "start_distance" and sent["offers"] == ["PNG", "SVG", "Keep"]
    assert "model demo" in sent["footer"][0] and f"a, =1+1 <b> ({text})" in sent["footer"][0]
    assert sent["footer"][1].startswith(f"/?text={text}") and sent["title"] == "How far back it reads"


def test_what_was_kept_stays_over_pages_until_it_is_removed(client):
    app = opened()
    one = report.Kept(FACTS | {"title": "**One**"}, "", "1")
    app.session_state[report.KEPT] = [one, one]
    app.switch_page("views/token_groups.py").run()
    assert not app.exception and any("\\*\\*One\\*\\*" in said.value for said in app.markdown)
    app.button(key="report_remove_0").click().run()
    assert app.session_state[report.KEPT] == [one]
