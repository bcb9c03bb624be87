"""KV budgets in-process with hand-made results: the slider over the reads, caps, calibrations."""

import pytest

from analysis.errors import BadSetting
from app.budgets import budget_words, effect, live
from app.selection.sparsify import READ_SHARES
from tests.made.budgets import ANSWERS, cap_sweep, key, measure_reads, page, row, store_policy, sweep
from tests.made.in_process import captions, columns, figures, keys, markup, part, put
from tests.made.results import status


def test_the_slider_moves_map_answer_and_details_to_a_measured_share(client):
    measure_reads(client)
    app = page(budgets="reads", budget_reads="0.02")
    data = part(app, "budgets")
    assert app.session_state["budget_way"] == "reads" and app.session_state["budget_size"] == 2.0
    assert data["share"] == 0.02 and data["cap"] == live.NO_CAP and not data["cap_chosen"] and not data["example"]
    assert [row["share"] for row in data["measured"]] == sorted(READ_SHARES)
    smallest = data["measured"][0]
    assert data["now"] == {name: smallest[name] for name in ("difference", "low", "high", "worst")} | {"exact": True}
    assert smallest["worst"] > 0.4 and smallest["worst"] == pytest.approx(2 * smallest["difference"])
    assert app.title[0].value.endswith("2% costs 21%.")
    assert part(app, "painted")["paint"].count(-1) < 40 and part(app, "painted")["locked"] == 63
    assert "The worst token: Token 63 lost &lt;b&gt;." in markup(app) and "A note to &lt;read&gt;." in markup(app)
    assert [panel["role"] for panel in part(app, "contexts")["panels"]] == ["key", "query"]
    high = [figures(page(budgets="reads", budget_reads=cut))[0]["layout"]["yaxis"]["range"] for cut in ("0.02", "0.5")]
    assert high[0] == high[1], "one range, so that a moved slider is seen"
    budgeted, dense = figures(page(budgets="reads", budget_bins="perplexity", budget_reads="0.02"))[0]["data"]
    assert budgeted["error_y"]["array"][0] > 0 and dense["y"] == [10.0, 10.0] and "n = 31" in budgeted["text"][0]
    assert live.nearest(0.14) == 0.1


def test_a_token_shows_the_keys_it_lost(client):
    measure_reads(client)
    app = page(budgets="reads", budget_token=40)
    assert client.asked.count("lost-keys") == 1 and "Token 40 lost" in markup(app)
    assert columns(app)["lost attention"] == ["2.000", "1.000"]
    assert "marked token" in captions(page(budgets="reads", budget_token=4000))


def test_a_text_that_calibrated_is_not_measured_and_leads_to_another(client):
    store_policy(client.store.root, "policy", texts=[key(client)])
    for fold in ("reads", "cost", "map", "cap"):
        app = page(budgets=fold)
        assert "must not be measured on it" in app.info[0].value and not app.error
    app.button(key="budget_other_text").click().run()
    assert app.session_state["text"] != key(client) and not app.info
    store_policy(client.store.root, "policy", texts=[key(client)], halves=key(client))
    assert not page(budgets="reads").info


def test_an_unmeasured_text_shows_the_curve_of_another_one(client):
    measure_reads(client)
    app = page(budgets="reads", text=put(client, "One text of somebody's own. " * 40))
    data = part(app, "budgets")
    assert app.button(key="budget_reads_run") and data["example"] and len(data["measured"]) == len(READ_SHARES)
    assert data["now"] is None and app.title[0].value.startswith("A head needs"), "no number of another text"


def test_where_it_breaks_in_words():
    changes = ((1.0, 0.0), (0.5, 0.01), (0.1, 0.05), (0.02, 0.5))
    rows = [row(change, share=share) for share, change in changes]
    wanted = "Reading 50% costs nothing. 10% costs 2.5% (5% at worst). 2% costs 25%."
    assert budget_words.breaks(rows, 0.1) == wanted
    assert (
        budget_words.breaks(rows, 1.0) == budget_words.breaks(rows, 0.02) == "Reading 50% costs nothing. 2% costs 25%."
    )
    assert budget_words.breaks([rows[0], rows[3]], 0.02) == "Reading 2% costs 25%."
    assert budget_words.breaks(rows[:2], 0.5) == "Reading 50% costs nothing."
    assert "10%: +2.5% (+1.5% to +3.5%)" in budget_words.intervals(rows)


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


def test_a_cap_may_be_held_to_both_sides_and_to_perplexity(client):
    """Falls of up to 1.5% and 3% pass as no rise; up or down they need as much, or 0.15 and 0.3 of a perplexity of
    10."""
    sweep(client, {"name": "policy"}, [128, 256])
    link = {"budgets": "cap", "budget_caps": "128 256", "budget_judged": "change"}
    assert columns(page(**link))["verdict"] == ["fails: average and stretch"] * 2
    assert columns(page(**link, budget_tolerance=1.5, budget_tolerance_bin=3.0))["verdict"] == ["chosen", "passes"]
    link["budget_judged"] = "perplexity"
    assert columns(page(**link, budget_tolerance=0.2, budget_tolerance_bin=0.3))["verdict"] == ["chosen", "passes"]
    app = page(**link, budget_tolerance=0.2, budget_tolerance_bin=0.2)
    assert columns(app)["verdict"] == ["fails: stretch"] * 2 and "(allowed ±0.2 perplexity)" in markup(app)
    app = page(**link | {"budgets": "calibrate"}, budget_tolerance=0.2)
    app.button(key="budget_calibrate").click().run()
    args = client.job.args
    assert (args["judged"], args["tolerance"], args["tolerance_bin"]) == ("perplexity", 0.2, 2.0)


def test_a_sweep_of_before_is_measured_again_for_both_sides(client, monkeypatch):
    """What an earlier version stored has no lower limits: it is told, and a button measures it anew."""

    def before(args, text):
        sweep = cap_sweep(args, text)
        for measured in sweep.numbers["sweep"]:
            measured["select"].pop("stretches", None)
        return sweep

    monkeypatch.setitem(ANSWERS, "cap-sweep", before)
    sweep(client, {"name": "policy"}, [128])
    link = {"budgets": "cap", "budget_caps": "128"}
    assert "budget_sweep_run" not in keys(page(**link))
    app = page(**link, budget_judged="change")
    assert "measure it again" in markup(app)
    app.button(key="budget_sweep_run").click().run()
    assert client.job.verb == "cap-sweep" and not client.store.list("cap-sweep")


def test_where_no_cap_passes_more_keys_are_offered(client):
    sweep(client, {"name": "policy"}, [16, 32])
    app = page(budgets="cap", budget_caps="16 32")
    assert "No cap passes: at the largest, 32" in markup(app)
    app.button(key="budget_twice").click().run()
    assert app.session_state["budget_way"] == "beta" and app.session_state["budget_size"] == pytest.approx(2.0)


def test_a_list_of_caps():
    assert effect.caps(" 64, 32 1k,32") == [32, 64, 1024]
    for raw in ("", "x", "0", "1,,k", "9" * 9, ",".join(["1"] * 40)):
        with pytest.raises(BadSetting, match="is not a list of caps"):
            effect.caps(raw)


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
    app = page(budgets="calibrate", budget_shared="ablation", budget_floored="last")
    app.button(key="budget_calibrate").click().run()
    assert client.job.args["shared"] == "ablation" and client.job.args["floored"] == "last"
    table, about = {"layer": [0, 1], "head": [3, 0], "rank": [0.0, 40.0]}, {"mass": 0.9, "corpus": "mine"}
    assert budget_words.needs(table, 64, about).startswith("A head needs 20 of 64 tokens on average: 1.0 needs 40")
    assert budget_words.needs(table, 64, about | {"shared": "ablation"}).startswith("Tokens go where the loss needs")


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
    assert titles == ["position in the window, tokens", "rank in policy, tokens"]
    for typed, stored in (("My Novels!", "my-novels"), ("policy", "mine"), ("--", "mine")):
        app.text_input(key="budget_name").set_value(typed).run()
        assert app.session_state["budget_name"] == stored, "a name that a file can have"
