"""KV budgets in-process with hand-made results: both maps, changes by hand, the file of a policy, studies and cost."""

import json

import pytest

from analysis.corpus import sample_texts, text_hash
from analysis.errors import BadSetting
from analysis.places import CACHE
from analysis.runs import RunStore
from analysis.studies.start.examples import FOLDER, budgeted
from app.budgets import edits as budgets_edits, policy as budgets
from app.ui import widgets
from tests.app.heads.test_heads import figures
from tests.made.budgets import (
    allocation_study,
    calibration_study,
    key,
    map_of,
    measure,
    metrics,
    page,
    prepared,
    router_study,
    sweep,
    topk_cost,
)
from tests.made.in_process import markup, part


@pytest.fixture
def client(client, monkeypatch):
    return prepared(client, monkeypatch)


# --- maps and changes by hand -----------------------------------------------------------------------------------------


def test_the_page_opens_with_its_answer_and_both_maps(client):
    app = page()
    assert app.title[0].value.startswith("How many keys does each head need") and not app.error
    assert "90% of a head&#x27;s attention lies on 21 keys on average: on 3 in head 0 of layer 2" in markup(app)
    assert "calibrated on two &lt;texts&gt;" in markup(app)
    needed, given = (map_of(app, at) for at in (0, 1))
    assert needed[0, 1] == "50" and len(given) == 6
    one, two = (figures(app)[at]["data"][0] for at in (0, 1))
    assert (one["zmin"], one["zmax"]) == (two["zmin"], two["zmax"]), "one colour for both"
    assert metrics(app)["Keys in total"] == "127"


def test_a_shared_demo_draws_no_button_that_it_would_refuse(client, monkeypatch):
    assert "budget_time" in [button.key for button in page(budgets="cost").button]
    monkeypatch.setenv("FOCUSCOPE_DEMO", "1")
    app = page(budgets="cost")
    assert "budget_time" not in [button.key for button in app.button] and not app.get("file_uploader")[1:]
    assert "not available in this shared demo" in markup(app)


def test_a_change_is_applied_undone_and_keeps_the_total(client):
    app = page(layer=1, head=0)
    before = map_of(app, 1)
    app.button(key="budget_apply").click().run()
    after = map_of(app, 1)
    assert after[1, 0] == f"<u>{round(int(before[1, 0]) * 0.5 + 0.01)}</u>" and after != before
    assert metrics(app)["Keys in total"] == "127" and app.session_state["budget_edits"] == "c2x0.5"
    assert "head 1.0 times 0.5" in markup(app)
    app.button(key="budget_undo").click().run()
    assert map_of(app, 1) == before and app.button(key="budget_undo").disabled


def test_rows_columns_and_every_head_are_set_scaled_and_pinned(client):
    app = page(budget_edits="l0s9~h1x2~p", budget_keep="no")
    made = map_of(app, 1)
    assert made[0, 0] == "<u>9</u>" and made[0, 1] == "<u>18</u>" and metrics(app)["Keys in total"] != "127"
    said = "all heads of layer 0 set to 9 keys; head 1 of every layer times 2; every head pinned"
    assert said in markup(app)
    app.selectbox(key="budget_where").set_value("layer").run()
    app.segmented_control(key="budget_how").set_value("set").run()
    app.button(key="budget_apply").click().run()
    assert app.session_state["budget_edits"].endswith("~l0s64")
    app.button(key="budget_over").click().run()
    assert app.session_state["budget_edits"] is None


def test_a_change_that_cannot_be_is_one_sentence_and_leaves_all_as_it_was(client):
    app = page()
    before = map_of(app, 1)
    app.selectbox(key="budget_where").set_value("layer").run()
    app.segmented_control(key="budget_how").set_value("set").run()
    app.number_input(key="budget_keys").set_value(1000).run()
    app.button(key="budget_apply").click().run()
    assert "take 2" in app.error[0].value and map_of(app, 1) == before


def test_a_link_with_changes_that_do_not_fit_can_be_dropped(client):
    app = page(budget_edits="l9s4")
    assert "There is no layer 9" in app.error[0].value.replace("\\", "") and len(figures(app)) == 2
    app.button(key="budget_drop").click().run()
    assert not app.error
    assert any("list of changes" in caption.value for caption in page(budget_edits="zzz").caption)


def test_a_click_chooses_a_head_and_several_are_changed_together(client):
    app = page(budget_cells="1.4")
    assert any("0.1, 2.0" in caption.value for caption in app.caption)
    app.button(key="budget_apply").click().run()
    assert app.session_state["budget_edits"] == "c1.4x0.5"
    assert len(figures(app)[1]["layout"]["shapes"]) == 2


def test_how_many_keys_there_are_in_all(client):
    app = page(budget_way="beta", budget_size=2)
    assert metrics(app)["Keys in total"] == "254"


def test_the_effect_on_quality_is_a_job_with_its_price(client):
    app = page(budget_edits="l0x0.5")
    app.button(key="budget_measure_1").click().run()
    assert client.states["0123456789ab"].verb == "cap-sweep"
    sweep(client, {"name": "policy"}, [32])
    sweep(client, {"name": "policy", "edits": [{"scale": 0.5, "layer": 0}], "keep_total": True}, [32])
    shown = part(page(budget_edits="l0x0.5"), "table")
    assert [column["label"] for column in shown["columns"]][0] == "budgets"
    assert shown["columns"][0]["values"] == ["as calibrated", "with your changes"]


def test_edits_are_spelled_and_read():
    for word in ("l3x0.5", "c5.9s64~h2p", "s2", "p~x3"):
        assert budgets_edits.spell(budgets_edits.parse(word)) == word
    assert budgets_edits.parse(None) == [] and budgets_edits.spell([]) is None
    for word in ("l3", "3s4", "l3s", "x", "c1.s2"):
        with pytest.raises(ValueError):
            budgets_edits.parse(word)


# --- the file ---------------------------------------------------------------------------------------------------------


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
    with pytest.raises(BadSetting, match=said.replace("*", r"\*").replace("+", r"\+")):
        budgets.read_json(data)


def test_an_uploaded_policy_is_stored_or_refused(client, monkeypatch):
    held = {}
    monkeypatch.setattr(budgets.st, "session_state", held)
    monkeypatch.setattr(budgets.state, "choose", lambda session, **values: held.update(values))
    held |= {"model": "demo", "budget_upload_trouble": None}
    with widgets.attempt("budget_upload_trouble"):
        budgets.bring(b"[1, 2, 3]", "mine")
    assert "made for 2 heads" in str(held["budget_upload_trouble"]) and "budget_policy" not in held
    with widgets.attempt("budget_upload_trouble"):
        budgets.bring(json.dumps([3] * 7).encode(), "policy")
    assert "is the name of the first policy" in str(held["budget_upload_trouble"])
    with widgets.attempt("budget_upload_trouble"):
        budgets.bring(json.dumps({"policy": [3] * 7, "x": 1}).encode(), "mine")
    assert held["budget_upload_trouble"] is None and held["budget_policy"] == "mine"
    assert client.store.list("import-policy")[0].request["policy"] == {"policy": [3] * 7}


# --- studies and cost -------------------------------------------------------------------------------------------------


def test_the_stored_studies_of_budgets(client):
    app = page(budgets="query")
    assert app.query_params["budgets_evidence"] == "yes", "a link from when this was a tab"
    assert any("query-router --corpus DIR --model demo" in code.value for code in app.code) and "0.905" in markup(app)
    assert any("study allocation --corpus DIR --model demo" in code.value for code in app.code)
    folder = client.store.root / "fitted" / "demo" / "abc" / "studies"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "allocation.json").write_text(json.dumps(allocation_study()))
    (folder / "query-router.json").write_text(json.dumps(router_study()))
    (folder / "calibration.json").write_text(json.dumps(calibration_study()))
    app = page(budgets_evidence="yes")
    assert "The query hardly matters." in markup(app) and "33,921 parameters" in markup(app)
    assert figures(app)[-1]["data"][0]["name"] == "static"
    assert "1 of 1 pass." in markup(app)
    assert "Ranks share keys out better." in markup(app) and "As many in all." in markup(app)
    assert "Loss above dense" in [one.value for one in app.subheader]
    assert any(one["label"] == "Table 1 of the paper" for one in (part(app, "table", at) for at in range(2)))


def test_what_it_costs(client):
    app = page(budgets="cost")
    assert "cannot beat dense attention while all scores are computed" in markup(app)
    assert metrics(app)["Held, float32"] == "12 MB"
    assert metrics(app)["Held under eviction, float32, at most"] == "3 MB"
    assert "proposes eviction" in markup(app)
    app.button(key="budget_time").click().run()
    args = client.states["0123456789ab"].args
    assert args["heads"] == 2 and args["kv_heads"] == 1
    made = topk_cost()
    client.store.put("topk-cost", args, made, made.numbers["protocol"], 1.0)
    app = page(budgets="cost")
    assert "1.50 times dense." in markup(app) and "medians of 5 rounds, float32 on A chip" in markup(app)
    app.button(key="budget_evict").click().run()
    measure(client, "evaluate", **client.states["0123456789ab"].args)
    assert "+20.0% (+19.0% to +21.0%) when keys are" in markup(page(budgets="cost"))


def test_the_first_requests_of_the_page_are_those_of_the_stored_examples(client):
    asked = {verb: arguments for verb, arguments in budgeted(key(client))}
    page()
    assert client.store.list("budgets")[0].request == asked["budgets"]
    for tab, button, verb in (("reads", "budget_reads_run", "reads-text"), ("cap", "budget_sweep_run", "cap-sweep")):
        page(budgets=tab).button(key=button).click().run()
        assert client.states["0123456789ab"].args == asked[verb]


def test_the_bundled_policy_has_its_examples(tmp_path):
    if not (CACHE / "demo" / "csa" / "policy.json").is_file():
        pytest.skip("no policy comes with the bundled model")
    store = RunStore(tmp_path, examples=FOLDER)
    for verb, arguments in budgeted(text_hash(sample_texts()["story"][1])):
        assert store.find(verb, arguments), f"{verb} is not stored: python -m analysis examples"
    store.close()
