"""KV budgets in-process with hand-made results: the slider over the reads, caps, calibrations."""

import re

import pytest

from analysis.errors import BadSetting
from app.budgets import budget_words, cap
from tests.made.budgets import key, measure_reads, metrics, page, row, store_policy, sweep
from tests.made.in_process import captions, columns, figures, markup, part, put
from tests.made.results import status


def test_a_text_is_measured_by_a_job_and_then_the_slider_is_live(client):
    page(budgets="reads").button(key="budget_reads_run").click().run()
    assert client.job.verb == "reads-text"
    measure_reads(client)
    app = page(budgets="reads", budget_reads="1.0")
    assert metrics(app)["All positions"] == "0.0%" and part(app, "painted")["paint"].count(-1) == 64
    app.select_slider(key="budget_reads").set_value(0.02).run()
    shown = metrics(app)
    mean, last, worst = (float(shown[f"{name} positions"].removesuffix("%")) for name in ("All", "Last", "Worst"))
    assert last == worst > 40 and worst == pytest.approx(2 * mean, abs=0.2)
    assert part(app, "painted")["paint"].count(-1) < 40 and part(app, "painted")["locked"] == 63
    assert "The worst token: Token 63 lost &lt;b&gt;." in markup(app) and "A note to &lt;read&gt;." in markup(app)
    assert [panel["role"] for panel in part(app, "contexts")["panels"]] == ["key", "query"]
    assert figures(app)[0]["layout"]["yaxis"]["range"] == figures(page(budgets="reads"))[0]["layout"]["yaxis"]["range"]
    assert "positions 31 to 61 changes by +" in markup(app), "the answer above says where it breaks"
    own, dense = figures(page(budgets="reads", budget_bins="perplexity"))[0]["data"]
    assert own["error_y"]["array"][0] > 0 and dense["y"] == [10.0, 10.0] and "n = 31" in own["text"][0]


def test_a_token_shows_the_keys_it_lost(client):
    measure_reads(client)
    app = page(budgets="reads", budget_token=40)
    assert client.asked.count("lost-keys") == 1 and "Token 40 lost" in markup(app)
    assert columns(app)["lost attention"] == ["2.000", "1.000"]
    assert "marked token" in captions(page(budgets="reads", budget_token=4000))


def test_a_text_that_calibrated_is_not_measured_and_leads_to_another(client):
    store_policy(client.store.root, "policy", texts=[key(client)])
    for tab in ("reads", "cost", "map", "cap"):
        app = page(budgets=tab)
        assert "must not be measured on it" in app.info[0].value and not app.error
    app.button(key="budget_other_text").click().run()
    assert app.session_state["text"] != key(client) and not app.info
    store_policy(client.store.root, "policy", texts=[key(client)], halves=key(client))
    assert not page(budgets="reads").info


def test_an_unmeasured_text_shows_the_example_of_another_one(client):
    measure_reads(client)
    app = page(budgets="reads", text=put(client, "One text of somebody's own. " * 40), budget_token=40)
    assert app.button(key="budget_reads_run") and part(app, "painted")["locked"] == 40
    assert "another text, “" in markup(app) and "positions 31 to 61" not in markup(app)
    assert client.store.list("lost-keys")[0].request["text"] == key(client), "a token of the text that is shown"


def test_where_it_breaks_in_words():
    rows = [row(change, share=share) for share, change in ((1.0, 0.0), (0.5, 0.01), (0.1, 0.05), (0.02, 0.5))]
    said = budget_words.breaks(rows)
    assert re.findall(r"[+]?[\d.]+%", said) == ["10%", "+5.0%", "+2.5%", "50%", "2%"]
    assert budget_words.breaks(rows[:2]).startswith("Down to 50% of the reads")


def test_the_cap_is_chosen_by_tolerances_that_are_judged_at_once(client):
    sweep(client, {"name": "policy"}, [32, 64, 128, 256, 512])
    app = page(budgets="cap")
    assert "The smallest cap that passes is 128" in markup(app) and "At 64 perplexity may change" in markup(app)
    failed = "fails: average and stretch"
    assert columns(app)["verdict"] == [failed, failed, "chosen", "passes", "passes"]
    app.number_input(key="budget_tolerance").set_value(5.0).run()
    app.number_input(key="budget_tolerance_bin").set_value(5.0).run()
    assert "The smallest cap that passes is 64" in markup(app) and client.asked.count("cap-sweep") == 0
    app.button(key="budget_cap_use").click().run()
    assert app.session_state["budget_cap"] == 64
    app.number_input(key="budget_tolerance").set_value(0.0).run()
    assert "The smallest cap that passes is 256" in markup(app)


def test_where_no_cap_passes_more_keys_are_offered(client):
    sweep(client, {"name": "policy"}, [16, 32])
    app = page(budgets="cap", budget_caps="16 32")
    assert "No cap passes: at the largest, 32" in markup(app)
    app.button(key="budget_twice").click().run()
    assert app.session_state["budget_way"] == "beta" and app.session_state["budget_size"] == pytest.approx(2.0)


def test_a_list_of_caps():
    assert cap.caps(" 64, 32 1k,32") == [32, 64, 1024]
    for raw in ("", "x", "0", "1,,k", "9" * 9, ",".join(["1"] * 40)):
        with pytest.raises(BadSetting, match="is not a list of caps"):
            cap.caps(raw)


def test_a_calibration_is_a_job_and_its_policy_can_be_used(client):
    link = {"budgets": "calibrate", "budget_mass": "0.8", "budget_by": "total", "budget_min_pos": 5}
    page(**link).button(key="budget_calibrate").click().run()
    args = client.job.args
    assert args["texts"] == [key(client)] and args["name"] == "mine" and args["total"] == 5000 and "beta" not in args
    assert (args["mass"], args["min_pos"], args["caps"]) == (0.8, 5, [32, 64, 128, 256, 512]) and "shared" not in args
    client.done("calibrate", args)
    client.states.clear()
    app = page(**link)
    assert "The smallest cap is 64." in markup(app)
    store_policy(client.store.root, "mine")
    app.button(key="budget_use").click().run()
    assert app.session_state["budget_policy"] == "mine" and not app.error


def test_keys_can_be_shared_out_by_the_loss_without_a_head(client):
    app = page(budgets="calibrate", budget_shared="ablation")
    app.button(key="budget_calibrate").click().run()
    assert client.job.args["shared"] == "ablation"
    table, about = {"layer": [0, 1], "head": [3, 0], "rank": [0.0, 40.0]}, {"mass": 0.9, "corpus": "mine"}
    assert "attention lies on 20 keys" in budget_words.needs(table, about)
    said = budget_words.needs(table, about | {"shared": "ablation"})
    assert "lost without a head" in said and "40 in head 0 of layer 1 most" in said and "attention" not in said


def test_a_new_policy_is_the_one_in_use_once_its_job_is_done(client):
    store_policy(client.store.root, "mine")
    client.states["0123456789ab"] = status("done", verb="calibrate", args={"name": "mine"})
    app = page(job="0123456789ab")
    assert app.session_state["budget_policy"] == app.selectbox(key="budget_policy_pick").value == "mine"
    app.selectbox(key="budget_policy_pick").set_value("other").run()
    assert app.session_state["budget_policy"] == "other"


def test_early_positions_and_two_calibrations(client):
    app = page(budgets="calibrate")
    assert "over the last sixteenth of the window 30" in markup(app)
    assert "The ranks of policy and other agree to 0.50." in markup(app)
    titles = [chart["layout"]["xaxis"]["title"]["text"] for chart in figures(app)]
    assert titles == ["position in the window, tokens", "rank in policy, keys"]
    changes = part(app, "table")["columns"][4]["values"]
    assert [abs(change) for change in changes] == sorted((abs(change) for change in changes), reverse=True)
    for typed, kept in (("My Novels!", "my-novels"), ("policy", "mine"), ("--", "mine")):
        app.text_input(key="budget_name").set_value(typed).run()
        assert app.session_state["budget_name"] == kept, "a name that a file can have"
