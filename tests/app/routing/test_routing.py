"""Routing in-process with hand-made results: budget, distance, tabs, one token, costs, the reader's own texts."""

import numpy as np
import pytest

from analysis.commands.quality import ExportEviction
from analysis.commands.routing import Route
from analysis.declaration.command import Shape
from analysis.errors import BadText, NotFitted
from analysis.runs import Result
from analysis.studies.routing.rows import NAMES
from analysis.studies.take.settings import settings_of
from app import cached
from app.routing import bucket_routers, indexers, one_token, own_texts
from app.selection import state
from app.ui import repeat
from app.ui.take import GAINS
from tests.made.in_process import captions, columns, figures, keys, markup, opened, part, select
from tests.made.quality import ANSWERS, DESCRIBED, method
from tests.made.results import protocol
from tests.made.routing import BUCKETS, MADE, RECALL, put_curves


@pytest.fixture(autouse=True)
def client(client, monkeypatch):
    monkeypatch.setitem(DESCRIBED, "bucket_routing", method("Bucket routing", needs="buckets"))
    put_curves(client.store)
    return client


def page(**link: object):
    return opened("routers", **link)


def asked(client, verb: str = "route-at") -> dict:
    return client.store.list(verb, 1)[0].request


def test_the_page_opens_with_its_answer_and_the_curves_of_chance_prior_best_and_oracle(client):
    app = page()
    assert not app.error
    assert app.title[0].value == "Visiting 3% of the buckets, the best router finds 50% of the far attention."
    assert "chance 3%, best possible 70% · fitted on 12 documents, tested on 11 others" in markup(app)
    data = part(app, "routing")
    assert (data["buckets"], data["visited"]) == (BUCKETS, 2.0) and set(data["lines"]) == set(RECALL)
    assert set(data["shown"]) == {"oracle", "mlp", "gwr_linear", "static_prior", "random"}
    linear = next(router for router in data["routers"] if router["kind"] == "gwr_linear")
    assert [ends[0] for ends in linear["intervals"]] == [1, 2, 4, 8]
    assert linear["intervals"][1][1:] == [pytest.approx(0.39), pytest.approx(0.41)]
    assert client.asked.count("route-at") == 1 and asked(client)["made"] == MADE
    assert repeat.TITLE in [expander.label for expander in app.expander], "its code and its bundle can be taken along"
    table = columns(page(route_tab="table"))
    assert table["router"][:2] == ["oracle", "Saap-style MLP"] and table["router"][4] == "GWR linear"
    numbers = [table[name][4] for name in ("paper: recall", "gap closed, mean of heads", "95% interval")]
    assert numbers == ["72.6%", "75.0%", "39.0 to 41.0"]


def test_the_released_budget_stands_in_the_url(client):
    app = page(route_l="3.25")
    assert part(app, "routing")["visited"] == asked(client)["visited"] == 3.25
    assert app.title[0].value.startswith("Visiting 5% of the buckets")
    app = page(route_l="999")
    assert part(app, "routing")["visited"] == 2.0 and "number of buckets" in captions(app)


def test_distances_sinks_and_buckets_are_chosen_among_what_is_stored(client):
    app = page()
    assert app.select_slider(key="route_distance").options == ["16", "64"]
    partitions = [name.split(",")[0] for name in app.selectbox(key="route_partition").options]
    assert partitions == ["raw keys", "whitened keys"]
    app.selectbox(key="route_partition").set_value("whitening").run()
    assert asked(client)["partition"] == "whitening"
    assert {router["title"] for router in part(app, "routing")["routers"]} == {"oracle", "whitening only", "random"}
    app.select_slider(key="route_distance").set_value(16).run()
    app.toggle(key="route_sinks").set_value(True).run()
    request = asked(client)
    assert (request["min_distance"], request["sinks"], request["partition"]) == (16, 4, "raw keys") and not app.error
    assert "minimum distance" in captions(page(route_distance="7"))


def test_the_chosen_text_can_be_the_test(client):
    app = page(route_on="text", route_distance=16)
    assert asked(client)["text"] == cached.samples()[0][0] and asked(client)["min_distance"] == 16
    assert "this text · Tried at 16." in markup(app)
    client.refusals["route-at"] = BadText("mine has 12 tokens: it must be at least 65 tokens long.")
    app.select_slider(key="route_distance").set_value(64).run()
    assert len(app.error) == 1 and "at least 65 tokens long" in app.error[0].value.replace("\\", "")


def test_gap_closure_both_ways(client):
    _, second = figures(page(route_tab="closure"))
    linear = next(trace for trace in second["data"] if trace["name"] == "GWR linear")
    assert linear["y"] == [pytest.approx(0.75)] * 4 and linear["error_y"]["arrayminus"][0] == pytest.approx(0.1)
    assert "no gap to close" in markup(page(route_tab="closure", route_partition="whitening")).lower()


def test_a_head_is_chosen_on_the_map_or_in_the_table(client):
    app = page(route_tab="heads")
    assert part(app, "table")["selected"] == 4, "where GWR linear finds most"
    assert columns(app)["gap closure"][0] == "50.0%"
    app = select(app, "routing_map", [1, 1])
    assert app.query_params["layer"] == "1" and part(app, "table")["selected"] == 3
    app.selectbox(key="route_measure").set_value("over_prior").run()
    assert figures(app)[0]["data"][0]["z"][0][0] == pytest.approx(0.1)


def test_one_token_is_painted_with_what_is_found_and_missed(client):
    link = {"route_tab": "token", "layer": 1, "head": 1, "query": 60}
    app = page(**link)
    request = asked(client, "route-visit")
    assert [request[name] for name in ("layer", "head", "position", "min_distance")] == [1, 1, 60, 64]
    painted = part(app, "painted")
    assert painted["locked"] == 60 and painted["paint"][0] == painted["paint"][1] == 1 and painted["paint"][2] == 4
    assert painted["paint"][58] == 7 and painted["paint"][61] == -1, "too near; after the token"
    assert "GWR linear visits 2 of 64 buckets" in markup(app)
    app = page(**link, route_l="4.0")
    assert client.asked.count("route-visit") == 1, "another budget needs no pass"
    assert part(app, "painted")["paint"][2] == 1 and "visits 4 of 64 buckets" in markup(app)
    app.selectbox(key="route_router").set_value("recency").run()
    assert asked(client, "route-visit")["router"] == "recency"


def test_without_far_attention_nothing_is_found_or_missed():
    tokens = {"bucket": [0, 1, -1], "far": [True, False, False], "attention": [0.0, 1.0, 0.0]}
    paint, palette = one_token.paint(tokens, {0: 0, 1: 1}, 1, 0.0)
    assert paint == [6, 7, -1] and len(palette) == 8


def test_what_it_costs_and_a_timed_step(client):
    app = page(route_tab="cost")
    assert columns(app)["seconds to fit, all heads"] == ["1.50"] * len(RECALL) and "1 thread, 2026-01-01" in markup(app)
    assert [trace["name"] for trace in figures(app)[0]["data"]][:2] == ["text that calibrated", "text that tests"]
    app.button(key="routing_time").click().run()
    assert client.job.verb == "route-time" and client.job.args["router"] == "gwr_linear"
    assert client.job.args["visited"] == 2
    client.done("route-time", client.job.args)
    app.run()
    assert "One more token takes 5.0 ms." in markup(app)
    assert columns(app, 1)["one more token"] == ["dense", "bucket routing"]


def test_own_texts_are_a_job_and_its_result_is_shown(client):
    assert "Choose at least 6 texts above" in markup(page(route_tab="fit"))
    texts = [client.store.put_text(f"text number {number} " * 30, f"t{number}") for number in range(6)]
    app = page(route_tab="fit", route_corpus="+".join(texts), route_heads="0:0,2:1", route_buckets=4, route_own="yes")
    app.button(key="route_run").click().run()
    args = client.job.args
    assert client.job.verb == "route" and args["texts"] == texts and args["corpus"] == ""
    assert [args[name] for name in ("heads", "buckets", "own", "length")] == ["0:0,2:1", 4, True, 64]
    client.done("route", args)
    app.run()
    assert "On your texts GWR linear finds 40.0%." in markup(app) and len(part(app, "routing", 1)["lines"]) == len(
        RECALL
    )
    assert columns(app, 1)["router"] == ["oracle", "whitening only", "random"]
    app.text_input(key="route_heads").set_value("first").run()
    assert app.text_input(key="route_heads").value == "all"


def inside_the_model(args: dict, text: str) -> Result:
    """The second way loses least."""
    rows = [
        {"method": method["name"], "settings": {"window": 64} | method.get("settings", {}), "title": "StreamingLLM"}
        | {"reads_causal": 0.25, "difference": loses, "difference_low": None, "difference_high": None}
        for method, loses in zip(args["methods"], (0.2, 0.1, 0.3), strict=True)
    ]
    return Result({"rows": rows, "notes": [], "protocol": protocol("evaluate", args, 64)})


def test_fitted_indexers_show_the_heads_that_starve_by_name_and_what_they_were_not_offered(client, monkeypatch):
    monkeypatch.setitem(ANSWERS, "evaluate", inside_the_model)
    texts = [client.store.put_text(f"text number {number} " * 30, f"t{number}") for number in range(6)]
    link = {"route_tab": "fit", "route_corpus": "+".join(texts), "route_indexers": "yes"}
    app = page(**link)
    app.button(key="route_run").click().run()
    assert client.job.args["kinds"] == indexers.FITTED and client.job.args["mlp"] is True
    client.done("route", client.job.args)
    app.run()
    assert "DSA loses least: perplexity +10.0%" in markup(app)
    assert columns(app, 1)["reads by"] == ["DSA", "MoBA", "StreamingLLM"]
    inside = asked(client, "evaluate")
    assert (inside["text"], inside["share"], inside["long_text"]) == (texts[-1], 0.25, "first")
    assert [method["name"] for method in inside["methods"]] == ["indexer", "indexer", "streaming_llm"]
    assert "MoBA finds 40%" in markup(app) and "1 of 2 heads get less than half of their best: 5%" in markup(app)
    assert figures(app)[0]["data"][0]["x"] == ["2.1 previous token", "1.0 sink"]
    request = asked(client, "route-visit")
    assert [request[name] for name in ("router", "layer", "head", "min_distance")] == ["dsa", 2, 1, 64]
    assert "DSA offers 2 of the 64 far keys" in markup(app) and part(app, "painted")["locked"] == 63
    app.selectbox(key="route_own_leaves").set_value("dsa").run()
    app.button(key="route_own_certify").click().run()
    leaves = {"method": "indexer", "kind": "dsa", "texts": texts}
    assert client.job.verb == "export-eviction" and leaves.items() <= client.job.args.items()
    about = {"sentence": "It loses 0.01 nats.", "protocol": protocol("export-eviction", client.job.args, 64)}
    bundle = Result(about, arrays={"zip": np.arange(4, dtype=np.uint8)})
    client.store.put(ExportEviction(**client.job.args), bundle, bundle.numbers["protocol"], 1.0)
    app.run()
    assert "It loses 0.01 nats." in markup(app) and not app.exception
    assert not [button for button in app.button if button.key == "route_own_certify"]
    assert [button.proto.label for button in app.get("download_button")].count("dsa.zip") == 1
    app.selectbox(key="route_starved").set_value((1, 0)).run()
    assert [app.query_params[name] for name in ("layer", "head")] == ["1", "0"]
    assert asked(client, "route-visit")["layer"] == 1


def test_the_price_is_that_of_the_kinds_that_are_ticked(client):
    texts = [client.store.put_text(f"text number {number} " * 30, f"t{number}") for number in range(6)]
    prices, about = [], {"route_tab": "fit", "route_corpus": "+".join(texts)}
    for link in ({}, {"route_indexers": "moba"}, {"route_indexers": "dsa~m3"}, {"route_indexers": "yes"}):
        app = page(**about, **link)
        app.button(key="route_run").click().run()
        request = client.job.args
        assert request.get("kinds", []) == [kind for kind in indexers.FITTED if kind in str(link) or "yes" in str(link)]
        prices.append(Route.workload(request, 360, Shape(6, 8)))
    assert prices == sorted(set(prices)), "the more is fitted, the more it costs"
    app = page(**about, route_indexers="dsa")
    app.button_group(key="route_kinds_pick").set_value(["qsa", "dsa"]).run()
    assert app.query_params["route_indexers"] == "dsa~qsa" and not app.error


def test_length_prompts_distances_and_what_is_measured_are_chosen(client):
    """The first distance that is typed is the main one; what stays at its default is not named."""
    texts = [client.store.put_text(f"text number {number} " * 30, f"t{number}") for number in range(6)]
    app = page(route_tab="fit", route_corpus="+".join(texts), route_length=32, route_prompts=4)
    app.text_input(key="route_distances").set_value("8; 4 and 12").run()
    app.selectbox(key="route_fit_recall_of").set_value("all").run()
    app.selectbox(key="route_optimiser").set_value("sgd").run()
    app.button(key="route_run").click().run()
    args = client.job.args
    assert [args[name] for name in ("length", "prompts", "min_distance", "distances")] == [32, 4, 8, [4, 12]]
    assert (args["recall_of"], args["optimiser"]) == ("all", "sgd")
    app = page(route_tab="fit", route_length=4096)
    assert app.number_input(key="route_length").value is None, "the model reads 64 tokens"


def test_texts_come_in_as_parts_of_a_long_one_or_several_at_once(client):
    app = page(route_tab="fit")
    assert "route_run" not in keys(app)
    app.button(key="route_cut").click().run()
    chosen = app.session_state["route_corpus"].split("+")
    name, full_text = client.store.text(app.session_state["text"])
    assert "".join(client.store.text(key)[1] for key in chosen) == full_text and len(chosen) == 6
    assert client.store.text(chosen[5])[0] == f"{name}, part 6 of 6" and "route_run" in keys(app)
    assert own_texts.parts("ab cd\nef gh ij", 3) == ["ab cd\n", "ef gh ", "ij"]
    app = page(route_tab="fit")
    files = [(f"{number}.txt", f"Text {number}. ".encode() * 30, "text/plain") for number in range(6)]
    app.file_uploader(key="route_upload_0").set_value(files).run()
    brought = {client.store.text(key)[0] for key in app.session_state["route_corpus"].split("+")}
    assert brought == {name for name, _, _ in files} and not app.error


def test_a_model_without_curves_offers_a_button_and_then_shows_this_text(client):
    plain = client.refusals["route-at"] = NotFitted("demo has no stored routing curves.")
    app = page()
    assert app.title[0].value == "No router was tested on this model yet." and not app.error and not app.code
    stored = page(route_tab="indexers")
    assert not stored.error and any("study indexers" in code.value for code in stored.code), "its study is apart"
    app = page()
    app.button(key="route_first").click().run()
    args = client.job.args
    assert (client.job.verb, args["text"], args["min_distance"]) == ("route-at", cached.samples()[0][0], 16)
    del client.refusals["route-at"]
    client.done("route-at", args)
    client.refusals["route-at"] = plain
    client.states.clear()
    app = page()
    assert set(part(app, "routing")["lines"]) == set(RECALL) and "this text" in markup(app)


def test_new_curves_are_not_answered_from_the_cache_of_old_ones(client):
    page()
    put_curves(client.store, "2026-02-02T00:00:00+00:00")
    page()
    assert client.asked.count("route-at") == 2


def test_the_routers_are_those_of_the_analysis():
    control = state.CONTROLS["route_router"]
    for kind in NAMES:
        if kind not in bucket_routers.ABLATIONS:
            assert control.from_address(kind) == kind
            continue
        with pytest.raises(ValueError):
            control.from_address(kind)
    assert {kind: router.title for kind, router in bucket_routers.ROUTERS.items()} == NAMES


def test_what_the_slider_says_can_be_taken_along(client):
    client.refusals["take"] = BadText("The packing is tried elsewhere.")
    app = page(route_l="3.25")
    assert GAINS["reads"] in markup(app)
    app.button(key="routing_make").click().run()
    assert client.asked.count("take") == 1 and [error.value[:11] for error in app.error] == ["The packing"]
    (run,) = [stored for stored in client.store.list("route-at") if stored.request["visited"] == 3.25]
    (setting,) = settings_of(run)
    assert setting.spec == {"name": "bucket_routing", "settings": {"visited": int(run.numbers["l"])}}
    (recall,) = [row["recall"] for row in run.numbers["means"] if row["router"] == "gwr_linear"]
    assert setting.quality.startswith(f"visiting 3.25 of 64 buckets, GWR linear finds {recall:.1%} of the far")
