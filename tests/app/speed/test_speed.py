"""The page Speed in-process with hand-made results: what it asks for, what it shows, and what it must not show."""

import html
import json

import pytest
from streamlit.testing.v1 import AppTest

from analysis.commands.speed import Bench
from analysis.declaration.undeclared import Undeclared
from analysis.errors import BadSetting
from analysis.runs.stored import StoredStudy
from app import cached
from app.speed import by_length, measured, speed_requests
from app.ui import asking
from tests.made.in_process import HOSTILE, captions, columns, figures, markup, opened, part, tables
from tests.made.results import status

SHAPES = {"what": "attention", "heads": 8, "head_dim": 64, "groups": 8, "batch": 1, "dtype": "bfloat16", "top": 1}
SHAPES |= {"window": 128, "skew": False, "model": "demo", "lengths": [1024, 4096, 16384], "repeats": 5}


def page(**link: object) -> AppTest:
    return opened("speed", **link)


def launching(text: str | None = None, **settings: object) -> dict:
    """The arguments that the tab's defaults stand for."""
    args = {"model": "demo", "text": text or cached.samples()[0][0], "router": "k4-top1", "new_tokens": 32}
    return args | {"top": None, "window": None, "n_sink": None, "length": None, "repeats": 5} | settings


def test_without_a_run_it_says_what_nobody_can_pass_and_shows_only_hollow_marks(client):
    app = page()
    launch = app.button(key="speed_launch")
    assert launch.label.startswith("Launch sparse inference, ~") and "First time on this machine" in launch.help
    assert app.title[0].value.startswith("At most ") and app.title[0].value.endswith("not timed yet.")
    assert not tables(app) and not app.error
    (curve,) = figures(app)
    (ours,) = [trace for trace in curve["data"] if "xaxis" not in trace]
    assert ours["name"] == "bound: 1 / pairs read (not measured)" and ours["marker"]["symbol"].endswith("-open")


def test_any_method_with_a_kernel_is_timed_and_those_without_are_named(client):
    app = page(speed_method="snapkv")
    assert "StreamingLLM" in app.selectbox(key="speed_method").help and app.title[0].value == "Not timed here yet."
    assert "StreamingLLM" not in app.selectbox(key="speed_method").options
    app.button(key="speed_time-method").click().run()
    about = {"model": "demo", "text": cached.samples()[0][0], "method": {"name": "snapkv", "settings": {}}}
    assert (client.job.verb, client.job.args) == (
        "time-method",
        about | {"length": None, "new_tokens": 32, "repeats": 5},
    )
    client.states.clear()
    client.done("time-method", about | {"length": None, "new_tokens": 32, "repeats": 5})
    app = page(speed_method="snapkv")
    assert app.title[0].value == "Each token 1.14x faster. Prompt: no kernel here."
    curve = figures(app)[0]
    assert [trace["name"] for trace in curve["data"]] == ["whole model, each further token (measured)"]
    assert curve["data"][0]["x"] == [15, 30, 60] and not app.error


def test_the_button_submits_a_launch_with_every_setting_and_the_job_is_watched(client):
    app = page(speed_new=8, speed_rounds=2, speed_prompt=40, speed_window=9, speed_sinks=4, speed_top=2)
    app.button(key="speed_launch").click().run()
    wanted = {"top": 2, "window": 9, "n_sink": 4, "new_tokens": 8, "length": 40, "repeats": 2}
    assert (client.job.verb, client.job.args) == ("launch", launching(**wanted))
    app.run()
    assert app.button(key="speed_launch").disabled and app.get("progress") and app.query_params["job"]
    client.states["0123456789ab"] = status("failed", verb="launch", error="9,000 tokens need 40 GB: choose 1,000.")
    app.run()
    assert app.error[0].value == "9\\,000 tokens need 40 GB\\: choose 1\\,000\\."


def test_a_stored_launch_shows_both_sides_spread_proof_and_opponent(client):
    client.done("launch", launching(), 30.0)
    app = page()
    page_text = markup(app)
    assert app.title[0].value == "Each token 1.25x slower. Prompt 1.25x slower."
    for words in ("estimated crossover", "A chip", "0.9999999", "2.0e-06", "flash-attn 2 (needs"):
        assert words in page_text
    sides = columns(app)
    assert sides["dense"][0] == "8.0 ms (7.0–9.0)" and sides["sparse"][-1] == "not measurable here"
    assert sides["sparse is"][1:4] == ["0.80 times as fast", "1.00 times as fast", "1.00 times the bytes"]
    curve, time = figures(app)
    assert len(time["data"]) == 6 and sum(trace["x"][0] for trace in time["data"]) == pytest.approx(1)
    names = [trace["name"] for trace in curve["data"]]
    assert "whole model, first token (estimated)" in names and "attention alone (measured)" in names
    assert "whole model, each further token (estimated)" not in names
    again = app.button(key="speed_launch")
    assert again.label.startswith("Launch sparse inference again, ~")
    again.click().run()
    assert client.store.find(Undeclared("launch", launching())) is None, "measuring again drops the stored run first"


def test_both_texts_stand_side_by_side_with_the_first_difference_marked(client):
    text = client.store.put_text(f"{HOSTILE} " * 3, "mine")
    client.done("launch", launching(text))
    app = page(text=text)
    dense, sparse = part(app, "contexts")["panels"]
    assert (dense["pieces"][dense["hit"]], sparse["pieces"][sparse["hit"]]) == (" burned", " <b>fell</b>")
    assert "<script" not in markup(app) + json.dumps(figures(app)) and "<b>" not in markup(app)


@pytest.mark.parametrize(
    "first, second, hit",
    [
        (" one two", " one ten", " two"),
        (" one", " one two", None),
        (" a b", " a b", None),
        ("", "x", None),
        (" The end", "\n\nThe end", " "),
        ("\n\nThe end", " The end", "\n\n"),
        (" a, b", " ab", " a,"),
    ],
)
def test_the_difference_is_a_whole_word(first, second, hit):
    cut = measured.pieces("before ", first, second)
    assert "".join(cut["pieces"]) == "before " + first
    assert (cut["pieces"][cut["hit"]] if cut["hit"] >= 0 else None) == hit


def test_shapes_are_timed_by_bench_and_drawn_with_crossover_bound_and_paper(client):
    page(speed_on="shapes").button(key="speed_bench").click().run()
    assert (client.job.verb, client.job.args) == ("bench", SHAPES)
    client.done("bench", SHAPES)
    app = page(speed_on="shapes")
    curve, time = figures(app)
    ours, bound = curve["data"][:2]
    assert ours["y"] == [0.5, 2.0, 4.0] and ours["marker"]["symbol"] == "circle" and ours["error_y"]["array"]
    assert bound["y"] == [7.0] * 3 and bound["marker"]["symbol"] == "diamond-open"
    papers = [trace for trace in curve["data"] if trace.get("xaxis") == "x2"]
    assert [trace["name"] for trace in papers] == ["paper, K=4", "paper, K=8"]
    assert papers[1]["x"][0] == 1024 and papers[1]["x"][4:6] == [65536, 262144]
    assert papers[1]["y"][0] == 0.2 and papers[1]["y"][-1] == 8.6
    assert any("H100-80GB" in note["text"] for note in curve["layout"]["annotations"])
    assert any("2,000" in shape.get("label", {}).get("text", "") for shape in curve["layout"]["shapes"])
    assert "Dense wins below about 2,000 tokens" in app.title[0].value and len(time["data"]) == 5
    assert columns(app, 1)["cosine, mean of tokens"] == ["1.000000", "0.700000"]
    for option in ("bench attention --model demo ", "--lengths 1024,4096,16384", "--heads 8 "):
        assert option in app.code[0].value


def test_a_real_routers_groups_are_timed_for_the_loaded_model(client):
    page(speed_lengths="512").button(key="speed_bench").click().run()
    args = client.job.args
    assert (args["router"], args["heads"], args["kv_heads"], args["window"]) == ("k4-top1", 2, 1, 16)
    page(speed_lengths="512", speed_top=2).button(key="speed_bench").click().run()
    args = client.job.args
    assert "router" not in args and (args["groups"], args["top"]) == (4, 2)
    app = page(speed_what="inference", speed_new=4, speed_window=9)
    assert app.title[0].value.startswith("Attention at most ") and "at 60 tokens" in app.title[0].value
    app.button(key="speed_bench").click().run()
    about = {"what": "inference", "model": "demo", "router": "k4-top1", "text": cached.samples()[0][0]}
    assert client.job.args == about | {"window": 9, "new_tokens": 4, "repeats": 5}


@pytest.mark.parametrize(
    "words, lengths", [("1024, 4096", [1024, 4096]), ("4k 1K", [1024, 4096]), ("1M", [1 << 20]), ("7;7", [7])]
)
def test_lengths_are_read(words, lengths):
    assert speed_requests.lengths(words) == lengths


@pytest.mark.parametrize("words", ["", "abc", "1,024", "-5", "0", "1e9", "9M", " ".join(map(str, range(1, 30))), "١"])
def test_lengths_that_cannot_be_read_are_refused(words):
    with pytest.raises(BadSetting):
        speed_requests.lengths(words)


def test_what_cannot_be_is_one_sentence_and_the_page_goes_on(client):
    app = page(speed_on="shapes")
    app.text_input(key="speed_lengths").set_value("1,024").run()
    assert not app.exception and len(app.error) == 1
    app.text_input(key="speed_lengths").set_value("64").run()
    assert not app.error and app.button(key="speed_bench")
    app = page(speed_heads=9999, speed_groups=0, speed_top=77, speed_dtype="int4", speed_on="shapes")
    assert all(word in captions(app) for word in ("9999", "number of groups", "groups per token", "int4"))
    assert app.number_input(key="speed_heads").value == 8 and not app.error


def test_a_price_learns_from_what_was_timed_here(client):
    first = speed_requests.bench_price(Bench(**SHAPES))
    assert first.n == 0 and first.bytes > 16384 * 64 * 8 * 4
    client.done("bench", SHAPES | {"lengths": [4096]}, 30.0)
    later = speed_requests.bench_price(Bench(**SHAPES))
    assert later.n == 1 and later.seconds > 30


def test_the_bound_counts_pairs():
    assert speed_requests.even_bound(100, 8, 1, 100) == 1
    assert speed_requests.even_bound(1 << 20, 8, 1, 1) == pytest.approx(8, rel=1e-3)
    assert speed_requests.even_bound(1 << 20, 16, 2, 1) == pytest.approx(4.14, rel=1e-2)
    assert speed_requests.even_bound(4096, 4, 3, 16) == 1
    assert speed_requests.even_bound(4096, 8, 1, 128, "decode") == pytest.approx(4096 / (128 + 3968 / 8))


def test_the_papers_curve_is_read_from_its_table():
    curves = by_length.paper_curves()
    assert list(curves) == [4, 8] and [length for length, _ in curves[8]][:2] == [1024, 4096]
    assert [times for _, times in curves[4]] == [0.2, 0.5, 1.5, 2.2, 3.0, 4.0, 4.1]


def test_it_takes_over_what_quality_vs_speed_changed_and_shows_the_latest_launch(client):
    page(quality="focus~top-2~n_sink-4~~streaming_llm").button(key="speed_launch").click().run()
    args = client.job.args
    assert (args["top"], args["n_sink"], args["window"]) == (2, 4, None), "one configuration"
    client.states.clear()
    client.done("launch", launching(top=1, window=32, length=48))
    app = page()
    assert "groups per token 1, window 32, prompt 48" in app.button(key="speed_take").help
    assert tables(app) and app.button(key="speed_launch").label.startswith("Launch sparse inference, ~")
    app.button(key="speed_take").click().run()
    assert (app.session_state["speed_window"], app.session_state["speed_prompt"]) == (32, 48)
    assert app.button(key="speed_launch").label.startswith("Launch sparse inference again, ~")


def test_the_evidence_shows_what_was_measured_once_of_kernels_large_models_and_sliders(client, monkeypatch, root):
    """The stored studies that came with the program: their sentences, all of their rows, the aims beside."""
    places = (root / "models_cache" / "demo" / "studies").glob("*.json")
    ours = [path for path in places if path.stem.startswith(("kernels", "pages", "sliders"))]
    stored = {path.stem: json.loads(path.read_text("utf-8")) for path in ours}
    studies = {name: StoredStudy.of(numbers) for name, numbers in stored.items()}
    monkeypatch.setattr(asking, "study", lambda model, name: (studies.get(name), ""))
    monkeypatch.setattr(asking, "study_names", lambda model: list(studies))
    app = page(speed_evidence="yes")
    page_text, rows = markup(app), [table for table in tables(app) if table["label"] == "Rows of the study"]
    assert not app.error and "Not measured on a GPU" in page_text and "Qwen2.5-1.5B: " in page_text
    assert len(rows) == len(stored) == 5, "the kernels, two whole shapes and two layers of one, and the sliders"
    about = stored["sliders"]["protocol"]
    assert html.escape(stored["sliders"]["sentence"]) in page_text
    assert f"{about['browser']} on {about['cores']} cores" in page_text
    studies.clear()
    commands = " ".join(code.value for code in page(speed_evidence="yes").code)
    assert [commands.count(f"study {name}") for name in ("kernels", "pages", "sliders")] == [1, 1, 1]
