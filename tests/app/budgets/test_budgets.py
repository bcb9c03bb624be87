"""KV budgets in-process with hand-made results: both maps, changes by hand, the file of a policy, studies and cost."""

import html
import json

import pytest

from analysis.corpus import sample_texts, text_hash
from analysis.declaration.undeclared import Undeclared
from analysis.errors import BadSetting
from analysis.metrics.budgets import FLOOR
from analysis.places import CACHE
from analysis.runs import RunStore
from analysis.studies.start.examples import FOLDER, budgeted
from app.budgets import edits, live, policy as budgets
from app.ui import widgets
from tests.made.budgets import key, keys_of, measure_reads, page, sweep
from tests.made.in_process import captions, keys, markup, part, tables
from tests.made.results import CONTEXT
from tests.made.training import put_bundled


def test_the_page_opens_with_its_answer_the_map_and_a_card(client):
    app = page()
    assert app.title[0].value == "A head needs 21 of 64 tokens on average: 0.1 needs 50, 2.0 needs 3."
    data = part(app, "budgets")
    assert sum(data["budgets"]) == 127 and data["budgets"] == data["stored"] and data["ranks"][1] == 50.0
    assert (data["share"], data["measured"], data["cells"]) == (None, [], [0]) and not app.error
    assert "Needs 40 tokens for 90% of its attention; may read 32." in markup(app), "under the cap"
    assert part(page(layer=1, head=1), "budgets")["cells"] == [3]
    assert live.FLOOR == FLOOR


def test_a_shared_demo_draws_no_button_that_it_would_refuse(client, monkeypatch):
    assert "budget_time" in keys(page(budgets="cost"))
    monkeypatch.setenv("FOCUSCOPE_DEMO", "1")
    app = page(budgets="cost")
    assert "budget_time" not in keys(app) and not app.get("file_uploader")[1:]
    assert "not available in this shared demo" in markup(app)


def test_a_change_is_applied_undone_and_keeps_the_total(client):
    app = page(budgets="hand", layer=1, head=0)
    before = keys_of(app)
    app.button(key="budget_apply").click().run()
    after = keys_of(app)
    assert after[2] == round(before[2] * 0.5 + 0.01) and sum(after) == 127
    assert app.session_state["budget_edits"] == "c2x0.5" and part(app, "budgets")["fixed"].index(True) == 2
    app.button(key="budget_undo").click().run()
    assert keys_of(app) == before and app.button(key="budget_undo").disabled


def test_rows_columns_and_every_head_are_set_scaled_and_pinned(client):
    app = page(budgets="hand", budget_edits="l0s9~h1x2~p", budget_keep="no")
    assert keys_of(app)[:2] == [9, 18] and sum(keys_of(app)) != 127
    assert "all heads of layer 0 set to 9 keys; head 1 of every layer times 2; every head pinned" in markup(app)
    app.selectbox(key="budget_where").set_value("layer").run()
    app.segmented_control(key="budget_how").set_value("set").run()
    app.button(key="budget_apply").click().run()
    assert app.session_state["budget_edits"].endswith("~l0s64")
    app.button(key="budget_over").click().run()
    assert app.session_state["budget_edits"] is None


def test_a_change_that_cannot_be_leaves_all_as_it_was_and_a_link_with_one_can_drop_it(client):
    app = page(budgets="hand", budget_where="layer", budget_how="set")
    before = keys_of(app)
    app.number_input(key="budget_keys").set_value(1000).run()
    app.button(key="budget_apply").click().run()
    assert "take 2" in app.error[0].value and keys_of(app) == before
    app = page(budget_edits="l9s4")
    assert "There is no layer 9" in app.error[0].value.replace("\\", "") and keys_of(app) == before
    app.button(key="budget_drop").click().run()
    assert not app.error and "list of changes" in captions(page(budget_edits="zzz"))


def test_several_heads_are_changed_together_and_all_keys_are_said_otherwise(client):
    app = page(budgets="hand", budget_cells="1.4")
    assert "0.1, 2.0" in captions(app) and part(app, "budgets")["cells"] == [1, 4]
    app.button(key="budget_apply").click().run()
    assert app.session_state["budget_edits"] == "c1.4x0.5"
    assert sum(keys_of(page(budget_way="beta", budget_size=2))) == 254


def test_the_effect_on_quality_is_found_or_a_job_with_its_price(client):
    page(budget_edits="l0x0.5").button(key="budget_reads_run").click().run()
    assert client.job.verb == "reads-text"
    measure_reads(client)
    page(budget_edits="l0x0.5").button(key="budget_measure").click().run()
    assert client.job.verb == "cap-sweep"
    sweep(client, {"name": "policy", "edits": [{"scale": 0.5, "layer": 0}], "keep_total": True}, [32])
    now = part(page(budget_edits="l0x0.5"), "budgets")["now"]
    assert now["difference"] == 0.15 and now["worst"] == 0.3 and part(page(), "budgets")["now"] is None
    sweep(client, {"name": "policy"}, [32, 64, 128, 256, 512])
    app = page()
    assert part(app, "budgets")["now"] == now, "as calibrated: the usual sweep has its cap"
    assert "budget_measure" not in keys(app) and "Perplexity +15.0% (+14.0% to +16.0%)" in markup(app)


def test_edits_are_spelled_and_read():
    for word in ("l3x0.5", "c5.9s64~h2p", "s2", "p~x3"):
        assert edits.spell(edits.parse(word)) == word
    assert edits.parse(None) == [] and edits.spell([]) is None
    for word in ("l3", "3s4", "l3s", "x", "c1.s2"):
        with pytest.raises(ValueError):
            edits.parse(word)


@pytest.mark.parametrize(
    "data, said",
    [
        (b"{", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[NaN, 3]", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"17", "holds no policy"),
        (b"[1]" + b" " * 1_000_001, "has 1.0 MB"),
    ],
)
def test_a_hostile_file_is_refused_in_one_sentence(data, said):
    with pytest.raises(BadSetting, match=said):
        budgets.read_json(data)


def test_an_uploaded_policy_is_stored_or_refused(client, monkeypatch):
    in_session = {"model": "demo"}
    monkeypatch.setattr(budgets.st, "session_state", in_session)
    monkeypatch.setattr(budgets.state, "choose", lambda session, **values: in_session.update(values))
    policies = {"mine": [1, 2, 3], "policy": [3] * 7, "good": {"policy": [3] * 7, "x": 1}}
    errors = {}
    for name, policy in policies.items():
        with widgets.attempt("budget_upload_trouble"):
            budgets.bring(json.dumps(policy).encode(), name)
        errors[name] = str(in_session["budget_upload_trouble"])
    assert "made for 2 heads" in errors["mine"] and "is the name of the first policy" in errors["policy"]
    assert errors["good"] == "None" and in_session["budget_policy"] == "good"
    assert client.store.list("import-policy")[0].request["policy"] == {"policy": [3] * 7}


def test_the_stored_studies_of_budgets(client):
    app = page(budgets="query")
    assert app.query_params["budgets_evidence"] == "yes", "a link from when this was a tab"
    commands = " ".join(code.value for code in app.code)
    assert all(f"study {name} --corpus DIR --model demo" in commands for name in ("query-router", "allocation"))
    app.button(key="small_query-router").click().run()
    asked = {"name": "query-router", "model": "demo", "steps": 200, "seeds": 1, "windows": 8, "length": CONTEXT}
    assert client.job.verb == "study" and asked.items() <= client.job.args.items()
    client.states.clear()
    studies = put_bundled(client.store, "allocation", "query-router", "calibration")
    app = page(budgets_evidence="yes")
    assert all(html.escape(study["sentence"]) in markup(app) for study in studies)
    assert f"{studies[1]['parameters']:,} parameters" in markup(app)
    assert "Correlations" in {table["label"] for table in tables(app)}


def test_what_it_costs(client):
    app = page(budgets="cost")
    held = {one.label: one.value for one in app.metric}
    assert held["Held, float32"] == "12 MB" and held["Held under eviction, float32, at most"] == "3 MB"
    app.button(key="budget_time").click().run()
    args = client.job.args
    assert args["heads"] == 2 and args["kv_heads"] == 1
    client.done("topk-cost", args)
    app = page(budgets="cost")
    assert "1.50 times dense." in markup(app) and "medians of 5 rounds, float32 on A chip" in markup(app)
    app.button(key="budget_evict").click().run()
    client.done("evaluate", client.job.args)
    assert "+20.0% (+19.0% to +21.0%) when keys are" in markup(page(budgets="cost"))


def test_the_first_requests_of_the_page_are_those_of_the_stored_examples(client):
    asked = {verb: arguments for verb, arguments in budgeted(key(client))}
    page()
    assert client.store.list("budgets")[0].request == asked["budgets"]
    for tab, button, verb in (("map", "budget_reads_run", "reads-text"), ("cap", "budget_sweep_run", "cap-sweep")):
        page(budgets=tab).button(key=button).click().run()
        assert client.job.args == asked[verb]


def test_the_bundled_policy_has_its_examples(tmp_path):
    if not (CACHE / "demo" / "csa" / "policy.json").is_file():
        pytest.skip("no policy comes with the bundled model")
    store = RunStore(tmp_path, examples=FOLDER)
    for verb, arguments in budgeted(text_hash(sample_texts()["story"][1])):
        assert store.find(Undeclared(verb, arguments)), f"{verb} is not stored: python -m analysis examples"
