"""Every page in-process with what is wrong: hostile texts, damaged links, errors, bad files and models."""

import pytest

from analysis.errors import BadText
from app import cached
from tests.made.documents import notebook
from tests.made.in_process import HOSTILE, VIEWS, in_chip, markup, opened, part, put


@pytest.mark.parametrize("view", VIEWS)
def test_hostile_text_is_shown_as_it_is(client, view):
    text = put(client, f"{HOSTILE} " * 3, "<b>**evil**</b>.txt")
    app = opened(view, text=text, distance="16")
    assert not app.error
    assert "<script" not in markup(app) and "<img" not in markup(app)
    for element in [*app.markdown, *app.caption]:
        assert "<script" not in element.value
    shown = part(app, "contexts")["panels"][0] if view == "pairs" else part(app, "painted")
    assert "<script>alert(1)</script>" in shown["pieces"]
    for chart in app.get("plotly_chart"):
        assert "<script" not in chart.proto.spec and "<img" not in chart.proto.spec


def test_a_damaged_link_loses_only_what_is_damaged(client):
    app = opened("groups", layer="99", group="x", text="../../etc/passwd", pair="1", nonsense="1", job="zz")
    said = " ".join(caption.value for caption in app.caption)
    assert app.title[0].value == VIEWS["groups"][1] and not app.error
    assert "99" in said
    assert set(app.query_params) <= {"text", "router"}


def test_each_damaged_entry_is_named(client):
    app = opened(layer="x", text="../../etc/passwd", nonsense="1")
    said = " ".join(caption.value for caption in app.caption)
    assert "layer" in said and "passwd" in said and "nonsense" in said


def test_an_unknown_text_falls_back_to_the_first_sample(client):
    app = opened(text="0123456789ab")
    assert any("not stored on this machine" in caption.value for caption in app.caption)
    assert app.query_params["text"] == cached.samples()[0][0]


@pytest.mark.parametrize("view", VIEWS)
def test_an_analysis_error_is_one_sentence_and_the_rest_stays(client, view):
    client.refusals[view] = BadText("The text has 1 token and attention needs at least 2: give a *longer* text.")
    app = opened(view)
    assert [error.value for error in app.error] == [
        "The text has 1 token and attention needs at least 2\\: give a \\*longer\\* text\\."
    ]
    assert app.title[0].value == VIEWS[view][1] and in_chip(app, "text").value


@pytest.mark.parametrize("view", VIEWS)
def test_any_other_error_is_named_by_its_class_without_a_traceback(client, view):
    client.refusals[view] = ZeroDivisionError("secret detail")
    app = opened(view)
    assert len(app.error) == 1 and "ZeroDivisionError" in app.error[0].value
    assert "secret" not in app.error[0].value and "Traceback" not in app.error[0].value


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
    assert not app.exception and len(app.error) == 1
    sentence = app.error[0].value.replace("\\", "")
    assert words in sentence and "bad_*file*.bin" in sentence
    assert app.query_params["text"] == before and app.title and part(app, "painted")
    app.run()
    assert app.error, "a rerun of the page does not swallow the sentence"
    in_chip(app, "text").select_index(1).run()
    assert not app.error, "it goes with the next text"


def test_an_uploaded_and_a_pasted_text_are_read(client):
    app = opened()
    app.file_uploader(key="upload_0").upload("mine.txt", b"some words of my own " * 9)
    app.run()
    assert client.store.text(app.query_params["text"])[0] == "mine.txt"
    assert part(app, "painted")["pieces"][0] == "some"
    app.text_area(key="paste_1").set_value("quite another text, to be read as well " * 5).run()
    app.button(key="read_paste").click().run()
    assert part(app, "painted")["pieces"][0] == "quite" and not app.error
    app.button(key="read_paste").click().run()
    assert "empty" in app.error[0].value


def test_several_files_come_in_at_once_and_say_what_was_read(client):
    app = opened()
    book = notebook(("markdown", "some words of my own " * 9))
    files = [("bad.ipynb", b"{"), ("mine.ipynb", book), ("more.txt", b"quite other words " * 9)]
    app.file_uploader(key="upload_0").set_value([(*file, "text/plain") for file in files]).run()
    assert (
        client.store.text(app.query_params["text"])[0] == "mine.ipynb" and part(app, "painted")["pieces"][0] == "some"
    )
    assert "bad.ipynb is no notebook" in app.error[0].value.replace("\\", "") and len(app.error) == 1
    said = "mine.ipynb was read. Notebook: 1 text cell and 0 code cells read; outputs left out; 45 words. "
    said += "Check it in the chip Text. The list there has all 2 files."
    assert said in markup(app)
    assert {"mine.ipynb", "more.txt"} <= set(in_chip(app, "text").options)
    app.switch_page("views/softmax_temperature.py").run()
    assert said not in markup(app) and "mine.ipynb" in in_chip(app, "text").options
    app.switch_page("views/start.py").run()
    assert said not in markup(app), "it stood on the page where the files came"


@pytest.mark.parametrize("name", ["../outside", "/etc", "a b", ""])
def test_a_bad_model_gets_one_sentence_and_the_model_in_use_stays(client, name):
    app = opened()
    app.text_input(key="model_name").set_value(name).run()
    app.button(key="load_model").click().run()
    assert not app.exception and len(app.error) == 1
    assert app.session_state["model"] == "demo" and part(app, "painted")


def test_a_link_to_a_model_that_cannot_be_loaded_says_so_once_and_offers_the_way_back(client):
    app = opened(model="no/such")
    assert len(app.error) == 1 and "no/such" in app.error[0].value.replace("\\", "")
    app.button(key="way_back").click().run()
    assert not app.error and part(app, "painted") and "model" not in app.query_params


def test_a_router_nobody_fitted_is_dropped_from_a_link(client):
    app = opened(router="k64-top4")
    assert app.query_params["router"] == "k4-top1" and not app.error
    assert any("k64-top4" in caption.value.replace("\\", "") for caption in app.caption)
