"""What stands beside the printed rows: every row has a place and a state, and what is measured is read from a study."""

import json
import re
import shlex
from pathlib import Path

import pytest

from analysis.cli.options import parser
from analysis.commands import request
from analysis.declaration import in_address as to_url
from analysis.declaration.undeclared import check_arguments
from analysis.papers import PAPERS, find, ours
from analysis.papers.beside import beside, collisions, differing, findings, maker, printed
from analysis.papers.ours import (
    ALIKE,
    CANNOT_HOLD,
    DAMAGED,
    MEASURED,
    NOT_MEASURED,
    RELATED,
    Beside,
    Job,
    Number,
    Panel,
    Reading,
    commands,
    reading,
    readings,
    row_state,
)
from analysis.papers.setting import MACHINE, MODEL, TEXT, differences
from analysis.studies import NAMED
from app.papers import paper_words
from app.papers.lookup import LIVE
from app.selection.controls import CONTROLS
from app.selection.menu import page_at
from tests.made.studies import studies, there

ROOT = Path(__file__).resolve().parents[2]
STORED = {path.stem: json.loads(path.read_text()) for path in (ROOT / "models_cache/demo/studies").glob("*.json")}
PLACES = {"/".join(key): row for key, row in beside().items()} | {f"finding {f.number}": f.beside for f in findings()}
NUMBERS = [number for place in PLACES.values() for number in place.numbers]
TRAINED = studies()  # as their own code leaves them


def stored(number: Number, _: Beside | None = None) -> Reading | None:
    return reading(number, STORED.get(number.study))


def protocol(number: Number) -> dict:
    return STORED[number.study]["protocol"]


def states() -> dict[tuple[str, str, str], str]:
    return {
        key: row_state(row, differences(printed()[key], readings(row, stored), protocol), readings(row, stored))
        for key, row in beside().items()
    }


def test_every_printed_row_has_a_state():
    assert set(beside()) == set(printed()) and {key[0] for key in beside()} == set(PAPERS)
    assert sum(map(len, printed().values())) == len(find())
    assert set(states().values()) == {ALIKE, RELATED, NOT_MEASURED, CANNOT_HOLD, DAMAGED}, "no row's model is stored"
    assert states()["focus", "table 7", "GPT-2 124M, top-k=1 (argmax)"] == ALIKE
    assert states()["focus", "table 7", "GPT-2 124M, top-k=2"] == CANNOT_HOLD
    assert states()["focus", "table 6", "K=4 speedup"] == ALIKE
    assert states()["focus", "table 1", "Focus (ours)"] == ALIKE


DENSE, SPEED = ("focus", "table 1", "Pretrained (full attn)"), ("focus", "table 6", "K=4 speedup")


@pytest.mark.parametrize(
    "key, column, made_on, differs",
    [
        (DENSE, "PPL", {"model": "demo", "corpus": "PG-19"}, MODEL),
        (DENSE, "PPL", {"model": "gpt2", "corpus": "novels"}, TEXT),
        (DENSE, "PPL", {"model": "openai-community/gpt2", "corpus": "pg19, 100 books"}, ""),
        (DENSE, "HellaSwag", {"verb": "study benchmarks", "model": "gpt2", "corpus": "the first 100 questions"}, ""),
        (SPEED, "1M", {"verb": "bench", "processor": "an AVX2 processor"}, MACHINE),
        (SPEED, "1M", {"verb": "bench", "processor": "NVIDIA H100 80GB HBM3"}, ""),
        (
            ("calibrated_sparse_attention", "table 2", "1024"),
            "Attention fraction (decode)",
            {"verb": "worth", "model": None},
            "",
        ),
    ],
)
def test_measured_is_on_the_models_data_and_machine_of_the_row(key, column, made_on, differs):
    cells = [cell for cell in printed()[key] if cell.column == column]
    assert cells, [cell.column for cell in printed()[key]]
    numbers = [Reading(Number("x", ("value",), column=column), 1.0), Reading(Number("related", ()), 1.0)]
    assert differences(cells, numbers, lambda _: made_on) == [differs]
    assert row_state(beside()[key], [differs], numbers) == (ALIKE if differs else MEASURED)


def test_measured_is_a_row_that_has_a_printed_quantity_of_the_same_kind():
    """Tasks of trained models, tables of ticks, an instruct model and methods that a model was fine-tuned with: what is
    measured here is something else."""
    unlike = {("focus", "table 1", row) for row in ("Longformer", "Performer", "Routing Trans.")}
    unlike |= {key for key in printed() if key[0] == "focal_attention"}
    unlike |= {key for key in printed() if key[:2] in (("focus", "table 4"), ("focus", "table 8"))}
    unlike |= {("focus", "section 3.2", "all models and benchmarks"), ("focus", "appendix C", "token selection, k=32")}
    assert {states()[key] for key in unlike} <= {RELATED, NOT_MEASURED}
    assert row_state(Beside(Job(), Panel("", "")), [], []) == NOT_MEASURED
    assert row_state(Beside(Job(), Panel("", "")), [], [Reading(Number("x", ()), 1.0)]) == RELATED


def test_shares_of_all_pairs_and_of_causal_ones_stand_in_no_cell_together():
    """CSA's 2.0, 3.5 and 5.7% fit caps of 32, 64 and 128 keys of T x T: twice as much of the causal pairs."""
    assert {number.path[-1] for number in NUMBERS if number.column == "% of dense reads"} == {"reads_full"}
    for percent, share in ((5.7, 0.114), (3.5, 0.07), (2.0, 0.04)):
        row = PLACES[f"calibrated_sparse_attention/section per-position/GPT-2 small (124M), {percent}% of dense reads"]
        shares = {number.path[1]["share"] for number in row.numbers if number.path[0] == "rows"}
        assert shares == {share} and share in row.job.args["shares"] and share == pytest.approx(percent / 50)


@pytest.mark.parametrize("row, visited", [("table 2/L14-H14", 32), ("figure 2/ℓ=4", 4), ("figure 3/L2-H0", 32)])
def test_the_command_of_gwrs_model_has_its_setting(row, visited):
    command = PLACES[f"gwr_linear_routing/{row}"].job.command
    args = vars(parser("x").parse_args(shlex.split(command)[3:]))
    assert (args["length"], args["buckets"], args["min_distance"], args["visited"]) == (32768, 1024, 2048, visited)
    assert args["heads"] == "2:0,7:0,14:0,14:14,21:0,26:0" and args["model"] == "Qwen/Qwen2.5-7B"


def test_a_command_that_reads_a_trained_router_comes_after_its_training():
    asked_for = {place.job.command for place in PLACES.values()}
    asked_for |= {maker(number.study).command for number in NUMBERS if number.study}
    reading_one = {command for command in asked_for if command.split()[3] == "study" and "--router k" in command}
    assert len(reading_one) > 4
    for command in reading_one:
        first, last = commands(command, "gpt2")
        args = vars(parser("x").parse_args(first.replace("DIR", "x").replace("MODEL", "gpt2").split()[3:]))
        assert args["verb"] == "train-router" and args["model"] == "gpt2" and last.count("--model") == 1
        assert f"k{args['groups']}-top{args['top']}" == re.search(r"k\d+-top\d+", command)[0]
    alone = "python -m analysis study baselines --corpus DIR"
    assert commands(alone, "gpt2") == [f"{alone} --model gpt2"]


def left_out(number: Number) -> bool:
    """Whether it is of web text, of which nobody gave a file."""
    return number.study == "finetuning" and number.path[1].get("domain") == "web"


def test_every_number_of_a_stored_study_is_there():
    """A path that leads nowhere would leave a row unmeasured for ever, with its study beside it."""
    of_studies = [number for number in NUMBERS if number.study in STORED and not left_out(number)]
    assert len(of_studies) > 400
    assert not [number for number in of_studies if not there(number, STORED[number.study])]


@pytest.mark.parametrize("name", TRAINED)
def test_numbers_of_a_study_are_where_its_own_code_puts_them(name):
    wanted = [number for number in NUMBERS if number.study == name]
    assert wanted and not [number for number in wanted if not there(number, TRAINED[name])]


def test_a_number_is_found_by_its_path_with_its_interval():
    file = {"rows": [{"k": 1, "loss": 2.0}, {"k": 2, "loss": 3.5, "loss_low": 3, "loss_high": 4}], "ranks": [[7.0]]}
    number = reading(Number("x", ("rows", {"k": 2}, "loss")), file)
    assert (number.value, number.low, number.high) == (3.5, 3, 4)
    assert reading(Number("x", ("rows", {"k": 1}, "loss")), file).low is None
    assert reading(Number("x", ("rows", -1, "loss")), file).value == 3.5, "the longest training of a study"
    nowhere = (("rows", {"k": 3}, "loss"), ("rows", {"k": 1}, "gone"), ("gone",), ("ranks", 4, 0), ("rows", {"k": 1}))
    assert [reading(Number("x", path), file) for path in nowhere] == [None] * 5
    assert reading(Number("x", ("rows",)), None) is None


def test_a_list_is_folded_and_ends_may_have_names_of_their_own():
    file = {"ranks": [[7.0, 1.0], [3.0]], "rows": [{"change": 0.5, "low": 0.4, "high": 0.6}]}
    folded = {fold: reading(Number("x", ("ranks",), fold=fold), file).value for fold in ours.FOLDS}
    assert folded == {"median": 3.0, "largest": 7.0, "count": 3} and reading(Number("x", ("ranks",)), file) is None
    number = reading(Number("x", ("rows", 0, "change"), ends=""), file)
    assert (number.low, number.high, number.items) == (0.4, 0.6, None)


def test_a_score_comes_with_its_standard_error_and_its_items():
    score = {"task": "piqa", "value": 0.6, "value_low": 0.5, "value_high": 0.7, "stderr": 0.05, "items": 40}
    number = reading(Number("x", ("rows", {"task": "piqa"}, "value"), "share"), {"rows": [score]})
    assert paper_words.measured(number) == "60.0% (50.0% to 70.0%), standard error 5.0%, 40 items"


@pytest.mark.parametrize("study", sorted({number.study for number in NUMBERS if number.study}))
def test_every_study_has_the_command_that_stores_it(study):
    args = vars(parser("x").parse_args(shlex.split(maker(study).command)[3:]))
    assert study in (args["name"], f"{args['name']}-{args.get('router')}")


JOBS = {place.job.command: place for place in PLACES.values()}


@pytest.mark.parametrize("command", JOBS)
def test_commands_buttons_and_panels_exist(command):
    job, panel = JOBS[command].job, JOBS[command].panel
    args = vars(parser("x").parse_args(shlex.split(re.sub(r"\b(DIR|MODEL)\b", "x", command))[3:]))
    if job.verb == "study":
        check_arguments("study", NAMED[args["name"]], {name: job.args[name] for name in job.args if name != "name"})
    elif job.verb:
        request(job.verb, job.args)
    if job.verb:
        assert args["verb"] == job.verb
        for name in ("name", "lengths", "groups", "shots", "router", "rows", "tasks", "window"):
            if job.args.get(name) is not None and args.get(name) is not None:
                assert args[name] == job.args[name], name
    assert page_at(panel.page) is not None
    for name, value in panel.controls.items():
        assert to_url(CONTROLS[name].from_address(str(value))) == str(value), name
    assert all(number.unit in ours.UNITS for number in JOBS[command].numbers)


def test_what_cannot_hold_says_why_and_what_a_scan_lost_is_not_held_against_the_paper():
    """Table 9 has 5% in the text at hand where a digit is gone: the row is damaged, whatever is measured beside it."""
    rows = beside()
    assert {key[0] for key, row in rows.items() if row.cannot} == {"focus", "focal_summary_zh"}
    assert not any(row.finding and not row.cannot for row in rows.values())
    lost = {(cell.paper, cell.table, cell.row) for cell in find() if "damaged: " in cell.note}
    assert lost == {key for key, row_state in states().items() if row_state == DAMAGED} != set()
    assert {key for key, row in rows.items() if row.damaged} == lost
    assert not any(row.damaged and row.cannot for row in rows.values())


def test_all_findings_have_numbers_and_those_that_follow_from_the_papers_are_computed():
    """MagicPIG: definitions 2.6 gives 0.136 and 0.0097 at cosine 0, 0.990 and 0.943 at 0.6."""
    assert [finding.number for finding in findings()] == list(range(1, 12))
    assert {row.finding for row in beside().values() if row.finding} <= set(range(1, 12))
    measured = {finding.number for finding in findings() if readings(finding.beside, stored)}
    assert {2, 3, 4, 5, 8, 9, 11} <= measured
    live = {finding.number for finding in findings() if finding.beside.job.verb in LIVE}
    assert live == {6, 7}, "these are measured on this machine's torch when the page is opened"
    for cosine, first, two in ((0.0, 0.136, 0.0097), (0.6, 0.990, 0.943)):
        assert collisions(cosine, 10, 150, 1) == pytest.approx(first, abs=6e-4)
        assert collisions(cosine, 10, 150, 2) == pytest.approx(two, abs=6e-4)
    assert collisions(1.0, 10, 150, 2) == 1.0 and differing() == 24
    assert "by 13.6% and in two by 1.0%" in findings()[6].says and "24 of its 24" in findings()[9].says


def test_the_findings_about_gwr_say_what_was_measured_and_readme_prints_the_same():
    """A static prior closes less than nothing; the loss moves a linear router farther than layers move squared errors,
    at every number of buckets."""
    closures = {(row["router"], row["l"]): row for row in STORED["routing"]["closures"]}
    values = {finding.number: [number.value for number in readings(finding.beside, stored)] for finding in findings()}
    prior, linear = values[8]
    assert prior == closures["static_prior", 2]["ratio_of_means"] < 0 < linear
    *crossed, squared, linear = values[11]
    assert crossed == [closures["linear_cross_entropy", visited]["mean_of_ratios"] for visited in (1, 2, 4, 8)]
    assert min(crossed) > squared == closures["mlp_squared", 2]["mean_of_ratios"] > linear
    for by in ("mean_of_ratios", "ratio_of_means"):
        for visited in (1, 2, 4, 8):
            assert closures["linear_cross_entropy", visited][by] > closures["mlp_squared", visited][by]
    readme = (ROOT / "README.md").read_text("utf-8")
    assert f"a static prior closes {prior:.0%} of the way" in readme
    assert f"cross-entropy closes {100 * min(crossed):.0f} to {max(crossed):.0%} of that way" in readme
    single, two = (collisions(0.0, 10, 150, count) for count in (1, 2))
    assert f"two collisions find {two:.1%} of the keys, one finds {single:.1%}" in readme
