"""Every page in-process with what is wrong: hostile texts, damaged links, errors, bad files and models."""

import pytest

from analysis.errors import BadText
from app import cached
from tests.made.documents import notebook
from tests.made.in_process import HOSTILE, TITLES, captions, go, in_chip, markup, opened, part, put


@pytest.mark.parametrize("view", TITLES)
def test_hostile_text_is_shown_as_it_is(client, view):
    app = opened(view, text=put(client, f"{HOSTILE} " * 3, "<b>**evil**</b>.txt"), distance="16")
    assert not app.error and "<script" not in markup(app) and "<img" not in markup(app)
    assert not any("<script" in element.value for element in [*app.markdown, *app.caption])
    assert "<script>alert(1)</script>" in part(app, "read")["pieces"]
    for chart in app.get("plotly_chart"):
        assert "<script" not in chart.proto.spec and "<img" not in chart.proto.spec


def test_a_damaged_link_loses_only_what_is_damaged_and_names_it(client):
    damaged = {"layer": "99", "group": "x", "text": "../../etc/passwd", "pair": "1", "nonsense": "1", "job": "zz"}
    app = opened("groups", **damaged, router="k64-top4")
    assert app.title[0].value == TITLES["groups"] and not app.error
    assert all(name in captions(app) for name in ("99", "group", "passwd", "pair", "nonsense", "job", "k64-top4"))
    assert set(app.query_params) <= {"at", "text", "router"} and app.query_params["router"] == "k4-top1"


def test_an_unknown_text_falls_back_to_the_first_sample(client):
    app = opened(text="0123456789ab")
    assert "not stored on this machine" in captions(app) and app.query_params["text"] == cached.samples()[0][0]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (BadText("It has 1 token: give a *longer* text."), "It has 1 token\\: give a \\*longer\\* text\\."),
        (ZeroDivisionError("secret detail"), "ZeroDivisionError"),
    ],
)
@pytest.mark.parametrize("view", TITLES)
def test_an_error_is_one_sentence_without_a_traceback_and_the_rest_stays(client, view, error, sentence):
    client.refusals[{"text": "start", "links": "pairs"}.get(view, view)] = error
    app = opened(view)
    assert len(app.error) == 1 and sentence in app.error[0].value
    assert "secret" not in app.error[0].value and "Traceback" not in app.error[0].value
    assert [tab.label for tab in app.tabs] == ["Text", "Links", "Groups"] and in_chip(app, "text").value


@pytest.mark.slow
@pytest.mark.parametrize(
    "data, words",
    [
        (b"", "empty"),
        (b"\x00\x01\x02" * 50, "binary"),
        ("naïve café".encode("latin-1"), "not valid UTF"),
        (b" \n\t ", "only spaces"),
        (b"a" * 5_000_001, "limit is 5 MB"),
    ],
)
def test_a_bad_file_gets_one_sentence_and_the_text_in_use_stays(client, data, words):
    app = opened()
    before = app.query_params["text"]
    app.file_uploader(key="upload_0").upload("bad_*file*.bin", data)
    app.run()
    sentence = app.error[0].value.replace("\\", "")
    assert not app.exception and len(app.error) == 1 and words in sentence and "bad_*file*.bin" in sentence
    assert app.query_params["text"] == before and part(app, "read")
    assert app.run().error, "a rerun of the page does not swallow the sentence"
    in_chip(app, "text").select_index(1).run()
    assert not app.error, "it goes with the next text"


@pytest.mark.slow
def test_texts_are_uploaded_several_at_once_or_pasted_and_the_page_says_what_was_read(client):
    app = opened()
    book = notebook(("markdown", "some words of my own " * 9))
    files = [("bad.ipynb", b"{"), ("mine.ipynb", book), ("more.txt", b"quite other words " * 9)]
    app.file_uploader(key="upload_0").set_value([(*file, "text/plain") for file in files]).run()
    assert client.store.text(app.query_params["text"])[0] == "mine.ipynb"
    assert part(app, "read")["pieces"][0] == "some"
    assert "bad.ipynb is no notebook" in app.error[0].value.replace("\\", "") and len(app.error) == 1
    sentence = "mine.ipynb was read. Notebook: 1 text cell and 0 code cells read; outputs left out; 45 words. "
    sentence += "Check it in the chip Text. The list there has all 2 files."
    assert sentence in markup(app) and {"mine.ipynb", "more.txt"} <= set(in_chip(app, "text").options)
    go(app, "temperature")
    assert sentence not in markup(app) and "mine.ipynb" in in_chip(app, "text").options
    go(app, "text")
    assert sentence not in markup(app), "it stood on the page where the files came"
    app.text_area(key="paste_1").set_value("quite another text, to be read as well " * 5).run()
    app.button(key="read_paste").click().run()
    assert part(app, "read")["pieces"][0] == "quite" and not app.error
    app.button(key="read_paste").click().run()
    assert "empty" in app.error[0].value


@pytest.mark.slow
@pytest.mark.parametrize("name", ["../outside", "/etc", "a b", ""])
def test_a_bad_model_gets_one_sentence_and_the_model_in_use_stays(client, name):
    app = opened()
    app.text_input(key="model_name").set_value(name).run()
    app.button(key="load_model").click().run()
    assert not app.exception and len(app.error) == 1
    assert app.session_state["model"] == "demo" and part(app, "read")


def test_a_link_to_a_model_that_cannot_be_loaded_says_so_once_and_offers_the_way_back(client):
    app = opened(model="no/such")
    assert len(app.error) == 1 and "no/such" in app.error[0].value.replace("\\", "")
    app.button(key="way_back").click().run()
    assert not app.error and part(app, "read") and "model" not in app.query_params
