"""Calibrating CSA: ranks by hand, texts kept apart, windows spread, and the whole of it stored as a policy."""

import json
import shlex

import numpy as np
import pytest
import torch

from analysis.cli.options import parser
from analysis.corpus import FITTED_ON, fitting_samples, text_hash
from analysis.errors import AnalysisError, BadSetting, BadText, Cancelled
from analysis.methods import METHODS
from analysis.metrics.budgets import allocate_budget
from analysis.seam.attention import apply
from analysis.studies.budgets.calibrate import calibrate
from analysis.studies.budgets.policies import stored_policies
from analysis.studies.budgets.ranks import Ranks, measure_ranks
from analysis.studies.budgets.recipes import policy_for
from analysis.studies.text.calibration import halves, longest_window, reporting, split_texts, whole_windows
from tests.made.calibrated import csa_context, csa_home, key, keys, text

KEYS = "ranks budgets cap sweep protocol total beta policy positions bias split sentence notes path name".split()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with the tiny models."""
    return csa_home(tmp_path_factory.mktemp("csa"))


@pytest.fixture
def context(home, tmp_path):
    """A context with fitted state of its own."""
    made = csa_context(home)
    made.state = tmp_path / "state"
    return made


@pytest.fixture
def ask(home, context):
    """`ask(seeds, **arguments)` -> Result of a calibration on texts of these seeds."""

    def ask(*seeds, **arguments):
        return calibrate(str(home / "tiny"), keys(context, *seeds), **arguments, context=context)

    return ask


# --- ranks ------------------------------------------------------------------------------------------------------------


def test_ranks_against_a_sort_in_float64(home, context):
    lm = context.model(str(home / "tiny"))
    windows, found = whole_windows(lm, [("", text(0))], 40, 120), {}

    def watch(block, mass):
        found.setdefault(block.layer, []).append(mass[0].double())

    for ids in windows:
        with apply(lm, METHODS["dense"](), watch=watch), torch.no_grad():
            lm.lm(torch.as_tensor(ids)[None], use_cache=False)
    ranks = measure_ranks(lm, windows, 0.8)
    for layer, parts in found.items():
        rows = torch.stack(parts)  # [windows, H, T, T]
        sums = rows.sort(-1, descending=True).values.cumsum(-1)
        expected = ((sums < 0.8 - 1e-6).sum(-1) + 1).double().mean(0)
        assert np.allclose(ranks.by_position[layer], expected.numpy())
    assert ranks.windows == 3 and ranks.by_position[:, :, 0].max() == 1, "the first token reads itself alone"
    assert (ranks.by_position <= np.arange(1, 41)).all()


def test_the_mean_and_its_early_bias_by_hand():
    ranks = Ranks(np.array([[[1.0, 2.0, 3.0, 6.0], [1.0, 1.0, 1.0, 1.0]]]), 1)
    assert ranks.mean().tolist() == [[3.0, 1.0]] and ranks.mean(2).tolist() == [[4.5, 1.0]]
    rows = ranks.positions(2)
    assert [(r["first"], r["last"], r["rank"], r["most"]) for r in rows] == [(0, 2, 1.25, 1.5), (2, 4, 2.75, 3.5)]
    for wrong in (4, -1, True):
        with pytest.raises(BadSetting, match="min_pos is"):
            ranks.mean(wrong)


# --- texts ------------------------------------------------------------------------------------------------------------


def test_texts_are_split_by_document_or_by_halves(context):
    one, two, three = keys(context, 1, 2, 3)
    split = split_texts(context, [one, two, three], None)
    assert [t for _, t in split.calibrate] == [text(1), text(2)] and [t for _, t in split.measure] == [text(3)]
    assert split_texts(context, [one], [two]).measure == [("text 2", text(2))]
    alone = split_texts(context, [one], None)
    first, second = alone.calibrate[0][1], alone.measure[0][1]
    assert alone.halved and first + second == text(1) and second[0] == " " and abs(len(first) - len(second)) < 20
    assert halves("wordwithoutanyspace") == ("wordwitho", "utanyspace")
    assert "first half" in alone.words and "2 texts, measured on 1 text" in split.words


def test_a_text_on_both_sides_is_refused(context):
    one, two = keys(context, 1, 2)
    for texts, against in (([one], [one]), ([one, two], [two]), ([one, one], None)):
        with pytest.raises(BadSetting, match="both calibrate and measure"):
            split_texts(context, texts, against)
    part = context.add_text("a part", text(1)[50:900])
    with pytest.raises(BadSetting, match="text 1 and a part would both"):
        split_texts(context, [one], [part])
    with pytest.raises(BadSetting, match="at least one text"):
        split_texts(context, [], None)


@pytest.mark.parametrize("model", ["tiny", "begins"])
def test_windows_are_whole_evenly_spread_and_begin_as_the_model_expects(home, context, model):
    lm = context.model(str(home / model))
    texts = [("", text(seed, 2000)) for seed in range(3)]
    windows = whole_windows(lm, texts, 32, 32 * 12)
    assert windows.shape == (12, 32) and windows.dtype == np.int64
    assert len({tuple(row) for row in windows}) == 12
    begin = lm.tokenizer("a")["input_ids"][0]
    assert model == "tiny" or (windows[:, 0] == begin).all()
    assert whole_windows(lm, texts, 32, 8).shape == (1, 32), "one window at least"
    assert longest_window(lm, texts) == 64 == whole_windows(lm, texts, None, 640).shape[1]
    long, short = ("", text(5, 3000)), ("", "the cat")
    assert len(whole_windows(lm, [short, long, short], 32, 32 * 6)) == 6, "others make up for what is too short"


def test_what_reports_has_as_many_tokens_or_as_many_texts():
    assert reporting(16, 1024, 1024, 60) == 16 * 1024
    assert reporting(16, 1024, 2048, 60) == 16 * 2048, "8 windows hold as many tokens, and would be of 8 texts"
    assert reporting(16, 1024, 2048, 10) == 10 * 2048
    assert reporting(16, 1024, 2048, 3) == 8 * 2048
    assert reporting(1, 32, 64, 0) == 64


def test_too_little_text_is_said(home, context):
    lm = context.model(str(home / "tiny"))
    for texts in ([("", "the cat sat")], [("", "a")], [("", "")]):
        with pytest.raises(BadText, match="calibration text has .* tokens and one window needs 32"):
            whole_windows(lm, texts, 32, 64)
    with pytest.raises(BadSetting, match="A window of text is 65"):
        whole_windows(lm, [("", text(0))], 65, 64)


# --- the whole --------------------------------------------------------------------------------------------------------


def test_a_calibration_stores_a_policy_that_reads_as_it_says(ask, context, home, tmp_path):
    result = ask(1, 2, caps=[2, 4, 64], window=32, tokens=320, output=str(tmp_path / "p.json"))
    numbers = json.loads(json.dumps(result.numbers, allow_nan=False))
    assert set(KEYS) <= set(numbers)
    ranks, budgets = np.array(numbers["ranks"]), np.array(numbers["budgets"])
    assert numbers["total"] == round(ranks.sum()) == budgets.sum()
    assert np.array_equal(budgets, allocate_budget(ranks, numbers["total"])) and numbers["beta"] == pytest.approx(
        1, abs=0.01
    )
    assert [row["cap"] for row in numbers["sweep"]] == [2, 4, 64]
    assert len(numbers["policy"]["policy"]) == budgets.size + 1
    lm = context.model(str(home / "tiny"))
    method = METHODS["csa"].build((tmp_path / "p.json").read_text())
    method.check(lm.lm)
    assert method.budgets == tuple(budgets.ravel()) and method.cap == numbers["policy"]["policy"][-1]
    policy = policy_for(context, lm)
    assert np.allclose(policy.ranks, ranks) and policy.about["texts"] == [key(1)] and policy.about["mass"] == 0.9
    assert [one["name"] for one in stored_policies(context, lm)] == ["policy"]
    cells = result.tables["ranks"]
    assert cells["budget"].tolist() == budgets.ravel().tolist() and cells["head"].max() == lm.num_heads - 1
    assert (cells["late"] >= cells["rank"]).all(), "early queries see few keys and pull the mean down"
    assert numbers["bias"]["last_sixteenth"] > numbers["bias"]["all"] == pytest.approx(ranks.mean())
    assert "8,000 to 50,000" in numbers["notes"][1]
    again = vars(parser("x").parse_args(shlex.split(numbers["protocol"]["command"])[3:]))
    given = {"texts": ["TEXT", "TEXT"], "caps": [2, 4, 64], "beta": 1.0, "tolerance": 0.01, "tolerance_bin": 0.02}
    assert (given | {"seed": 0}).items() <= again.items(), "the recorded command gives every argument"


def test_totals_floors_and_positions_are_taken(ask):
    plain = ask(1, caps=[], window=32, tokens=320).numbers
    assert plain["sweep"] == [] and plain["cap"] is None and "90% of a head's attention" in plain["sentence"]
    later = ask(1, caps=[], window=32, tokens=320, min_pos=16).numbers
    assert np.mean(later["ranks"]) > np.mean(plain["ranks"])
    assert ask(1, caps=[], window=32, tokens=320, total=777).numbers["total"] == 777
    assert ask(1, caps=[], window=32, tokens=320, beta=3.0).numbers["total"] == round(np.sum(plain["ranks"]) * 3)
    assert ask(1, caps=[], window=32, tokens=320, beta=0.1).numbers["total"] == 2 * np.size(plain["ranks"]), "the floor"
    most = ask(1, caps=[], window=32, tokens=320, reads=0.5, floor=1).numbers["budgets"]
    assert min(map(min, most)) >= 1
    for wrong, value, said in (
        ("total", 3, "below the floor"),
        ("beta", -1.0, "beta is -1"),
        ("mass", 1.5, "mass"),
        ("min_pos", 32, "min_pos"),
        ("name", "../x", "names no policy"),
    ):
        with pytest.raises(AnalysisError, match=said):
            ask(1, caps=[], window=32, tokens=320, **{wrong: value})
    with pytest.raises(BadSetting, match="give one of them"):
        ask(1, caps=[], window=32, tokens=64, total=99, reads=0.5)


def test_keys_are_shared_out_by_what_the_loss_rises_without_a_head(ask, context, home, monkeypatch):
    """Rises of 3, 1 and below nothing get three quarters, a quarter and nothing of the same keys, beside the floor."""
    rises = np.zeros((3, 4), np.float32)
    rises[0, 1], rises[1, 0], rises[1, 1] = 3.0, 1.0, -5.0
    lm = context.model(str(home / "tiny"))
    assert rises.shape == (lm.num_layers, lm.num_heads)
    monkeypatch.setattr("analysis.studies.budgets.calibrate.estimated", lambda *_: rises)
    given = {"caps": [], "window": 32, "tokens": 320}
    plain, shared = ask(1, **given).numbers, ask(1, **given, shared="ablation").numbers
    ranks, total = np.array(shared["ranks"]), np.sum(plain["ranks"])
    assert shared["total"] == plain["total"], "as many keys"
    assert ranks[0, 1] == pytest.approx(0.75 * total) and ranks[1, 0] == pytest.approx(0.25 * total)
    assert np.count_nonzero(ranks) == 2 and np.array(shared["budgets"])[1, 1] == 2
    assert policy_for(context, lm).about["shared"] == "ablation" and "by ablation" in shared["notes"][-1]
    assert shared["sentence"].startswith("By the loss without it, a head gets from 0 to")
    assert stored_policies(context, lm)[0]["shared"] == "ablation"
    assert "--shared ablation" in shared["protocol"]["command"]
    with pytest.raises(BadSetting, match="not by 'luck'"):
        ask(1, **given, shared="luck")


def test_what_is_empty_or_too_short_is_refused_before_a_pass(ask, context, home, monkeypatch):
    monkeypatch.setattr("analysis.studies.budgets.calibrate.measure_ranks", lambda *_: pytest.fail("a pass was made"))
    empty = context.add_text("empty", " ")
    with pytest.raises(BadText, match="calibration text has 0 tokens"):
        calibrate(str(home / "tiny"), [empty], window=32, context=context)
    with pytest.raises(BadText, match="text to measure on has"):
        calibrate(
            str(home / "tiny"), keys(context, 1), [context.add_text("short", "dogs run")], window=32, context=context
        )
    with pytest.raises(BadSetting, match="The caps are"):
        ask(1, caps=[0])
    browser = csa_context(home)
    browser.browser = True
    with pytest.raises(BadSetting, match="In a browser no file"):
        calibrate("tiny", ["x"], output="p.json", context=browser)


def test_it_can_be_stopped_and_keeps_nothing_half_made(home, tmp_path):
    def progress(fraction, stage):
        if stage.startswith("cap"):
            raise Cancelled("stop")

    context = csa_context(home, progress)
    context.state = tmp_path / "state"
    with pytest.raises(Cancelled):
        calibrate(str(home / "tiny"), keys(context, 1), window=32, tokens=64, caps=[4], context=context)
    assert not list(tmp_path.rglob("*.json"))


def test_a_folder_calibrates_on_its_training_texts_and_measures_on_the_others(context, home, tmp_path):
    for side, seeds in (("train", (1, 2)), ("valid", (3,))):
        (tmp_path / "corpus" / side).mkdir(parents=True)
        for seed in seeds:
            (tmp_path / "corpus" / side / f"{seed}.txt").write_text(text(seed))
    given = {"window": 32, "tokens": 64, "caps": [4], "corpus": str(tmp_path / "corpus"), "name": "folder"}
    numbers = calibrate(str(home / "tiny"), **given, context=context).numbers
    assert numbers["split"] == "calibrated on 2 texts, measured on 1 text" and len(numbers["sweep"]) == 1
    stored = json.loads((tmp_path / "state" / "csa" / "folder.json").read_text())
    assert stored["corpus"] == "corpus" and len(stored["texts"]) == 2
    assert stored["positions"] == numbers["positions"] and stored["bias"] == numbers["bias"]
    with pytest.raises(BadSetting, match="both named"):
        calibrate(str(home / "tiny"), keys(context, 1), **given, context=context)


def test_without_a_stored_policy_the_bundled_samples_calibrate(home, context):
    lm = context.model(str(home / "tiny"))
    policy = policy_for(context, lm)
    assert policy.about["texts"] == [text_hash(text) for text in fitting_samples().values()], (
        "the text that pages open on can be measured"
    )
    assert policy.about["corpus"] == FITTED_ON and policy.cap == policy.budgets.max()
    assert policy.budgets.sum() == round(policy.ranks.sum())
    with pytest.raises(BadSetting, match="no policy other here; there are: policy"):
        policy_for(context, lm, "other")
