"""The page Generate in-process with a hand-made run: what it asks for, what streams, what is painted and told."""

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from analysis.commands.quality import Generate
from analysis.corpus import sample_texts
from analysis.declaration.undeclared import Undeclared
from analysis.runs import Price, Result
from analysis.studies.context import Context
from analysis.studies.start.examples import generated as opens_with
from app import cached
from app.generate import answers, generate_form, kv_cache
from app.generate.kv_cache import Place
from tests.made import results
from tests.made.in_process import HOSTILE, keys, markup, opened, part, put, tables
from tests.made.quality import DESCRIBED, field, method
from tests.made.results import CONTEXT, HEADS, LAYERS, FakeJobs, protocol, status, tokens

PROMPT, NEW = 20, 4


def page(**link: object) -> AppTest:
    return opened("generate", **link)


def asking(text: str, **settings: object) -> dict:
    """The arguments that the page's defaults stand for."""
    method = {"name": "snapkv", "settings": {"ratio": 0.75}}
    args = {"model": "demo", "text": text, "methods": [method], "question": "", "new_tokens": 48, "length": None}
    return args | {"known": True, "chat": True} | settings


def row(label: str, text: str, share: float, apart: int | None, **fields: object) -> dict:
    numbers = {"method": "snapkv" if share < 1 else "dense", "label": label, "settings": {}, "saves": "memory"}
    numbers |= {"text": text, "tokens": NEW, "ended": False, "ms_first": 80.0, "ms_per_token": 4.0, "kv_bytes": 1000}
    numbers |= {"kv_most_bytes": 1400}
    numbers |= {"kv_share": share, "kept_keys": PROMPT * share, "held_bytes": 1100, "first_difference": apart}
    return numbers | {"kernel": "k", "masked": False} | fields


def generated(args: dict, texts: tuple[str, str] = (" a b c d", " a x y z")) -> Result:
    """Dense, and a method that keeps the last five keys of the prompt in every head but the first of layer 0, which
    keeps the first five."""
    prompt = tokens(("word " * PROMPT).strip())
    cached = np.zeros((LAYERS, 1, PROMPT), bool)
    cached[:, :, -5:] = True
    cached[0] = False
    cached[0, :, :5] = True
    parts = [tokens(text)[["piece", "start", "end"]].head(NEW).assign(side=side) for side, text in enumerate(texts)]
    answers = pd.concat([part.assign(step=range(len(part)), token=1, ms=4.0) for part in parts], ignore_index=True)
    rows = 1 + LAYERS * (1 + HEADS)
    arrays = {"kept": np.stack([np.packbits(np.ones_like(cached)), np.packbits(cached)])}
    for kind, places in (("read", [17, 2]), ("gone", [1, -1])):
        arrays[kind] = np.tile(np.array(places, np.int32), (2, NEW, rows, 1))
        arrays[f"{kind}_weight"] = np.full((2, NEW, rows, 2), 0.25, np.float16)
    arrays["lost"] = np.stack([np.full((NEW, rows), 0.5 * side, np.float16) for side in (0, 1)])
    about = protocol("generate", args, PROMPT) | {"known": args["known"], "threads": 2, "dtype": "float32"}
    numbers = {"rows": [row("Dense", texts[0], 1.0, None), row("SnapKV, ratio 0.75", texts[1], 0.25, 1)]}
    numbers |= {"prompt_tokens": PROMPT, "cut": PROMPT, "traced": True, "layers": LAYERS, "heads": HEADS, "kv_heads": 1}
    numbers |= {"windows": [None] * LAYERS, "sentence": "They differ from <b>token 2</b>.", "notes": []}
    return Result(numbers | {"protocol": about}, {"tokens": prompt, "answers": answers}, arrays)


def put_answers(client: FakeJobs, args: dict, *texts: str) -> str:
    """Store the answers to a request; its text."""
    answer = generated(args, texts or (" a b c d", " a x y z"))
    client.store.put(Undeclared("generate", args), answer, answer.numbers["protocol"], 3.0)
    return args["text"]


def request_of(text: str) -> dict:
    """What the bundled example answers."""
    (_, args), _ = opens_with(text)
    return args


@pytest.fixture
def stored(client):
    """A stored run of the page's first request, that of the bundled example; its text."""
    return put_answers(client, request_of(cached.sample("register")))


def test_a_text_that_is_opened_is_answered_at_once_and_what_is_changed_then_waits(client: FakeJobs, stored):
    """The first answers begin without a click; until those of other settings are asked for, the earlier ones stay."""
    text = put(client, "a text of some length " * 4)
    app = page(text=text)
    job = client.job
    assert (job.verb, job.args) == ("generate", asking(text)) and not app.error and app.query_params["job"] == job.id
    client.states[job.id] = status("done", verb="generate", args=job.args)
    put_answers(client, asking(text))
    app.run()
    assert "Written with other settings" not in markup(app) and part(app, "contexts")["panels"]
    app.number_input(key="generate_new").set_value(8).run()
    assert "Written with other settings" in markup(app) and part(app, "painted") and not app.error
    assert client.job.args == asking(text), "nothing more was asked for"


def test_what_takes_long_waits_for_the_button_beside_the_example(client: FakeJobs, stored, monkeypatch):
    text, price = put(client, "a text of some length " * 4), Price(900.0, 600.0, 1200.0, None, 2, 0.1)
    monkeypatch.setattr(cached, "due", lambda *arguments, **options: cached.Due(price, "It takes about 15 min"))
    app = page(text=text)
    assert not client.states and "Example meanwhile" in markup(app) and not app.error
    assert part(app, "contexts")["panels"] and part(app, "painted")
    assert generate_form.example().spelled == request_of(cached.sample("register"))


def test_the_button_asks_for_what_was_chosen_and_the_answers_stream(client: FakeJobs):
    text = put(client, "a text of some length " * 4)
    app = page(text=text, generate="snapkv~ratio-0.5~~streaming_llm", generate_question="Who was it?", generate_new=8)
    client.states["0123456789ab"] = status("cancelled", verb="generate", args=client.job.args)
    app.toggle(key="generate_known").set_value(False).run()
    app.button(key="generate_run").click().run()
    job = client.job
    methods = [{"name": "snapkv", "settings": {}}, {"name": "streaming_llm", "settings": {}}]
    wanted = asking(text, question="Who was it?", new_tokens=8, known=False, methods=methods)
    arguments = job.args | {"methods": sorted(job.args["methods"], key=lambda spec: spec["name"])}
    assert job.verb == "generate" and arguments == wanted
    client.states[job.id] = status("running", verb="generate", args=job.args, stage="SnapKV: token 2 of 8")
    client.curves[job.id] = {"label": ["Dense", "SnapKV"], "text": [" one two", " one"], "tokens": [8, 2]}
    app.run()
    panels = part(app, "contexts")["panels"]
    assert [panel["title"] for panel in panels] == ["Dense", "SnapKV"] and "".join(panels[0]["pieces"]) == " one two"
    assert [key for key in keys(app) if "cancel" in key or "stop" in key] == ["job_cancel"], "one way to stop it"
    app.button(key="job_cancel").click().run()
    client.states[job.id] = status("cancelled", verb="generate", args=job.args, error="It was stopped.")
    app.run()
    assert "Stopped after 10 new tokens" in markup(app) and app.button(key="generate_run") and not app.error
    assert "one two" in "".join(part(app, "contexts")["panels"][0]["pieces"])


def test_answers_stand_side_by_side_with_times_bytes_and_the_first_difference(stored):
    app = page(generate_took="yes")
    dense, evicted = part(app, "contexts")["panels"]
    assert (dense["pieces"][dense["hit"]], evicted["pieces"][evicted["hit"]]) == (" b", " x")
    (took,) = [table for table in tables(app) if table["label"] == "What each took"]
    took = {column["label"]: column["shown"] for column in took["columns"]}
    assert took["time to first token"] == ["80.0 ms", "80.0 ms"] and took["of dense"] == ["100.0%", "25.0%"]
    assert took["first token apart"] == ["–", "2"] and not app.error
    sent = part(app, "painted")
    assert sent["paint"][0] == 1 and sent["paint"][10] == -1 and sent["paint"][19] == 2  # a third, none, two thirds
    assert sent["tips"][0]["values"][19] == "2 of 3 heads hold it"


def test_the_text_is_painted_by_what_the_cache_holds_and_a_new_token_tells_what_was_gone(stored):
    app = page(generate_layer=0, generate_head=1, generate_at=3, generate_reads="yes")
    painted = part(app, "painted")
    assert painted["paint"][: kv_cache.SINKS] == [kv_cache.SINK] * 4 and painted["paint"][4] == kv_cache.RECENT
    assert painted["paint"][5:PROMPT] == [kv_cache.EVICTED] * 15
    assert painted["paint"][PROMPT:] == [kv_cache.RECENT] * 2 + [-1] * 2
    assert painted["locked"] == PROMPT + 2 and [arc["key"] for arc in painted["arcs"]] == [17, 2, 1]
    assert "50.0% of its attention would have gone to keys that are gone" in markup(app)
    keys = [table["columns"] for table in tables(app) if table["label"] == "Keys with the most attention"]
    assert [columns[0]["values"] for columns in keys] == [[17, 2], [1]]
    assert keys[1][2]["values"][0].startswith("word[·word]")


def filmed(client: FakeJobs, back: list[int] | None = None) -> str:
    """Answers under a budget, of which the second keeps all of the prompt until step 2, but for the first key of head
    0.0, which is missed; where it is put back, the answer is right."""
    text = put(client, TEXT * 4)
    methods = [{"name": "h2o", "settings": {"budget": 8}}]
    args = asking(text, methods=methods, question=ASKS) | ({"put_back": back} if back else {})
    answer = generated(args, (" Ann Lee. So", " Bo x y z"))
    prompt = tokens(TEXT + ASKS)
    left = np.full((3, LAYERS, 1, len(prompt) + NEW), 32767, np.int16)
    left[1:, :, :, 5:9] = 2
    left[1, 0, 0, 0] = 1
    numbers = answer.numbers | {"missed": [{"side": 1, "layer": 0, "head": 0, "position": 0, "left": 1, "step": 3}]}
    numbers["missed"][0]["attention"] = 0.75
    if back:
        numbers["rows"] = [*numbers["rows"], row("H2O, a key put back", " Ann Lee. So", 0.25, None)]
        extra = answer.tables["answers"].query("side == 0").assign(side=2)
        answer.tables["answers"] = pd.concat([answer.tables["answers"], extra], ignore_index=True)
    arrays = {name: np.concatenate([array, array[1:]]) for name, array in answer.arrays.items()} | {"left": left}
    result = Result(numbers, answer.tables | {"tokens": prompt}, arrays)
    client.store.put(Undeclared("generate", args), result, numbers["protocol"], 3.0)
    return text


def test_a_film_has_its_step_painted_and_a_key_put_back(client: FakeJobs, monkeypatch):
    about = method("H2O", field("budget", 0, low=0, high=64), saves="memory", kernels=["prompt", "token"])
    monkeypatch.setitem(DESCRIBED, "h2o", about)
    link = {"generate": "h2o~budget-8", "generate_question": ASKS}
    app = page(text=filmed(client), generate_layer=0, generate_head=0, **link)
    first = len(part(app, "painted")["paint"]) - NEW
    assert not app.error and app.slider(key="generate_at_pick").value == NEW
    assert part(app, "painted")["paint"][5:9] == [kv_cache.EVICTED] * 4
    app.slider(key="generate_at_pick").set_value(2).run()
    paint = part(app, "painted")["paint"]
    assert paint[0] == kv_cache.EVICTED and kv_cache.EVICTED not in paint[5:9] and paint[first + 1] == -1
    (missed,) = app.selectbox(key="generate_back_pick").options
    assert "head 0.0" in missed and "0.75" in missed
    app.selectbox(key="generate_back_pick").set_value("0.0.0").run()
    assert app.query_params["generate_back"] == "0.0.0" and client.job.args["put_back"] == [0, 0, 0]
    app = page(text=filmed(client, [0, 0, 0]), generate_back="0.0.0", **link)
    assert "right again" in app.title[0].value and len(part(app, "contexts")["panels"]) == 3
    assert app.selectbox(key="generate_back_pick").value == "0.0.0" and not app.error


def test_a_sliding_window_passes_keys_by():
    numbers = {"layers": 2, "heads": 2, "kv_heads": 1, "cut": 6, "windows": [None, 3]}
    share, passed = kv_cache.held(numbers, np.ones((2, 1, 8), bool), Place(1, 0))
    assert share == [0] * 5 + [1] * 3 and passed == [1] * 5 + [0] * 3
    classes, palette = kv_cache.paint(share, passed, Place(1, 0), 9)
    assert classes == [kv_cache.OUTSIDE] * 5 + [kv_cache.RECENT] * 3 + [-1] and len(palette) == len(kv_cache.KINDS)


def test_hostile_text_stays_text(client):
    text = put_answers(client, asking(put(client, HOSTILE * 2)), f" a {HOSTILE}", f" b {HOSTILE}")
    app = page(text=text)
    assert "<script" not in markup(app) and not app.error


def test_the_same_question_stands_beneath_the_curves_dense_and_cut(client: FakeJobs, monkeypatch):
    monkeypatch.setattr(results, "CONTEXT", 2048)
    register, spec = cached.sample("register"), {"name": "snapkv", "settings": {"ratio": 0.5}}
    link = {"text": register, "quality_saves": "memory", "quality_memory": "snapkv~ratio-0.5", "quality_equal": 50}
    app = opened("methods", **link)
    app.button(key="generate_same").click().run()
    question = generate_form.EXAMPLES[0][1]
    assert client.job.args["question"] == question and client.job.args["methods"] == [spec | {"settings": {}}]
    put_answers(client, client.job.args)
    app = opened("methods", **link)
    assert len(part(app, "contexts")["panels"]) == 2 and not app.error


def test_examples_bring_text_and_question(client):
    app = page(generate_prompt=CONTEXT)
    app.button(key="generate_example_0").click().run()
    assert app.query_params["generate_question"] and "generate_prompt" not in app.query_params


# --- whether an answer is right ---------------------------------------------------------------------------------------

TEXT = "The Owl lies at berth 4. The master of the Owl is Ann Lee. The master of the Elk is Bo. "
ASKS = "Who is the master of the Owl? The master of the Owl is"


@pytest.mark.parametrize(
    "text, question, answer",
    [
        (TEXT, ASKS, "Ann Lee"),
        (TEXT.replace("Owl is", "Owl\nis"), ASKS, "Ann Lee"),
        (TEXT + TEXT, ASKS, "Ann Lee"),
        (TEXT + "The master of the Owl is Cy. ", ASKS, None),
        (TEXT, "The master of the Gnu is", None),
        (TEXT, "Owl is", None),
        (TEXT, "", None),
    ],
)
def test_what_the_text_says_is_what_follows_the_last_words_of_the_question_there(text, question, answer):
    assert answers.stated(text + question, question) == answer


@pytest.mark.parametrize(
    "dense, evicted, verdict",
    [
        (" Ann\nLee. Then", " Ann Lee", "Dense is right: “Ann Lee”; and so is what reads less"),
        (" Ann Lee", " Bo", "Dense is right: “Ann Lee”; SnapKV wrong"),
        (" Bo", " Bo", "Dense is wrong, too: the text says “Ann Lee”. Ask another question"),
        (" Bo", " Ann Lee", "Dense is wrong: the text says “Ann Lee”. Ask another question"),
    ],
)
def test_it_is_told_where_dense_attention_is_wrong_too(dense, evicted, verdict):
    assert answers.judged(TEXT + ASKS, ASKS, {"Dense": dense, "SnapKV": evicted}) == verdict
    assert answers.judged(TEXT, "", {"Dense": dense, "SnapKV": evicted}) == ""


@pytest.mark.parametrize("title, question", generate_form.EXAMPLES)
def test_the_bundled_model_answers_every_example_right(store, title, question):
    (text,) = (text for name, text in sample_texts().values() if name.startswith(title))
    request = Generate(text=store.put_text(text, title), methods=[], question=question, new_tokens=8)
    answer = request.compute(context=Context(store))
    prompt = "".join(answer.tables["tokens"]["piece"])
    assert answer.numbers["rows"][0]["text"].strip().startswith(answers.stated(prompt, question))
