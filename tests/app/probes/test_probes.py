"""Long-context tests in-process with hand-made results: the map, what is asked for, and what is refused."""

import html
import json

import pytest
from streamlit.testing.v1 import AppTest

from analysis.cli.options import parser
from analysis.commands.probes import Probe
from analysis.corpus import sample_texts, text_hash
from analysis.declaration.undeclared import Undeclared
from analysis.errors import Busy
from analysis.probes import tasks as real
from analysis.probes.sets import SETS
from analysis.studies.start.examples import probed
from app.probes import probe_charts, probe_results
from app.selection.decide import PROBE_SETS, PROBE_TASKS
from tests.made import results
from tests.made.in_process import columns, figures, markup, opened as opened_page, put
from tests.made.probes import probe
from tests.made.results import STUDIES, status
from tests.made.training import put_bundled

VIEW = "tests"
REGISTER = text_hash(sample_texts()["register"][1])
JOB = "0123456789ab"


@pytest.fixture
def client(client, monkeypatch):
    """A store that holds what the page opens with, and a worker that answers by hand."""
    monkeypatch.setattr(results, "CONTEXT", 2048)
    monkeypatch.setitem(STUDIES, "probe", probe)
    client.store.samples()
    for verb, arguments in probed(REGISTER):
        client.request(Undeclared(verb, arguments))
    return client


def opened(**link: object) -> AppTest:
    return opened_page(VIEW, **link)


def test_the_page_opens_with_the_stored_map_dense_first(client):
    app = opened()
    assert not app.error and [element.value for element in app.subheader][:2] == ["Dense", "StreamingLLM"]
    dense, streaming, lengths = figures(app)
    assert dense["data"][0]["z"] == [[0.0] * 3, [0.0] * 3, [1.0] * 3, [1.0] * 3, [1.0] * 3]
    assert streaming["data"][0]["z"] == [[0.0] * 3] * 5
    assert dense["layout"]["yaxis"]["ticktext"] == ["0%", "25%", "50%", "75%", "100%"]
    assert dense["layout"]["xaxis"]["ticktext"] == ["256", "512", "1,024"]
    assert dense["data"][0]["zmax"] == streaming["data"][0]["zmax"] == 1
    assert dense["data"][0]["colorbar"]["ticktext"][1] == "chance 25%"
    tasks, written = figures(opened(tests_tab="every"))
    assert [trace["name"] for trace in written["data"]] == ["Dense", "StreamingLLM"], "no chance level"
    assert max(written["data"][0]["y"]) == 0.5 and max(written["data"][1]["y"]) == 0
    for chart in (lengths, tasks):
        assert [trace["name"] for trace in chart["data"]] == ["Dense", "StreamingLLM", "chance (25%)"]
    assert all(len(trace["x"]) == len(PROBE_TASKS) for trace in tasks["data"])
    assert client.asked.count("probe") == 2, "nothing but the two stored ones"
    table = columns(app)
    assert table["method"] == ["Dense", "StreamingLLM"] and table["right answers"][0] == "60% (51% to 68%)"
    assert table["points against dense"] == ["–", "−60 (−68 to −50)"] and table["questions"] == ["120", "120"]
    page_text = markup(app)
    assert "<mark>a &lt;b&gt;code&lt;/b&gt;</mark>" in page_text and "token 77" in page_text, "one question, escaped"


def test_a_text_of_ones_own_shows_the_bundled_example_until_it_has_run(client):
    own_text = put(client, "a text that nobody has tested " * 40)
    for tab, button, charts in (("one", "probe_run", 3), ("every", "probe_every", 2)):
        app = opened(text=own_text, tests_tab=tab)
        assert "Example meanwhile" in markup(app) and len(figures(app)) == charts and app.button(key=button)
    assert "Example meanwhile" not in markup(opened())


def test_tasks_and_their_counterparts_are_those_of_the_command():
    titles = {name: (task.title, task.axis) for name, task in real.TASKS.items()}
    assert titles == {name: about[:2] for name, about in PROBE_TASKS.items()} and list(titles) == list(PROBE_TASKS)
    sets = {name: (texts.title, texts.axis, "sets of texts") for name, texts in SETS.items()}
    assert sets == PROBE_SETS and list(sets) == list(PROBE_SETS)
    ruler = probe_results.ruler()
    assert set(probe_results.RULER) < set(PROBE_TASKS) and all(name in ruler for name in probe_results.RULER.values())


def test_what_is_not_stored_is_a_job_with_its_price_and_shown_when_done(client):
    app = opened(probe="several_needles")
    assert not figures(app)
    app.button(key="probe_run").click().run()
    job = client.states[JOB]
    assert job.verb == "probe" and job.args["probes"] == ["several_needles"] and job.args["lengths"] == [256, 512, 1024]
    client.request(Undeclared("probe", job.args))
    client.states[JOB] = status("done", verb="probe", args=job.args)
    title = app.run().title[0]
    assert "dense attention gets 60% right" in title.proto.help and len(figures(app)) == 3
    assert "Dense 60%" in title.value and len(title.value.split()) <= 15


@pytest.mark.parametrize(
    ("task", "names", "axis"), [("labels", ["64", "16", "4"], "examples"), ("frequent_words", [""], "")]
)
def test_the_map_has_the_axis_of_its_task(client, task, names, axis):
    app = opened(probe=task)
    app.button(key="probe_run").click().run()
    client.request(Undeclared("probe", client.states.pop(JOB).args))
    app = opened(probe=task)
    axis_drawn = figures(app)[0]["layout"]["yaxis"]
    assert axis_drawn["ticktext"] == names and axis_drawn["title"]["text"] == axis
    assert ("this model cannot do the task" in markup(app)) == (task == "labels")


def test_a_set_of_texts_is_a_task_where_its_folder_is(client, monkeypatch):
    assert "Natural Questions" not in opened().selectbox(key="probe").options
    monkeypatch.setattr("app.probes.probe_form.here", lambda names: ["nq"])
    offered = opened().selectbox(key="probe").options
    assert "Natural Questions" in offered and "NLU" not in offered
    app = opened(probe="banking77")
    assert "Banking77" in app.selectbox(key="probe").options and not app.error, "a link to one stays"
    app.toggle(key="probe_write").set_value(True).run()
    app.button(key="probe_run").click().run()
    request = Probe.from_arguments(client.states[JOB].args)
    assert request.write and request.probes == ["banking77"]


def test_every_choice_stands_in_the_url_and_in_the_request(client):
    link = {"probe_methods": "focus~streaming_llm", "quality": "streaming_llm~window-64"}
    app = opened(probe_items=16, probe_choices=2, **link)
    assert app.multiselect(key="probe_pick").value == ["focus", "streaming_llm"] and "window 64" in markup(app)
    app.selectbox(key="probe_rope").set_value("dynamic_ntk").run()
    app.selectbox(key="probe_reach").set_value(4096).run()
    assert app.query_params["probe_reach"] == "4096" and app.query_params["probe_rope"] == "dynamic_ntk"
    app.multiselect(key="probe_pick").set_value(["streaming_llm"]).run()
    assert app.query_params["probe_methods"] == "streaming_llm"
    app.button(key="probe_run").click().run()
    request = Probe.from_arguments(client.states[JOB].args)
    assert request.methods == [{"name": "streaming_llm", "settings": {"window": 64}}]
    assert (request.lengths, request.items, request.choices) == ([1024, 2048, 4096], 16, 2)
    assert request.examples == [2, 8, 32] and request.rope == "dynamic_ntk"
    read = vars(parser("x").parse_args(app.code[-1].value.removeprefix("python -m analysis ").split()))
    assert (read["text"], read["probes"], read["rope"]) == ("register", ["uuid_needle"], "dynamic_ntk")
    assert read["lengths"] == request.lengths and read["items"] == 16 and "window=64" in app.code[-1].value
    app.selectbox(key="probe_rope").set_value("as_trained").run()
    assert app.selectbox(key="probe_reach").value == 1024, "4,096 tokens were right with other positions only"
    app.multiselect(key="probe_pick").set_value([]).run()
    assert app.query_params["probe_methods"] == "none" and not app.exception


@pytest.mark.parametrize(("link", "why"), [({"probe_reach": 77}, "“77”"), ({"probe_methods": "nothing"}, "“nothing”")])
def test_a_link_that_cannot_be_is_one_sentence_and_the_page_stays(client, link, why):
    app = opened(**link)
    assert why in " ".join(caption.value.replace("\\", "") for caption in app.caption) and not app.error


def test_a_refusal_is_one_sentence_and_the_rest_stays(client):
    client.refusals["describe"] = Busy("The worker is busy with a long job: try again in a minute.")
    app = opened()
    assert len(app.error) == 1 and "busy with a long job" in app.error[0].value and app.title


def test_the_study_beyond_the_context_is_shown_where_it_is_stored(client):
    app = opened(tests_evidence="yes")
    assert app.info and app.code[2].value.startswith("python -m analysis study length-extension --corpus DIR")
    before = len(figures(app))
    (study,) = put_bundled(client.store, "length-extension")
    app = opened(tests_evidence="yes")
    assert html.escape(study["sentence"]) in markup(app) and len(figures(app)) == before + len(study["panels"])


def test_an_empty_cell_is_blank():
    about = {
        "score": 1.0,
        "low": 0.7,
        "high": 1.0,
        "chance": 0.25,
        "n": 8,
        "difference": None,
        "truncated": 2,
        "lost": 1,
    }
    rows = [{"length": length, "examples": n} | about for length, n in ((128, 4), (256, 4), (256, 16))]
    figure = probe_charts.grid(rows, "examples")
    assert figure["data"][0]["z"] == [[None, 1.0], [1.0, 1.0]] and len(figure["layout"]["annotations"]) == 3
    assert "2 prompts cut, the answer in 1" in figure["data"][0]["customdata"][1][0] and json.dumps(figure)
