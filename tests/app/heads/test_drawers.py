"""The drawers of Attention heads in-process with hand-made results: each is asked for when it is opened."""

import json

import pytest

from analysis.runs import Price, Result
from app import cached
from tests.app.heads.test_heads import finder, page
from tests.made.heads import ANSWERS
from tests.made.in_process import captions, columns, figures, markup, part, put
from tests.made.results import CONTEXT, STUDIES
from tests.made.training import put_studies

WORDS = "a word of text "


def test_all_drawers_are_closed(client):
    app = page()
    assert {"alike", "names", "head-texts", "ablate"}.isdisjoint(client.asked) and not app.info


def test_heads_like_this_one_are_listed_with_how_alike_they_are(client):
    app = page(alike="yes", layer=2, head=1)
    assert not app.error and "Head 0 of layer 1 reads &lt;most&gt; like it." in markup(app)
    shown = columns(app, 3)
    assert shown["likeness"] == ["75% (70% to 80%)", "50%"] and shown["label"] == ["far", "induction"]


def test_names_are_asked_for_once_and_stand_on_the_map_in_the_finder_and_in_a_table(client):
    app = page(named="yes", layer=1, head=0)
    assert not app.error and client.asked.count("names") == 1 and "2 of 6 heads have a name." in markup(app)
    heat, points = figures(app)[0]["data"]
    assert heat["text"] == [["", ""], ["IS", ""], ["", "P"]] and heat["texttemplate"] == "%{text}"
    assert points["text"][2].endswith("far<br>induction ✓<br>sink"), "what is confirmed first"
    assert "Letters are names: P previous token, I induction, S sink." in captions(app)
    found = finder(app)
    place = list(zip(found["layer"], found["head"], strict=True)).index((2, 1))
    assert found["name"][place] == "previous token (not confirmed)"
    shown = columns(app, 3)
    assert shown["head"] == ["1.0", "1.0", "2.1"] and shown["score"][0] == "70% (60% to 80%)"
    assert shown["loss rises by"][:2] == ["–", "+0.500 (+0.400 to +0.600)"]
    assert shown["this text"][1] == "40.0%", "the induction score of the reader's own text"
    page(layer=2, head=1)
    assert client.asked.count("names") == 1, "stored for the model, whatever the text"


def test_a_head_is_shown_over_many_texts_beside_the_text_in_use(client):
    app = page(over_texts="yes", layer=2, head=1, statistic="entropy")
    assert not app.error and "640 tokens of &lt;one&gt; text." in markup(app)
    line = next(chart for chart in figures(app) if chart["data"][0].get("name") == "these texts")
    assert line["data"][0]["y"] == [step / 10 for step in range(11)] and len(line["data"][1]["y"]) == 11
    examples, tokens = columns(app, 3), columns(app, 4)
    assert examples["tenth"] == ["highest of all", "3 of 10"] and examples["query"] == [" <owl>"] * 2
    assert examples["text"][0] == "Once <upon> …" and examples["Entropy, nats"] == ["0.90"] * 2
    assert tokens["kind"] == ["pairs", "reads"] and tokens["lift"] == ["12.5", "2.0"] and tokens["query"][1] == "–"
    request = client.store.list("head-texts", 1)[0].request
    assert request["corpus"].count("+") == 2 and "text" not in request, "the bundled samples, one run for all texts"


def test_a_head_is_taken_away_and_the_text_painted_by_what_gets_worse(client):
    app = page(without="yes", layer=2, head=1)
    assert not app.error and "Without 2.1 &lt;this&gt; is worse." in markup(app)
    assert "2 blocks of this text, too few for an interval." in captions(app)
    assert client.asked.count("ablate") == 1, "the chosen head is among the exact passes"
    heat = next(chart["data"][0] for chart in figures(app) if chart["data"][0].get("zmid") == 0)
    assert heat["reversescale"] and heat["z"][0][0] == pytest.approx(-0.2)
    painted = part(app, "painted", 1)
    assert painted["paint"][0] == -1 and painted["paint"][CONTEXT - 1] == 4, "the last token suffers most"
    app.button(key="heads_without_worst").click().run()
    assert app.query_params["query"] == str(CONTEXT - 1)
    app = page(without="yes", layer=0, head=0, without_by="mean")
    request = client.store.list("ablate", 5)[0].request
    assert request["heads"] == "0.0" and request["by"] == "mean", "another head gets a pass of its own"
    assert "predicted worse without head 0 of layer 0" in json.dumps(part(app, "painted", 1))


@pytest.mark.parametrize("drawer, verb", [("without", "ablate"), ("alike", "alike")])
def test_a_box_about_one_window_says_so_and_reads_all_of_them_at_a_price(client, monkeypatch, drawer, verb):
    text = put(client, (WORDS * (CONTEXT // 2)).strip())  # two windows
    price = Price(30.0, 8.0, 100.0, None, 0)
    monkeypatch.setattr(cached, "predicted", lambda store, request, tokens, card: price)
    app = page(text=text, **{drawer: "yes"})
    while waits := [one for one in app.button if one.label.startswith("Run:")]:
        waits[0].click().run()
    asked = {run.request["part"] for run in client.store.list(verb)}
    assert asked == {0} and "Window 1 of 2" in markup(app) and not app.error
    every = app.button(key=f"{drawer}_all_all")
    assert every.label == "All 2 windows, ~30 s"
    every.click().run()
    assert {run.request["part"] for run in client.store.list(verb)} == {0, None} and not app.error
    assert app.query_params[f"{drawer}_all"] == "yes" and "All 2 windows" in markup(app)
    app.button(key=f"{drawer}_all_one").click().run()
    assert "Window 1 of 2" in markup(app) and f"{drawer}_all" not in app.query_params


def test_the_numbers_of_one_window_stand_beside_those_of_all(client):
    labels = list(columns(page(text=put(client, (WORDS * (CONTEXT // 2)).strip())), 2))
    assert "window 1 of 2" in labels[0] and any("all 2 windows" in label for label in labels)
    assert "window" not in " ".join(columns(page(text=put(client, (WORDS * (CONTEXT // 8)).strip())), 2))


def test_runs_of_an_earlier_version_are_read_by_its_names(client, monkeypatch):
    names = {"loss_change": "change", "kl": "divergence"}

    def ablate(args: dict, text: str) -> Result:
        made = ANSWERS["ablate"](args, text)
        rows = [{names.get(name, name): value for name, value in row.items()} for row in made.numbers["rows"]]
        heads = made.tables["heads"].rename(columns=names)
        return Result(made.numbers | {"rows": rows}, made.tables | {"heads": heads}, made.arrays)

    monkeypatch.setitem(STUDIES, "ablate", ablate)
    app = page(without="yes", layer=2, head=1)
    assert not app.error and columns(app, 3)["loss rises by"][0] == "+7.5000" and "KL to all heads" in columns(app, 3)


def test_the_studies_behind_the_names_are_shown_or_their_commands(client):
    app = page(heads_evidence="yes")
    assert "Which models learn to look back: not measured" in app.info[1].value.replace("\\", "")
    commands = [code.value for code in app.code]
    assert commands == [f"python -m analysis study {name} --model demo" for name in ("induction", "circuit")]
    line = {"name": "as Llama", "y": [5.5, 0.2], "low": None, "high": None, "paper": False}
    panel = {"title": "The second copy", "x": "step", "x_label": "training steps", "x_values": [50, 100]}
    made = {"sentence": "Without the norm 6 of 6 learn it.", "rows": [], "columns": [], "notes": ["Read so."]}
    made |= {"panels": [panel | {"y_label": "nats per token", "series": [line]}]}
    put_studies(client.store, circuit=made | {"protocol": {"model": "demo", "command": "python x"}})
    app = page(heads_evidence="yes")
    assert "6 of 6 learn it." in markup(app) and len(figures(app)) == 4
