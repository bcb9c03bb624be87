"""Papers vs measured in-process: states, one row in full, findings, and links that bring a row back."""

import json
from pathlib import Path

import pytest

from analysis.papers import PAPERS
from analysis.papers.beside import findings, printed
from analysis.papers.ours import CANNOT_HOLD, DAMAGED, NOT_MEASURED, STATES
from analysis.runs.stored import study_folders
from app import cached
from app.papers import lookup
from app.ui import spelled
from tests.made.in_process import columns, figures, markup, opened
from tests.made.training import put_bundled

VIEW = "papers"
COLUMNS = ("table", "row", "here", "measured on")
STUDIES = Path(__file__).parents[3] / "models_cache" / "demo" / "studies"
K4 = json.loads((STUDIES / "top-k4-top2-printed.json").read_text())
FIRST_OF_SEVEN = [key for key in printed() if key[0] == "focus"].index(
    ("focus", "table 7", "GPT-2 124M, top-k=1 (argmax)")
)


@pytest.fixture(autouse=True)
def carded(client):
    client.store.samples()
    client.request(cached.card_request("demo"))
    return client


def test_the_page_opens_with_all_rows_and_their_states(carded):
    app = opened(VIEW)
    assert f"of {len(printed())} printed rows are measured here on other models" in app.title[0].value and not app.error
    assert not carded.asked.count("pitfalls"), "nothing is measured unasked"
    (chart,) = figures(app)
    assert [trace["name"] for trace in chart["data"]] == list(STATES)
    assert sum(sum(trace["x"]) for trace in chart["data"]) == len(printed())
    table = columns(app)
    assert set(table["state"]) <= set(STATES)
    assert "PPL 42.8 ppl" in table["printed"][0] and "†" in " ".join(table["printed"])


def test_a_model_that_was_never_loaded_is_not_loaded_for_this_page(carded):
    carded.asked.clear()
    app = opened(VIEW, model="llama")
    assert not carded.asked and "llama was never loaded here" in markup(app) and not app.error
    assert set(columns(app)["state"]) <= {NOT_MEASURED, CANNOT_HOLD, DAMAGED}


def test_of_a_stored_study_only_what_stands_on_the_page_stays_in_memory(carded):
    put_bundled(carded.store, "top-k4-top2-printed")
    opened(VIEW)
    (folder,) = study_folders(carded.store, "demo", cached.card("demo").numbers["revision"])[:1]
    file = folder / "top-k4-top2-printed.json"
    extract = lookup._extract(file, file.stat().st_mtime)
    assert {str(number) for number in lookup._numbers()["top-k4-top2-printed"]} == set(extract.numbers)
    assert extract.protocol == K4["protocol"] and len(str(extract)) < len(json.dumps(K4))


def test_a_stored_study_stands_beside_the_row_with_its_interval_and_protocol(carded):
    put_bundled(carded.store, "top-k4-top2-printed")
    app = opened(VIEW, paper_row=FIRST_OF_SEVEN)
    assert "Focus, table 7: GPT\\-2 124M\\, top\\-k\\=1 \\(argmax\\)" in [header.value for header in app.header]
    table = columns(app, 2)
    value = dict(zip(table["here"], table["value (95% interval)"], strict=True))
    row_k1 = next(row for row in K4["rows"] if row["k"] == 1)
    assert value["k = 1, held out"] == f"{row_k1['perplexity']:.2f}"
    ends = [f"{row_k1[f'against_dense{end}']:+.4f} nats" for end in ("", "_low", "_high")]
    assert value["above reading everything"] == f"{ends[0]} ({ends[1]} to {ends[2]})"
    assert "model demo" in markup(app) and K4["protocol"]["date"][:10] in markup(app)
    (steps,) = (code.value.split("\n") for code in app.code if "study top " in code.value)
    assert "--gate literal" in steps[0] and steps[0].endswith("--label printed --model demo"), (
        "how that router is trained"
    )
    assert "study top --corpus DIR --router k4-top2-printed" in steps[1]


def test_every_row_with_a_number_says_how_large_that_was_which_it_was_measured_on(carded):
    """In the table and beside the row: of a study that trained models of its own theirs, not those of the model."""
    names = {"top-k4-top2-printed", "focal-temperatures", "focal-scaling", "pretraining", "gpu-check", "dominance"}
    put_bundled(carded.store, *names)
    sizes = {}
    for paper in ("focus", "focal_attention"):
        table = columns(opened(VIEW, paper=paper))
        for name, row, value, on in zip(*(table[column] for column in COLUMNS), strict=True):
            assert (value == "–") == (on in ("", "–")), (name, row)
            sizes[paper, name, row] = on
    assert sizes["focal_attention", "figure 8a", "best of 0.3 to 0.6"] == "1.38 M parameters"
    demo_size = f"{spelled.parameters(cached.card('demo').numbers['parameters'])} parameters"
    assert sizes["focus", "table 7", "GPT-2 124M, top-k=1 (argmax)"] == demo_size
    assert "1,048,576 tokens" in sizes.values()
    assert f"Measured on {demo_size}, 64 documents" in markup(opened(VIEW, paper_row=FIRST_OF_SEVEN))


def test_a_row_that_cannot_hold_says_why_and_names_the_finding(carded):
    app = opened(VIEW, paper_row=FIRST_OF_SEVEN + 2, paper_state="cannot hold")
    assert set(columns(app)["state"]) == {"cannot hold"}
    assert "With 3 of 4 groups any two tokens share one" in markup(app) and "(Finding 4 below.)" in markup(app)
    assert "Nothing of this row is measured here yet." in markup(app)


def test_a_row_whose_text_is_damaged_says_so_and_blames_nobody(carded):
    place = [key for key in printed() if key[0] == "focus"].index(("focus", "table 9", "Sinkhorn iters=5"))
    app = opened(VIEW, paper_row=place, paper_state="the printed text is damaged")
    assert columns(app)["row"] == ["Sinkhorn iters=5"] and not app.error
    assert "so a digit is lost" in markup(app) and "below.)" not in markup(app)


def test_papers_and_states_are_chosen_and_stand_in_the_link(carded):
    app = opened(VIEW)
    for paper in PAPERS:
        app.segmented_control(key="paper").set_value(paper).run()
        assert not app.error and not app.exception, paper
        assert len(columns(app)["row"]) == sum(key[0] == paper for key in printed())
    assert app.query_params["paper"] == "focal_summary_zh"
    app.selectbox(key="paper_state").set_value("measured here").run()
    assert "No row of this paper is in this state." in markup(app) and not app.error


def test_what_can_be_asked_for_here_has_a_button(carded, monkeypatch):
    place = [key for key in printed() if key[0] == "focus"].index(("focus", "table 6", "K=4 speedup"))
    app = opened(VIEW, paper_row=place)
    app.button(key="papers_run").click().run()
    job = carded.states["0123456789ab"]
    assert job.verb == "bench" and (job.args["groups"], job.args["lengths"][0]) == (4, 1024)
    monkeypatch.setattr(lookup, "corpora", lambda: [])
    app = opened(VIEW, paper_row=FIRST_OF_SEVEN)
    assert "put a folder of texts into models_cache/corpora" in markup(app)
    monkeypatch.setattr(lookup, "corpora", lambda: ["novels"])
    put_bundled(carded.store, "top-k4-top2-printed")
    app = opened(VIEW, paper_row=FIRST_OF_SEVEN)
    app.button(key="papers_run").click().run()
    job = carded.states["0123456789ab"]
    assert (job.verb, job.args["name"], job.args["corpus"], job.args["model"]) == ("study", "top", "novels", "demo")
    assert K4["protocol"]["asked"].items() <= job.args.items(), "as the stored one was asked for"


def test_all_findings_stand_on_the_page(carded):
    app = opened(VIEW, papers_findings="yes")
    titles = [heading.value for heading in app.subheader]
    for finding in findings():
        assert f"{finding.number}. {finding.title}" in titles


def test_a_row_that_is_not_there_is_dropped(carded):
    app = opened(VIEW, paper_row=900)
    assert not app.error and "paper_row" not in app.query_params


def test_what_takes_seconds_has_a_button(carded):
    app = opened(VIEW, papers_findings="yes")
    keys = [button.key for button in app.button if button.key.startswith("finding_")]
    assert keys and not carded.asked.count("pitfalls")
    app.button(key=keys[0]).click().run()
    assert [job.verb for job in carded.states.values()] == ["pitfalls"] and not app.error


def test_a_study_that_is_not_stored_is_named_with_its_command(carded):
    place = [key for key in printed() if key[0] == "focus"].index(("focus", "table 3", "LoRA (r=4)"))
    app = opened(VIEW, paper_row=place)
    assert "the study baselines: python -m analysis study baselines --corpus DIR" in markup(app)


def test_a_row_links_the_panels_of_all_its_studies(carded):
    put_bundled(carded.store, "equal-budget")
    place = [key for key in printed() if key[0] == "focus"].index(("focus", "table 1", "Longformer"))
    app = opened(VIEW, paper_row=place)
    links = [link.label for link in app.get("page_link")]
    assert "Methods, Equal reads" in links and "Tests, Study" in links
