"""Routing in-process with hand-made results: budget, distance, tabs, one token, costs, the reader's own texts."""

import pytest

from analysis.errors import BadText, NotFitted
from analysis.studies.routing.rows import NAMES
from analysis.studies.take.settings import settings_of
from app import cached
from app.routing import bucket_routers, one_token, own_texts
from app.selection import state
from tests.app.heads.test_heads import figures, opened
from tests.made.in_process import markup, part
from tests.made.results import STUDIES
from tests.made.routing import ANSWERS, BUCKETS, MADE, RECALL, put_curves

VIEW = "views/routing.py"


@pytest.fixture(autouse=True)
def client(client, monkeypatch):
    for verb, answer in ANSWERS.items():
        monkeypatch.setitem(STUDIES, verb, answer)
    put_curves(client.store)
    return client


def page(**link: object):
    return opened(VIEW, **link)


def cells(app, at: int = 0) -> dict:
    return {column["label"]: column["shown"] for column in part(app, "table", at)["columns"]}


def test_the_page_opens_with_its_answer_and_two_charts(client):
    app = page()
    assert app.title[0].value == "Can a router find what a token would read?" and not app.error
    assert "Visiting 2 of 64 buckets, GWR linear finds 40.0% (stored)." in markup(app)
    assert "calibrated on 12 documents, tested on 11 others" in markup(app)
    recall, selectivity = figures(app)
    assert recall["layout"]["xaxis"]["type"] == "log" and recall["layout"]["shapes"][0]["x0"] == 2 / BUCKETS
    named = {trace["name"] for trace in recall["data"]}
    assert named == {*(look.title for look in bucket_routers.ROUTERS.values()), "printed in the paper"}
    (printed,) = [trace for trace in recall["data"] if trace["name"].startswith("printed") and trace["y"] == [0.884]]
    assert printed["x"] == [128 / 1024] and "open" in printed["marker"]["symbol"]
    marks = next(t for t in recall["data"] if t["name"] == "GWR linear" and "error_y" in t)
    assert len(marks["x"]) == 4 and marks["error_y"]["array"][0] == pytest.approx(0.01)
    assert client.asked.count("route-at") == 1 and client.store.list("route-at", 1)[0].request["made"] == MADE
    table = cells(app)
    assert table["router"][:2] == ["oracle", "Saap-style MLP"] and table["router"][4] == "GWR linear"
    assert table["paper: recall"][4] == "72.6%"
    assert table["gap closed, mean of heads"][4] == "75.0%" and table["95% interval"][4] == "39.0 to 41.0"


def test_the_budget_moves_live_and_stands_in_the_url(client):
    app = page()
    app.slider(key="route_l_pick").set_value(3.25).run()
    assert app.query_params["route_l"] == "3.25" and "Visiting 3.25 of 64" in markup(app)
    assert client.store.list("route-at", 1)[0].request["visited"] == 3.25
    app = page(route_l="999")
    assert "Visiting 2 of 64" in markup(app) and any("number of buckets" in c.value for c in app.caption)


def test_distances_sinks_and_buckets_are_chosen_among_what_is_stored(client):
    app = page()
    assert app.segmented_control(key="route_distance").options == ["16", "64"]
    assert [name.split(",")[0] for name in app.selectbox(key="route_partition").options] == [
        "raw keys",
        "whitened keys",
    ]
    app.selectbox(key="route_partition").set_value("whitening").run()
    assert client.store.list("route-at", 1)[0].request["partition"] == "whitening"
    assert cells(app)["router"] == ["oracle", "whitening only", "random"]
    assert "gap closed, mean of heads" not in cells(app)
    app.segmented_control(key="route_distance").set_value(16).run()
    app.toggle(key="route_sinks").set_value(True).run()
    asked = client.store.list("route-at", 1)[0].request
    assert (asked["min_distance"], asked["sinks"], asked["partition"]) == (16, 4, "raw keys")
    assert not app.error and app.query_params["route_distance"] == "16"
    app = page(route_distance="7")
    assert any("minimum distance" in caption.value for caption in app.caption)


def test_the_chosen_text_can_be_the_test(client):
    app = page(route_on="text", route_distance=16)
    asked = client.store.list("route-at", 1)[0].request
    assert asked["text"] == cached.samples()[0][0] and asked["min_distance"] == 16
    assert "(your text)" in markup(app) and "Tried at 16." in markup(app)
    client.refusals["route-at"] = BadText("mine has 12 tokens: it must be at least 65 tokens long.")
    app.segmented_control(key="route_distance").set_value(64).run()
    assert len(app.error) == 1 and "at least 65 tokens long" in app.error[0].value.replace("\\", "")


def test_gap_closure_both_ways_with_the_paper_beside_one(client):
    first, second = figures(page(route_tab="closure"))
    printed = first["data"][-1]
    assert printed["name"] == "printed in the paper" and printed["y"] == [pytest.approx(0.443)]
    assert "printed in the paper" not in [trace["name"] for trace in second["data"]]
    linear = next(trace for trace in second["data"] if trace["name"] == "GWR linear")
    assert linear["y"] == [pytest.approx(0.75)] * 4 and linear["error_y"]["arrayminus"][0] == pytest.approx(0.1)
    assert "no gap to close" in markup(page(route_tab="closure", route_partition="whitening")).lower()


def test_a_head_is_chosen_on_the_map_or_in_the_table(client):
    app = page(route_tab="heads")
    rows = part(app, "table", 0)
    assert rows["selected"] == 4, "where GWR linear finds most"
    assert cells(app)["gap closure"][0] == "50.0%" and cells(app, 1)["head (layer, head)"] == ["L2-H0"]
    app.session_state["routing_map"] = {
        "selection": {"points": [{"customdata": [1, 1]}], "point_indices": [3], "box": [], "lasso": []}
    }
    app.run()
    assert app.query_params["layer"] == "1" and app.query_params["head"] == "1"
    assert part(app, "table", 0)["selected"] == 3
    app.selectbox(key="route_measure").set_value("over_prior").run()
    assert (
        figures(app)[0]["data"][0]["z"][0][0] == pytest.approx(0.1)
        and app.query_params["route_measure"] == "over_prior"
    )


def test_one_token_is_painted_with_what_is_found_and_missed(client):
    app = page(route_tab="token", layer=1, head=1, query=60)
    asked = client.store.list("route-visit", 1)[0].request
    assert (asked["layer"], asked["head"], asked["position"], asked["min_distance"]) == (1, 1, 60, 64)
    shown = part(app, "painted")
    assert shown["locked"] == 60 and shown["paint"][0] == shown["paint"][1] == 1 and shown["paint"][2] == 4
    assert shown["paint"][58] == 7 and shown["paint"][61] == -1, "too near; after the token"
    assert [tip["label"] for tip in shown["tips"]] == ["attention", "bucket", "router's place"]
    assert "GWR linear visits 2 of 64 buckets" in markup(app)
    app.slider(key="route_l_pick").set_value(4.0).run()
    assert client.asked.count("route-visit") == 1, "another budget needs no pass"
    assert part(app, "painted")["paint"][2] == 1 and "visits 4 of 64 buckets" in markup(app)
    app.selectbox(key="route_router").set_value("recency").run()
    assert client.store.list("route-visit", 1)[0].request["router"] == "recency"


def test_without_far_attention_nothing_is_found_or_missed():
    tokens = {"bucket": [0, 1, -1], "far": [True, False, False], "attention": [0.0, 1.0, 0.0]}
    paint, palette = one_token.paint(tokens, {0: 0, 1: 1}, 1, 0.0)
    assert paint == [6, 7, -1] and len(palette) == 8


def test_what_it_costs_and_a_timed_step(client):
    app = page(route_tab="cost")
    assert cells(app)["seconds to fit, all heads"] == ["1.50"] * len(RECALL) and "1 thread, 2026-01-01" in markup(app)
    assert [trace["name"] for trace in figures(app)[0]["data"]][:2] == ["text that calibrated", "text that tests"]
    app.button(key="routing_time").click().run()
    job = client.states["0123456789ab"]
    assert job.verb == "route-time" and job.args["router"] == "gwr_linear" and job.args["visited"] == 2
    client.request("route-time", job.args)
    app.run()
    assert "One more token takes 5.0 ms." in markup(app) and cells(app, 1)["one more token"] == [
        "dense",
        "bucket routing",
    ]


def test_own_texts_are_a_job_and_its_result_is_shown(client):
    app = page(route_tab="fit")
    assert "Choose at least 6 texts above" in markup(app)
    keys = [client.store.put_text(f"text number {at} " * 30, f"t{at}") for at in range(6)]
    app = page(route_tab="fit", route_corpus="+".join(keys), route_heads="0:0,2:1", route_buckets=4, route_own="yes")
    app.button(key="route_run").click().run()
    job = client.states["0123456789ab"]
    assert job.verb == "route" and job.args["texts"] == keys and job.args["corpus"] == ""
    assert (job.args["heads"], job.args["buckets"], job.args["own"], job.args["length"]) == ("0:0,2:1", 4, True, 64)
    client.request("route", job.args)
    app.run()
    assert "On your texts GWR linear finds 40.0%." in markup(app) and len(figures(app)) == 2
    assert cells(app, 1)["router"] == ["oracle", "whitening only", "random"]
    app.text_input(key="route_heads").set_value("first").run()
    assert app.text_input(key="route_heads").value == "all"


def test_one_long_text_is_cut_into_parts(client):
    app = page(route_tab="fit")
    assert not any(button.key == "route_run" for button in app.button)
    app.button(key="route_cut").click().run()
    chosen = app.session_state["route_corpus"].split("+")
    name, whole = client.store.text(app.session_state["text"])
    assert "".join(client.store.text(key)[1] for key in chosen) == whole and len(chosen) == 6
    assert client.store.text(chosen[5])[0] == f"{name}, part 6 of 6"
    assert any(button.key == "route_run" for button in app.button)
    assert own_texts.parts("ab cd\nef gh ij", 3) == ["ab cd\n", "ef gh ", "ij"]


def test_several_texts_come_in_at_once(client):
    app = page(route_tab="fit")
    files = [(f"{n}.txt", f"Text {n}. ".encode() * 30, "text/plain") for n in range(6)]
    app.file_uploader(key="route_upload_0").set_value(files).run()
    assert len(app.session_state["route_corpus"].split("+")) == 6 and not app.error
    assert {client.store.text(key)[0] for key in app.session_state["route_corpus"].split("+")} == {
        name for name, _, _ in files
    }


def test_a_model_without_curves_shows_the_command_and_the_form(client):
    client.refusals["route-at"] = NotFitted("demo has no stored routing curves.")
    app = page()
    assert "not measured on this machine yet for the model demo" in app.info[0].value and not app.error
    assert app.code[0].value == "python -m analysis study routing --corpus DIR --model demo"
    assert "Choose at least 6 texts above" in markup(app)


def test_new_curves_are_not_answered_from_the_cache_of_old_ones(client):
    page()
    put_curves(client.store, "2026-02-02T00:00:00+00:00")
    page()
    assert client.asked.count("route-at") == 2


def test_the_routers_are_those_of_the_analysis():
    stored = [kind for kind in NAMES if kind not in bucket_routers.ABLATIONS]
    assert all(state.CONTROLS["route_router"].from_address(kind) == kind for kind in stored)
    for kind in bucket_routers.ABLATIONS:
        with pytest.raises(ValueError):
            state.CONTROLS["route_router"].from_address(kind)
    assert {kind: look.title for kind, look in bucket_routers.ROUTERS.items()} == NAMES


def test_arguments_are_those_of_the_verbs(client):
    from analysis.runs.arguments import check_arguments
    from analysis.studies import STUDIES as REAL

    page(route_tab="token")
    for verb in ("route-at", "route-visit"):
        for run in client.store.list(verb, 5):
            assert check_arguments(verb, REAL[verb], run.request)
    keys = [client.store.put_text(f"text number {at} " * 30, f"t{at}") for at in range(6)]
    app = page(route_tab="fit", route_corpus="+".join(keys))
    app.button(key="route_run").click().run()
    assert check_arguments("route", REAL["route"], client.states["0123456789ab"].args)
    app = page(route_tab="cost")
    app.button(key="routing_time").click().run()
    assert check_arguments("route-time", REAL["route-time"], client.states["0123456789ab"].args)


def test_what_the_slider_says_can_be_taken_along(client):
    client.refusals["take"] = BadText("The packing is tried elsewhere.")
    app = page(route_l="3.25")
    app.button(key="routing_make").click().run()
    assert client.asked.count("take") == 1 and [one.value[:11] for one in app.error] == ["The packing"]
    (run,) = [one for one in client.store.list("route-at") if one.request["visited"] == 3.25]
    (setting,) = settings_of(run)
    buckets = int(run.numbers["l"])
    assert setting.spec == {"name": "bucket_routing", "settings": {"visited": buckets}}
    (recall,) = [row["recall"] for row in run.numbers["means"] if row["router"] == "gwr_linear"]
    said = f"visiting 3.25 of 64 buckets, GWR linear finds {recall:.1%} of the far attention;"
    assert setting.quality.startswith(said)
