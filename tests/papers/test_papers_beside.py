"""What stands beside the printed rows: every row has a place and a state, and what is measured is read from a study."""

import ast
import json
import re
import shlex
from pathlib import Path

import pytest

from analysis.cli.options import parser
from analysis.papers import PAPERS, find, ours, places
from analysis.papers.beside import beside, printed
from analysis.papers.findings import findings
from analysis.papers.ours import (
    CANNOT_HOLD,
    DAMAGED,
    MEASURED,
    NOT_MEASURED,
    RELATED,
    Beside,
    Job,
    Number,
    Panel,
    commands,
    reading,
    readings,
    state,
)
from analysis.runs.arguments import check_arguments
from analysis.studies import NAMED, STUDIES
from app.papers import words
from app.selection.control import to_url
from app.selection.controls import CONTROLS
from tests.made.studies import there

ROOT = Path(__file__).resolve().parents[2]
STORED = {path.stem: json.loads(path.read_text()) for path in (ROOT / "models_cache/demo/studies").glob("*.json")}
ROWS = {"/".join(key): one for key, one in beside().items()}
PLACES = [*ROWS.values(), *(finding.beside for finding in findings())]


def from_studies(number, one):
    return STORED.get(number.study)


def test_every_printed_row_has_a_state():
    assert set(beside()) == set(printed()) and {key[0] for key in beside()} == set(PAPERS)
    assert sum(map(len, printed().values())) == len(find())
    states = {key: found_state(key) for key in beside()}
    assert set(states.values()) == {MEASURED, RELATED, NOT_MEASURED, CANNOT_HOLD, DAMAGED}
    assert states["focus", "table 7", "GPT-2 124M, top-k=1 (argmax)"] == MEASURED
    assert states["focus", "table 7", "GPT-2 124M, top-k=2"] == CANNOT_HOLD
    assert states["focus", "table 6", "K=4 speedup"] == NOT_MEASURED


def found_state(key):
    one = beside()[key]
    return state(one, readings(one, from_studies), [cell.column for cell in printed()[key]])


def test_measured_is_a_row_that_has_a_printed_quantity_of_the_same_kind():
    """Tasks of trained models, tables of ticks, an instruct model and methods that a model was fine-tuned with: what is
    measured here is something else."""
    for key in printed():
        paper, table, row = key
        if paper == "focal_attention":
            assert found_state(key) in (RELATED, NOT_MEASURED), key
        if paper == "focus" and table in ("table 4", "table 8"):
            assert found_state(key) == RELATED, key
    for row in ("Longformer", "Performer", "Routing Trans."):
        assert found_state(("focus", "table 1", row)) in (RELATED, NOT_MEASURED)
    assert found_state(("focus", "section 3.2", "all models and benchmarks")) == RELATED
    assert found_state(("focus", "appendix C", "token selection, k=32")) == RELATED
    assert found_state(("focal_attention", "figure 5", "Focal Attn (Constant)")) == RELATED
    assert found_state(("focus", "table 1", "Focus (ours)")) == MEASURED


def test_shares_of_all_pairs_and_of_causal_ones_stand_in_no_cell_together():
    """CSA's 2.0, 3.5 and 5.7% fit caps of 32, 64 and 128 keys of T x T: twice as much of the causal pairs."""
    dense = "% of dense reads"
    for one in PLACES:
        assert {number.path[-1] for number in one.numbers if number.column == dense} <= {"reads_full"}
    for printed_share, share in ((5.7, 0.114), (3.5, 0.07), (2.0, 0.04)):
        row = f"GPT-2 small (124M), {printed_share}% of dense reads"
        one = ROWS[f"calibrated_sparse_attention/section per-position/{row}"]
        ours = {number.path[1]["share"] for number in one.numbers if number.path[0] == "rows"}
        assert ours == {share} and share in one.job.args["shares"] and share == pytest.approx(printed_share / 50)


def test_the_balance_loss_alone_is_an_arm_of_its_own():
    from lab.focus.dominance import ROWS as arms

    assert arms["balance loss"] == {"balance": "softmax", "balance_weight": 0.01}
    one = ROWS["focus/section 4/Softmax + balance loss"]
    assert {number.path[1]["row"] for number in one.numbers} == {"balance loss"}


def test_an_instruct_model_and_the_printed_gate_stand_beside_their_rows():
    """Table 4 beside the copy tuned on instructions, at the row's own rate; K=4, k=2 beside the printed gate."""
    rates = {"+ LoRA (r=4, lr=5e-5)": [5e-5], "+ Centroids (K=2)": [1e-4, 1e-3], "Instruct baseline": [None]}
    for row, wanted in rates.items():
        one = ROWS[f"focus/table 4/{row}"]
        found = [number.path[1] for number in one.numbers if number.study == "alignment"]
        assert list(dict.fromkeys(where.get("rate") for where in found)) == wanted
        assert one.job.args["name"] == one.panel.controls["ablation"] == "alignment"
        assert not any(number.column for number in one.numbers), "none is an instruct model"
    printed_gate = [n for n in ROWS["focus/table 7/GPT-2 124M, top-k=2"].numbers if n.study == "focus-printed"]
    assert [n.path[1:] for n in printed_gate] == [
        (-1, name) for name in ("perplexity_hard", "hard_against_dense", "pairs_share")
    ]
    made = {"rows": [{"steps": 1, "perplexity_hard": 9.0}, {"steps": 2, "perplexity_hard": 8.0}]}
    assert reading(printed_gate[0], made).value == 8.0, "the longest training"


@pytest.mark.parametrize("row, visited", [("table 2/L14-H14", 32), ("figure 2/ℓ=4", 4), ("figure 3/L2-H0", 32)])
def test_the_command_of_gwrs_model_has_its_setting(row, visited):
    command = ROWS[f"gwr_linear_routing/{row}"].job.command
    told = vars(parser("x").parse_args(shlex.split(command)[3:]))
    assert (told["length"], told["buckets"], told["min_distance"], told["visited"]) == (32768, 1024, 2048, visited)
    assert told["heads"] == "2:0,7:0,14:0,14:14,21:0,26:0" and told["model"] == "Qwen/Qwen2.5-7B"


def test_a_command_that_reads_a_trained_router_comes_after_its_training():
    every = {one.job.command for one in PLACES}
    every |= {places.maker(number.study).command for one in PLACES for number in one.numbers if number.study}
    named = {command for command in every if command.split()[3] == "study" and "--router k" in command}
    assert len(named) > 4
    for command in named:
        first, last = commands(command, "gpt2")
        told = vars(parser("x").parse_args(first.replace("DIR", "x").replace("MODEL", "gpt2").split()[3:]))
        assert told["verb"] == "train-router" and told["model"] == "gpt2"
        assert f"k{told['groups']}-top{told['top']}" == re.search(r"k\d+-top\d+", command)[0]
        assert last.count("--model") == 1
    assert commands("python -m analysis study baselines --corpus DIR", "gpt2") == [
        "python -m analysis study baselines --corpus DIR --model gpt2"
    ]


def left_out(number):
    """Whether the command of the stored grid names the rows it has, and this cell is none of them."""
    command = STORED[number.study]["protocol"]["command"].split()
    if number.study == "finetuning":
        return number.path[1].get("domain") == "web"  # nobody gave a file of web text
    if number.study != "ablations" or "--rows" not in command:
        return False
    cell, asked = number.path[1], command[command.index("--rows") + 1].split(",")
    return not {cell["factor"], f"{cell['factor']}={cell['value']}"} & set(asked)


def test_every_number_of_a_stored_study_is_there():
    """A path that leads nowhere would leave a row unmeasured for ever, with its study beside it."""
    for key, one in [*ROWS.items(), *((f"finding {f.number}", f.beside) for f in findings())]:
        for number in one.numbers:
            if number.study in STORED and not left_out(number):
                assert there(number, STORED[number.study]), (key, number)


def test_measured_means_read_and_never_written_down():
    """No module of the mapping holds a measured number: floats stand there as settings of a row, never as a result."""
    for module in ("beside", "beside_focus", "beside_focus_more", "beside_csa", "beside_others", "places"):
        tree = ast.parse((ROOT / f"analysis/papers/{module}.py").read_text())
        found = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and type(node.value) is float}
        assert found <= SETTINGS, (module, found - SETTINGS)
    assert state(Beside(Job(), Panel("", "")), [], ["PPL"]) == NOT_MEASURED


SETTINGS = {1.0, 0.5, 0.25, 0.114, 0.1, 0.08, 0.07, 0.06, 0.05, 0.04, 0.03, 0.02, 10.0, 11.31}
SETTINGS |= {1e-4, 1e-3}  # learning rates


def test_a_number_is_found_by_its_path_with_its_interval():
    stored = {"rows": [{"k": 1, "loss": 2.0}, {"k": 2, "loss": 3.5, "loss_low": 3, "loss_high": 4}], "ranks": [[7.0]]}
    found = reading(Number("x", ("rows", {"k": 2}, "loss")), stored)
    assert (found.value, found.low, found.high) == (3.5, 3, 4)
    assert reading(Number("x", ("rows", {"k": 1}, "loss")), stored).low is None
    assert reading(Number("x", ("ranks", 0, 0)), stored).value == 7
    for path in (
        ("rows", {"k": 3}, "loss"),
        ("rows", {"k": 1}, "gone"),
        ("gone",),
        ("ranks", 4, 0),
        ("rows", {"k": 1}),
    ):
        assert reading(Number("x", path), stored) is None, path
    assert reading(Number("x", ("rows",)), None) is None


def test_a_list_is_folded_and_ends_may_have_names_of_their_own():
    stored = {"ranks": [[7.0, 1.0], [3.0]], "rows": [{"change": 0.5, "low": 0.4, "high": 0.6}]}
    for fold, value in (("median", 3.0), ("largest", 7.0), ("count", 3)):
        assert reading(Number("x", ("ranks",), fold=fold), stored).value == value
    assert reading(Number("x", ("ranks",)), stored) is None
    found = reading(Number("x", ("rows", 0, "change"), ends=""), stored)
    assert (found.low, found.high, found.items) == (0.4, 0.6, None)


def test_a_score_comes_with_its_standard_error_and_its_items():
    stored = {
        "rows": [{"task": "piqa", "value": 0.6, "value_low": 0.5, "value_high": 0.7, "stderr": 0.05, "items": 40}]
    }
    found = reading(Number("x", ("rows", {"task": "piqa"}, "value"), "share"), stored)
    assert words.measured(found) == "60.0% (50.0% to 70.0%), standard error 5.0%, 40 items"


@pytest.mark.parametrize("study", sorted({number.study for one in PLACES for number in one.numbers if number.study}))
def test_every_study_has_the_command_that_stores_it(study):
    told = vars(parser("x").parse_args(places.maker(study).command.removeprefix("python -m analysis ").split()))
    assert study in (told["name"], f"{told['name']}-{told.get('router')}")


def test_stored_equal_budgets_calibrations_and_scores_stand_beside_their_rows():
    studies = {number.study for one in PLACES for number in one.numbers}
    assert {"equal-budget", "calibration", "query-router", "routing", "pretraining", "ablations"} <= studies
    assert {"baselines", "benchmarks", "focal-temperatures", "focal-limits", "focal-scaling"} <= studies
    sparq = ROWS["focus/table 10/SparQ (mean realloc.)"]
    known = {one.number.says: one for one in readings(sparq, from_studies)}
    (row,) = (
        row
        for row in STORED["equal-budget"]["rows"]
        if (row["domain"], row["context"], row["share"]) == ("novels", 1024, 0.05)
        and row["label"] == "SparQ, mean reallocated"
    )
    assert known["SparQ, mean reallocated, 5% of the reads"].value == row["perplexity"]
    against = known["SparQ, mean reallocated, 5% of the reads, against dense"]
    assert (against.value, against.low) == (row["difference"], row["difference_low"])


@pytest.mark.parametrize("one", PLACES, ids=lambda one: one.job.command[:60])
def test_commands_buttons_and_panels_exist(one):
    words = shlex.split(re.sub(r"\b(DIR|MODEL)\b", "x", one.job.command).removeprefix("python -m analysis "))
    assert one.job.command.startswith("python -m analysis ")
    told = vars(parser("x").parse_args(words))
    assert all(number.unit in ours.UNITS for number in one.numbers)
    assert not one.job.verb or told["verb"] == one.job.verb
    if one.job.verb:
        of_study = {name: value for name, value in one.job.args.items() if name != "name"}
        if one.job.verb == "study":
            check_arguments("study", NAMED[told["name"]], of_study)
        else:
            check_arguments(one.job.verb, STUDIES[one.job.verb], one.job.args)
        for name in ("name", "lengths", "groups", "shots", "router", "rows", "tasks", "window"):
            if name in one.job.args and told.get(name) is not None and one.job.args[name] is not None:
                assert told[name] == one.job.args[name], name
    assert (ROOT / "app/views" / f"{one.panel.page.replace('-', '_') or 'start'}.py").is_file()
    for name, value in one.panel.controls.items():
        assert to_url(CONTROLS[name].parse(str(value))) == str(value), name


def test_what_cannot_hold_says_why_and_only_that():
    for key, one in ROWS.items():
        assert one.cannot == "" or (one.cannot.endswith(".") and len(one.cannot) > 40), key
        assert one.finding is None or one.cannot, key
    assert {key.split("/")[0] for key, one in ROWS.items() if one.cannot} == {"focus", "focal_summary_zh"}


def test_what_a_scan_lost_is_not_held_against_the_paper():
    """Table 9 has 5% in the text at hand where a digit is gone: the row is damaged, whatever is measured beside it, and
    rows with a note that something is lost are exactly those."""
    lost = {(cell.paper, cell.table, cell.row) for cell in find() if "damaged: " in cell.note}
    assert lost == {key for key in beside() if found_state(key) == DAMAGED} != set()
    assert {key for key, one in beside().items() if one.damaged} == lost
    assert not any(one.damaged and one.cannot for one in beside().values())
    assert words.doubtful(find("focus", "table 9", "Sinkhorn iters=5", "Dominance (full FT)")[0])
