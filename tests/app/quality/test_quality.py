"""Quality vs speed, methods that read less, in-process with hand-made results: what it asks for, shows and refuses."""

import json
import math

import pytest

from analysis.declaration.undeclared import Undeclared
from analysis.errors import BadText
from analysis.methods import describe
from analysis.runs import Price
from analysis.studies.start.examples import compared
from app import cached
from app.quality import cards, painted_change, verdict
from app.quality.asked import Asked, Shown
from tests.made import results
from tests.made.in_process import HOSTILE, captions, columns, figures, go, keys, markup, opened, part
from tests.made.quality import DESCRIBED, evaluate
from tests.made.results import STUDIES

FOCUS, STREAMING = "quality.focus.window", "quality.streaming_llm.window"
SLOW = Price(25.0, 6.0, 100.0, None, 0, fixed=5.0)


def asked(client, app, action) -> int:
    before = client.asked.count("evaluate")
    action(app)
    assert not app.exception, app.exception[0].message
    return client.asked.count("evaluate") - before


def waiting(app) -> list:
    return [one for one in app.button if one.key.startswith("run_") and "_smaller_" not in one.key]


def test_the_first_page_asks_what_is_stored_as_example(client):
    """Byte for byte the requests of the examples, so that the first page of a fresh install waits for nothing."""
    for times, whole in ((1, True), (2, False)):
        text = "one two three four " * 400 * times
        key, tokens = client.store.put_text(text, "words"), len(results.tokens(text))
        assert not opened("methods", text=key).error
        wanted = json.loads(json.dumps(compared(key, tokens)).replace("k8-top1", "k4-top1"))
        assert [args["methods"][0]["name"] for args in wanted] == list(describe())[: 1 + cards.AT_FIRST]
        assert all(client.store.find(Undeclared("evaluate", args)) for args in wanted)
        assert {args["window"] is None for args in wanted} == {whole} and client.asked.count("evaluate") == 4 * times


@pytest.mark.parametrize(
    "link, verb, missing",
    [({}, "evaluate", 4), ({"quality_saves": "memory", "quality_memory": "snapkv"}, "continuation", 1)],
)
def test_what_is_missing_has_one_button_with_the_price_of_all(client, page, monkeypatch, link, verb, missing):
    monkeypatch.setattr(cached, "predicted", lambda store, request, tokens, card: SLOW)
    app = page(**link)
    (button,) = waiting(app)
    assert verb not in client.asked and button.label.endswith(f"~{5 + 20 * missing} s")
    assert (f"{missing} missing methods" in button.label) == (missing > 1)
    button.click().run()
    assert client.asked.count(verb) == missing and not app.error and not waiting(app) and figures(app)


def test_one_missing_method_leaves_the_others_in_sight(client, page, monkeypatch):
    app = page()
    monkeypatch.setattr(cached, "predicted", lambda store, request, tokens, card: SLOW)
    app.select_slider(key=STREAMING).set_value(64).run()
    assert columns(app)["method"] == ["Dense", "Focus", "Oracle top-k"] and client.asked.count("evaluate") == 4
    waiting(app)[0].click().run()
    assert columns(app)["method"][2] == "StreamingLLM, window 64" and client.asked.count("evaluate") == 5


def test_it_opens_with_a_conclusion_the_numbers_and_a_command(page):
    app = page()
    said, shown = markup(app), columns(app)
    assert "On 1,024 tokens of this text, Focus stays within 5% of dense while it reads 3% of what dense reads" in said
    assert "The first 1,024 tokens are scored." in said and "from 2 blocks of 64 tokens in this text" in said
    assert shown["method"] == ["Dense", "Focus", "StreamingLLM", "Oracle top-k"]
    assert shown["against dense"][:2] == ["–", "+2.0% (+1.5% to +2.5%)"] and shown["perplexity"][1] == "20.40"
    assert shown["worst bin"][1] == "+4.0% at 683–1,023" and shown["KL, mean / 99%"][1] == "0.020 / 0.04"
    assert shown["speed"] == ["1.0 times", "≤ 32.0 times", "≤ 4.0 times", "ceiling"]
    line = "python -m analysis evaluate story --model demo --methods dense,focus,streaming_llm,oracle_topk"
    assert app.code[-1].value == f"{line} --router k4-top1 --window 1024 --first"
    marks, bins = figures(app)
    names = [trace["name"] for trace in marks["data"]]
    assert names == ["dense", "Focus, at most", "StreamingLLM, at most", "Oracle top-k, ceiling (no faster itself)"]
    symbols = [trace["marker"]["symbol"] for trace in marks["data"]]
    assert symbols == ["circle", "circle-open", "square-open", "diamond-open"], "hollow: a bound, not measured"
    assert marks["data"][1]["x"] == [32] and marks["data"][1]["error_y"]["array"][0] == pytest.approx(0.005)
    assert marks["layout"]["yaxis"]["autorange"] == "reversed"
    assert len(bins["data"]) == 3 and "n = 341" in bins["data"][0]["text"][0] and len(bins["data"][0]["x"]) == 3


def test_a_measured_speed_is_a_solid_mark(client, page):
    app = page()
    app.button(key="quality_launch_focus").click().run()
    timed = {"router": "k4-top1", "top": 1, "window": 16, "n_sink": 0, "new_tokens": 32, "length": 1024, "repeats": 5}
    about = {"model": "demo", "text": cached.samples()[0][0]}
    assert client.job.verb == "launch" and client.job.args == about | timed
    client.done("launch", client.job.args | {"top": None, "window": None})
    app = page()
    solid = [trace for trace in figures(app)[0]["data"] if "measured" in trace.get("name", "")]
    assert [(trace["x"], trace["marker"]["symbol"]) for trace in solid] == [([0.8], "circle")]
    assert columns(app)["speed"][1] == "0.80 times, ≤ 32.0 times"
    assert "measured" not in str(figures(page(quality="focus~top-2"))[0]["data"])


def test_what_heads_that_share_keys_read_together_stands_beside_what_each_reads(page):
    app = page(quality="focus~~quick~~oracle_topk")
    shown = columns(app)
    assert shown["keys of a query"][1:] == ["16.0", "8.0", "8.0"], "Focus, Oracle top-k, Quick"
    assert shown["keys of a key-value head"][1:] == ["16.0", "10.0", "10.0"]
    assert shown["speed"] == ["1.0 times", "≤ 32.0 times", "ceiling", "≤ 64.0 times, by keys fetched ≤ 51.2 times"]
    ticks = [one for one in figures(app)[0]["data"] if one.get("marker", {}).get("symbol") == "line-ns-open"]
    assert [trace["x"] for trace in ticks] == [[pytest.approx(51.2)]] and "by keys fetched" in ticks[0]["hovertemplate"]


def test_a_moved_slider_costs_one_pass_of_one_method_and_a_stored_value_none(client, page):
    app = page()
    assert app.select_slider(key=FOCUS).value == 16 and app.select_slider(key=STREAMING).value == 128
    assert asked(client, app, lambda app: app.select_slider(key=STREAMING).set_value(64).run()) == 1
    assert columns(app)["method"][2] == "StreamingLLM, window 64"
    assert "--set streaming_llm.window=64" in app.code[-1].value
    assert app.query_params["quality"] == "focus~~streaming_llm~window-64~~oracle_topk"
    assert asked(client, app, lambda app: app.select_slider(key=STREAMING).set_value(128).run()) == 0
    assert columns(app)["method"][2] == "StreamingLLM"
    assert asked(client, app, lambda app: app.slider(key="quality.focus.top").set_value(2).run()) == 1
    assert asked(client, app, lambda app: app.button(key="quality_reset_focus").click().run()) == 0
    assert app.slider(key="quality.focus.top").value == 1


def test_a_link_restores_methods_and_settings(page):
    link = {"quality": "oracle_topk~k-32~fraction-0.25~~focus~window-8~membership-literal", "quality_read": "256w"}
    app = page(**link, quality_paint="oracle_topk", quality_token=7)
    assert not app.error and app.multiselect(key="quality_pick").value == ["focus", "oracle_topk"]
    assert app.select_slider(key="quality.oracle_topk.k").value == 32
    assert app.slider(key="quality.oracle_topk.fraction").value == 0.25
    assert app.selectbox(key="quality.focus.membership").value == "literal"
    assert columns(app)["method"][1] == "Focus, window 8, membership literal"
    assert (
        "reads the future" in str(figures(app)[0]["data"]) and "--set oracle_topk.fraction=0.25" in app.code[-1].value
    )
    assert app.code[-1].value.endswith("--window 256 --all-windows") and part(app, "painted")["locked"] == 7


@pytest.mark.parametrize(
    "link, words",
    [
        ({"quality": "focus~window-0"}, "window “0” is not available"),
        ({"quality": "focus~top-5"}, "groups per token “5” is not available"),
        ({"quality": "focus~membership-x~n_sink-1e9"}, "membership “x” is not available"),
        ({"quality": "focus~colour-3"}, "colour “3” is not available"),
        ({"quality": "magic"}, "choice of methods “magic” is not available"),
        ({"quality_read": "64"}, "choice of what is read “64” is not available"),
        ({"quality_token": "99999"}, "marked token “99999” is not available"),
        ({"quality_paint": "magic"}, "painted method “magic” is not available"),
    ],
)
def test_what_a_link_cannot_ask_for_is_dropped_with_one_sentence(page, link, words):
    app = page(**link)
    assert captions(app).lower().count(words.lower()) == 1 and not app.error


def test_a_refused_method_is_one_sentence_and_the_others_stay(client, page, monkeypatch):
    def refusing(args, text):
        if args["methods"][0]["name"] == "focus":
            raise BadText("The text has 3 tokens and 10 are needed: use a longer one.")
        return evaluate(args, text)

    monkeypatch.setitem(STUDIES, "evaluate", refusing)
    app = page()
    assert len(app.error) == 1 and "3 tokens and 10 are needed" in app.error[0].value.replace("\\", "")
    assert columns(app)["method"] == ["Dense", "StreamingLLM", "Oracle top-k"] and app.slider(key="quality.focus.top")
    monkeypatch.setitem(client.refusals, "evaluate", BadText("Too short."))
    app = page(text=client.store.put_text("one two three", "short"))
    assert [error.value for error in app.error] == ["Too short\\."]


def test_the_text_is_painted_by_change_and_the_worst_tokens_are_listed(client, page):
    text = client.store.put_text(f"{HOSTILE} and so on it goes " * 3, "mine")
    app = page(text=text)
    painted, worst = part(app, "painted"), columns(app, 1)
    paint = painted["paint"]
    assert paint[3] == 0 and paint[5] == 5 and paint.count(-1) == len(paint) - 2
    tips = {tip["label"]: tip["values"] for tip in painted["tips"]}
    assert (tips["dense gave it"][3], tips["Focus gave it"][3], tips["dense gave it"][0]) == ("5.0%", "0.4%", None)
    assert worst["token"][0] == "3" and worst["times less likely"][0] == "12.2" and "[" in worst["in its context"][0]
    assert "<script" not in markup(app)
    assert part(page(text=text, quality_token=3), "table", 1)["selected"] == 0


def test_paint_has_a_class_for_each_doubling_and_both_signs():
    changes = [None, 0.0, 0.4, math.log(1.6), math.log(3), math.log(5), 9.0, -0.1, -math.log(1.6), -math.log(5), -9.0]
    paint, palette = painted_change.by_change(changes)
    assert paint == [-1, -1, -1, 3, 2, 1, 0, -1, 4, 6, 7] and palette[0]["name"] == "over 8 times less likely"
    assert [entry["note"] for entry in palette] == ["1", "1", "1", "1", "1", "0", "1", "1"]
    assert {entry["line"] for entry in palette[:4]}.isdisjoint(entry["line"] for entry in palette[4:])


def test_a_method_that_nobody_has_written_yet_needs_no_line_of_the_page(page):
    app = page(quality="later~~focus")
    assert columns(app)["method"] == ["Dense", "Focus", "Later"] and "needs calibration to change" in captions(app)
    mine, real = DESCRIBED["focus"], describe()["focus"]
    assert set(mine) == set(real) and set(mine["fields"][0]) == set(real["fields"][0])


def test_no_method_at_all_is_said(page):
    app = page(quality="none")
    assert "choose a method" in app.info[0].value and "dense attention has perplexity 20.0" in markup(app)


def test_evidence_is_lazy_and_links_to_the_old_speed_tab_land_on_the_page(page):
    app = page()
    assert "Equal reads" not in [header.value for header in app.header] and "speed_launch" not in keys(app)
    for link in ({"speed_new": 4}, {"tab": "speed", "speed_new": 4}):
        app = page(**link)
        assert app.title[0].value == "How much time does it save here?" and app.button(key="speed_launch")
        assert app.number_input(key="speed_new").value == 4 and "tab" not in app.query_params
    go(app, "methods")
    assert app.multiselect(key="quality_pick") and app.query_params["tab"] == "quality", "a copied link stays here"
    assert page(tab="quality", speed_new=4).multiselect and page(tab="speed").button(key="speed_launch")


@pytest.mark.parametrize("raw", ["focus", "focus~window-8~~oracle_topk~fraction-0.5", "none", "a~b--1~c-d_e"])
def test_the_word_of_the_url_comes_back(raw):
    assert cards.spell(cards.parse(raw, ["focus"])) == raw


def found(title: str, reads: float, change: float, half: float = 0.001, **more) -> Shown:
    about = {"title": title, "fields": [], "ceiling": False, "kernels": []}
    row = {"ceiling": False, "reads_future": False, "settings": {}, "reads_causal": reads, "difference": change} | more
    row |= {"difference_low": change - half, "difference_high": change + half, "perplexity": 20.0}
    return Shown(Asked(title, about, None, {}, {}, 0), None, row, None)


def test_the_conclusion_names_the_cheapest_that_keeps_the_quality_else_the_nearest():
    cheap, dear = found("Cheap", 0.1, 0.04), found("Dear", 0.5, 0.01)
    said = verdict.quality([dear, cheap], "x")
    assert said.startswith("On x, Cheap stays within 5% of dense while it reads 10% of") and "+4.0%" in said
    said = verdict.quality([found("Bad", 0.5, 0.5), found("Worse", 0.6, 0.9)], "x")
    assert "no chosen method stays within 5% of dense: Bad comes nearest while it reads 50%" in said
    assert verdict.quality([found("Top", 0.1, -0.02, ceiling=True)], "x") == ""
    assert "saves nothing" in verdict.quality([found("All", 1.0, 0.0)], "x")
