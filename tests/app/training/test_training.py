"""Train a router in-process with hand-made results: what is shown, asked and refused."""

import html
import json

import pytest
from streamlit.testing.v1 import AppTest

from analysis.commands.groups import AGAINST_COLLAPSE, AS_PRINTED, TrainRouter
from analysis.runs import brought
from analysis.studies.registry import STORED as KINDS, of_file
from app import cached
from app.training import router_evidence
from app.ui import studied
from tests.conftest import ROOT
from tests.made.in_process import captions, columns, figures, markup, opened
from tests.made.results import status
from tests.made.training import put_bundled, put_studies

STUDIES = ROOT / "models_cache" / "demo" / "studies"
BUNDLED = [path for path in sorted(STUDIES.glob("*.json")) if "panels" in json.loads(path.read_text())]
HERE = [path for path in BUNDLED if router_evidence.shown_here(path.stem)]
# Outcomes in the paper's table 8.
PRINTED = {
    "entropy and balance loss": "Collapses by step 600",
    "stop-gradient on inputs": "Slow, not converging",
    "EMA centroids": "Proj erases structure",
    "recluster every 100 steps": "Balanced but unstable",
    "balance weight x5": "6 of 8 groups die",
    "sinkhorn": "Stable, semantic",
}


def page(**link: object) -> AppTest:
    return opened("training", **link)


@pytest.mark.parametrize("tab", ["train", "collapse", "balance", "causality", "ablations"])
def test_every_tab_opens_and_says_what_is_not_there(client, tab):
    app = page(evidence=tab)
    assert not app.error and "was fitted without training" in app.title[0].value
    if tab in ("collapse", "causality", "ablations"):
        assert "not measured on this machine yet for the model demo" in app.info[0].value
        assert app.code[0].value.startswith("python -m analysis study ")


def test_a_damaged_study_is_one_sentence_and_a_new_file_is_seen_at_once(client):
    folder = put_studies(client.store, dominance='{"sentence": ')
    app = page(evidence="collapse")
    assert "study dominance is left out (its file is damaged)" in markup(app) and "not measured" in app.info[0].value
    (study,) = put_bundled(client.store, "dominance")
    (folder / "dominance.json").touch()
    app.run()
    assert not app.info and html.escape(study["sentence"]) in markup(app)


# --- training ---------------------------------------------------------------------------------------------------------


def test_the_form_asks_for_what_it_shows_and_a_link_restores_it(client):
    app = page(train_steps=20, train_gate="centred", train_rate="3e-4", train_label="try2", train_groups=4)
    app.number_input(key="train_top").set_value(2).run()
    assert app.query_params["train_top"] == "2" and "the router k4-top2-try2" in app.button(key="train_run").help
    app.button(key="train_run").click().run()
    wanted = {"model": "demo", "corpus": cached.corpus(), "steps": 20, "groups": 4, "top": 2, "label": "try2"}
    wanted |= {"rate": 3e-4, "gate": "centred"}
    assert client.job.args["gate_sharpness"] is None, "the usual one"
    assert client.job.verb == "train-router" and wanted.items() <= client.job.args.items()
    assert "--gate centred" in app.code[1].value and "--label try2" in app.code[1].value
    app.selectbox(key="train_phase").set_value(2).run()
    app.button(key="train_run").click().run()
    args = client.job.args
    assert args["phase"] == 2 and args["groups"] == 4 and "gate" not in args, "it goes on with the router in use"


def test_the_settings_of_the_paper_and_those_of_table_8_are_asked_for(client):
    app = page(train_sharpness=5, train_offset=0.25, train_ema=0.9, train_detach="yes", train_recluster=100)
    app.button(key="train_preset_0").click().run()
    assert app.query_params["train_gate"] == "literal" and app.query_params["train_sinks"] == "0"
    app.button(key="train_run").click().run()
    table_8 = {"gate_sharpness": 5, "gate_offset": 0.25, "ema": 0.9, "detach": True, "recluster_every": 100}
    assert (table_8 | AS_PRINTED).items() <= client.job.args.items()
    app.button(key="train_preset_1").click().run()
    app.button(key="train_run").click().run()
    usual = {name: getattr(TrainRouter, name) for name in AS_PRINTED}
    assert usual != AS_PRINTED and (table_8 | usual).items() <= client.job.args.items()


def test_what_table_8_tries_is_one_step_beside_the_picture(client):
    app = page(train_groups=4, train_iterations=20)
    way = app.selectbox(key="train_against")
    assert way.value is None and way.options == list(AGAINST_COLLAPSE), "as the settings say"
    way.set_value("EMA centroids").run()
    assert (app.query_params["train_ema"], app.query_params["train_balance"]) == ("0.99", "softmax")
    app.button(key="train_run").click().run()
    assert AGAINST_COLLAPSE["EMA centroids"].items() <= client.job.args.items() and client.job.args["iterations"] == 10
    app.selectbox(key="train_against").set_value("sinkhorn").run()
    assert not {"train_ema", "train_balance", "train_detach"} & set(app.query_params)
    assert app.selectbox(key="train_against").value == "sinkhorn"


def test_a_router_for_every_key_value_head_is_asked_for(client):
    app = page(train_groups=4)
    app.checkbox(key="train_per_head").check().run()
    app.button(key="train_run").click().run()
    assert client.job.args["per_head"] is True and "--per-head" in app.code[1].value


def test_copies_are_tuned_and_stay(client, tmp_path, monkeypatch):
    monkeypatch.setattr(brought, "CORPORA", tmp_path / "corpora")
    assert "Put a folder of texts" in captions(page(evidence="ablations"))
    (tmp_path / "corpora" / "books").mkdir(parents=True)
    app = page(evidence="ablations", tuned_steps=50, tuned_method="lora")
    app.checkbox(key="tuned_keep").check().run()
    assert app.query_params["tuned_keep"] == "yes"
    app.button(key="tuned_run").click().run()
    wanted = {"name": "baselines", "corpus": "books", "method": "lora", "steps": 50, "keep": True}
    assert client.job.verb == "study" and wanted.items() <= client.job.args.items()


def test_some_layers_alone_get_groups(client):
    app = page(train_groups=4)
    app.text_input(key="train_layers").set_value("2 and 1").run()
    assert app.text_input(key="train_layers").value == "2, 1"
    app.button(key="train_run").click().run()
    assert client.job.args["grouped_layers"] == [2, 1]
    app.text_input(key="train_layers").set_value("none").run()
    app.button(key="train_run").click().run()
    assert "grouped_layers" not in client.job.args


def test_texts_are_chosen_and_a_folder_only_below_the_root(client, tmp_path, monkeypatch):
    own_text = client.store.put_text("words and words", "my <b>text")
    assert page(train_corpus=own_text).multiselect(key="train_corpus_texts_pick").value == [own_text]
    assert "corpus “books” is not available" in captions(page(train_corpus="books"))
    (tmp_path / "corpora" / "books").mkdir(parents=True)
    monkeypatch.setattr(brought, "CORPORA", tmp_path / "corpora")
    app = page(train_corpus="books")
    assert app.selectbox(key="train_corpus_folder_pick").value == "books" and not app.multiselect
    app.button(key="train_run").click().run()
    assert client.job.args["corpus"] == "books"
    app = page(train_corpus="../../etc")
    assert "train_corpus" not in app.query_params and app.selectbox(key="train_corpus_folder_pick").value == ""
    assert page(train_label="../x").text_input(key="train_label").value == "mine"


def test_a_finished_training_shows_its_curves_and_its_router(client):
    page(train_groups=4).button(key="train_run").click().run()
    args = client.job.args
    client.done("train-router", args, 30.0)
    client.states["0123456789ab"] = status("done", verb="train-router", args=args)
    app = page(train_groups=4, job="0123456789ab")
    shares, loss = figures(app)
    assert [trace["name"] for trace in loss["data"]] == ["one step", "mean of 5 steps", "hard, as at inference"]
    assert len(shares["data"]) == 4 and "1/K = 25.0%" in shares["data"][-1]["name"]
    table, page_text = columns(app), markup(app)
    assert table["perplexity"] == ["20.00", "22.00", "21.00", "23.00"]
    assert table["against reading everything"][1] == "+10.0%" and "from 4.00 to 3.70 nats" in page_text
    assert "95% interval over 8 documents, +0.0040 to +0.0160" in page_text
    assert any("from 1 run on this machine" in (button.help or "") for button in app.button)
    app.button(key="job_use").click().run()
    assert app.query_params["router"] == "k4-top1-mine" and len(app.title[0].value.split()) <= 15
    page_text = app.title[0].proto.help
    assert "learned for 100 steps" in page_text
    assert "its groups are better than random centroids (+0.0100 nats per token" in page_text


def test_a_training_draws_its_curve_before_it_has_ended(client):
    app = page(train_steps=40)
    app.button(key="train_run").click().run()
    job = client.job
    for state, bars in (("running", 1), ("cancelled", 0)):
        client.states[job.id] = status(state, verb="train-router", args=job.args, error="12 of 40 steps are kept.")
        client.curves[job.id] = {"step": [0, 1, 2], "loss": [4.5, 4.0, 3.9], "hard": [None, None, 3.8]}
        client.curves[job.id]["looks"] = {"step": [0, 0, 20, 20], "layer": [0, 1, 0, 1], "share": [0.3, 0.4, 0.2, 0.3]}
        app.run()
        dominance, loss = figures(app)
        assert dominance["data"][1]["y"] == [0.4, 0.3] and dominance["layout"]["xaxis"]["range"] == [0, 40]
        assert loss["data"][0]["y"] == [4.5, 4.0, 3.9] and loss["data"][2]["x"] == [3]
        assert loss["layout"]["xaxis"]["range"] == [0, 40] and len(app.get("progress")) == bars
    assert app.warning[0].value == "12 of 40 steps are kept\\." and not app.button(key="train_run").disabled
    assert not figures(page(train_steps=50, job=job.id)), "another form shows another training"


def test_a_refusal_is_one_sentence_with_a_way_on(client):
    refusal = "9 groups are balanced over the tokens of a step, and it has 8: choose fewer groups."
    client.states["0123456789ab"] = status("failed", verb="train-router", args={"groups": 9, "top": 1}, error=refusal)
    app = page(job="0123456789ab")
    assert [error.value.replace("\\", "") for error in app.error] == [refusal] and app.button(key="job_resume")


# --- what is stored ---------------------------------------------------------------------------------------------------


def test_collapse_shows_both_phases_with_chance_and_the_paper(client):
    (study,) = put_bundled(client.store, "dominance")
    rows, chance, steps = study["rows"], f"{study['chance']:.1%}", study["protocol"]["steps"]
    app = page(evidence="collapse")
    (curves,) = figures(app)
    thick = [trace for trace in curves["data"] if "mean of layers" in trace["name"]]
    drawn = ["softmax", "sinkhorn", "sinkhorn with 50 iterations"]
    assert [trace["name"] for trace in thick] == [f"{name} (mean of layers)" for name in drawn]
    assert thick[0]["x"] == [*range(0, steps + 1, 20), *range(steps, 2 * steps + 1, 20)]
    assert len(curves["data"]) == len(thick) * (1 + 6) + 2, "thick and six layers, even groups and chance"
    assert any(f"balanced chance ({chance})" in trace["name"] for trace in curves["data"])
    assert curves["layout"]["shapes"][0]["x0"] == steps and f"{chance} in the" in captions(app)
    table_8, phases = columns(app), columns(app, 1)
    assert table_8["what is tried"] == [row["row"] for row in rows]
    assert table_8["over 90% at"] == [str(row["collapsed_at"] or "–") for row in rows]
    outcomes = dict(zip(table_8["what is tried"], table_8["paper: outcome"], strict=True))
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "–"} == PRINTED
    shares = {(row["row"], "here"): f"{row['share_2']:.1%}" for row in rows if row["row"] in phases["balance by"]}
    shares |= zip([(name, "in the paper") for name in router_evidence.PHASES.values()], ["99.4%", "15.9%"], strict=True)
    arms = zip(phases["balance by"], phases["measured"], strict=True)
    assert dict(zip(arms, phases["share, phase 2"], strict=True)) == shares
    both = {*router_evidence.PHASES, *router_evidence.PHASES.values()}
    assert {"balance loss", *drawn, *both} == set(phases["balance by"])
    app = page(evidence="collapse", collapse_rows="all", collapse_measure="rank")
    (curves,) = figures(app)
    assert len(curves["data"]) == len(rows) and "effective rank" in str(curves["layout"]["yaxis"])


def test_numbers_of_earlier_weights_say_so(client):
    (study,) = put_bundled(client.store, "dominance")
    for revision, marked in (("abc", False), ("old", True)):
        put_studies(client.store, dominance=study | {"protocol": study["protocol"] | {"revision": revision}})
        badges = [badge.value for badge in page(evidence="collapse").markdown if "earlier weights" in badge.value]
        assert bool(badges) == marked


def test_causality_says_who_reads_the_future_and_what_became_of_its_headline(client, monkeypatch):
    monkeypatch.setattr(studied, "changed", lambda name, numbers: [f"What became of {name}."])
    (study,) = put_bundled(client.store, "causality-k8-top1")
    gains = study["literal_minus_causal"]
    gains[1] |= {"low": None, "high": None}
    put_studies(client.store, **{"causality-k4-top1": study})
    app = page(evidence="causality")
    gain, agreement = figures(app)
    assert gain["data"][0]["x"] == [row["mean"] for row in gains] and gain["data"][0]["error_x"]["array"][1] == 0
    assert agreement["data"][0]["y"] == study["group_agreement"]
    verdicts = ["reads the future" if row["reads_future"] else "causal" for row in study["rows"]]
    assert columns(app)["verdict"] == verdicts and set(verdicts) == {"reads the future", "causal"}
    assert "What became of causality-k4-top1." in markup(app)


def test_ablations_draw_whatever_study_has_panels(client):
    top, lengths, *_ = put_bundled(client.store, "top-k4-top1", "lengths", "temperature", "focal-limits", "dominance")
    app = page(evidence="ablations", ablation="top-k4-top1")
    assert len(app.selectbox(key="ablation_pick").options) == 2, "the others have pages of their own"
    ratio, loss, *_ = figures(app)
    assert [trace["y"] for trace in loss["data"]] == [line["y"] for line in top["panels"][1]["series"]]
    assert loss["data"][1]["error_y"]["array"][2:] == [0, 0], "nothing was measured there"
    assert ratio["data"][-1]["line"]["dash"] == "dash" and "error_y" not in ratio["data"][-1], "the paper's"
    assert columns(app)["groups per token"] == ["1", "2", "3", "4"]
    app.selectbox(key="ablation_pick").select_index(0).run()
    assert app.query_params["ablation"] == "lengths"
    app = page(evidence="ablations", ablation="nothing")
    assert not app.error and "nothing" in captions(app)
    assert [[trace["y"] for trace in figure["data"]] for figure in figures(app)] == [
        [line["y"] for line in panel["series"]] for panel in lengths["panels"]
    ]


def test_a_conclusion_that_came_out_otherwise_on_the_first_model_says_so_where_it_is_told(client):
    for name, conclusion in (("groups-k8-top1", "no longer significant"), ("lengths", "the other way round")):
        put_bundled(client.store, name)
        assert f"{conclusion} with this model" in markup(page(evidence="ablations", ablation=name))


def test_sliders_balance_anew_and_stand_in_the_url(client):
    app = page(evidence="balance", balance_temperature="0.2")
    assert "At temperature 0.2 and 10 iterations" in markup(app)
    layers, curve = figures(app)
    assert layers["data"][0]["type"] == "bar" and curve["layout"]["shapes"][0]["x0"] == 3
    assert curve["layout"]["annotations"][0]["text"] == "trap: 3" and "one group still holds 54.0%" in markup(app)
    app.slider(key="balance_iterations").set_value(3).run()
    assert "0.2 and 3 iterations" in markup(app) and client.asked.count("balance") == 2
    assert app.query_params["balance_iterations"] == "3"
    assert page(evidence="balance", balance_iterations=999).slider(key="balance_iterations").value == 10


def test_every_bundled_study_with_panels_has_a_title_or_a_page_of_its_own():
    kinds = {of_file(path.stem)[0] for path in BUNDLED}
    assert all(KINDS[kind].page for kind in kinds) and {"top", "ablations", "baselines"} <= kinds
    assert router_evidence.shown_here("top-k4-top1") and not router_evidence.shown_here("temperature")


@pytest.mark.slow
@pytest.mark.parametrize("path", HERE, ids=lambda path: path.stem)
def test_every_bundled_study_without_a_page_of_its_own_is_drawn_with_its_rows(client, path):
    (study,) = put_bundled(client.store, path.stem)
    app = page(evidence="ablations", ablation=path.stem)
    assert not app.error and len(figures(app)) == len(study["panels"])
    assert {len(cells) for cells in columns(app).values()} == {len(study["rows"])}
