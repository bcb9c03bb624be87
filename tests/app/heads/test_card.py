"""The card of a head in-process with hand-made results: own names, the proof, its tabs, what is pinned beside it."""

from base64 import b64decode

import numpy as np
import pytest

from analysis.errors import TooLarge
from analysis.runs import Price
from analysis.runs.head_notes import note_head, notes_of, put_others
from app import cached
from app.heads import head_charts, one_head, painted_weights
from app.ui import other, packed, painted
from tests.app.heads.test_heads import head, page
from tests.made.in_process import columns, figures, markup, opened, part, put, select, tables
from tests.made.results import CONTEXT

TWO_WINDOWS = ("a word of text " * (CONTEXT // 2)).strip()


def unpacked(packed: dict) -> np.ndarray:
    """The numbers of an array as the browser gets it."""
    shape = [int(size) for size in packed["shape"].split(", ")]
    return np.frombuffer(b64decode(packed["bdata"]), np.float32).reshape(shape)


# --- own words and the proof ------------------------------------------------------------------------------------------


def test_a_head_gets_a_name_and_a_note_that_stay_and_stand_on_the_map(client):
    app = page(head="2.1")
    app.text_input(key="head_name_2.1").set_value("names again").run()
    app.text_input(key="head_note_2.1").set_value("copies surnames").run()
    notes = {"2.1": {"name": "names again", "note": "copies surnames"}}
    assert notes_of(client.store.root, "demo", "abc") == notes and not app.error
    assert not {"names again", "copies surnames"} & set(app.query_params.values()), "never in the address"
    note_head(client.store.root, "demo", "abc", "1.0", name="<b>brought</b>")
    sent = part(page(), "heads")["about"]
    assert sent["2.1"].endswith("names again · copies surnames") and sent["1.0"].endswith("<b>brought</b>")
    assert page(head="2.1").text_input(key="head_name_2.1").value == "names again"
    assert page(head="2.0").text_input(key="head_name_2.0").value == ""


def test_prove_it_takes_this_head_and_another_of_its_layer_away_exactly(client):
    app = page(head="2.1")
    assert "ablate" not in client.asked and app.button(key="heads_prove").label.startswith("Prove it, ~")
    app.button(key="heads_prove").click().run()
    (run,) = client.store.list("ablate", 5)
    assert run.request["heads"] == "2.1,2.0" and run.request["part"] == 0 and app.query_params["without"] == "yes"
    assert "Without it: +7.5000 nats per token." in markup(app) and "Without head 2.0 instead: +7.5000." in markup(app)
    app.button(key="heads_worst_2.1").click().run()
    assert app.query_params["query"] == str(CONTEXT - 1)
    page(head="0.0", without="yes", without_by="mean")
    assert client.store.list("ablate", 1)[0].request["by"] == "mean"


def test_a_card_is_made_and_others_stand_beside_on_every_hover(client):
    note_head(client.store.root, "demo", "abc", "2.1", name="mine")
    put_others(client.store.root, "demo", "abc", "anna", {"2.1": {"name": "hers", "names": "sink"}})
    app = page(head="2.1", head_tab="numbers")
    assert part(app, "heads")["about"]["2.1"].endswith("mine · anna: hers, sink")
    (heads,) = (table["columns"][0] for table in tables(app) if table["label"].startswith("Heads like this one"))
    assert heads["heads"] and part(app, "names")["cards"] == part(app, "heads")["about"]
    for elsewhere in ("text", "methods", "worth"):
        assert "mine · anna: hers, sink" in part(opened(elsewhere), "names")["cards"]["2.1"], elsewhere
    app.button(key="heads_card").click().run()
    assert not app.error and [job.verb for job in client.states.values()] == ["head-cards"]


@pytest.mark.parametrize(
    "control, verb, link", [("without", "ablate", {"without": "yes"}), ("alike", "alike", {"alike": "yes"})]
)
def test_what_covers_one_window_says_so_and_reads_all_of_them_at_a_price(client, monkeypatch, control, verb, link):
    text = put(client, TWO_WINDOWS)
    price = Price(30.0, 8.0, 100.0, None, 0)
    monkeypatch.setattr(cached, "predicted", lambda store, request, tokens, card: price)
    app = page(text=text, **{control: "yes"})
    while waits := [button for button in app.button if button.label.startswith("Run")]:
        waits[0].click().run()
    assert {run.request["part"] for run in client.store.list(verb)} == {0} and "Window 1 of 2" in markup(app)
    all_windows = app.button(key=f"{control}_all_all")
    assert all_windows.label == "All 2 windows, ~30 s"
    all_windows.click().run()
    assert {run.request["part"] for run in client.store.list(verb)} == {0, None} and not app.error
    assert app.query_params[f"{control}_all"] == "yes" and "All 2 windows" in markup(app)
    app.button(key=f"{control}_all_one").click().run()
    assert f"{control}_all" not in app.query_params


# --- text and pattern -------------------------------------------------------------------------------------------------


def test_a_query_is_shown_in_its_own_window_and_its_place_in_the_text(client):
    app = page(layer=1, head=1, query=CONTEXT + 5, head_tab="pattern")
    request = client.store.list("head", 1)[0].request
    assert (request["part"], request["query"]) == (1, 5)
    axis = next(figure["data"][0] for figure in figures(app) if figure["data"][0]["type"] == "heatmap")
    assert axis["y0"] == CONTEXT + 0.5 and axis["dy"] == 2 and np.isnan(unpacked(axis["z"])[0, 1])
    painted = part(page(layer=1, head=1, query=CONTEXT + 5), "painted")
    values = [value for value in painted["tips"][0]["values"] if value is not None]
    assert painted["locked"] == CONTEXT + 5 and len(values) == 6 and painted["tips"][0]["values"][CONTEXT] == values[0]


def test_hovering_marks_what_a_token_reads_and_who_reads_it(client, monkeypatch):
    monkeypatch.setattr(one_head, "FAR", 1)
    app = page(layer=2, head=1)
    sent = part(app, "painted")["crossed"]
    assert client.asked.count("head-tokens") == 1 and (sent["first"], sent["each"], sent["wide"]) == (0, 1, False)
    keys, readers = (np.frombuffer(b64decode(sent[name]), np.uint16) for name in ("keys", "readers"))
    assert keys[:3].tolist() == [0, 0, 1] and readers[:2].tolist() == [1, 2]
    assert set(b64decode(sent["given"])) == {204}, "0.8 in 255 steps"
    assert packed.crossing(0, *[np.zeros((1 << 16, 1))] * 4)["wide"], "places past 65,535"
    assert app.button(key="heads_place_0").label.endswith(" 80%"), "where it fires most"
    app.button(key="heads_place_0").click().run()
    assert app.query_params["query"] == str(CONTEXT - 1)


def test_a_dragged_rectangle_becomes_an_exact_tile_and_closes(client):
    box = {"xref": "x", "yref": "y", "x": [2, 10], "y": [20, 40]}
    app = select(page(layer=1, head=0, head_tab="pattern"), "heads_pattern_0", box=box)
    assert app.query_params["tile"] == "0.0"
    request = client.store.list("head", 1)[0].request
    assert request["rows"] == request["columns"] == [0, CONTEXT]
    exact = next(figure for figure in figures(app) if figure["data"][0].get("dx") == 1)
    assert unpacked(exact["data"][0]["z"]).shape == (CONTEXT, CONTEXT)
    app.button(key="tile_close").click().run()
    assert "tile" not in app.query_params
    assert one_head.around(0, 2000, 2048) == "0.1792" and one_head.around(1000, 500, 2048) == "872.372"
    assert one_head.around(50, 3, 64) == "0.0", "a tile stays inside its window"


def test_a_pattern_is_blank_where_nothing_is_visible_and_keeps_every_number():
    masses = np.array([[1.0, 0.0], [0.25, 0.75]])
    heatmap = head_charts.pattern(masses, 0, 0, 1, 1)["data"][0]
    np.testing.assert_allclose(unpacked(heatmap["z"]), [[0.0, np.nan], [-0.60206, -0.1249387]], atol=1e-5)
    np.testing.assert_array_equal(unpacked(heatmap["customdata"]), np.float32([[1.0, np.nan], [0.25, 0.75]]))
    outside = head_charts.pattern(np.zeros((2, 2)), 0, 8, 1, None)["data"][0]
    assert np.isnan(unpacked(outside["z"])).all(), "keys after every query of the tile"
    paint, palette = painted.classes([None, 0.002, 0.003, 0.05, 0.3, 1.0], painted_weights.LEVELS)
    assert paint == [-1, -1, 0, 2, 4, 4] and [entry["note"] for entry in palette] == ["1", "0", "1", "0", "2"]


# --- other tabs -------------------------------------------------------------------------------------------------------


def test_numbers_name_their_windows_and_the_heads_that_read_alike(client):
    app = page(head="2.1", head_tab="numbers")
    assert columns(app, 1)["likeness"] == ["75% (70% to 80%)", "50%"] and columns(app, 1)["head"] == ["1.0", "0.1"]
    badge = next(element for element in app.markdown if "numerically exact" in element.value)
    assert badge and "a weight would be off by up to 12.5%" in markup(app), "in the model's own type"
    labels = list(columns(page(head_tab="numbers", text=put(client, TWO_WINDOWS))))
    assert "window 1 of 2" in labels[0] and any("all 2 windows" in label for label in labels)


def test_a_head_is_shown_over_many_texts_beside_the_text_in_use(client):
    app = page(over_texts="yes", layer=2, head=1, statistic="entropy")
    assert not app.error and "640 tokens of &lt;one&gt; text." in markup(app)
    line = next(chart for chart in figures(app) if chart["data"][0].get("name") == "these texts")
    assert line["data"][0]["y"] == [step / 10 for step in range(11)] and len(line["data"][1]["y"]) == 11
    examples, tokens = columns(app, 0), columns(app, 1)
    assert examples["tenth"] == ["highest of all", "3 of 10"] and examples["Entropy, nats"] == ["0.90"] * 2
    assert tokens["kind"] == ["pairs", "reads"] and tokens["lift"] == ["12.5", "2.0"] and tokens["query"][1] == "–"
    request = client.store.list("head-texts", 1)[0].request
    assert request["corpus"].count("+") == 2 and "text" not in request, "the bundled samples, one run for all texts"


def test_sharpness_is_sent_to_the_browser_as_queries_and_keys(client):
    app = page(head="2.1", head_tab="sharpness", softmax=0.55)
    sent = part(app, "sharpen")
    assert (sent["layer"], sent["head"], sent["t"], sent["query"]) == (2, 1, 0.55, CONTEXT - 1)
    assert sent["shape"] == {"heads": 2, "groups": 1, "length": CONTEXT, "size": 4} and sent["layers"] == [0, 1, 2]
    run = client.store.list("queries-keys", 1)[0]
    queries = np.frombuffer(b64decode(sent["mine"]), np.float16).reshape(CONTEXT, 4)
    np.testing.assert_array_equal(queries, run.array("query")[2, 1])
    assert len(b64decode(sent["spread"])) == 2 * 3 * 2 * 2 * 4 and "0.10% at temperature 1" in markup(app)


# --- what stands beside -----------------------------------------------------------------------------------------------


def test_a_pinned_head_another_text_and_another_model_stand_beside(client):
    app = page(head="1.0", head_tab="numbers")
    app.button(key="heads_pin").click().run()
    assert app.query_params["other_head"] == "1.0" and part(app, "heads")["pinned"] == "1.0"
    app = page(head="2.1", head_tab="numbers", beside="head", other_head="1.0")
    assert list(columns(app))[1:3] == ["head 2.1", "head 1.0"] and head(app) == "2.1"
    app = page(head="1.0", head_tab="pattern", beside="head")
    assert app.selectbox(key="other_head_pick").value == "1.1"
    patterns = [figure["data"][0] for figure in figures(app) if figure["data"][0]["type"] == "heatmap"]
    assert len(patterns) == 2 and len({(panel["zmin"], panel["zmax"]) for panel in patterns}) == 1, "one scale"
    first, second = (client.store.put_text(words * 40, "The pasted text") for words in ("one two. ", "three four. "))
    app = page(text=first, head="1.0", head_tab="numbers", beside="text", other_text=second)
    assert client.store.list("head", 1)[0].request["text"] == second and len(columns(app)) == 6
    app = page(head="1.0", head_tab="numbers", query=5, beside="model", other_model="demo-gpt2")
    newest, two = (client.store.list("head", 9)[place].request for place in (-1, 0))
    assert two["model"] == "demo-gpt2" and two["query"] == 5 and not app.error
    assert list(columns(app))[1:3] == ["head 1.0", "head 1.0 of demo-gpt2"]
    starts, other_starts = {"start": [0, 3, 7]}, {"start": [0, 1, 5, 8]}
    assert [other.aligned(starts, token, other_starts) for token in range(3)] == [0, 1, 2]


def test_an_error_of_the_card_is_one_sentence_and_the_map_stays(client):
    client.refusals["head"] = TooLarge("A window of 9 tokens does not fit; take a shorter text.")
    app = page(layer=1)
    assert len(app.error) == 1 and "does not fit" in app.error[0].value and part(app, "heads")


def test_why_names_the_writers_and_a_row_of_a_head_chooses_it(client):
    app = page(layer=2, head=1, query=9, head_tab="why", why_key=4)
    request = client.store.list("why", 1)[0].request
    assert (request["query"], request["key_token"], request["part"]) == (9, 4, 0) and not app.error
    heat = next(figure["data"][0] for figure in figures(app) if figure["data"][0].get("x") == ["L1.H1", "embedding"])
    assert heat["z"] == [[8.0, None], [None, -1.0]] and "Score 7.5, 7.0 of it drawn; 60%" in markup(app)
    rows = next(table for place in range(9) if "wrote it" in (table := columns(app, place)))
    assert rows["wrote it"] == ["L1.H1", "L0.mlp"] and rows["share"] == ["75% (62% to 88%)", "25%"]
    app = page(layer=2, head=1, query=9, head_tab="why", why_key=40)
    assert "key_token" not in client.store.list("why", 1)[0].request, "a key after its query is left out"
