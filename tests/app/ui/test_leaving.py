"""What leaves a page: stamped files, the report that a session keeps, pictures for papers, a setting to take along."""

import io
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import streamlit as st

from analysis.errors import BadSetting
from analysis.runs import Result
from app import cached
from app.ui import export, report
from tests.made import results
from tests.made.in_process import HOSTILE, go, opened, part, put
from tests.made.results import protocol

FACTS = {"title": "How far", "page": "/?layer=1", "model": "demo", "text": "mine", "made with": "Focuscope"}
PICTURE = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
SOME = "a text of some length " * 4


@pytest.fixture
def empty_report(monkeypatch):
    """An empty report outside of a session."""
    parts = []
    monkeypatch.setattr(st, "session_state", SimpleNamespace(setdefault=lambda name, default: parts))
    return parts


def test_a_stamped_csv_keeps_any_text_is_read_by_pandas_and_starts_no_formula():
    values = {"word": ["# a", '"#"', "=1+1", 'a"b,c', "naïve 漢字", "-", None], "n": [1, -2, None, 0.5, 4, 5, 6]}
    written = export.to_csv(values, {"title": 'a "b"\n,=1+1; -2', "model": "demo"})
    lines = written.decode("utf-8-sig").splitlines()
    assert lines[:3] == ["# title: a 'b' ,'=1+1; '-2", "# model: demo", "word,n"]
    assert lines[5:9] == ["'=1+1,", '"a""b,c",0.5', "naïve 漢字,4", "'-,5"]
    read = pd.read_csv(io.BytesIO(written), comment="#")
    assert read["word"].tolist()[:3] == ["# a", '"#"', "'=1+1"] and read["n"].tolist()[:2] == [1, -2]
    assert len(read) == 7


def test_the_report_shows_hostile_words_as_they_are_and_runs_no_picture(empty_report):
    values = {HOSTILE: [HOSTILE] * 250, "n": [None] * 250}
    report.keep(FACTS | {"title": HOSTILE, "text": HOSTILE}, PICTURE, report.numbers(values))
    page = report.page(empty_report)
    assert "<script" not in page and "&lt;script&gt;" in page and "data:image/svg+xml;base64," in page
    assert "The first 200 of 250 rows" in page and page.count("<tr>") == 201
    assert 'src="http' not in page and "src=x" not in page.replace("&lt;img src=x&gt;", "")


def test_a_painted_text_is_kept_with_its_colours_and_every_token_escaped(client, monkeypatch):
    def menu(key, data, on_keep_change, **look):
        st.button(data["offers"][-1], key=f"{key}_keep", on_click=on_keep_change)

    monkeypatch.setattr(export, "_MENU", menu)
    text = put(client, HOSTILE)
    app = opened(text=text, start_more="yes")
    assert app.button(key="start_text_menu_keep").click().run() and not app.exception
    (stored,) = app.session_state[report.KEPT]
    page = report.page([stored])
    assert text in stored.facts["text"] and "background:#C97A14" in page and ">1–2<" in page and "times chance" in page
    assert "<script" not in page and "<img" not in page and "&lt;script&gt;" in page
    go(app, "groups")
    assert app.button(key="report_remove_0").click().run() and app.session_state[report.KEPT] == []


def test_characters_of_several_tokens_stand_once_in_a_kept_text():
    tokens = {"piece": ["a", "⟨E4⟩", "⟨BD⟩⟨A0⟩", " b"], "start": [0, 1, 1, 2], "end": [1, 2, 2, 4], "window": [0] * 4}
    palette = [{"light": "#112233", "mix": 20, "name": "<b>"}, {"light": "#445566", "mix": 100, "name": "two"}]
    html = export.text_as_html(tokens, [0, 0, 1, -1], palette, "x & y")
    assert html.startswith("<p>x &amp; y: ") and "&lt;b&gt;" in html
    assert html.endswith(
        '<span style="background:#11223333">a</span><span style="background:#445566ff">你</span> b</div>'
    )


def test_what_has_no_room_is_refused_with_the_reason(empty_report, monkeypatch):
    monkeypatch.setattr(report, "MOST_BYTES", 2_000)
    report.keep(FACTS, "", "1")
    with pytest.raises(BadSetting, match="remove something first"):
        report.keep(FACTS, "<svg" + "x" * 3_000, "1")
    monkeypatch.setattr(report, "MOST", 1)
    with pytest.raises(BadSetting, match="holds 1 things"):
        report.keep(FACTS, "", "1")
    assert len(empty_report) == 1


def test_every_chart_says_where_it_is_from(client):
    text = put(client, " ".join(f"word{i}" for i in range(40)), "a, =1+1 <b>")
    app = opened(text=text, start_more="yes")
    sent = part(app, "menu", 1)
    assert sent["chart"] == "start_distance" and sent["offers"][:4] == ["PNG", "SVG", "PDF", "CSV"]
    assert "model demo" in sent["footer"][0] and f"a, =1+1 <b> ({text})" in sent["footer"][0]
    assert sent["footer"][1].startswith(f"/?text={text}") and sent["title"] == "How far back it reads"


README = f"# Focus\nMeasured: {HOSTILE}"


def test_the_zip_of_a_router_is_made_once_and_offered(client, monkeypatch):
    packed = []

    def take(args: dict, text: str | None) -> Result:
        packed.append(args)
        numbers = {"label": "Focus", "file": "focuscope-focus.zip", "bytes": 4100, "readme": README, "sentence": "."}
        return Result(numbers | {"protocol": protocol("take", args, 0)}, arrays={"zip": np.arange(4, dtype=np.uint8)})

    monkeypatch.setitem(results.STUDIES, "take", take)
    app = opened("groups", text=put(client, SOME), groups_more="yes")
    (run,) = client.store.list("groups")
    app.button(key="groups_make").click().run()
    assert not app.exception
    method = {"name": "focus", "router": run.request["router"]}
    assert packed == [{"run": run.id, "method": method, "model": "demo"}]
    (download,) = [
        element.proto for element in app.get("download_button") if element.proto.label.startswith("focuscope-focus")
    ]
    assert download.label == "focuscope-focus.zip, 4 kB" and README in [code.value for code in app.code]
    assert "groups_make" not in [button.key for button in app.run().button] and len(packed) == 1, (
        "a stored zip needs no click"
    )
    (bundle,) = client.store.list("take")
    assert cached.array(bundle, "zip").tobytes() == bytes(range(4))


def test_what_cannot_be_taken_is_said_in_its_place(client):
    client.refusals["take"] = BadSetting("Quest cannot be taken along yet.")
    app = opened("groups", text=put(client, SOME), groups_more="yes")
    app.button(key="groups_make").click().run()
    assert not app.exception and len(app.error) == 1 and app.error[0].value.startswith("Quest cannot be taken along")
