"""While a page waits: how far its request is, and a Cancel that leaves it to its Run button."""

from streamlit.testing.v1 import AppTest

from analysis.commands.groups import Pairs
from analysis.commands.text import Start
from app.heads.head_statistics import STATISTICS
from tests.made.in_process import PATIENCE, opened


def waiting():
    import streamlit as st

    from analysis.commands.text import Start
    from app.ui import asking

    tell = asking.bar(st.empty(), Start(model="demo"))
    tell(0.25, "reading <b>", None)
    tell(0.5, "reading window 1 of 1, layer 4 of 6", 12.0)
    asking.bar(st.empty(), Start(model="other"))(0.1, "another of the same verb", None)


def test_the_page_says_the_layer_the_time_left_and_offers_to_cancel():
    app = AppTest.from_function(waiting, default_timeout=PATIENCE).run()
    bar = app.get("progress")[0]
    assert not app.exception and len(app.button) == 2
    assert bar.proto.value == 50 and bar.proto.text.endswith("layer 4 of 6 (50%, about 12 s left)")
    app.button[0].click().run()
    assert app.session_state["_stopped"] == Start(model="demo")


def filling():
    import streamlit as st

    from analysis.commands.heads import Statistics
    from app.ui import asking

    drawn = []
    tell = asking.bar(st.empty(), Statistics(model="demo"), st.empty(), lambda table: drawn.append(table["head"]))
    for so_far in (None, {"head": [0]}, {"head": [0]}, {"head": [0, 1]}):
        tell(0.5, "reading", None, so_far)
    st.write(str(drawn))


def test_what_is_known_is_drawn_each_time_there_is_more():
    app = AppTest.from_function(filling, default_timeout=PATIENCE).run()
    assert not app.exception and app.markdown[-1].value == "[[0], [0, 1]]"


def test_the_map_of_heads_fills_layer_by_layer(client):
    asked, answer = [], client.compute
    table = {"layer": [0, 0, 1, 1], "head": [0, 1, 0, 1], **{name: [0.5, 0.25, None, None] for name in STATISTICS}}

    def compute(verb, args, timeout=60, tell=None):
        if verb == "statistics":
            tell(0.5, "reading window 1 of 2, layer 2 of 2", 1.0, table)
            tell(0.6, "reading window 2 of 2, layer 1 of 2", 1.0, table | {"mean_distance": [1.0, 2.0, None, None]})
            asked.append(verb)
        return answer(verb, args, timeout)

    client.compute = compute
    app = opened("views/attention_heads.py")
    assert asked == ["statistics"] and not app.exception


def test_a_page_is_drawn_from_a_part_and_then_from_the_whole(client, monkeypatch):
    monkeypatch.setattr("app.ui.asking.LIVE", 0.0)
    asked, drawn = [], client.compute
    monkeypatch.setattr(
        client, "compute", lambda verb, args, **more: (asked.append((verb, args)), drawn(verb, args, **more))[1]
    )
    app = opened("pairs")
    assert "pairs" not in client.asked and not [args for verb, args in asked if verb == "pairs"], "it waits"
    next(button for button in app.button if button.label == "Run").click().run()
    part, whole = [args for verb, args in asked if verb == "pairs"]
    assert part == whole | {"shuffled": False} and "_later" not in app.session_state
    assert [run.request for run in client.store.list("pairs")] == [whole], "the part has gone"
    assert not app.exception


def test_what_was_cancelled_waits_for_its_run_button(client):
    app = opened("pairs")
    asked = client.asked.count("pairs")
    assert asked == 1 and not app.exception
    (run,) = client.store.list("pairs")
    client.store.discard(run.id)
    app.session_state["_stopped"] = Pairs(**run.request)
    app.run()
    assert client.asked.count("pairs") == asked and not app.exception, "it is not asked for again"
    next(button for button in app.button if button.label == "Run").click().run()
    assert client.asked.count("pairs") == asked + 1 and "_stopped" not in app.session_state
