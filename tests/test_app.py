"""Every page in-process with hand-made results: what it shows, what it refuses, and that nothing breaks it."""

import json
from pathlib import Path

import numpy as np
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from analysis.errors import BadText
from analysis.runs import Result, RunStore
from app import cached
from tests.made_results import CONTEXT, STUDIES, FakeJobs, status

ENTRY = str(Path(__file__).resolve().parent.parent / "app" / "streamlit_app.py")
VIEWS = {
    "start": ("views/start.py", "What does the model read in this text?"),
    "groups": ("views/token_groups.py", "Which tokens did the model learn to treat alike?"),
    "pairs": ("views/long_range_pairs.py", "Which far-apart tokens belong together?"),
}
HOSTILE = "<script>alert(1)</script> **bold** [link](http://x) $a$ :red[b] <img src=x> \n# head\n=1+1 "
HOSTILE += "مرحبا بالعالم 你好世界 👩‍👩‍👧"


def opened(view: str = "start", **link: str) -> AppTest:
    """The app at one page, with what a link carried."""
    app = AppTest.from_file(ENTRY, default_timeout=30)
    for name, value in link.items():
        app.query_params[name] = value
    app.run()
    if view != "start":
        app.switch_page(VIEWS[view][0]).run()
    assert not app.exception, app.exception[0].message
    return app


def part(app: AppTest, name: str, at: int = 0) -> dict:
    """The data of one of the app's own components."""
    found = [element.proto for element in app.get("bidi_component")]
    return json.loads([proto.json for proto in found if proto.component_name == f"focuscope_{name}"][at])[0]


def markup(app: AppTest) -> str:
    return "\n".join(element.value for element in app.html)


def put(client: FakeJobs, text: str, name: str = "mine") -> str:
    return client.store.put_text(text, name)


@pytest.mark.parametrize("view", VIEWS)
def test_a_page_opens_with_its_question_and_a_computed_answer(client, view):
    app = opened(view)
    assert app.title[0].value == VIEWS[view][1]
    assert not app.error and not app.warning
    assert "fs-lead" in markup(app)
    assert "badge[" in " ".join(element.value for element in app.markdown)
    assert any("Your text stays on this machine." in caption.value for caption in app.caption)


def test_start_paints_the_text_and_opens_a_pair_with_both_contexts(client):
    app = opened()
    painted, contexts = part(app, "painted"), part(app, "contexts")
    assert len(painted["pieces"]) == len(painted["paint"]) > CONTEXT
    assert painted["breaks"][0] == CONTEXT and painted["open"] == 0 and len(painted["arcs"]) == 6
    assert painted["paint"][:7] == [-1, 0, 1, 2, 3, 4, -1]  # 0.5, 1, 2, 4, 8, 16 times chance, and no number
    key, query = contexts["panels"]
    assert (key["role"], query["role"]) == ("key", "query")
    assert key["pieces"][key["hit"]] == painted["pieces"][painted["arcs"][0]["key"]]


def test_a_link_opens_its_pair_and_a_pair_of_another_text_falls_back_to_the_strongest(client):
    text = put(client, " ".join(f"word{i}" for i in range(40)))
    assert part(opened(text=text, pair="1.1.38.1"), "painted")["open"] == 1
    assert part(opened(text=text, pair="9.9.9.9"), "painted")["open"] == 0


def test_groups_show_controls_labels_and_the_badge(client):
    app = opened("groups", layer="2", group="1")
    assert "not trained" in " ".join(element.value for element in app.markdown)
    painted, table = part(app, "painted"), part(app, "table")
    assert painted["isolate"] == 1 and painted["paint"][:5] == [2, 3, 0, 1, 2]
    assert [column["label"] for column in table["columns"]][:2] == ["group", "label"] and table["selected"] == 1
    shares, layers, vectors = (json.loads(chart.proto.spec) for chart in app.get("plotly_chart"))
    assert {trace["name"] for trace in shares["data"]} >= {"this router", "random centroids", "shuffled text"}
    assert any("1/K = 25.0%" in trace["name"] for trace in layers["data"])
    assert len(vectors["data"]) == 4 and all(trace["type"] == "scattergl" for trace in vectors["data"])


def test_the_layer_is_shared_between_pages_and_a_shown_default_is_not_a_choice(client):
    app = opened("groups")
    assert "layer" not in app.query_params
    app.pills(key="layer_pick").set_value(2).run()
    assert app.query_params["layer"] == "2"
    app.switch_page(VIEWS["pairs"][0]).run()
    assert app.selectbox(key="layer").value == 2


def test_pairs_are_filtered_by_the_controls(client):
    app = opened("pairs", distance="16")
    assert part(app, "table")["selected"] == 0
    assert part(app, "table")["columns"][0]["label"] == "query (attends)"
    app.select_slider(key="distance").set_value(32).run()
    assert app.info[0].value.startswith("No pair is left")
    assert app.query_params["distance"] == "32"
    lift, mass = (json.loads(chart.proto.spec) for chart in app.get("plotly_chart"))
    assert [trace["name"] for trace in lift["data"]][-1] == "chance (1.0)"
    assert any("chance" in trace["name"] for trace in mass["data"])


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
    assert app.title[0].value == VIEWS[view][1] and app.sidebar.selectbox(key="text_pick").value


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
    assert not app.exception and len(app.sidebar.error) == 1
    sentence = app.sidebar.error[0].value.replace("\\", "")
    assert words in sentence and "bad_*file*.bin" in sentence
    assert app.query_params["text"] == before and app.title and part(app, "painted")
    app.run()
    assert app.sidebar.error, "a rerun of the page does not swallow the sentence"
    app.selectbox(key="text_pick").select_index(1).run()
    assert not app.sidebar.error, "it goes with the next text"


def test_an_uploaded_and_a_pasted_text_are_read(client):
    app = opened()
    app.file_uploader(key="upload_0").upload("mine.txt", b"some words of my own " * 9)
    app.run()
    assert client.store.text(app.query_params["text"])[0] == "mine.txt"
    assert part(app, "painted")["pieces"][0] == "some"
    app.text_area(key="paste_1").set_value("quite another text, to be read as well " * 5).run()
    app.button(key="read_paste").click().run()
    assert part(app, "painted")["pieces"][0] == "quite" and not app.sidebar.error
    app.button(key="read_paste").click().run()
    assert "empty" in app.sidebar.error[0].value


@pytest.mark.parametrize("name", ["no/such", "../outside", "/etc", "a b", ""])
def test_a_bad_model_gets_one_sentence_and_the_model_in_use_stays(client, name):
    app = opened()
    app.text_input(key="model_name").set_value(name).run()
    app.button(key="load_model").click().run()
    assert not app.exception and len(app.sidebar.error) == 1
    assert app.session_state["model"] == "demo" and part(app, "painted")


def test_a_link_to_a_model_that_cannot_be_loaded_says_so_once_and_offers_the_way_back(client):
    app = opened(model="no/such")
    assert len(app.error) == 1 and "no/such" in app.error[0].value.replace("\\", "")
    app.button(key="way_back").click().run()
    assert not app.error and part(app, "painted") and "model" not in app.query_params


def test_a_router_nobody_fitted_is_dropped_from_a_link(client):
    app = opened(router="k64-top4")
    assert app.query_params["router"] == "k4-top1" and not app.error
    assert any("k64-top4" in caption.value.replace("\\", "") for caption in app.sidebar.caption)


def test_another_model_is_used_when_the_worker_accepts_it(client):
    app = opened("groups", layer="2")
    app.text_input(key="model_name").set_value("owner/tiny").run()
    app.button(key="load_model").click().run()
    assert not app.sidebar.error and app.query_params["model"] == "owner/tiny"
    assert "layer" not in app.query_params
    app.button(key="demo_model").click().run()
    assert "model" not in app.query_params


def test_loading_a_model_says_its_price_before(client, tmp_path, monkeypatch):
    from analysis import places

    def said(name):
        app.text_input(key="model_name").set_value(name).run()
        assert not app.exception and not app.sidebar.error
        return markup(app)

    monkeypatch.setattr(places, "CACHE", tmp_path)
    for name, size in (("small", 10**6), ("large", 10**9)):
        (tmp_path / name).mkdir()
        with open(tmp_path / name / "model.safetensors", "wb") as file:
            file.truncate(size)
    app = opened()
    assert "another one is downloaded first" in said("") and "downloaded first" in said("no/such")
    assert "First time on this machine: perhaps 10 s" in said("large") and "1.0 GB of weights" in said("large")
    for name, size, took in (("owner/tiny", 10**6, 2.51), ("owner/other", 10**9, 5.0)):  # half of what was guessed
        made = STUDIES["model"]({"model": name}, None)
        made.numbers["weight_bytes"] = size
        client.store.put("model", {"model": name}, made, made.numbers["protocol"], took)
    assert "About 2.5 s (2.5 s to 2.5 s, from 2 runs on this machine" in said("small")
    assert "used at once" in said("owner/tiny") and client.asked.count("model") == 1


def test_a_long_job_is_submitted_watched_cancelled_and_resumed(client):
    app = opened("groups")
    app.button(key="fit_run").click().run()
    assert app.query_params["job"] == "0123456789ab" and "queue" in app.get("progress")[0].proto.text
    client.states["0123456789ab"] = status("running", fraction=0.4, stage="fitting <b>", seconds_left=130)
    app.run()
    assert "40%, about 2 min left" in app.get("progress")[0].proto.text
    app.button(key="job_cancel").click().run()
    assert "cancelled" in app.warning[0].value
    app.button(key="job_resume").click().run()
    assert app.get("progress")
    client.states["0123456789ab"] = status("failed", error="The disk is full: free 1 GB.")
    app.run()
    assert app.error[0].value == "The disk is full\\: free 1 GB\\." and app.title
    app.button(key="job_dismiss").click().run()
    assert "job" not in app.query_params and not app.error


def test_a_finished_fit_offers_its_router(client):
    done = status("done", fraction=1.0, args={"model": "demo", "groups": 6, "top": 2})
    client.states["0123456789ab"] = done
    app = opened("groups", job="0123456789ab")
    assert any("fit-router is done" in element.value for element in app.markdown)
    app.button(key="job_use").click().run()
    assert app.query_params["router"] == "k6-top2" and "job" not in app.query_params


def test_a_link_to_an_unknown_job_loses_it(client):
    app = opened(job="abcdefabcdef")
    assert any("not known here" in caption.value for caption in app.caption)
    assert "job" not in app.query_params and app.title


def test_a_missing_umap_has_a_button_with_its_price_and_a_stored_one_is_drawn(client):
    app = opened("groups")
    app.get("segmented_control")[-1].set_value("UMAP").run()
    assert app.button(key="groups_umap") and "on this machine" in markup(app)
    assert len(app.get("plotly_chart")) == 2
    args = {"model": "demo", "text": app.query_params["text"], "router": "k4-top1", "long_text": "windows", "layer": 1}
    arrays = {"umap": np.zeros((5, 2), np.float32), "positions": np.arange(5, dtype=np.int32)}
    client.store.put("umap", args, Result({"protocol": {}}, {}, arrays), {}, 1.0)
    app.run()
    drawn = json.loads(app.get("plotly_chart")[2].proto.spec)
    assert drawn["layout"]["xaxis"]["title"]["text"] == "UMAP 1 (no unit)"


def test_an_expensive_request_waits_for_its_button(client):
    key = cached.samples()[0][0]
    for seed in range(2):
        args = {"model": "demo", "text": key, "router": "k4-top1", "seed": seed, "long_text": "windows"}
        made = STUDIES["groups"](args, "some words")
        client.store.put("groups", args, made, {"tokens": 2, "model": "demo"}, 100.0)
    app = opened("groups")
    assert "groups" not in client.asked and "About" in markup(app)
    next(button for button in app.button if button.key.startswith("run_groups_")).click().run()
    assert "groups" in client.asked and part(app, "painted")


def test_a_long_text_is_offered_in_windows_or_cut(client):
    app = opened(text=put(client, "word " * (CONTEXT + 5)))
    assert "64" in app.get("segmented_control")[0].label
    app.get("segmented_control")[0].set_value("first").run()
    assert app.query_params["long_text"] == "first"


def test_notes_are_shown_beside_the_result(client):
    assert "A note to &lt;read&gt;." in markup(opened())


def test_an_example_says_so_and_asks_no_worker(client, tmp_path, monkeypatch):
    app = opened()
    shelf = tmp_path / "examples"
    for run in client.store.list():
        client.store.export_example(run.id, shelf)
    st.cache_data.clear()
    fresh = RunStore(tmp_path / "fresh", examples=shelf)
    monkeypatch.setattr(cached, "store", lambda: fresh)
    client.asked.clear()
    app = opened()
    assert client.asked == []
    assert "example" in " ".join(element.value for element in app.markdown)
    fresh.close()


def test_the_numbers_of_a_chart_are_a_table_and_a_file(client):
    app = opened()
    app.session_state["start_distance_numbers"] = True
    app.run()
    table = part(app, "table")
    assert [column["label"] for column in table["columns"]] == ["low", "high", "mass", "uniform"]
    assert table["columns"][0]["values"] == [0, 1, 2]
