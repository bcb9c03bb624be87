"""The page Runs in-process: search, open, pin, compare, delete and undo, what is kept, bundles, and prices."""

import io
import json
from types import SimpleNamespace

import pytest

from analysis.commands import COMMANDS
from analysis.declaration import in_address
from analysis.declaration.undeclared import Undeclared
from analysis.runs import Run, RunStore, compare
from analysis.runs.compare import Beside, configuration
from analysis.studies.registry import STORED
from app import cached
from app.runs import run_pages, run_words, two_runs
from app.selection import state
from app.selection.menu import PAGES
from app.ui import jobs
from tests.made.in_process import go, markup, opened as opened_page, part, tables
from tests.made.results import STUDIES

RUNS = "runs"


def opened(**link):
    """The page Runs with what a link carried."""
    app = opened_page(RUNS, **link)
    assert not app.error
    return app


def computed(client, **changed):
    """A run of `groups` on the first sample."""
    args = {"model": "demo", "text": cached.samples()[0][0], "long_text": "windows", "router": "k4-top1"} | changed
    answer = STUDIES["groups"](args, "some words " * 30)
    return client.store.put(Undeclared("groups", args), answer, {"tokens": 60, "model": "demo"}, 2.0)


def test_the_list_is_searched_and_filtered(client):
    computed(client)
    computed(client, router="k8-top2")
    app = opened()
    app.text_input(key="runs_find").set_value("k8-top2").run()
    assert part(app, "table")["columns"][1]["values"] == [jobs.called("groups")]
    assert app.query_params["runs_find"] == "k8-top2"
    app.text_input(key="runs_find").set_value("no such run").run()
    assert app.info and not app.get("bidi_component")[1:]
    app.text_input(key="runs_find").set_value("").run()
    assert "runs_find" not in app.query_params
    app.toggle(key="runs_pinned").set_value(True).run()
    assert app.info and app.query_params["runs_pinned"] == "yes"


def test_a_run_that_answers_nothing_any_more_says_so(client):
    run = computed(client, router="k8-top2")
    assert "older version of this program" not in markup(opened(run=run.id))
    client.store.forget("router", "k8-top2", "demo")
    client.store.restore(run.id)
    assert "older version of this program" in markup(opened(run=run.id))


def test_runs_are_pinned_deleted_and_brought_back(client):
    run, second = computed(client), computed(client, router="k8-top2")
    app = opened(run=run.id)
    app.button(key="run_pin").click().run()
    assert client.store.open(run.id).marks.pinned and app.button(key="run_pin").label == "Unpin"
    app.button(key="run_delete").click().run()
    assert [row.id for row in client.store.search(verb="groups")] == [second.id]
    app.button(key="runs_undo").click().run()
    assert {row.id: row.pinned for row in client.store.search(verb="groups")} == {run.id: True, second.id: False}
    app.button(key="runs_delete_all").click().run()
    assert [row.id for row in client.store.search(verb="groups")] == [run.id], "what is pinned stays"
    app.button(key="runs_back").click().run()
    assert {row.id for row in client.store.search(verb="groups")} == {run.id, second.id} and not app.error


def test_what_is_kept_can_be_chosen(client):
    for router in "abc":
        computed(client, router=router)
    app = opened()
    app.number_input(key="runs_keep").set_value(2).run()
    app.button(key="runs_keep_set").click().run()
    assert not app.error and client.store.usage().kept_runs == 2 and client.store.usage().runs <= 2


def test_two_runs_are_compared_the_main_number_first(client):
    first, second = computed(client), computed(client, router="k8-top2")
    app = opened(run=first.id, runs_beside="yes")
    app.selectbox(key="run_other").set_value(second.id).run()
    assert not app.error and not app.exception
    assert (app.selectbox(key="runs_table").value, app.selectbox(key="runs_column").value) == ("groups", "share")
    differences = next(table for table in tables(app) if table["label"].startswith("Differences"))
    assert [column["values"][0] for column in differences["columns"]] == ["router", "k4-top1", "k8-top2"]
    app.selectbox(key="runs_column").set_value("purity").run()
    assert "matched by layer and group" in markup(app)
    chart = json.loads(app.get("plotly_chart")[-1].proto.spec)
    assert {trace["name"] for trace in chart["data"]} == {"first run", "second run"}
    assert app.query_params["runs_column"] == "purity" and app.query_params["run_other"] == second.id


def beside(labels: list, keys: list[str]) -> Beside:
    numbers = [float(place) for place in range(len(labels))]
    return Beside(keys, labels, numbers, [number + 1 for number in numbers], 0)


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [
        (beside([(n,) for n in range(60)], ["layer"]), ["scatter", "scatter"]),
        (beside([("a",), ("b",)], ["method"]), ["bar", "bar"]),
        (beside([(n // 9, n) for n in range(60)], ["layer", "head"]), ["scatter", "scatter"]),
    ],
)
def test_rows_are_drawn_by_what_names_them(rows, kinds):
    figure = two_runs.chart(rows, "share")
    assert [trace["type"] for trace in figure["data"]] == kinds
    if len(rows.keys) == 2:
        assert figure["layout"]["xaxis"]["range"] == figure["layout"]["yaxis"]["range"], (
            "one scale, with equal ones on a line"
        )
    assert f"higher in {len(rows.labels)} and lower in 0; share differs by +1 " in two_runs.sentence(rows, "share")


def test_a_run_tells_the_price_that_its_button_had_said(client):
    args = {"model": "demo", "text": cached.samples()[0][0], "long_text": "windows", "router": "k4-top1", "seed": 1}
    client.store.remember(Undeclared("groups", args), {"page": "groups", "controls": {}, "seconds": 3.0})
    run = computed(client, seed=1)
    assert "It took 2.0 s" in markup(opened(run=run.id)) and "had said 3.0 s (+50%)" in markup(opened(run=run.id))
    assert "had said" not in markup(opened(run=computed(client).id))


def test_numbers_columns_and_settings_are_named_in_words():
    numbers = {"rows": [{"side": "dense", "prefill_ms": {"median": 3.0}}, {"ms": 1.0}], "window": 64}
    assert run_words.number("rows.0.prefill_ms.median", numbers) == "time to first token, ms, median (dense)"
    assert run_words.number("rows.1.ms", numbers) == "ms (row 2)" and run_words.number("window", numbers) == "window"
    assert run_words.number("rows.9.x", numbers) == "x (row 10)"
    assert run_words.column("reads_kv") == "reads per key-value head"
    methods = {"oracle_topk": {"title": "Oracle top-k"}, "focus": {"title": "Focus"}}
    words = run_words.settings("methods oracle_topk (k 51), focus, router my_router, rope as_trained, focus 2", methods)
    assert words == "methods Oracle top-k (k 51), Focus, router my_router, rope as trained, focus 2"
    assert compare.main("evaluate", {"bins": ["n"], "rows": ["loss", "perplexity"]}) == ("rows", "perplexity")
    assert compare.main("x", {"bins": ["n"]}) == ("bins", "n")


def test_a_default_that_is_named_is_no_difference():
    def run(**settings) -> Run:
        return SimpleNamespace(request={"methods": [{"name": "focus", "settings": settings}], "seed": 0}, protocol={})

    defaults = {"focus": {"top": 1, "window": 128}}
    assert configuration(run(), run(top=1), defaults) == []
    assert configuration(run(), run(top=2), defaults) == [("methods.0.settings.top", 1, 2)]
    assert configuration(run(), run(top=1)) == [("methods.0.settings.top", None, 1)]


def test_a_run_opens_on_its_page_with_every_control(client):
    app = opened_page("groups", layer="2", group="1", content="no")
    (run,) = client.store.search(verb="groups")
    wanted = dict(app.query_params)
    assert client.store.open(run.id).marks.link["page"] == "groups"
    app = opened(run=run.id, layer="1", measure="confidence", runs_find="groups")
    app.button(key="run_open").click().run()
    assert not app.exception and app.session_state["page_shown"] == "groups"
    left = {name: app.session_state[name] for name in ("layer", "group", "content", "measure", "run", "runs_find")}
    assert left == {"layer": 2, "group": 1, "content": False, "measure": "share", "run": None, "runs_find": ""}
    assert all(app.query_params[name] == wanted[name] for name in ("layer", "group", "content"))


def test_every_kind_of_run_has_a_page_that_is_there():
    pages = {verb: run_pages.shows(verb) for verb in COMMANDS}
    pages |= {name: run_pages.shows("study", {"name": name}) for name in STORED}
    assert all(pages[name] or not study.page for name, study in STORED.items())
    assert pages["evaluate"] and pages["runs"] is None
    for page, tab in filter(None, pages.values()):
        assert page in PAGES
        for name, value in tab.items():
            assert in_address(state.CONTROLS[name].from_address(value)) == value
    assert run_pages.title_of("cap-sweep") == "Cut: Budgets per head" and run_pages.title_of("stress") == "–"


def test_a_run_without_a_note_opens_with_what_its_arguments_name(client):
    run = computed(client, router="k8-top2")
    controls = {"model": "demo", "text": run.request["text"], "long_text": "windows", "router": "k8-top2"}
    assert run_pages.link(run) == {"page": "groups", "controls": controls, "exact": False}


def test_a_bundle_comes_in_and_is_opened(client, tmp_path):
    stranger, out = RunStore(tmp_path / "other"), io.BytesIO()
    key = stranger.put_text("Marguerite kept the ferry. " * 9, "ferry.txt")
    args = {"model": "demo", "text": key, "long_text": "windows", "router": "k4-top1"}
    run = stranger.put(Undeclared("groups", args), STUDIES["groups"](args, "some words " * 9), {"tokens": 18}, 2.0)
    stranger.bundle([run.id], out)
    app = opened()
    app.file_uploader[0].upload("bundle.zip", out.getvalue(), "application/zip").run()
    assert not app.exception and not app.error and app.success
    assert app.query_params["run"] == run.id and "from a bundle" in " ".join(element.value for element in app.markdown)
    app.file_uploader[0].upload("evil.zip", b"no zip <script>", "application/zip").run()
    assert len(app.error) == 1 and "no zip file" in app.error[0].value


def test_a_link_to_a_run_that_is_gone_says_so(client):
    app = opened(run="0" * 12)
    assert any("0" * 12 in caption.value for caption in app.caption) and "run" not in app.query_params


def test_a_price_over_the_limit_offers_less(client):
    key = client.store.put_text("word " * 900, "long.txt")
    # What the page reads first takes a second, also of other texts, where the groups then took long.
    for place in range(3):
        text = client.store.put_text("word " * 900 + "x" * place, "long.txt") if place else key
        args = {"model": "demo", "text": text, "router": "k4-top1", "seed": 0, "long_text": "windows"}
        client.store.put(
            Undeclared("start", args), STUDIES["start"](args, "words"), {"tokens": 100, "model": "demo"}, 1.0
        )
        for shuffled in (False, True) if place else ():
            arguments = args | {"shuffled": shuffled}
            answer = STUDIES["groups"](arguments, "some words")
            client.store.put(Undeclared("groups", arguments), answer, {"tokens": 100, "model": "demo"}, 100.0)
    app = opened_page("groups", text=key)
    assert "groups" not in client.asked
    offered = {button.label.partition(",")[0]: button for button in app.button if "_smaller_" in button.key}
    assert list(offered) == ["The first window only", "The first quarter of the text"]
    assert any("so far off by 0%" in (button.help or "") for button in app.button)
    offered["The first quarter of the text"].click().run()
    assert client.store.text(app.query_params["text"])[0] == "long.txt (first quarter)"
    assert "groups" in client.asked, "a button with a price runs it"


def test_a_long_job_over_the_limit_offers_less_in_its_own_controls(client):
    app = opened_page("text")
    args = {"model": "demo", "phase": 1, "steps": 1, "tokens_per_step": 1}
    answer = STUDIES["inspect"]({"model": "demo"}, "a b")
    client.store.put(Undeclared("train-router", args), answer, {"model": "demo"}, 90_000.0)
    go(app, "training")
    offered = [button for button in app.button if button.key.startswith("train_run_smaller")]
    assert offered[0].label.startswith("25 steps") and "longer than 10 min" in markup(app)
    offered[0].click().run()
    assert app.query_params["train_steps"] == "25"
