"""Quality vs speed, the methods that save memory or the time of the prompt: what it asks for, draws and tells."""

import pandas as pd
import pytest

from analysis.declaration.undeclared import Undeclared
from analysis.runs import Result
from app import cached
from app.quality import search
from tests.made.in_process import columns, figures, keys, markup, put, redrawn
from tests.made.quality import DESCRIBED, field, method
from tests.made.results import STUDIES

PROTOCOL = {"verb": "head-split", "model": "demo", "tokens": 64}


def wanted(name: str, text: str, **more: object) -> dict:
    args = {"model": "demo", "texts": [text], "methods": [{"name": name, "settings": {}}], "prefix": 256}
    return args | {"continuation": 256, "cuts": 4, "share": None, "seed": 0} | more


def test_memory_is_drawn_against_the_bytes_that_are_held(client, page):
    app = page(quality_saves="memory")
    text = cached.samples()[0][0]
    assert not app.error and client.store.find(Undeclared("continuation", wanted("snapkv", text)))
    figure, shown = figures(app)[0], columns(app)
    assert [trace["x"] for trace in figure["data"]] == [[4.0], [2.0]] and figure["data"][1]["y"] == [0.02]
    assert shown["method"] == ["Dense", "SnapKV"] and shown["of dense"] == ["100.0%", "50.0%"]
    assert shown["at most, reading the prompt"] == ["4 MB", "3 MB"]
    assert "SnapKV holds 50% of dense attention&#x27;s KV cache" in markup(app) and "from 16 stretches" in markup(app)
    app.slider(key="quality_memory.snapkv.ratio").set_value(0.9).run()
    assert app.query_params["quality_memory"] == "snapkv~ratio-0.9"
    spec = [{"name": "snapkv", "settings": {"ratio": 0.9}}]
    assert client.store.find(Undeclared("continuation", wanted("snapkv", text, methods=spec)))


def test_a_budget_is_one_for_all_and_blocks_are_a_bound_until_they_are_timed(client, page):
    app = page(quality_saves="prefill", quality_equal=25)
    assert client.store.find(Undeclared("continuation", wanted("xattention", cached.samples()[0][0], share=0.25)))
    hollow, shown = figures(app)[0]["data"][-1], columns(app)
    assert hollow["x"] == [4.0] and hollow["marker"]["symbol"].endswith("-open")
    assert shown["blocks of the prompt read"] == ["–", "25.0%"] and shown["prompt, times dense"] == ["1.00", "–"]
    assert "no chosen method stays within 5%" in markup(app).lower() and "quality_launch_xattention" in keys(app)
    assert "methods xattention" in app.code[-1].value and "--share 0.25" in app.code[-1].value


def test_all_of_a_family_in_one_click(page):
    app = page(quality_saves="memory", quality_memory="none")
    assert "Choose a method" in markup(app) and not figures(app)
    app.button(key="quality_memory_all").click().run()
    assert app.multiselect(key="quality_memory_pick").value == ["snapkv"] and figures(app)
    assert app.button(key="quality_memory_all").disabled


def test_a_search_is_a_job_and_its_winner_is_told_with_its_verdict(client, page):
    link = {"quality_saves": "memory", "quality_lose": 2, "quality_prefix": 128}
    app = page(**link)
    assert not app.get("progress")
    app.button(key="quality_search").click()
    redrawn(app, "quality_search")
    assert app.get("progress") and app.query_params["job"], "a part of the page submitted it: it stands on top at once"
    asked = {"model": "demo", "texts": [cached.samples()[0][0]], "saves": "memory", "prefix": 128, "lose": 0.02}
    asked |= {"methods": [{"name": "snapkv", "settings": {}}], "continuation": 128, "cuts": 32, "seed": 0}
    assert (client.job.verb, client.job.args) == ("search", asked)
    rows = [
        {"label": f"<b>{at}</b>", "budget": at / 4, "difference": 3 - at, "stretches": 2 * at, "left": at > 2}
        for at in (1, 2, 3)
    ]
    numbers = {"rows": rows, "frontier": [row["label"] for row in rows], "lose": 0.02, "sentence": "<b>3</b> holds."}
    numbers |= {"protocol": {"verb": "search", "model": "demo", "tokens": 100}}
    client.store.put(Undeclared("search", asked), Result(numbers), numbers["protocol"], 60.0)
    app = page(**link)
    assert "&lt;b&gt;3&lt;/b&gt; holds." in markup(app) and not app.error
    early, late, front = figures(app)[1]["data"]
    assert (early["x"], early["y"]) == ([0.25, 0.5], [1.0, 1.0]) and late["x"] == [0.75] and len(front["x"]) == 3


def test_a_search_over_methods_that_read_less_leaves_out_those_that_look_at_every_key(client, page):
    text = put(client, "a text of some length " * 400)
    app = page(text=text, quality="streaming_llm~n_sink-2~~oracle_topk")
    app.button(key="quality_search").click().run()
    asked = [{"name": "streaming_llm", "settings": {"n_sink": 2}}]
    assert (client.job.verb, client.job.args["saves"], client.job.args["methods"]) == ("search", "reads", asked)
    assert "quality_search" not in keys(page(text=text, quality="oracle_topk"))


@pytest.mark.parametrize("prefix, window, there", [(512, 64, True), (256, 64, False), (256, 32, True)])
def test_a_search_uses_the_prompt_that_the_page_shows_if_it_has_eight_windows(
    client, page, monkeypatch, prefix, window, there
):
    ratio, last = field("ratio", 0.5, low=0.0, high=0.99), field("window", window, low=1, high=1024)
    monkeypatch.setitem(DESCRIBED, "snapkv", method("SnapKV", ratio, last, saves="memory"))
    text = put(client, "a text of some length " * 600)
    app = page(text=text, quality_saves="memory", quality_memory="snapkv", quality_prefix=prefix)
    assert ("quality_search" in keys(app)) == there and not app.error
    if there:
        app.button(key="quality_search").click().run()
        assert client.job.args["prefix"] == prefix


def test_stretches_are_as_long_as_a_text_has_eight_times_and_four_are_needed(page):
    assert [search.fitting(1024, tokens) for tokens in (10, 2245, 9216, 99_999)] == [64, 128, 1024, 1024]
    app = page(quality_saves="prefill")
    assert "A search needs 4 stretches of 640 tokens and this text has" in markup(app)
    assert "quality_search" not in keys(app) and not app.error


def test_the_heads_of_duo_attention_stand_beside_what_the_text_would_miss(client, page, monkeypatch):
    def split(args: dict, text: str) -> Result:
        assert (args["ratio"], args["text"]) == (0.25, cached.sample("story"))
        rows = {"layer": [1, 0], "head": [0, 1], "rise": [0.2, -0.1], "far": [0.3, 0.6]}
        heads = pd.DataFrame(rows | {"whole": [False, True], "missed": [True, False]})
        numbers = {"sentence": "It lets 1 of 2 keep every key.", "notes": ["Of first order."], "protocol": PROTOCOL}
        return Result(numbers, {"heads": heads})

    duo = method("DuoAttention", field("ratio", 0.5, low=0.0, high=0.99), saves="memory")
    monkeypatch.setitem(DESCRIBED, "duo_attention", duo)
    monkeypatch.setitem(STUDIES, "head-split", split)
    chosen = {"quality_saves": "memory", "quality_memory": "snapkv~~duo_attention~ratio-0.25"}
    assert not page(**chosen).error and "head-split" not in client.asked, "the drawer is closed"
    app = page(**chosen, quality_split="yes")
    assert not app.error and "It lets 1 of 2 keep every key." in markup(app) and "Of first order." in markup(app)
    shown, way = columns(app, 1), ["sinks and a window", "every key"]
    assert shown["loss without it"] == ["0.2000", "−0.1000"]
    assert shown["keeps"] == way and shown["would keep by loss"] == way[::-1]
