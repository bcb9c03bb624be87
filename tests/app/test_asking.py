"""While a page waits: how far its request is, and a Cancel that leaves it to its Run button."""

from streamlit.testing.v1 import AppTest

from analysis.commands.groups import Pairs
from analysis.commands.heads import Statistics
from analysis.commands.text import Start
from app.heads.head_statistics import STATISTICS
from tests.made.in_process import PATIENCE, opened


def waiting():
    import streamlit as st

    from analysis.commands.text import Start
    from app.ui import asking

    drawn = []
    tell = asking.bar(st.empty(), Start(model="demo"), st.empty(), lambda table: drawn.append(table["head"]))
    tell(0.25, "reading <b>", None)
    for so_far in (None, {"head": [0]}, {"head": [0]}, {"head": [0, 1]}):
        tell(0.5, "reading window 1 of 1, layer 4 of 6", 12.0, so_far)
    asking.bar(st.empty(), Start(model="other"))(0.1, "another of the same verb", None)
    st.write(str(drawn))


def test_the_page_says_how_far_it_is_draws_what_there_is_and_offers_to_cancel():
    app = AppTest.from_function(waiting, default_timeout=PATIENCE).run()
    bar = app.get("progress")[0]
    assert not app.exception and len(app.button) == 2
    assert bar.proto.value == 50 and bar.proto.text.endswith("layer 4 of 6 (50%, about 12 s left)")
    assert app.markdown[-1].value == "[[0], [0, 1]]", "each time there is more"
    app.button[0].click().run()
    assert app.session_state["_stopped"] == Start(model="demo")


def test_the_map_of_heads_fills_layer_by_layer(client, monkeypatch):
    verbs, answer = [], client.compute
    table = {"layer": [0, 0, 1, 1], "head": [0, 1, 0, 1]}
    table |= {name: [0.5, 0.25, None, None] for name in STATISTICS}

    def compute(request, timeout=60, tell=None):
        if request.verb == Statistics.verb:
            tell(0.5, "reading window 1 of 2, layer 2 of 2", 1.0, table)
            tell(0.6, "reading window 2 of 2, layer 1 of 2", 1.0, table | {"mean_distance": [1.0, 2.0, None, None]})
            verbs.append(request.verb)
        return answer(request, timeout)

    monkeypatch.setattr(client, "compute", compute)
    app = opened("map")
    assert verbs == ["statistics"] and not app.exception


def test_a_page_is_drawn_from_a_part_and_then_from_the_whole(client, monkeypatch):
    monkeypatch.setattr("app.ui.asking.LIVE", 0.0)
    requests, answer = [], client.compute

    def compute(request, **options):
        requests.append((request.verb, request.spelled))
        return answer(request, **options)

    monkeypatch.setattr(client, "compute", compute)
    app = opened("links")
    for _ in ("reading the text", "looking for far pairs"):
        assert not [args for verb, args in requests if verb == "pairs"], "it waits"
        next(button for button in app.button if button.label.startswith("Run:")).click().run()
    part, full = [args for verb, args in requests if verb == "pairs"]
    assert part == full | {"shuffled": False} and "_later" not in app.session_state
    assert [run.request for run in client.store.list("pairs")] == [full], "the part has gone"
    assert not app.exception


def test_what_was_cancelled_waits_for_its_run_button(client):
    app = opened("links")
    assert client.asked.count("pairs") == 1 and not app.exception
    (run,) = client.store.list("pairs")
    client.store.discard(run.id)
    app.session_state["_stopped"] = Pairs(**run.request)
    app.run()
    assert client.asked.count("pairs") == 1 and not app.exception, "it is not asked for again"
    next(button for button in app.button if button.label.startswith("Run:")).click().run()
    assert client.asked.count("pairs") == 2 and "_stopped" not in app.session_state
