"""Pages in-process with hand-made results: what they show, the bar on top, jobs and their prices."""

from base64 import b64decode

import numpy as np
import pytest
import streamlit as st
from streamlit.runtime.pages_manager import PagesManager

from analysis import places
from analysis.declaration.undeclared import Undeclared
from analysis.runs import Result, RunStore
from app import cached
from app.selection.menu import MOVED, page_at
from app.ui import charts
from app.ui.spelled import plain
from tests.made.in_process import TITLES, at_address, columns, figures, go, in_chip, markup, opened, part, put
from tests.made.results import CONTEXT, STUDIES

PACKED = {"place": np.int32, "head": np.uint16, "share": np.uint16, "word": np.int32}
WORDS = " ".join(f"word{i}" for i in range(40))


def stored_model(client, name: str, took: float, size: int = 4936) -> None:
    """The card of a model, as if it had been loaded here."""
    answer = STUDIES["model"]({"model": name}, None)
    answer.numbers["weight_bytes"] = size
    client.store.put(Undeclared("model", {"model": name}), answer, answer.numbers["protocol"], took)


@pytest.mark.parametrize("view", TITLES)
def test_a_page_opens_with_its_question_and_a_computed_answer(client, view):
    app = opened(view)
    assert app.title[0].value == TITLES[view] and not app.error and not app.warning
    assert any("Your text stays on this machine." in caption.value for caption in app.caption)
    assert part(app, "read")["id"] and app.chat_input
    if view == "text":
        assert "A note to &lt;read&gt;." in markup(app)
        app = opened(start_more="yes")
        assert "badge[" in " ".join(element.value for element in app.markdown)
        app.session_state["start_distance_menu"] = {"table": True}
        columns = part(app.run(), "table")["columns"]
        assert [column["label"] for column in columns] == ["low", "high", "mass", "uniform"]
        assert columns[0]["values"] == [0, 1, 2]


@pytest.mark.parametrize("was", ["", *MOVED])
def test_every_address_of_an_earlier_version_leads_to_its_place_with_its_controls(client, was):
    app, page = at_address(was, layer=1, model="demo", classroom="yes").run(), page_at(was)
    assert not app.exception and app.session_state["page_shown"] == page.name
    assert (app.session_state["at"] or page.door.pages[0].name) == page.name
    assert app.query_params["layer"] == "1" and app.query_params["classroom"] == "yes"


def test_a_tab_of_another_door_is_said_and_one_that_is_none_too(client):
    for tab in ("links", "nowhere"):
        app = at_address("heads", at=tab).run()
        assert plain(f"“{tab}”") in " ".join(caption.value for caption in app.caption)
        assert app.session_state["page_shown"] == "map" and "at" not in app.query_params


@pytest.mark.parametrize("address, count", [("no-such-page", True), ("", False), ("heads", False)])
def test_an_address_without_a_page_is_said(client, monkeypatch, address, count):
    monkeypatch.setattr(PagesManager, "intended_page_name", address)
    if count:
        monkeypatch.setattr(PagesManager, "intended_page_script_hash", "")
    app = at_address("" if address == "no-such-page" else address).run()
    captions = [caption.value for caption in app.caption if plain(f"“{address}”") in caption.value]
    assert len(captions) == count and not app.error


@pytest.mark.parametrize(
    "view, chips",
    [
        ("text", ["Text", "Model", "Groups"]),
        ("map", ["Text", "Model"]),
        ("worth", ["Model"]),
        ("runs", []),
    ],
)
def test_the_bar_shows_what_a_page_uses_and_what_to_bear_in_mind_of_the_model(client, monkeypatch, view, chips):
    caution, model = "The weights are random: only time and memory", STUDIES["model"]
    monkeypatch.setitem(STUDIES, "model", lambda *args: Result(model(*args).numbers | {"caution": caution}))
    app = opened(view)
    labels = [block.proto.popover.label for block in app.get("popover") if "_chip_" in block.proto.id]
    assert [label.partition(":")[0] for label in labels] == chips
    assert part(app, "link")["label"] == "Copy link"
    assert (caution in markup(app.run())) == (chips[:1] == ["Text"]), "once its card is stored"


def test_a_page_that_opens_with_another_text_says_so(client):
    app = opened("text")
    assert not app.toast
    (message,) = go(app, "tests").toast
    assert dict(cached.samples())[cached.sample("register")] in message.value
    assert not app.run().toast, "once"


def test_choosing_closes_the_chip_and_empties_its_fields(client):
    app = opened()
    before = {block.proto.id for block in app.get("popover")}
    app.text_area(key="paste_0").set_value("quite another text, to be read as well " * 5).run()
    app.button(key="read_paste").click().run()
    assert app.text_area(key="paste_1").value == ""
    assert len(before - {block.proto.id for block in app.get("popover")}) == 1, "only the text's own chip is new"


def test_the_text_is_painted_with_its_links_and_what_is_kept(client):
    app = opened()
    read = part(app, "read")
    assert len(read["pieces"]) == len(read["paint"]) > CONTEXT
    assert read["breaks"][0] == CONTEXT and read["open"] == 0 and len(read["arcs"]) == 6
    assert read["paint"][:7] == [-1, 0, 1, 2, 3, 4, -1]  # 0.5, 1, 2, 4, 8, 16 times chance, and no number
    assert read["arcs"][0]["head"] == "0.0" and read["arcs"][0]["attention"] == 0.9
    assert len(read["peaks"]) == 20 and min(read["paint"][peak] for peak in read["peaks"]) >= 2
    assert all(peak % CONTEXT < CONTEXT - 16 for peak in read["peaks"]), "none that a few tokens alone can read"
    links = {name: np.frombuffer(b64decode(read["links"][name]), kind) for name, kind in PACKED.items()}
    count = len(read["pieces"])
    assert links["place"][4 * 20] == 12 and links["place"][4 * (count + 20)] == 28 and links["place"][0] == -1
    assert links["head"][4 * 20] == 20 % 6 and links["share"][4 * 20] == round(65_535 / 4)
    assert links["word"].tolist() == list(range(count)), "every token is a word of its own"
    shares = np.frombuffer(b64decode(read["keep"]["kept"]), np.uint8).reshape(3, CONTEXT)
    assert shares[:, 0].tolist() == [255] * 3 and shares[:, 1].tolist() == [254, 127, 64]
    text = put(client, WORDS)
    assert part(opened(text=text, pair="1.1.38.1"), "read")["open"] == 1
    assert part(opened(text=text, pair="9.9.9.9"), "read")["open"] == 0, "a pair of another text"


def test_a_chosen_token_says_who_reads_it_and_the_card_leads_to_its_head(client):
    app = opened(text=put(client, WORDS), query=0, start_more="yes")
    assert part(app, "read")["locked"] == 0
    readers = columns(app)
    assert readers["read by"] == ["word1", "word2"] and readers["gives it"] == ["80.0%", "10.0%"]


def test_a_text_is_brought_where_it_is_read(client):
    app = opened()
    app.chat_input[0].set_value("quite another text, to be read as well " * 5).run()
    assert part(app, "read")["pieces"][:2] == ["quite", " another"] and not app.error


def test_groups_show_controls_labels_and_the_badge(client, monkeypatch):
    monkeypatch.setattr(charts, "MOST_POINTS", 20)
    app = opened("groups", layer="2", group="1", groups_more="yes")
    assert "not trained" in " ".join(element.value for element in app.markdown)
    read, table = part(app, "read"), part(app, "table")
    assert read["isolate"] == 1 and read["paint"][:5] == [2, 3, 0, 1, 2] and table["selected"] == 1
    count = len(read["pieces"])
    assert read["tab"] == "map" and len(b64decode(read["map"]["xy"])) == 8 * count
    shares, layers, vectors = figures(app)
    assert {trace["name"] for trace in shares["data"]} >= {"this router", "random centroids", "shuffled text"}
    assert any("1/K = 25.0%" in trace["name"] for trace in layers["data"])
    assert len(vectors["data"]) == 4 and all(trace["type"] == "scatter" for trace in vectors["data"])
    drawn = sorted(token for trace in vectors["data"] for token in trace["customdata"])
    assert drawn == [step * count // 20 for step in range(20)] and count > 40
    assert any(f"20 of the {count:,} tokens are drawn" in caption.value for caption in app.caption)


def test_the_layer_is_shared_between_pages_and_a_shown_default_is_not_a_choice(client):
    app = opened("groups")
    assert "layer" not in app.query_params
    app.selectbox(key="layer_pick").set_value(2).run()
    assert app.query_params["layer"] == "2"
    assert go(app, "links").session_state["layer"] == 2 and client.store.list("pairs", 1)[0].request["layer"] == 2


def test_links_are_filtered_by_the_controls(client):
    app = opened("links", distance="16", pairs_more="yes")
    assert part(app, "table")["selected"] == 0 and part(app, "read")["arcs"][0]["why"].startswith("copy")
    app.selectbox(key="kind").set_value("induction").run()
    table = {column["label"]: column["values"] for column in part(app, "table")["columns"]}
    assert table["kind"] == ["induction"] * 2 and app.query_params["kind"] == "induction"
    assert len(part(app, "read")["arcs"]) == 2 and "All links, 2" in part(app, "read")["tabs"].values()
    assert "2 of the 6 strongest pairs: induction" in [subheader.value for subheader in app.subheader]
    app.selectbox(key="kind").set_value(None).run()
    app.select_slider(key="distance").set_value(32).run()
    assert not part(app, "read")["arcs"] and app.query_params["distance"] == "32", "no link is left"
    lift, mass = figures(app)
    assert lift["data"][-1]["name"] == "chance (1.0)" and any("chance" in trace["name"] for trace in mass["data"])


@pytest.mark.slow
@pytest.mark.parametrize(("beside", "heading"), [("text", "The Watch Book"), ("model", "demo-gpt2")])
def test_another_text_or_model_stands_beside_on_one_scale(client, beside, heading):
    app = opened("text", start_beside=beside)
    assert not app.error and heading in [title.value for title in app.subheader] and client.asked.count("start") == 2
    first, second = figures(app)[-2:]
    assert first["layout"]["yaxis"]["range"] == second["layout"]["yaxis"]["range"]
    app = opened("links", distance="16", pairs_beside=beside, layer="1")
    assert not app.error and heading in [title.value for title in app.subheader] and client.asked.count("pairs") == 2
    first, second = figures(app)[-2:]
    assert first["layout"]["yaxis"]["range"] == second["layout"]["yaxis"]["range"] and part(app, "table", 2)
    request = client.store.list("pairs", 1)[0].request
    assert request["layer"] == (1 if beside == "text" else None), "layers of another model are others"
    app.segmented_control(key="pairs_beside_pick").set_value("nothing").run()
    assert "pairs_beside" not in app.query_params


def test_another_model_is_used_when_the_worker_accepts_it(client):
    stored_model(client, "owner/tiny", 1.0)
    app = opened("groups", layer="2")
    app.text_input(key="model_name").set_value("owner/tiny").run()
    app.button(key="load_model").click().run()
    assert not app.error and app.query_params["model"] == "owner/tiny" and "layer" not in app.query_params
    in_chip(app, "model").set_value("demo").run()
    assert "model" not in app.query_params


def test_loading_a_model_says_its_price_before(client, tmp_path, monkeypatch):
    def said(name):
        app.text_input(key="model_name").set_value(name).run()
        assert not app.exception and not app.error
        return markup(app)

    monkeypatch.setattr(places, "CACHE", tmp_path)
    for name, size in (("small", 10**6), ("large", 10**9)):
        (tmp_path / name).mkdir()
        with open(tmp_path / name / "model.safetensors", "wb") as file:
            file.truncate(size)
    app = opened()
    assert "press Enter" in said("")
    assert "First time on this machine: perhaps 10 s" in said("large") and "1.0 GB of weights" in said("large")
    stored_model(client, "owner/tiny", 2.51, 10**6)  # half of what was guessed
    stored_model(client, "owner/other", 5.0, 10**9)
    assert "About 2.5 s (2.5 s to 2.5 s, from 2 runs on this machine" in said("small")
    assert "ready at once" in said("owner/tiny") and client.asked.count("model") == 1


def test_a_missing_umap_has_a_button_with_its_price_and_a_stored_one_is_drawn(client):
    app = opened("groups", groups_more="yes")
    app.get("segmented_control")[-1].set_value("UMAP").run()
    assert "on this machine" in app.button(key="groups_umap").help and len(figures(app)) == 2
    args = {"model": "demo", "text": app.query_params["text"], "router": "k4-top1", "long_text": "windows", "layer": 1}
    arrays = {"umap": np.zeros((5, 2), np.float32), "positions": np.arange(5, dtype=np.int32)}
    client.store.put(Undeclared("umap", args), Result({"protocol": {}}, {}, arrays), {}, 1.0)
    assert figures(app.run())[2]["layout"]["xaxis"]["title"]["text"] == "UMAP 1 (no unit)"


def test_an_expensive_request_waits_for_its_button(client):
    key = cached.samples()[0][0]
    for seed in (1, 2):  # not 0, the default, which the page asks for
        args = {"model": "demo", "text": key, "router": "k4-top1", "min_distance": 8 + seed, "long_text": "windows"}
        client.store.put(
            Undeclared("start", args), STUDIES["start"](args, "words"), {"tokens": 2, "model": "demo"}, 100.0
        )
    app = opened()
    offered = next(button for button in app.button if button.key.startswith("run_start_"))
    assert "start" not in client.asked and offered.label.endswith("~1 min 50 s") and "About" in offered.help
    offered.click().run()
    assert "start" in client.asked and part(app, "read")
    assert offered.key not in [button.key for button in app.button], "it stands above its result"


def test_a_long_text_is_offered_in_windows_or_cut(client):
    app = opened(text=put(client, "word " * (CONTEXT + 5)), start_more="yes")
    assert "64" in app.get("segmented_control")[0].label
    app.get("segmented_control")[0].set_value("first").run()
    assert app.query_params["long_text"] == "first"


def test_an_example_says_so_and_asks_no_worker(client, tmp_path, monkeypatch):
    opened()
    for run in client.store.list():
        client.store.export_example(run.id, tmp_path / "examples")
    st.cache_data.clear()
    fresh = RunStore(tmp_path / "fresh", examples=tmp_path / "examples")
    monkeypatch.setattr(cached, "store", lambda: fresh)
    client.asked.clear()
    app = opened(start_more="yes")
    assert client.asked == [] and "example" in " ".join(element.value for element in app.markdown)
