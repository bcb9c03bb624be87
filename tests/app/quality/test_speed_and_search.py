"""What stands beside the curves: the speed that was timed, the search, the stored studies."""

import json

import pandas as pd
import pytest

from analysis.declaration.undeclared import Undeclared
from analysis.places import CACHE
from analysis.runs import Result
from analysis.runs.price import Price
from analysis.runs.stored import StoredStudy
from app import cached
from app.quality import search, timing
from app.quality.asked import Asked
from app.quality.evidence import EQUAL
from app.quality.timing import PHASES
from app.ui import asking
from lab.equal.entries import ENTRIES
from tests.made.in_process import columns, figures, keys, markup, part, put, redrawn
from tests.made.quality import DESCRIBED, field, method
from tests.made.results import STUDIES

PROTOCOL = {"verb": "head-split", "model": "demo", "tokens": 64}


def test_a_timed_method_says_its_speed_and_one_without_a_kernel_that_it_has_none(client, page):
    link = {"quality": "focus~~quick~~streaming_llm~~oracle_topk", "quality_equal": 25}
    app = page(**link, quality_paint="quick")
    speeds = {curve["name"]: curve["points"][0]["speed"] for curve in part(app, "curves")["methods"]}
    assert speeds == {
        "focus": "not timed",
        "quick": "not timed",
        "streaming_llm": "no kernel",
        "oracle_topk": "ceiling",
    }
    app.button(key="quality_launch_quick").click().run()
    about, sizes = {"model": "demo", "text": cached.sample("story")}, {"length": None, "new_tokens": 16, "repeats": 3}
    spec = {"name": "quick", "settings": {"keys": 128}}
    assert client.job.verb == "time-method" and client.job.args == about | sizes | {"method": spec}
    client.done("time-method", client.job.args)
    app = page(**link, quality_paint="quick")
    assert "At 60 tokens: later tokens 1.14 times dense speed." in markup(app)
    assert "quality_launch_quick" not in keys(app)
    app = page(**link, quality_paint="focus")
    app.button(key="quality_launch_focus").click().run()
    timed = {"router": "k4-top1", "top": 1, "window": 128, "n_sink": 0, "new_tokens": 32, "length": 1024, "repeats": 5}
    assert client.job.verb == "launch" and client.job.args == about | timed
    client.done("launch", client.job.args)
    assert "the prompt 0.80 times dense" in markup(page(**link, quality_paint="focus"))


@pytest.mark.parametrize("seconds, unasked", [(3, True), (60, False)])
def test_what_is_quick_is_timed_as_the_slider_moves(client, page, monkeypatch, seconds, unasked):
    """Without a click once the curves are there, so that speed follows the slider as quality does."""
    price = Price(seconds, seconds / 2, 2.0 * seconds, None, 0)
    usual = cached.predicted
    monkeypatch.setattr(cached, "predicted", lambda *args: price if args[1].verb == "time-method" else usual(*args))
    app = page(quality="quick~keys-64")
    assert ("quality_launch_quick" in keys(app)) is not unasked
    if unasked:
        spec = {"name": "quick", "settings": {"keys": 64}}
        assert client.job.verb == "time-method" and client.job.args["method"] == spec
        client.done("time-method", client.job.args)
        client.states[client.job.id] = client.job.__class__(**vars(client.job) | {"state": "done"})
        app.run()
        assert "later tokens 1.14 times dense speed." in markup(app) and "quality_launch_quick" not in keys(app)
        page(quality="quick~keys-80")
        assert client.job.args["method"]["settings"] == {"keys": 80}


@pytest.mark.parametrize(
    "ends, verdict", [((1.12, 0.74, 1.76), "undecided (0.74 to 1.76"), ((1.8, 1.6, 2.0), "the prompt 1.80 times dense")]
)
def test_rounds_on_both_sides_of_one_decide_nothing(ends, verdict):
    numbers = {"speedup": {"prefill": dict(zip(("median", "low", "high"), ends, strict=True))}, "length": 1024}
    case = Asked("focus", {"title": "Focus", "kernels": ["prompt"], "ceiling": False}, None, {}, {}, 0)
    assert verdict in timing.verdict(case, timing.phases(numbers)) and set(PHASES) == {"prefill", "per_token"}


# --- search -----------------------------------------------------------------------------------------------------------


def test_a_search_is_a_job_about_the_page_s_prompts_and_its_chart_names_methods(client, page):
    link = {"quality_saves": "memory", "quality_memory": "snapkv", "quality_lose": 2, "quality_prefix": 128}
    app = page(**link)
    app.button(key="quality_search").click()
    redrawn(app, "quality_search")
    assert app.get("progress") and app.query_params["job"], "a part of the page submitted it: it stands on top at once"
    arguments = {"model": "demo", "texts": [cached.sample("story")], "saves": "memory", "prefix": 128, "lose": 0.02}
    arguments |= {"methods": [{"name": "snapkv", "settings": {}}], "continuation": 128, "cuts": 32, "seed": 0}
    assert (client.job.verb, client.job.args) == ("search", arguments)
    rows = [
        {"method": "snapkv", "label": f"<b>{place}</b>", "budget": place / 4, "difference": 3 - place}
        | {"stretches": 2 * place, "left": place > 2}
        for place in (1, 2, 3)
    ]
    numbers = {
        "rows": rows,
        "lose": 0.02,
        "saves": "memory",
        "sentence": "Nothing passed. Nearest: <b>",
        "chosen": None,
        "nearest": rows[1],
    }
    numbers |= {
        "notes": ["3 settings."],
        "protocol": {"verb": "search", "model": "demo", "tokens": 100},
    }
    client.store.put(Undeclared("search", arguments), Result(numbers), numbers["protocol"], 60.0)
    app = page(**link, quality_searching="yes")
    assert "Nothing passed. Nearest: &lt;b&gt;" in markup(app) and "quality_search" not in keys(app)
    (trace,) = figures(app)[-1]["data"]
    assert trace["name"] == "SnapKV" and (trace["x"], trace["y"]) == ([0.25, 0.5, 0.75], [2, 1, 0])
    assert trace["marker"]["symbol"] == ["circle-open", "circle-open", "circle"]
    app.button(key="quality_search_show").click().run()
    assert (app.query_params["quality_equal"], app.query_params["quality_paint"]) == ("50", "snapkv"), (
        "the nearest miss"
    )


def test_a_search_over_methods_that_read_less_leaves_out_those_that_look_at_every_key(client, page):
    text = put(client, "a text of some length " * 400)
    app = page(text=text, quality="streaming_llm~n_sink-2~~oracle_topk")
    app.button(key="quality_search").click().run()
    methods = [{"name": "streaming_llm", "settings": {"n_sink": 2}}]
    assert (client.job.verb, client.job.args["saves"], client.job.args["methods"]) == ("search", "reads", methods)
    assert "quality_search" not in keys(page(text=text, quality="oracle_topk"))


@pytest.mark.parametrize("prefix, window, offered", [(512, 64, True), (256, 64, False), (256, 32, True)])
def test_a_search_needs_a_prompt_of_eight_windows(client, page, monkeypatch, prefix, window, offered):
    ratio, last = field("ratio", 0.5, low=0.0, high=0.99), field("window", window, low=1, high=1024)
    monkeypatch.setitem(DESCRIBED, "snapkv", method("SnapKV", ratio, last, saves="memory", competing=["ratio"]))
    text = put(client, "a text of some length " * 600)
    app = page(text=text, quality_saves="memory", quality_prefix=prefix, quality_searching="yes")
    assert ("quality_search" in keys(app)) == offered and not app.error
    assert ("fewer than 8 windows" in markup(app)) != offered


def test_stretches_are_as_long_as_a_text_has_eight_times_and_four_are_needed(page):
    assert [search.fitting(1024, tokens) for tokens in (10, 2245, 9216, 99_999)] == [64, 128, 1024, 1024]
    app = page(quality_saves="prefill", quality_searching="yes")
    assert "A search needs 4 stretches of 640 tokens and this text has" in markup(app)
    assert "quality_search" not in keys(app) and not app.error


# --- studies ----------------------------------------------------------------------------------------------------------


def test_the_heads_of_duo_attention_stand_beside_what_the_text_would_miss(client, page, monkeypatch):
    def split(args: dict, text: str) -> Result:
        assert (args["ratio"], args["text"]) == (0.25, cached.sample("story"))
        rows = {"layer": [1, 0], "head": [0, 1], "rise": [0.2, -0.1], "far": [0.3, 0.6]}
        heads = pd.DataFrame(rows | {"whole": [False, True], "missed": [True, False]})
        numbers = {"sentence": "It lets 1 of 2 keep every key.", "notes": ["Of first order."], "protocol": PROTOCOL}
        return Result(numbers, {"heads": heads})

    duo = method("DuoAttention", field("ratio", 0.5, low=0.0, high=0.99), saves="memory", competing=["ratio"])
    monkeypatch.setitem(DESCRIBED, "duo_attention", duo)
    monkeypatch.setitem(STUDIES, "head-split", split)
    chosen = {"quality_saves": "memory", "quality_memory": "snapkv~~duo_attention~ratio-0.25"}
    chosen |= {"quality_paint": "duo_attention"}
    assert not page(**chosen).error and "head-split" not in client.asked, "the drawer is closed"
    app = page(**chosen, quality_split="yes")
    assert not app.error and "It lets 1 of 2 keep every key." in markup(app) and "Of first order." in markup(app)
    table, way = columns(app), ["sinks and a window", "every key"]
    assert table["loss without it"] == ["0.2000", "−0.1000"]
    assert table["keeps"] == way and table["would keep by loss"] == way[::-1]


LABELS = [entry.label for entry in ENTRIES]


def equal_panel(app) -> dict:
    """The chart of a panel of the stored grid, among those of other studies: a line for each of its entries."""
    (panel,) = [figure for figure in figures(app) if [trace["name"] for trace in figure["data"]] == LABELS]
    return panel


def test_figure_1_is_redrawn_from_the_stored_table(page, monkeypatch):
    app = page(tab="equal")
    assert app.query_params["quality_evidence"] == "yes", "a link from when this was a tab"
    assert "not measured on this machine yet for the model" in app.info[0].value
    study = json.loads((CACHE / "demo/studies/equal-budget.json").read_text())
    stored = {EQUAL: StoredStudy.of(study)}
    monkeypatch.setattr(asking, "study", lambda model, name: (stored.get(name), ""))
    app = page(quality_evidence="yes")
    quality = equal_panel(app)
    app.selectbox(key="equal_panel_pick").set_value("Fetched, novels, 1,024 tokens").run()
    assert app.query_params["equal_panel"] == "Fetched, novels, 1,024 tokens"
    fetched = equal_panel(app)
    assert quality["layout"]["yaxis"]["autorange"] == "reversed" and "autorange" not in fetched["layout"]["yaxis"]
    looks = {(line["line"]["color"], line["line"]["dash"], line["marker"]["symbol"]) for line in quality["data"]}
    assert len(looks) == len(ENTRIES), "no two methods look alike"
    assert quality["data"][0]["x"] == [2, 4, 10, 20]
    assert [line["y"] for line in quality["data"]] == [line["y"] for line in study["panels"][0]["series"]]


def test_equal_bytes_and_what_stacks_run_stand_under_memory(page, monkeypatch):
    study = json.loads((CACHE / "demo/studies/equal-bytes.json").read_text())
    stored = {"equal-bytes": StoredStudy.of(study)}
    monkeypatch.setattr(asking, "study", lambda model, name: (stored.get(name), ""))
    for axis, hidden in (("held", "read_share"), ("read", "level_share")):
        app = page(quality_saves="memory", quality_evidence="yes", bytes_axis=axis)
        assert not app.exception and "What a stack can run" in [element.value for element in app.header]
        drawn = [
            (chart["layout"]["xaxis"]["title"]["text"], [trace["name"] for trace in chart["data"]])
            for chart in figures(app)
        ]
        for panel in study["panels"]:
            lines = panel["x_label"], [line["name"] for line in panel["series"]]
            assert (lines in drawn) == (panel["x"] != hidden), panel["title"]
