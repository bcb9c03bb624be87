"""The page Generate in-process with a hand-made run: what it asks for, what streams, what is painted and told."""

import json

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from analysis.runs import Price, Result
from analysis.studies.start.examples import generated as opens_with
from app import cached
from app.generate import generate_form, kv_cache
from app.generate.kv_cache import Place
from tests.made.in_process import HOSTILE, markup, opened as opened_page, part, put
from tests.made.results import CONTEXT, HEADS, LAYERS, FakeJobs, protocol, status, tokens

PROMPT, NEW = 20, 4


def opened(**link: object) -> AppTest:
    return opened_page("views/generate.py", **link)


def asking(text: str, **more: object) -> dict:
    """The arguments that the page's defaults stand for."""
    method = {"name": "snapkv", "settings": {"ratio": 0.75}}
    args = {"model": "demo", "text": text, "methods": [method], "question": "", "new_tokens": 48, "length": None}
    return args | {"known": True, "chat": True} | more


def row(label: str, text: str, share: float, apart: int | None, **more: object) -> dict:
    made = {"method": "snapkv" if share < 1 else "dense", "label": label, "settings": {}, "saves": "memory"}
    made |= {"text": text, "tokens": NEW, "ended": False, "ms_first": 80.0, "ms_per_token": 4.0, "kv_bytes": 1000}
    made |= {"kv_most_bytes": 1400}
    made |= {"kv_share": share, "kept_keys": PROMPT * share, "held_bytes": 1100, "first_difference": apart}
    return made | {"kernel": "k", "masked": False} | more


def generated(args: dict, said: tuple[str, str] = (" a b c d", " a x y z")) -> Result:
    """Dense, and a method that keeps the last five keys of the prompt in every head but the first of layer 0, which
    keeps the first five."""
    prompt = tokens(("word " * PROMPT).strip())
    kept = np.zeros((LAYERS, 1, PROMPT), bool)
    kept[:, :, -5:] = True
    kept[0] = False
    kept[0, :, :5] = True
    parts = [tokens(text)[["piece", "start", "end"]].head(NEW).assign(side=at) for at, text in enumerate(said)]
    answers = pd.concat([one.assign(step=range(len(one)), token=1, ms=4.0) for one in parts], ignore_index=True)
    rows = 1 + LAYERS * (1 + HEADS)
    arrays = {"kept": np.stack([np.packbits(np.ones_like(kept)), np.packbits(kept)])}
    for kind, keys in (("read", [17, 2]), ("gone", [1, -1])):
        arrays[kind] = np.tile(np.array(keys, np.int32), (2, NEW, rows, 1))
        arrays[f"{kind}_weight"] = np.full((2, NEW, rows, 2), 0.25, np.float16)
    arrays["lost"] = np.stack([np.full((NEW, rows), 0.5 * side, np.float16) for side in (0, 1)])
    about = protocol("generate", args, PROMPT) | {"known": args["known"], "threads": 2, "dtype": "float32"}
    numbers = {"rows": [row("Dense", said[0], 1.0, None), row("SnapKV, ratio 0.75", said[1], 0.25, 1)]}
    numbers |= {"prompt_tokens": PROMPT, "cut": PROMPT, "traced": True, "layers": LAYERS, "heads": HEADS, "kv_heads": 1}
    numbers |= {"windows": [None] * LAYERS, "sentence": "They differ from <b>token 2</b>.", "notes": []}
    return Result(numbers | {"protocol": about}, {"tokens": prompt, "answers": answers}, arrays)


def stored_request(text: str) -> dict:
    """What the bundled example answers."""
    ((_, args),) = opens_with(text)
    return args


@pytest.fixture
def stored(client):
    """A stored run of the page's first request, that of the bundled example; its text."""
    text = cached.sample("register")
    made = generated(args := stored_request(text))
    client.store.put("generate", args, made, made.numbers["protocol"], 3.0)
    return text


def table(app: AppTest, label: str) -> dict:
    found = [
        json.loads(one.proto.json)[0] for one in app.get("bidi_component") if one.proto.component_name.endswith("table")
    ]
    (mine,) = [one for one in found if one["label"] == label]
    return {column["label"]: column["shown"] for column in mine["columns"]}


def test_a_text_that_is_opened_is_answered_at_once_and_what_is_changed_then_waits(client: FakeJobs, stored):
    """The first answers begin without a click; until those of other settings are asked for, the earlier ones stay."""
    text = put(client, "a text of some length " * 4)
    app = opened(text=text)
    job = client.states["0123456789ab"]
    assert (job.verb, job.args) == ("generate", asking(text)) and not app.error
    assert app.query_params["job"] == "0123456789ab" and "first answer begins" in app.caption[-1].value
    client.states["0123456789ab"] = status("done", verb="generate", args=job.args)
    made = generated(asking(text))
    client.store.put("generate", asking(text), made, made.numbers["protocol"], 3.0)
    app.run()
    assert "written with other settings" not in markup(app) and part(app, "contexts")["panels"]
    app.number_input(key="generate_new").set_value(8).run()
    assert "written with other settings" in markup(app) and part(app, "painted") and not app.error
    assert client.states["0123456789ab"].args == asking(text), "nothing more was asked for"


def test_what_takes_long_waits_for_the_button_beside_the_example(client: FakeJobs, stored, monkeypatch):
    text, price = put(client, "a text of some length " * 4), Price(900.0, 600.0, 1200.0, None, 2, 0.1)
    monkeypatch.setattr(cached, "due", lambda *given, **more: cached.Due(price, "It takes about 15 min"))
    app = opened(text=text)
    assert "0123456789ab" not in client.states and "Example meanwhile" in markup(app) and not app.error
    assert part(app, "contexts")["panels"] and part(app, "painted")
    assert generate_form.example().spelled == stored_request(cached.sample("register"))


def test_the_button_asks_for_what_was_chosen_and_the_answers_stream(client: FakeJobs):
    text = put(client, "a text of some length " * 4)
    app = opened(text=text, generate="snapkv~ratio-0.5~~streaming_llm", generate_question="Who was it?", generate_new=8)
    client.states["0123456789ab"] = status("cancelled", verb="generate", args=client.states["0123456789ab"].args)
    app.toggle(key="generate_known").set_value(False).run()
    app.button(key="generate_run").click().run()
    job = client.states["0123456789ab"]
    methods = [{"name": "streaming_llm", "settings": {}}, {"name": "snapkv", "settings": {}}]
    wanted = asking(text, question="Who was it?", new_tokens=8, known=False, methods=sorted(methods, key=str))
    assert job.verb == "generate" and job.args | {"methods": sorted(job.args["methods"], key=str)} == wanted
    client.states["0123456789ab"] = status("running", verb="generate", args=job.args, stage="SnapKV: token 2 of 8")
    client.curves["0123456789ab"] = {"label": ["Dense", "SnapKV"], "text": [" one two", " one"], "tokens": [8, 2]}
    app.run()
    assert [panel["title"] for panel in part(app, "contexts")["panels"]] == ["Dense", "SnapKV"]
    assert "".join(part(app, "contexts")["panels"][0]["pieces"]) == " one two"
    app.button(key="generate_stop").click().run()
    assert "job" not in app.query_params
    client.states["0123456789ab"] = status("cancelled", verb="generate", args=job.args, error="It was stopped.")
    app.run()
    assert "Stopped after 10 new tokens" in markup(app) and "one two" in "".join(
        part(app, "contexts")["panels"][0]["pieces"]
    )
    assert app.button(key="generate_run") and not app.error


def test_answers_stand_side_by_side_with_times_bytes_and_the_first_difference(stored):
    app = opened()
    dense, other = part(app, "contexts")["panels"]
    assert (dense["pieces"][dense["hit"]], other["pieces"][other["hit"]]) == (" b", " x")
    took = table(app, "What each took")
    assert took["time to first token"] == ["80.0 ms", "80.0 ms"] and took["of dense"] == ["100.0%", "25.0%"]
    assert took["first difference"] == ["–", "token 2"] and "&lt;b&gt;token 2" in markup(app)


def test_the_text_is_painted_by_what_the_cache_holds_and_a_new_token_tells_what_was_gone(stored):
    app = opened(generate_layer=0, generate_head=1, generate_at=3)
    shown = part(app, "painted")
    assert shown["paint"][: kv_cache.SINKS] == [kv_cache.SINK] * 4 and shown["paint"][4] == kv_cache.RECENT
    assert shown["paint"][5:PROMPT] == [kv_cache.EVICTED] * 15
    assert shown["paint"][PROMPT:] == [kv_cache.RECENT] * 2 + [-1] * 2
    assert shown["locked"] == PROMPT + 2 and [arc["key"] for arc in shown["arcs"]] == [17, 2, 1]
    assert "50.0% of its attention would have gone to keys that are gone" in markup(app)
    found = [json.loads(one.proto.json)[0] for one in app.get("bidi_component")]
    keys = [one for one in found if one.get("label") == "Keys with the most attention"]
    assert [one["columns"][0]["values"] for one in keys] == [[17, 2], [1]]
    assert keys[1]["columns"][2]["values"][0].startswith("word[·word]")


def test_all_heads_together_are_painted_by_how_many_hold_a_token(stored):
    shown = part(opened(), "painted")
    assert shown["paint"][0] == 1 and shown["paint"][10] == -1 and shown["paint"][19] == 2  # a third, none, two thirds
    assert shown["tips"][0]["values"][19] == "2 of 3 heads hold it"


def test_a_sliding_window_passes_keys_by():
    numbers = {"layers": 2, "heads": 2, "kv_heads": 1, "cut": 6, "windows": [None, 3]}
    share, passed = kv_cache.held(numbers, np.packbits(np.ones((2, 1, 6), bool)), 7, Place(1, 0))
    assert share == [0] * 5 + [1] * 3 and passed == [1] * 5 + [0] * 3
    classes, palette = kv_cache.paint(share, passed, Place(1, 0), 9)
    assert classes == [kv_cache.OUTSIDE] * 5 + [kv_cache.RECENT] * 3 + [-1] and len(palette) == len(kv_cache.KINDS)


def test_hostile_text_stays_text(client):
    text = put(client, HOSTILE * 2)
    made = generated(asking(text), (f" a {HOSTILE}", f" b {HOSTILE}"))
    client.store.put("generate", asking(text), made, made.numbers["protocol"], 3.0)
    app = opened(text=text)
    assert "<script" not in markup(app) and not app.error


def test_examples_bring_text_and_question(client):
    app = opened(generate_prompt=CONTEXT)
    app.button(key="generate_example_0").click().run()
    assert app.query_params["generate_question"] and "generate_prompt" not in app.query_params
