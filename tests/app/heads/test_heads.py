"""Attention heads in-process with hand-made results: the answer, the map by tasks, the study that is folded away."""

import json

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from analysis.runs import Price, Result
from app import cached
from app.heads import head_charts, head_statistics, overview
from tests.made.heads import ANSWERS
from tests.made.in_process import HOSTILE, at, captions, columns, figures, markup, opened, part, select
from tests.made.results import CONTEXT, HEADS, LAYERS, STUDIES
from tests.made.training import put_bundled

VIEW = "map"


def page(**link: object) -> AppTest:
    return opened(VIEW, **link)


def head(app: AppTest) -> str:
    """The head on the first card."""
    return next(title.value for title in app.subheader if title.value.startswith("Head ")).removeprefix("Head ")


def pressed(app: AppTest, name: str, value: str) -> AppTest:
    """The map told the page what was chosen on it."""
    app.session_state["heads_map"] = {name: value}
    return app.run()


# --- answer and map ---------------------------------------------------------------------------------------------------


def test_the_page_opens_with_its_answer_and_the_first_head_of_the_task(client):
    app = page()
    assert app.title[0].value == "Head 2.1 reads farthest: 60.0% of its attention, above chance." and not app.error
    sent = part(app, "heads")
    assert head(app) == "2.1" and sent["chosen"] == [2, 1] and (len(sent["rows"]), sent["heads"]) == (LAYERS, HEADS)
    assert {measure["chip"]: measure["best"] for measure in sent["measures"]} == {
        "Reads farthest": "2.1",
        "Copies what came next": "0.1",
        "Sharpest": "2.1",
    }
    far = sent["measures"][0]
    assert far["cells"]["2.1"] == [1.0, "60.0%"] and (far["low"], far["high"]) == ("10.0%", "60.0%")
    assert sent["measures"][1]["cells"]["0.0"] == [None, "–"] and sent["about"]["0.1"] == "induction · 90% on 4 keys"
    assert {"alike", "names", "head-texts", "ablate"}.isdisjoint(client.asked) and client.asked.count("head") == 1


def test_a_task_opens_its_first_head_and_a_cell_another_one(client):
    app = page(layer=2, head=0, tile="0.0")
    app = pressed(app, "measure", "induction")
    app.session_state["statistic"] = "induction"
    app = page(statistic="induction")
    assert app.title[0].value == "Head 0.1 copies what came next with 50.0% of its attention." and head(app) == "0.1"
    assert head(page(statistic="induction", order="lowest")) == "2.1"
    app = page(statistic="top_p_rank", head="2.0")
    chips = [measure["chip"] for measure in part(app, "heads")["measures"]]
    assert head(app) == "2.0" and chips[3:] == ["Top-p rank (90%)"], "another statistic stands beside the tasks"
    assert app.title[0].value.startswith("Head 0.0 has the lowest top-p rank")


def test_the_strength_of_a_cell_by_hand():
    share, keys = (head_statistics.STATISTICS[name] for name in ("far_peaks", "top_p_rank"))
    assert overview.strengths([0.1, None, 0.3, 0.2], share) == pytest.approx([0, None, 1, 0.5])
    assert overview.strengths([1.0, 10.0, 100.0], keys) == pytest.approx([1, 0.5, 0]), "few keys are strong, on a log"
    assert overview.strengths([None], share) == [None] and overview.strengths([0.2], share) == [0.0]
    drawn = overview._measure({"layer": [0], "head": [0], "far_peaks": [None]}, "far_peaks")
    assert drawn["best"] == "none" and drawn["low"] == drawn["high"], "as where every layer has a short window"
    values = [0.3, None, 0.1, 0.3, 0.2]
    orders = [head_statistics.ranked(values, order) for order in ("highest", "lowest")]
    assert orders == [[0, 3, 4, 2], [2, 4, 0, 3]], "ties to the first"


def test_a_page_computes_only_so_much_unasked(client, monkeypatch):
    """Three requests of 9 s each: two of them begin, and the third waits for a button."""
    price = Price(9.0, 8.0, 10.0, None, 9, 0.1)
    monkeypatch.setattr(cached, "predicted", lambda store, request, tokens, card: price)
    app = page()
    assert client.asked == ["inspect", "statistics", "model", "head"] and not app.error
    next(button for button in app.button if button.label.startswith("Run")).click().run()
    assert client.asked[4:] == ["head-tokens"] and not app.error


def test_leaving_out_the_first_token_is_said_and_asked_for(client):
    app = page()
    app.toggle(key="without_first").set_value(True).run()
    assert "the first token left out" in markup(app) and client.asked.count("statistics") == 2
    assert app.query_params["without_first"] == "yes"
    assert client.store.list("head", 5)[0].request["without_first"] is True


def test_what_a_link_cannot_have_is_said(client):
    app = page(layer=99, head=1, query=999_999, tile="5.9999999")
    for words in ("layer “99”", "token “999999”", "exact tile “5.9999999”"):
        assert f"{words} is not available" in captions(app)
    assert head(app).endswith(".1")
    app = at(VIEW, head="2.0")
    app.context["is_embedded"] = True
    app.run()
    assert not app.exception and head(app) == "2.0", "inside another page a head has the same address"
    text = client.store.put_text(HOSTILE * 3, "mine")
    assert "<script>" not in markup(page(text=text))


# --- the study --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_all_heads_are_listed_from_either_end_or_against_another_statistic(client):
    app = page(statistic="induction", finder=5)
    assert columns(app)["Induction score"] == ["50.0%", "40.0%", "30.0%", "20.0%", "10.0%"], "a link opens the study"
    app.segmented_control(key="order_pick").set_value("lowest").run()
    assert columns(app)["Induction score"][0] == "10.0%" and app.query_params["order"] == "lowest"
    app = page(heads_shown="scatter", statistic="induction", heads_across="max_prob", heads_colour="entropy")
    points = next(figure["data"][0] for figure in figures(app) if figure["data"][0].get("mode") == "markers")
    assert points["customdata"] == [[0, 1], [1, 0], [1, 1], [2, 0], [2, 1]], "head 0.0 has no induction score"
    assert points["y"] == [0.5, 0.4, 0.3, 0.2, 0.1] and len(points["marker"]["color"]) == 5
    widths = points["marker"]["line"]["width"]
    assert points["customdata"][widths.index(max(widths))] == [0, 1] == [int(n) for n in head(app).split(".")]
    assert head(select(app, "heads_scatter", [2, 0])) == "2.0"


def test_names_are_asked_for_once_and_stand_on_map_card_and_tables(client):
    app = page(named="yes", layer=1, head=0)
    assert not app.error and client.asked.count("names") == 1
    assert "2 of 6 heads have a name, 3 names in all." in markup(app)
    sent = part(app, "heads")
    assert sent["letters"] == {"0.0": "", "0.1": "", "1.0": "IS", "1.1": "", "2.0": "", "2.1": "P"}
    assert sent["about"]["1.0"] == "induction ✓ · sink · 90% on 16 keys", "what is confirmed first"
    listed, named = columns(app, 0), columns(app, 1)
    assert listed["name"][listed["head"].index("2.1")] == "previous token (not confirmed)"
    assert named["head"] == ["1.0", "1.0", "2.1"] and named["score"][0] == "70% (60% to 80%)"
    assert named["loss rises by"][:2] == ["–", "+0.500 (+0.400 to +0.600)"]
    assert named["this text"][1] == "40.0%", "the induction score of the reader's own text"
    page(layer=2, head=1)
    assert client.asked.count("names") == 1, "stored for the model, whatever the text"


@pytest.mark.slow
@pytest.mark.parametrize("names", [{}, {"loss_change": "change", "kl": "divergence"}], ids=["now", "earlier version"])
def test_what_is_lost_without_heads_is_listed_and_painted(client, monkeypatch, names):
    def ablate(args: dict, text: str) -> Result:
        answer = ANSWERS["ablate"](args, text)
        rows = [{names.get(name, name): value for name, value in row.items()} for row in answer.numbers["rows"]]
        return Result(answer.numbers | {"rows": rows}, answer.tables, answer.arrays)

    monkeypatch.setitem(STUDIES, "ablate", ablate)
    app = page(heads_evidence="yes", layer=2, head=1)
    assert not app.error and client.asked.count("ablate") == 1, "the chosen head is among the exact passes"
    lost = next(table for table in map(lambda place: columns(app, place), range(4)) if "without" in table)
    assert lost["loss rises by"][0] == "+7.5000" and "KL to all heads" in lost
    assert "2 blocks of this text, too few for an interval." in captions(app)
    painted = part(app, "painted", 1)
    assert painted["paint"][0] == -1 and painted["paint"][CONTEXT - 1] == 4, "the last token suffers most"
    app.button(key="heads_without_worst").click().run()
    assert app.query_params["query"] == str(CONTEXT - 1)
    app = page(heads_evidence="yes", layer=0, head=0, without_by="mean")
    request = client.store.list("ablate", 5)[0].request
    assert request["heads"] == "0.0" and request["by"] == "mean", "another head gets a pass of its own"
    assert "predicted worse without head 0.0" in json.dumps(part(app, "painted", 1))


def test_the_studies_behind_the_names_are_shown_or_their_commands(client):
    app = page(heads_evidence="yes")
    commands = [code.value for code in app.code]
    assert commands == [
        f"python -m analysis study {name} --model demo" for name in ("induction", "why-circuit", "circuit")
    ]
    (study,) = put_bundled(client.store, "circuit")
    assert study["sentence"] in markup(page(heads_evidence="yes"))


def test_log_only_for_positive_values_over_a_decade():
    log = [head_charts.is_log(values) for values in ([1.0, 10.0], [0.01, None, 1], [1.0, 9.0], [0.0, 100.0], [])]
    assert log == [True, True, False, False, False]
    masses = np.array([[1.0, 0.0], [0.25, 0.75]])
    table = head_charts.pattern_numbers(masses, 10, 10, 4)
    assert table["query from"] == [10, 14, 14] and table["key from"] == [10, 10, 14]
