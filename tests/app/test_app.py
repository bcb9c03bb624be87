"""Every page in-process with hand-made results: what it shows, its jobs and their prices."""

import json

import numpy as np
import pytest
import streamlit as st
from streamlit.runtime.pages_manager import PagesManager

from analysis.commands import COMMANDS
from analysis.runs import Result, RunStore
from app import cached
from app.ui import charts
from app.ui.jobs import progress_words
from app.ui.spelled import plain
from tests.made.in_process import VIEWS, in_chip, markup, opened, part, put
from tests.made.results import CONTEXT, STUDIES, status


@pytest.mark.parametrize("view", VIEWS)
def test_a_page_opens_with_its_question_and_a_computed_answer(client, view):
    app = opened(view)
    assert app.title[0].value == VIEWS[view][1]
    assert not app.error and not app.warning
    assert "fs-lead" in markup(app)
    assert "badge[" in " ".join(element.value for element in app.markdown)
    assert any("Your text stays on this machine." in caption.value for caption in app.caption)


@pytest.mark.parametrize("address, said", [("no-such-page", True), ("", False), ("tour", False)])
def test_an_address_without_a_page_is_said(client, monkeypatch, address, said):
    monkeypatch.setattr(PagesManager, "intended_page_name", address)
    if said:
        monkeypatch.setattr(PagesManager, "intended_page_script_hash", "")
    app = opened("views/tour.py" if address == "tour" else "start")
    found = [caption.value for caption in app.caption if plain(f"“{address}”") in caption.value]
    assert len(found) == said and not app.error


def chips(app) -> list[str]:
    """What the bar on top of the page says is in use."""
    return [block.proto.popover.label.partition(":")[0] for block in app.get("popover") if "_chip_" in block.proto.id]


@pytest.mark.parametrize(
    "view, shown",
    [
        ("start", ["Text", "Model", "Groups"]),
        ("views/attention_heads.py", ["Text", "Model"]),
        ("views/is_it_worth_it.py", ["Model"]),
        ("views/runs.py", []),
    ],
)
def test_the_bar_shows_what_a_page_uses(client, view, shown):
    app = opened(view)
    assert chips(app) == shown and not app.sidebar.children
    assert part(app, "link")["label"] == "Copy link"


def test_a_model_of_random_weights_is_said_on_every_page_that_uses_it(client, monkeypatch):
    caution, told = "The weights are random: only time and memory", STUDIES["model"]
    made = lambda *given: Result(told(*given).numbers | {"caution": caution})  # noqa: E731
    monkeypatch.setitem(STUDIES, "model", made)
    assert caution in markup(opened()) and caution in markup(opened("views/is_it_worth_it.py"))


def test_choosing_closes_the_chip_and_empties_its_fields(client):
    app = opened()
    before = {block.proto.id for block in app.get("popover")}
    app.text_area(key="paste_0").set_value("quite another text, to be read as well " * 5).run()
    app.button(key="read_paste").click().run()
    assert app.text_area(key="paste_1").value == ""
    assert len(before - {block.proto.id for block in app.get("popover")}) == 1, "only the text's own chip is new"


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


def test_a_clicked_token_says_who_reads_it_and_leads_to_its_heads(client):
    text = put(client, " ".join(f"word{i}" for i in range(40)))
    app = opened(text=text, query=39)
    assert part(app, "painted")["locked"] == 39 and part(app, "painted")["clickable"]
    assert "It reads “word0” 39 tokens back: 90% of the attention of head 0 in layer 0." in markup(app)
    link = next(one.proto for one in app.get("page_link") if one.proto.label == "Open in Attention heads")
    assert "query=39" in link.query_string and "layer=0" in link.query_string
    assert "It is read by “word39” 39 tokens later" in markup(opened(text=text, query=0))
    readers = {column["label"]: column["shown"] for column in part(opened(text=text, query=0), "table")["columns"]}
    assert readers["read by"] == ["word1", "word2"] and readers["gives it"] == ["80.0%", "10.0%"]
    assert "Token 39 is read." in markup(app)
    assert "It stands in none of the 6 strongest far pairs" in markup(opened(text=text, query=20))
    assert "Open in Attention heads" not in [one.proto.label for one in opened(text=text).get("page_link")]


def test_groups_show_controls_labels_and_the_badge(client):
    app = opened("groups", layer="2", group="1")
    assert "not trained" in " ".join(element.value for element in app.markdown)
    painted, table = part(app, "painted"), part(app, "table")
    assert painted["isolate"] == 1 and painted["paint"][:5] == [2, 3, 0, 1, 2]
    assert [column["label"] for column in table["columns"]][:2] == ["group", "label"] and table["selected"] == 1
    shares, layers, vectors = (json.loads(chart.proto.spec) for chart in app.get("plotly_chart"))
    assert {trace["name"] for trace in shares["data"]} >= {"this router", "random centroids", "shuffled text"}
    assert any("1/K = 25.0%" in trace["name"] for trace in layers["data"])
    assert len(vectors["data"]) == 4 and all(trace["type"] == "scatter" for trace in vectors["data"])


def test_a_map_of_too_many_points_draws_some_and_says_so(client, monkeypatch):
    monkeypatch.setattr(charts, "MOST_POINTS", 20)
    app = opened("groups")
    *_, vectors = (json.loads(chart.proto.spec) for chart in app.get("plotly_chart"))
    drawn = sorted(at for trace in vectors["data"] for at in trace["customdata"])
    count = len(part(app, "painted")["pieces"])
    assert drawn == [at * count // 20 for at in range(20)] and count > 40
    assert any(f"20 of the {count:,} tokens are drawn" in caption.value for caption in app.caption)
    assert list(charts.sampled(20)) == list(range(20)) and len(set(charts.sampled(21))) == 20


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
    assert "“" in markup(app) and "The same token: a copy." in markup(app)
    app.selectbox(key="kind").set_value("induction").run()
    table = {column["label"]: column["values"] for column in part(app, "table")["columns"]}
    assert table["kind"] == ["induction"] * 2 and app.query_params["kind"] == "induction"
    assert "2 of the 6 strongest pairs: induction" in [one.value for one in app.subheader]
    assert "what came next after an earlier copy of the query&#x27;s token: induction." in markup(app)
    app.selectbox(key="kind").set_value(None).run()
    app.select_slider(key="distance").set_value(32).run()
    assert app.info[0].value.startswith("No pair is left")
    assert app.query_params["distance"] == "32"
    lift, mass = (json.loads(chart.proto.spec) for chart in app.get("plotly_chart"))
    assert [trace["name"] for trace in lift["data"]][-1] == "chance (1.0)"
    assert any("chance" in trace["name"] for trace in mass["data"])


@pytest.mark.parametrize(("beside", "asked"), [("text", "The Watch Book"), ("model", "demo-gpt2")])
def test_what_another_text_or_model_reads_stands_beside_on_start(client, beside, asked):
    app = opened("start", start_beside=beside)
    assert not app.error and asked in [one.value for one in app.subheader] and client.asked.count("start") == 2
    sides = [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")][-2:]
    assert sides[0]["layout"]["yaxis"]["range"] == sides[1]["layout"]["yaxis"]["range"]


@pytest.mark.parametrize(("beside", "asked"), [("text", "The Watch Book"), ("model", "demo-gpt2")])
def test_pairs_of_another_text_or_model_stand_beside(client, beside, asked):
    app = opened("pairs", distance="16", pairs_beside=beside, layer="1")
    assert not app.error and asked in [one.value for one in app.subheader] and client.asked.count("pairs") == 2
    mine, second = (part(app, "table", at) for at in (1, 2))
    assert [one["label"] for one in mine["columns"]] == [one["label"] for one in second["columns"]]
    lifts = [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")][-2:]
    assert lifts[0]["layout"]["yaxis"]["range"] == lifts[1]["layout"]["yaxis"]["range"]
    request = client.store.list("pairs", 1)[0].request
    assert request["layer"] == (1 if beside == "text" else None), "layers of another model are others"
    app.segmented_control(key="pairs_beside_pick").set_value("nothing").run()
    assert "pairs_beside" not in app.query_params


def test_another_model_is_used_when_the_worker_accepts_it(client):
    made = STUDIES["model"]({"model": "owner/tiny"}, None)
    client.store.put("model", {"model": "owner/tiny"}, made, made.numbers["protocol"], 1.0)
    app = opened("groups", layer="2")
    app.text_input(key="model_name").set_value("owner/tiny").run()
    app.button(key="load_model").click().run()
    assert not app.error and app.query_params["model"] == "owner/tiny"
    assert "layer" not in app.query_params
    in_chip(app, "model").set_value("demo").run()
    assert "model" not in app.query_params


def test_loading_a_model_says_its_price_before(client, tmp_path, monkeypatch):
    from analysis import places

    def said(name):
        app.text_input(key="model_name").set_value(name).run()
        assert not app.exception and not app.error
        return markup(app)

    monkeypatch.setattr(places, "CACHE", tmp_path)
    for name, size in (("small", 10**6), ("large", 10**9)):
        (tmp_path / name).mkdir()
        with open(tmp_path / name / "model.safetensors", "wb") as file:
            file.truncate(size)
    app = opened()
    assert "press Enter" in said("")
    assert "First time on this machine: perhaps 10 s" in said("large") and "1.0 GB of weights" in said("large")
    for name, size, took in (("owner/tiny", 10**6, 2.51), ("owner/other", 10**9, 5.0)):  # half of what was guessed
        made = STUDIES["model"]({"model": name}, None)
        made.numbers["weight_bytes"] = size
        client.store.put("model", {"model": name}, made, made.numbers["protocol"], took)
    assert "About 2.5 s (2.5 s to 2.5 s, from 2 runs on this machine" in said("small")
    assert "ready at once" in said("owner/tiny") and client.asked.count("model") == 1


def test_a_stopped_worker_is_said_and_another_one_offered(client):
    client.states["0123456789ab"] = status("running", fraction=0.4, stage="fitting")
    app = opened("groups", job="0123456789ab")
    assert "job_restart_0123456789ab" not in [button.key for button in app.button]
    client.stopped["0123456789ab"] = 21.0
    app.run()
    assert "21 s" in app.get("progress")[0].proto.text
    app.button(key="job_restart_0123456789ab").click().run()
    assert not client.stopped and "fitting" in app.get("progress")[0].proto.text


def test_a_long_job_is_submitted_watched_cancelled_and_resumed(client):
    app = opened("groups")
    app.toggle(key="fit_measure").set_value(True).run()
    app.button(key="fit_run").click().run()
    assert client.states["0123456789ab"].args["measure"] is True
    assert app.query_params["job"] == "0123456789ab" and "queue" in app.get("progress")[0].proto.text
    client.states["0123456789ab"] = status("running", fraction=0.4, stage="fitting <b>", seconds_left=130)
    app.run()
    assert "about 2 min 10 s left" not in progress_words(status("running", fraction=0.05, seconds_left=130))
    assert "40%, about 2 min 10 s left" in app.main.get("progress")[0].proto.text and not app.sidebar.get("progress")
    app.switch_page(VIEWS["pairs"][0]).run()
    assert "40%" in app.get("progress")[0].proto.text, "it stands on every page"
    app.button(key="job_cancel").click().run()
    assert "cancelled" in app.warning[0].value
    app.button(key="job_resume").click().run()
    assert app.get("progress")
    client.states["0123456789ab"] = status("failed", error="The disk is full: free 1 GB.")
    app.run()
    assert app.error[0].value == "The disk is full\\: free 1 GB\\." and app.title
    app.button(key="job_dismiss").click().run()
    assert "job" not in app.query_params and not app.error


def test_all_that_this_session_runs_stands_on_top_and_can_be_cancelled(client, monkeypatch):
    jobs = [status("running", id=f"{at:012x}", verb=verb) for at, verb in enumerate(("launch", "bench"), 1)]
    client.states |= {job.id: job for job in jobs}
    monkeypatch.setattr(client, "active", lambda session=None: [job for job in jobs if session])
    app = opened(job=jobs[1].id)
    shown = [bar.proto.text.partition(" (")[0].partition(":")[0] for bar in app.get("progress")]
    assert shown == [COMMANDS[verb].brief for verb in ("bench", "launch")]
    cancelled = []
    monkeypatch.setattr(client, "cancel", cancelled.append)
    app.button(key=f"job_cancel_{jobs[0].id}").click().run()
    app.button(key="job_cancel").click().run()
    assert cancelled == [jobs[0].id, jobs[1].id]


def test_a_finished_fit_offers_its_router(client):
    done = status("done", fraction=1.0, args={"model": "demo", "groups": 6, "top": 2})
    client.states["0123456789ab"] = done
    app = opened("groups", job="0123456789ab")
    assert any("Done: A Focus router without training" in element.value for element in app.markdown)
    app.button(key="job_use").click().run()
    assert app.query_params["router"] == "k6-top2" and "job" not in app.query_params


def test_a_finished_fit_says_what_moved_to_the_trash(client):
    args = {"model": "demo", "groups": 6, "top": 2}
    said = "2 runs that used the router k6-top2 moved to the trash"
    run = client.store.put("fit-router", args, Result({"notes": [said], "protocol": {}}), {}, 1.0)
    client.states["0123456789ab"] = status("done", fraction=1.0, args=args, run_id=run.id)
    assert said in markup(opened("groups", job="0123456789ab"))


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
    for seed in (1, 2):  # not 0, the default, which the page asks for
        args = {"model": "demo", "text": key, "router": "k4-top1", "seed": seed, "long_text": "windows"}
        made = STUDIES["groups"](args, "some words")
        client.store.put("groups", args, made, {"tokens": 2, "model": "demo"}, 100.0)
    app = opened("groups")
    assert "groups" not in client.asked and "About" in markup(app)
    offered = next(button for button in app.button if button.key.startswith("run_groups_"))
    offered.click().run()
    assert "groups" in client.asked and part(app, "painted")
    assert offered.key not in [button.key for button in app.button], "it stands above its result"


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
