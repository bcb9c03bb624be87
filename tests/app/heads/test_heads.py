"""Attention heads in-process with hand-made results: map, finder, one head, its tile, and what stands beside it."""

from base64 import b64decode

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from analysis.errors import TooLarge
from analysis.runs import Price
from app import cached
from app.heads import head_charts, head_statistics, one_head, painted_weights
from app.ui import other, painted
from tests.made.heads import SENTENCE
from tests.made.in_process import HOSTILE, at, captions, columns, figures, markup, opened, part, select
from tests.made.results import CONTEXT, HEADS, LAYERS

VIEW = "map"


def page(**link: object) -> AppTest:
    return opened(VIEW, **link)


def unpacked(packed: dict) -> np.ndarray:
    """The numbers of an array as the browser gets it."""
    shape = [int(size) for size in packed["shape"].split(", ")]
    return np.frombuffer(b64decode(packed["bdata"]), np.float32).reshape(shape)


def headers(app: AppTest) -> str:
    return " ".join(element.value for element in app.header)


def finder(app: AppTest) -> dict[str, list]:
    return {column["label"]: column["values"] for column in part(app, "table")["columns"]}


# --- the map and the finder -------------------------------------------------------------------------------------------


def test_the_page_opens_with_its_question_and_the_finder_s_first_head(client):
    app = page()
    assert not app.error and SENTENCE in markup(app) and "A note to &lt;read&gt;." in markup(app)
    assert headers(app) == "Head 1 of layer 2" and part(app, "table")["selected"] == 0
    values = list(finder(app).values())
    assert len(values[0]) == LAYERS * HEADS and values[3] == sorted(values[3], reverse=True), "the highest first"
    assert "induction" in figures(app)[0]["data"][1]["text"][1], "the label on hover too"
    assert client.asked.count("head") == 1 and len(figures(app)) == 3
    assert "scores up to 61.5, weights within 3e-06 of float64" in " ".join(one.value for one in app.markdown)
    assert "a weight would be off by up to 12.5%" in markup(app)


def test_a_page_computes_only_so_much_unasked(client, monkeypatch):
    """Three requests of 9 s each: two of them begin, and the third waits for a button."""
    price = Price(9.0, 8.0, 10.0, None, 9, 0.1)
    monkeypatch.setattr(cached, "predicted", lambda store, request, tokens, card: price)
    app = page()
    assert client.asked[2:] == ["statistics", "head"] and not app.error
    next(button for button in app.button if button.label.startswith("Run:")).click().run()
    assert client.asked[2:] == ["statistics", "head", "head-tokens"] and not app.error


def test_a_statistic_that_spans_decades_gets_a_log_colour_and_says_so(client):
    log, plain = (figures(page(**link))[0]["data"][0]["colorbar"] for link in ({"statistic": "top_p_rank"}, {}))
    assert log["title"]["text"].endswith(", log") and "ticktext" in log and "log" not in plain["title"]["text"]


def test_what_has_no_value_is_left_out_of_the_finder(client):
    app = page(statistic="induction", finder=5)
    assert finder(app)["Induction score"] == [0.5, 0.4, 0.3, 0.2, 0.1] and headers(app) == "Head 1 of layer 0"
    app.segmented_control(key="order_pick").set_value("lowest").run()
    assert finder(app)["Induction score"][0] == 0.1 and app.query_params["order"] == "lowest"


def test_leaving_out_the_first_token_says_that_it_renormalises(client):
    app = page()
    assert "The first token counts like any other." in captions(app)
    app.toggle(key="without_first").set_value(True).run()
    assert "the rest renormalised to 100%" in captions(app) and client.asked.count("statistics") == 2
    assert app.query_params["without_first"] == "yes"
    assert client.store.list("head", 5)[0].request["without_first"] is True


def test_a_point_of_the_map_chooses_its_head_once_and_buttons_walk_round(client):
    app = select(page(), "heads_map", [2, 1])
    assert headers(app) == "Head 1 of layer 2"
    app.button(key="heads_previous").click().run()
    assert headers(app) == "Head 0 of layer 2", "the chart keeps its selection and must not win again"
    app = page(layer=LAYERS - 1, head=HEADS - 1, tile="0.0")
    assert app.button(key="heads_next").proto.shortcut.upper() == "N"
    app.button(key="heads_next").click().run()
    assert headers(app) == "Head 0 of layer 0" and "tile" not in app.query_params


def test_a_link_to_a_head_that_is_not_there_is_said(client):
    app = page(layer=99, head=1, query=999_999, tile="5.9999999")
    for words in ("layer “99”", "token “999999”", "exact tile “5.9999999”"):
        assert f"{words} is not available" in captions(app)
    assert headers(app).startswith("Head 1 of layer")


def test_a_scatter_of_two_statistics_chooses_a_head_too(client):
    app = page(heads_shown="scatter", statistic="induction", heads_across="max_prob", heads_colour="entropy")
    (points,) = figures(app)[0]["data"]
    assert points["customdata"] == [[0, 1], [1, 0], [1, 1], [2, 0], [2, 1]], "head 0.0 has no induction score"
    assert points["y"] == [0.5, 0.4, 0.3, 0.2, 0.1] and len(points["marker"]["color"]) == 5
    widths = points["marker"]["line"]["width"]
    assert points["customdata"][widths.index(max(widths))] == [0, 1] and headers(app) == "Head 1 of layer 0"
    app = select(app, "heads_scatter", [2, 0])
    assert headers(app) == "Head 0 of layer 2" and app.query_params["heads_shown"] == "scatter"


def test_a_page_inside_another_one_stands_alone(client):
    app = at(VIEW, head="2.0")
    app.context["is_embedded"] = True
    app.run()
    assert not app.exception and headers(app) == "Head 0 of layer 2", "a head has one address"
    with pytest.raises(IndexError):
        part(app, "link")  # the top bar's


# --- one head ---------------------------------------------------------------------------------------------------------


def test_a_query_is_shown_in_its_own_window_and_its_place_in_the_text(client):
    app = page(layer=1, head=1, query=CONTEXT + 5)
    request = client.store.list("head", 1)[0].request
    assert (request["part"], request["query"]) == (1, 5)
    painted = part(app, "painted")
    seen = [value for value in painted["tips"][0]["values"] if value is not None]
    assert painted["locked"] == CONTEXT + 5 and len(seen) == 6 and painted["tips"][0]["values"][CONTEXT] == seen[0]
    axis = figures(app)[1]["data"][0]
    assert axis["y0"] == CONTEXT + 0.5 and axis["dy"] == 2 and np.isnan(unpacked(axis["z"])[0, 1])


def test_a_dragged_rectangle_becomes_an_exact_tile_and_closes(client):
    box = {"xref": "x", "yref": "y", "x": [2, 10], "y": [20, 40]}
    app = select(page(layer=1, head=0), "heads_pattern_0", box=box)
    assert app.query_params["tile"] == "0.0"
    request = client.store.list("head", 1)[0].request
    assert request["rows"] == request["columns"] == [0, CONTEXT]
    exact = next(figure for figure in figures(app) if figure["data"][0].get("dx") == 1)
    assert unpacked(exact["data"][0]["z"]).shape == (CONTEXT, CONTEXT)
    app.button(key="tile_close").click().run()
    assert "tile" not in app.query_params


def test_another_head_and_another_text_stand_beside_on_one_scale(client):
    app = page(layer=1, head=0, beside="head")
    assert app.selectbox(key="other_head_pick").value == "1.1"
    patterns = [figure for figure in figures(app) if figure["data"][0]["type"] == "heatmap"][1:]
    assert len(patterns) == 2
    assert len({(panel["data"][0]["zmin"], panel["data"][0]["zmax"]) for panel in patterns}) == 1
    app.selectbox(key="other_head_pick").set_value("2.1").run()
    assert app.query_params["other_head"] == "2.1"
    app.segmented_control(key="beside_pick").set_value("text").run()
    assert client.store.list("head", 1)[0].request["text"] == app.selectbox(key="other_text_pick").value
    assert len(columns(app, 2)) == 6 and list(columns(app, 2))[3].startswith("all alike, ")
    first, second = (client.store.put_text(words * 40, "The pasted text") for words in ("one two. ", "three four. "))
    app = page(text=first, layer=1, head=0, beside="text", other_text=second)
    assert len(columns(app, 2)) == 6, "two texts of one name"


def test_a_head_of_another_model_reads_the_same_text_from_the_same_place(client):
    app = page(layer=1, head=0, query=5, beside="model", other_model="demo-gpt2")
    first, second = (client.store.list("head", 9)[place].request for place in (-1, 0))
    assert (first["model"], second["model"]) == ("demo", "demo-gpt2") and first["query"] == second["query"] == 5
    assert app.selectbox(key="other_head_pick").value == "1.0" and not app.error
    assert list(columns(app, 2))[1:3] == ["demo, layer 1, head 0", "demo-gpt2, layer 1, head 0"]
    mine, others = {"start": [0, 3, 7]}, {"start": [0, 1, 5, 8]}
    assert [other.aligned(mine, token, others) for token in range(3)] == [0, 1, 2]


def test_hostile_text_is_escaped_and_an_error_is_one_sentence(client):
    text = client.store.put_text(HOSTILE * 3, "mine")
    app = page(text=text)
    assert not app.error and "<script>" not in markup(app)
    client.refusals["head"] = TooLarge("A window of 9 tokens does not fit; take a shorter text.")
    app = page(text=text, layer=1)
    assert len(app.error) == 1 and "does not fit" in app.error[0].value and headers(app)


def test_hovering_marks_what_a_token_reads_and_who_reads_it(client):
    sent = part(page(layer=2, head=1), "painted")["crossed"]
    assert client.asked.count("head-tokens") == 1 and (sent["first"], sent["each"], sent["wide"]) == (0, 1, False)
    keys, readers = (np.frombuffer(b64decode(sent[name]), np.uint16) for name in ("keys", "readers"))
    assert keys[:3].tolist() == [0, 0, 1] and readers[:2].tolist() == [1, 2]
    assert set(b64decode(sent["given"])) == {204}, "0.8 in 255 steps"
    assert painted.crossing(0, *[np.zeros((1 << 16, 1))] * 4)["wide"], "places past 65,535"
    page(layer=2, head=1)
    assert client.asked.count("head-tokens") == 1


# --- parts ------------------------------------------------------------------------------------------------------------


def test_ranked_by_hand():
    values = [0.3, None, 0.1, 0.3, 0.2]
    orders = [head_statistics.ranked(values, order) for order in ("highest", "lowest")]
    assert orders == [[0, 3, 4, 2], [2, 4, 0, 3]]


def test_log_only_for_positive_values_over_a_decade():
    log = [head_charts.is_log(values) for values in ([1.0, 10.0], [0.01, None, 1], [1.0, 9.0], [0.0, 100.0], [])]
    assert log == [True, True, False, False, False]


def test_a_tile_stays_inside_its_window():
    assert one_head.around(0, 2000, 2048) == "0.1792" and one_head.around(1000, 500, 2048) == "872.372"
    assert one_head.around(50, 3, 64) == "0.0"


def test_a_pattern_is_blank_where_nothing_is_visible_and_keeps_every_number():
    masses = np.array([[1.0, 0.0], [0.25, 0.75]])
    figure = head_charts.pattern(masses, 0, 0, 1, 1)
    made = figure["data"][0]
    assert not {"scaleanchor", "constrain"} & set(figure["layout"]["yaxis"]), "it fills its card"
    np.testing.assert_allclose(unpacked(made["z"]), [[0.0, np.nan], [-0.60206, -0.1249387]], atol=1e-5)
    np.testing.assert_array_equal(unpacked(made["customdata"]), np.float32([[1.0, np.nan], [0.25, 0.75]]))
    table = head_charts.pattern_numbers(masses, 10, 10, 4)
    assert table["query from"] == [10, 14, 14] and table["key from"] == [10, 10, 14]
    outside = head_charts.pattern(np.zeros((2, 2)), 0, 8, 1, None)["data"][0]
    assert np.isnan(unpacked(outside["z"])).all(), "keys after every query of the tile"


def test_levels_of_attention_by_hand():
    paint, palette = painted_weights.by_weight([None, 0.002, 0.003, 0.05, 0.3, 1.0])
    assert paint == [-1, -1, 0, 2, 4, 4] and [entry["note"] for entry in palette] == ["1", "0", "1", "0", "2"]
