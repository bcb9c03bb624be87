"""Long-context tests in-process with hand-made results: the map, what is asked for, and what is refused."""

import json

import pytest
from streamlit.testing.v1 import AppTest

from analysis.corpus import sample_texts, text_hash
from analysis.errors import Busy
from analysis.probes import tasks as real
from analysis.runs.arguments import check_arguments
from analysis.studies.start.examples import probed
from app.probes import charts as probes_charts, words as probes_words
from app.selection.decide import PROBE_TASKS
from tests.made import results
from tests.made.in_process import markup, opened as opened_page, part, put
from tests.made.probes import probe
from tests.made.results import STUDIES, status
from tests.made.training import put_studies

VIEW = "views/long_context_tests.py"
REGISTER = text_hash(sample_texts()["register"][1])


@pytest.fixture
def client(client, monkeypatch):
    """A store that holds what the page opens with, and a worker that answers by hand."""
    monkeypatch.setattr(results, "CONTEXT", 2048)
    monkeypatch.setitem(STUDIES, "probe", probe)
    client.store.samples()
    for verb, arguments in probed(REGISTER):
        client.request(verb, arguments)
    return client


def opened(**link: object) -> AppTest:
    return opened_page(VIEW, **link)


def figures(app: AppTest) -> list[dict]:
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


def test_the_page_opens_with_the_stored_map_dense_first(client):
    app = opened()
    assert app.title[0].value == "How far back can it find something and use it?" and not app.error
    assert "Needle: dense attention gets 60% right" in markup(app) and "worse than dense attention" in markup(app)
    dense, streaming, lengths = figures(app)
    every = opened(tests_tab="every")
    (tasks,) = figures(every)
    assert "Needle is like niah_single_3" in markup(every) and "Labels from examples have none" in markup(every)
    assert dense["data"][0]["z"] == [[0.0] * 3, [0.0] * 3, [1.0] * 3, [1.0] * 3, [1.0] * 3]
    axes = dense["layout"]
    assert axes["yaxis"]["ticktext"] == ["0%", "25%", "50%", "75%", "100%"]
    assert axes["xaxis"]["ticktext"] == ["256", "512", "1,024"]
    assert streaming["data"][0]["z"] == [[0.0] * 3] * 5
    assert dense["data"][0]["zmax"] == streaming["data"][0]["zmax"] == 1
    assert [trace["name"] for trace in lengths["data"]] == ["Dense", "StreamingLLM", "chance (25%)"]
    assert [trace["name"] for trace in tasks["data"]] == ["Dense", "StreamingLLM", "chance (25%)"]
    assert all(len(trace["x"]) == len(PROBE_TASKS) for trace in tasks["data"])
    assert client.asked.count("probe") == 2, "nothing but the two stored ones"
    headings = [element.value for element in app.subheader]
    assert headings[:2] == ["Dense", "StreamingLLM"]


def test_a_text_of_ones_own_shows_the_bundled_example_until_it_has_run(client):
    mine = put(client, "a text that nobody has tested " * 40)
    assert "Example meanwhile" not in markup(opened())
    for tab, button, charts in (("one", "probe_run", 3), ("every", "probe_every", 1)):
        app = opened(text=mine, tests_tab=tab)
        assert app.button(key=button) and len(figures(app)) == charts and not app.error
        assert "Example meanwhile: the same test in “The Register of Saltmere Harbour”" in markup(app)
    assert not figures(opened(text=mine, probe_items=4)), "no example has these settings"
    assert client.asked.count("probe") == 2


def test_a_cell_that_is_above_chance_is_marked_and_says_its_interval(client):
    dense = figures(opened())[0]
    texts = [note["text"] for note in dense["layout"]["annotations"]]
    assert texts[:3] == ["0%"] * 3 and texts[-1] == "100% *"
    assert dense["data"][0]["customdata"][4][0].startswith("100% right (68% to 100%), n = 8")
    assert dense["data"][0]["colorbar"]["ticktext"][1] == "chance 25%"


def test_the_numbers_stand_in_a_table_with_points_against_dense(client):
    shown = {column["label"]: column["shown"] for column in part(opened(), "table")["columns"]}
    assert shown["method"] == ["Dense", "StreamingLLM"] and shown["right answers"][0] == "60% (51% to 68%)"
    assert shown["points against dense"] == ["–", "−60 (−68 to −50)"] and shown["questions"] == ["120", "120"]


def test_tasks_of_ruler_are_named_and_those_without_one_too():
    said = probes_words.ruler()
    assert set(probes_words.RULER) < set(probes_words.PROBE_TASKS) and all(
        name in said for name in probes_words.RULER.values()
    )
    assert (
        all(probes_words.title(task) in said for task in probes_words.PROBE_TASKS)
        and said.count("have none there") == 1
    )


def test_one_question_is_shown_and_escaped(client):
    said = markup(opened())
    assert "<mark>a &lt;b&gt;code&lt;/b&gt;</mark>" in said and "The code is" in said
    assert "the answer stands at token 77" in said


def test_what_is_not_stored_is_a_job_with_its_price_and_shown_when_done(client):
    app = opened(probe="several_needles")
    assert "As many codes as candidates" in markup(app) and not figures(app)
    app.button(key="probe_run").click().run()
    job = client.states["0123456789ab"]
    assert job.verb == "probe" and job.args["probes"] == ["several_needles"] and job.args["lengths"] == [256, 512, 1024]
    client.request("probe", job.args)
    client.states["0123456789ab"] = status("done", verb="probe", args=job.args)
    app.run()
    assert "Several needles: dense attention gets 60% right" in markup(app) and len(figures(app)) == 3


def run_and_open(client, **link: object) -> AppTest:
    """The page for a link whose test was run."""
    app = opened(**link)
    app.button(key="probe_run").click().run()
    client.request("probe", client.states["0123456789ab"].args)
    del client.states["0123456789ab"]
    return opened(**link)


def test_a_model_at_chance_is_told_that_it_cannot_do_the_task(client):
    app = run_and_open(client, probe="labels")
    assert "this model cannot do the task" in markup(app)
    grid = figures(app)[0]
    axis = grid["layout"]["yaxis"]
    assert axis["ticktext"] == ["64", "16", "4"] and axis["title"]["text"] == "examples"


def test_a_task_without_a_place_is_one_row(client):
    grid = figures(run_and_open(client, probe="frequent_words"))[0]
    assert len(grid["data"][0]["z"]) == 1 and grid["layout"]["yaxis"]["ticktext"] == [""]


def test_every_choice_stands_in_the_url_and_in_the_request(client):
    app = opened(
        probe_items=16, probe_choices=2, probe_methods="focus~streaming_llm", quality="streaming_llm~window-64"
    )
    assert app.multiselect(key="probe_pick").value == ["focus", "streaming_llm"]
    assert "Settings as on the page Quality vs speed. StreamingLLM: window 64." in markup(app)
    app.selectbox(key="probe_rope").set_value("dynamic_ntk").run()
    app.selectbox(key="probe_reach").set_value(4096).run()
    assert app.query_params["probe_reach"] == "4096" and app.query_params["probe_rope"] == "dynamic_ntk"
    app.multiselect(key="probe_pick").set_value(["streaming_llm"]).run()
    assert app.query_params["probe_methods"] == "streaming_llm"
    app.button(key="probe_run").click().run()
    args = client.states["0123456789ab"].args
    assert args["methods"] == [{"name": "streaming_llm", "settings": {"window": 64}}]
    assert (args["lengths"], args["items"], args["choices"]) == ([1024, 2048, 4096], 16, 2)
    assert args["examples"] == [2, 8, 32] and args["rope"] == "dynamic_ntk"
    line = app.code[-1].value
    assert line.startswith("python -m analysis probe --model demo --text register ")
    for said in ("--probes uuid_needle", "--set streaming_llm.window=64", "--rope dynamic_ntk"):
        assert said in line
    app.selectbox(key="probe_rope").set_value("as_trained").run()
    assert app.selectbox(key="probe_reach").value == 1024, "4,096 tokens were right with other positions only"
    app.multiselect(key="probe_pick").set_value([]).run()
    assert app.query_params["probe_methods"] == "none" and not app.exception


@pytest.mark.parametrize(
    "link, said",
    [
        ({"probe_reach": 77}, "longest prompt “77”"),
        ({"probe_methods": "nothing"}, "choice of methods “nothing”"),
    ],
)
def test_a_link_that_cannot_be_is_one_sentence_and_the_page_stays(client, link, said):
    app = opened(**link)
    told = " ".join(caption.value.replace("\\", "") for caption in app.caption)
    assert said in told and not app.error and app.title[0].value.startswith("How far back")


def test_a_refusal_is_one_sentence_and_the_rest_stays(client):
    client.refusals["describe"] = Busy("The worker is busy with a long job: try again in a minute.")
    app = opened()
    assert (
        len(app.error) == 1
        and "busy with a long job" in app.error[0].value
        and app.title[0].value.startswith("How far")
    )


def test_tasks_requests_and_commands_are_those_of_the_verb(client):
    from analysis.cli.options import parser
    from analysis.studies import STUDIES as REAL

    titles = {name: (task.title, task.axis) for name, task in real.TASKS.items()}
    assert titles == {name: about[:2] for name, about in probes_words.PROBE_TASKS.items()} and list(titles) == list(
        PROBE_TASKS
    )
    for run in client.store.list("probe", 5):
        assert check_arguments("probe", REAL["probe"], run.request)
    line = opened().code[-1].value.removeprefix("python -m analysis ")
    told = vars(parser("x").parse_args(line.split()))
    assert told["lengths"] == [256, 512, 1024] and told["depths"] == [0, 0.25, 0.5, 0.75, 1] and told["items"] == 8


def test_the_study_beyond_the_context_is_shown_where_it_is_stored(client):
    app = opened(tests_evidence="yes")
    assert "Reading twice the context: not measured" in app.info[0].value.replace("\\", "")
    assert app.code[2].value.startswith("python -m analysis study length-extension --corpus DIR")
    lines = [{"name": name, "y": [3.0, 4.0], "low": None, "high": None, "paper": False} for name in ("own", "NTK")]
    panel = {"title": "Loss by position", "x": "first", "x_label": "first token", "x_values": [1, 257], "series": lines}
    about = {"model": "demo", "window": 4096, "date": "2026-01-01", "command": "python x"}
    made = {"sentence": "Beyond 2,048 tokens: NTK helps.", "rows": [], "columns": [], "notes": ["Read so."]}
    made |= {"panels": [panel | {"y_label": "nats per token"}], "protocol": about}
    put_studies(client.store, **{"length-extension": made})
    app = opened(tests_evidence="yes")
    assert not any("Reading twice" in info.value for info in app.info)
    assert "NTK helps." in markup(app) and len(figures(app)) == 4


def test_an_empty_cell_is_blank():
    rows = [
        {"length": length, "examples": n, "score": 1.0, "low": 0.7, "high": 1.0, "chance": 0.25, "n": 8}
        | {"difference": None, "truncated": 2, "lost": 1}
        for length, n in ((128, 4), (256, 4), (256, 16))
    ]
    made = probes_charts.grid(rows, "examples")
    assert made["data"][0]["z"] == [[None, 1.0], [1.0, 1.0]] and len(made["layout"]["annotations"]) == 3
    assert "2 prompts cut, the answer in 1" in made["data"][0]["customdata"][1][0] and json.dumps(made)
