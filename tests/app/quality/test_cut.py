"""The door Cut, methods, in-process with hand-made results: what it asks for, opens with, draws and refuses."""

import math

import pytest

from analysis.commands import request
from analysis.commands.quality import Continuation
from analysis.declaration.undeclared import Undeclared
from analysis.errors import BadText, NotFitted
from analysis.methods import describe
from analysis.runs import Price, Result, RunStore
from analysis.studies.start.examples import ASKED, FOLDER, cut
from app import cached
from app.quality import asked, curves, painted_change, quality_page
from app.selection import state
from app.selection.decide import EQUAL_SHARES
from tests.made.in_process import HOSTILE, captions, columns, figures, keys, markup, part
from tests.made.quality import DESCRIBED, evaluate
from tests.made.results import STUDIES

SLOW = Price(25.0, 6.0, 100.0, None, 0, fixed=5.0)
TWO = "quick~~streaming_llm"


def spec(name: str, share: float | None = None, **settings: object) -> dict:
    """What the page asks of a method on the story's first 1,024 tokens."""
    asked_of = {"model": "demo", "text": cached.sample("story"), "window": 1024, "long_text": "first", "seed": 0}
    return asked_of | {"methods": [{"name": name, "settings": settings}], "share": share}


def curve(app, name: str) -> dict:
    """A method of the picture."""
    return next(method for method in part(app, "curves")["methods"] if method["name"] == name)


def waiting(app) -> list:
    return [button for button in app.button if button.key.startswith("run_") and "_smaller_" not in button.key]


def test_it_opens_at_the_best_stored_setting_with_a_null_beside_it(client, page):
    for share in (0.5, 0.25):
        client.done("evaluate", spec("quick", share))
    app = page()
    drawn = part(app, "curves")
    assert app.title[0].value == "Read 25% with Quick: +0.2% (−0.2% to +0.8%)" and not app.error
    assert (drawn["lead"], drawn["at"], drawn["limit"]) == ("quick", 0.25, 0.05)
    assert app.multiselect(key="quality_pick").value == ["streaming_llm", "quick"]
    assert curve(app, "streaming_llm")["null"] and not curve(app, "quick")["null"]
    assert client.asked.count("evaluate") == 1, "the null at that share; what is stored is not asked for"
    assert "1,024 of" in markup(app) and "Quality holds. Speed unknown." in markup(app)
    assert "--methods streaming_llm,quick --share 0.25" in app.code[-1].value
    low = {row["stop"]: row for row in curve(app, "quick")["points"]}[0.25]
    assert low["low"] == pytest.approx(low["change"] - 0.005) and low["share"] == 0.25


def test_a_model_without_an_indexer_has_none_to_replace(client, page):
    app = page(quality=TWO, quality_equal=25, quality_instead="yes")
    assert not app.error and "quality_instead" not in [box.key for box in app.checkbox]
    assert client.job.verb == "evaluate" and "instead" not in client.job.args


def test_a_search_that_is_stored_for_the_text_says_where_it_opens(client, page):
    chosen = {"method": "focus", "budget": 0.12}
    about = {"model": "demo", "texts": [cached.sample("story")], "saves": "reads"}
    client.store.put(Undeclared("search", about), Result({"chosen": chosen}), {"verb": "search", "model": "demo"}, 1.0)
    assert part(page(), "curves")["at"] == 0.1 and part(page(), "curves")["lead"] == "focus"


def test_methods_are_compared_at_one_share_in_rank_groups(client, page):
    app = page(quality=TWO, quality_equal=5, quality_paint="streaming_llm")
    drawn = part(app, "curves")
    quick, window = curve(app, "quick"), curve(app, "streaming_llm")
    assert drawn["lead"] == "streaming_llm" and not quick["points"] and quick["least"] == "reaches 12% at the least"
    assert window["points"][0]["stop"] == 0.05 and drawn["ranks"]["0.05"] == {"streaming_llm": 1}
    assert quick["missing"] == [0.1, 0.25, 0.5, 0.75, 0.9] and "1.2%" in app.title[0].value
    app = page(quality=TWO, quality_equal=25)
    assert part(app, "curves")["ranks"]["0.25"] == {"streaming_llm": 1, "quick": 1}, "not told apart"
    assert app.query_params["quality_equal"] == "25"


@pytest.mark.parametrize(
    "sent, chosen",
    [(["quick", 0.5], ("quick", 50)), (["quick", None], ("quick", None)), (["evil", 0.5], None), ("x", None)]
    + [(["quick", 0.07], ("quick", None)), (["quick", "<b>"], ("quick", None)), (None, None)],
)
def test_what_the_browser_sends_of_a_moved_dot_is_one_of_the_methods_and_shares(sent, chosen):
    assert curves.moved_to(sent, ["quick", "focus"]) == chosen


def test_a_setting_from_a_link_is_a_mark_of_its_own(client, page):
    link = {"quality": "oracle_topk~k-32~fraction-0.25~~focus~window-8~membership-literal", "quality_read": "256w"}
    app = page(**link, quality_paint="focus", quality_token=7)
    focus = curve(app, "focus")
    assert not app.error and focus["fixed"] and [point["stop"] for point in focus["points"]] == [None]
    assert "reads the future" in focus["points"][0]["settings"] and "window 8" in focus["points"][0]["settings"]
    assert app.selectbox(key="quality.focus.membership").value == "literal" and part(app, "painted")["locked"] == 7
    assert "--set oracle_topk.fraction=0.25" in app.code[-1].value and "--share" not in app.code[-1].value
    app = page(**link, quality_paint="oracle_topk")
    assert app.select_slider(key="quality.oracle_topk.k").value == 32 and "a ceiling" in str(part(app, "curves"))


def test_a_moved_setting_costs_one_pass_of_one_method_and_a_stored_one_none(client, page):
    app, slider = page(quality=TWO, quality_equal=25, quality_paint="streaming_llm"), "quality.streaming_llm.n_sink"
    for value, passes in ((8, 1), (4, 0), (8, 0)):
        before = client.asked.count("evaluate")
        app.slider(key=slider).set_value(value).run()
        assert client.asked.count("evaluate") - before == passes and not app.exception
    assert app.query_params["quality"] == "streaming_llm~n_sink-8~~quick" or "n_sink-8" in app.query_params["quality"]
    app.button(key="quality_reset_streaming_llm").click().run()
    assert app.slider(key=slider).value == 4


@pytest.mark.parametrize("link, missing", [({"quality": TWO}, 2), ({"quality": "quick"}, 1)])
def test_what_is_missing_has_one_button_with_the_price_of_all(client, page, monkeypatch, link, missing):
    monkeypatch.setattr(cached, "predicted", lambda store, request, tokens, card: SLOW)
    app = page(**link, quality_equal=25)
    (button,) = waiting(app)
    assert "evaluate" not in client.asked and button.label.endswith(f"~{5 + 20 * missing} s")
    assert (f"{missing} missing methods" in button.label) == (missing > 1) and "quality_ahead" not in keys(app)
    button.click().run()
    assert client.asked.count("evaluate") == missing and not app.error and not waiting(app)
    assert [curve["points"][0]["stop"] for curve in part(app, "curves")["methods"]] == [0.25] * missing


@pytest.mark.slow
@pytest.mark.parametrize(
    "link, words",
    [
        ({"quality": "focus~window-0"}, "window “0” is not available"),
        ({"quality": "focus~membership-x~n_sink-1e9"}, "membership “x” is not available"),
        ({"quality": "focus~colour-3"}, "colour “3” is not available"),
        ({"quality": "magic"}, "choice of methods “magic” is not available"),
        ({"quality_read": "64"}, "choice of what is read “64” is not available"),
        ({"quality_token": "99999"}, "marked token “99999” is not available"),
        ({"quality_paint": "magic"}, "method in front “magic” is not available"),
    ],
)
def test_what_a_link_cannot_ask_for_is_dropped_with_one_sentence(page, link, words):
    app = page(**{"quality": TWO} | link)
    assert captions(app).lower().count(words.lower()) == 1 and not app.error


def test_a_refused_method_is_one_sentence_and_one_that_was_never_fitted_has_a_button(client, page, monkeypatch):
    refusals = {"focus": BadText("The text has 3 tokens and 10 are needed."), "magicpig": NotFitted("Fit it first.")}

    def refusing(args, text):
        if args["methods"][0]["name"] in refusals:
            raise refusals[args["methods"][0]["name"]]
        return evaluate(args, text)

    monkeypatch.setitem(STUDIES, "evaluate", refusing)
    monkeypatch.setitem(DESCRIBED, "magicpig", DESCRIBED["quick"] | {"title": "MagicPIG"})
    app = page(quality="focus~~streaming_llm~~magicpig", quality_equal=25)
    assert len(app.error) == 1 and "3 tokens and 10 are needed" in app.error[0].value.replace("\\", "")
    assert "MagicPIG was never fitted" in markup(app) and "StreamingLLM" in app.title[0].value
    app.button(key="quality_fit_magicpig").click().run()
    assert (client.job.verb, client.job.args["method"]) == ("fit-method", "magicpig")


def test_what_is_folded_holds_positions_and_the_tokens_that_lose_most(client, page):
    app = page(quality=TWO, quality_equal=25, quality_numbers="yes")
    worst = columns(app)
    assert "from 2 blocks of 64 tokens in this text" in markup(app)
    (bins,) = figures(app)
    assert "n = 341" in bins["data"][0]["text"][0] and len(bins["data"][0]["x"]) == 3
    assert worst["token"][0] == "3" and worst["times less likely"][0] == "12.2" and "[" in worst["in its context"][0]
    paint = part(app, "painted")["paint"]
    assert paint[3] == 0 and paint[5] == 5 and paint.count(-1) == len(paint) - 2


def test_paint_has_a_class_for_each_doubling_and_both_signs():
    changes = [None, 0.0, 0.4, math.log(1.6), math.log(3), math.log(5), 9.0, -0.1, -math.log(1.6), -math.log(5), -9.0]
    paint, palette = painted_change.by_change(changes)
    assert paint == [-1, -1, -1, 3, 2, 1, 0, -1, 4, 6, 7] and palette[0]["name"] == "over 8 times less likely"
    assert [entry["note"] for entry in palette] == ["1", "1", "1", "1", "1", "0", "1", "1"]
    assert {entry["line"] for entry in palette[:4]}.isdisjoint(entry["line"] for entry in palette[4:])


def test_a_hostile_text_stays_text(client, page):
    app = page(text=client.store.put_text(f"{HOSTILE} and so on it goes " * 3, "mine"), quality=TWO)
    assert "<script" not in markup(app) and part(app, "painted")["pieces"] and not app.error


def test_a_method_that_nobody_has_written_yet_needs_no_line_of_the_page(page):
    app = page(quality="later~~focus", quality_paint="later")
    assert curve(app, "later")["fixed"] and "needs calibration to change" in captions(app)
    by_hand, real = DESCRIBED["focus"], describe()["focus"]
    assert set(by_hand) == set(real) and set(by_hand["fields"][0]) == set(real["fields"][0])


def test_no_method_at_all_is_told_and_every_method_is_one_row(page):
    assert "Choose a method" in page(quality="none").info[0].value
    reading_less = [name for name, about in DESCRIBED.items() if about["saves"] == "reads" and name != "dense"]
    app = page(quality="~~".join(reading_less), quality_equal=25)
    assert [curve["name"] for curve in part(app, "curves")["methods"]] == reading_less
    assert len(app.slider) + len(app.select_slider) + len(app.selectbox) < 10, "controls of the method in front alone"


def test_links_to_what_was_a_tab_here_land_where_it_is(page):
    for link in ({"speed_new": 4}, {"tab": "speed", "speed_new": 4}):
        app = page(**link)
        assert app.button(key="speed_launch") and "tab" not in app.query_params
    assert page(tab="quality", speed_new=4).multiselect and page(tab="speed").button(key="speed_launch")


@pytest.mark.parametrize("raw", ["focus", "focus~window-8~~oracle_topk~fraction-0.5", "none", "a~b--1~c-d_e"])
def test_the_word_of_the_url_comes_back(raw):
    assert asked.spell(asked.parse(raw)) == raw


# --- ahead ------------------------------------------------------------------------------------------------------------


def test_the_steps_in_view_are_computed_ahead_the_nearest_first(client, page):
    app = page(quality="streaming_llm", quality_equal=25)
    assert client.job.verb == "evaluate" and client.job.args == spec("streaming_llm", 0.1)
    before = curve(app, "streaming_llm")["missing"]
    client.done("evaluate", client.job.args)
    client.states[client.job.id] = client.job.__class__(**vars(client.job) | {"state": "done"})
    app.run()
    assert curve(app, "streaming_llm")["missing"] == [stop for stop in before if stop != 0.1]
    assert client.job.args["share"] == 0.5, "the next nearest"


def test_steps_that_cost_much_wait_for_a_button_with_the_price_of_all(client, page, monkeypatch):
    app = page(quality="streaming_llm", quality_equal=25)
    client.states.clear()
    app.session_state["_ahead"] = None
    monkeypatch.setattr(cached, "predicted", lambda store, request, tokens, card: SLOW)
    app.run()
    button = app.button(key="quality_ahead")
    assert button.label == "Compute the 5 missing steps, ~1 min 40 s" and not client.states
    button.click().run()
    assert client.job.args["share"] == 0.1


# --- memory and prompts -----------------------------------------------------------------------------------------------


def wanted(name: str, share: float | None, **settings: object) -> dict:
    args = {"model": "demo", "texts": [cached.sample("story")], "methods": [{"name": name, "settings": settings}]}
    return args | {"prefix": 256, "continuation": 256, "cuts": 4, "share": share, "seed": 0}


def test_memory_is_what_the_cache_really_holds(client, page):
    app = page(quality_saves="memory", quality_numbers="yes")
    assert not app.error and client.store.find(Continuation(**wanted("snapkv", 0.5)))
    (point,) = curve(app, "snapkv")["points"]
    assert (point["share"], point["change"], point["held"], point["worst"]) == (0.5, 0.02, "2 MB", "3 MB")
    assert app.title[0].value.startswith("Keep 50% with SnapKV: +2.0%") and "from 16 stretches" in markup(app)
    assert "painted" not in str([element.proto.component_name for element in app.get("bidi_component")])
    app.slider(key="quality_memory.snapkv.ratio").set_value(0.9).run()
    assert app.query_params["quality_memory"] == "snapkv~ratio-0.9" and curve(app, "snapkv")["fixed"]
    assert client.store.find(Continuation(**wanted("snapkv", None, ratio=0.9)))


def test_blocks_of_a_prompt_that_lose_too_much_are_not_called_kept(client, page):
    app = page(quality_saves="prefill", quality_equal=25)
    assert client.store.find(Continuation(**wanted("xattention", 0.25)))
    assert app.title[0].value.startswith("Read 25% with XAttention: +10.0%") and "does not hold" in markup(app)
    assert "quality_launch_xattention" in keys(app) and "--share 0.25" in app.code[-1].value


def test_every_share_of_the_page_can_stand_in_a_link():
    assert [state.CONTROLS["quality_equal"].from_address(f"{share}") for share in EQUAL_SHARES] == list(EQUAL_SHARES)
    with pytest.raises(ValueError, match="7"):
        state.CONTROLS["quality_equal"].from_address("7")


def test_the_first_page_asks_what_is_stored_as_example(client):
    """The methods and shares with which it opens, so that it waits for nothing on a fresh install."""
    store = RunStore(client.store.root, examples=FOLDER)
    assert ASKED["shares"] == [percent / 100 for percent in EQUAL_SHARES]
    for saves, names in ASKED["cut"].items():
        assert tuple(names) == quality_page.OPENS[saves]
    for verb, arguments in cut(cached.sample("register")):
        run = store.find(request(verb, arguments))
        assert run is not None and run.example
