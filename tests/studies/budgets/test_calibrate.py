"""Calibrating CSA: ranks by hand, texts kept apart, windows spread, and the whole of it stored as a policy."""

import json
import shlex

import numpy as np
import pytest
import torch

from analysis.cli.options import parser
from analysis.commands.budgets import Calibrate
from analysis.corpus import FITTED_ON, fitting_samples, text_hash
from analysis.errors import AnalysisError, BadSetting, Cancelled
from analysis.methods import METHODS
from analysis.metrics.budgets import allocate_budget
from analysis.seam.attention import apply
from analysis.studies.budgets.policies import stored_policies
from analysis.studies.budgets.ranks import Ranks, measure_ranks
from analysis.studies.budgets.recipes import policy_for
from analysis.studies.text.calibration import halves, longest_window, reporting, split_texts, whole_windows
from tests.made.calibrated import key, keys, text

SMALL = {"caps": [], "window": 32, "tokens": 320}


@pytest.fixture(scope="module")
def tiny(context, home):
    return context.model(str(home / "tiny"))


@pytest.fixture
def state(context, tmp_path, monkeypatch):
    """Fitted state of one test."""
    monkeypatch.setattr(context, "state", tmp_path / "state")
    return tmp_path / "state"


@pytest.fixture
def calibrated(ask, state):
    """`calibrated(*seeds, **arguments)` -> the answer of a calibration on texts of these seeds."""
    return lambda *seeds, **arguments: ask(Calibrate, texts=[text(seed) for seed in seeds], **arguments)


def test_ranks_against_a_sort_in_float64_and_their_mean_by_hand(tiny):
    windows, blocks = whole_windows(tiny, [("", text(0))], 40, 120), {}

    def watch(block, mass):
        blocks.setdefault(block.layer, []).append(mass[0].double())

    for ids in windows:
        with apply(tiny, METHODS["dense"](), watch=watch), torch.no_grad():
            tiny.lm(torch.as_tensor(ids)[None], use_cache=False)
    ranks = measure_ranks(tiny, windows, 0.8)
    for layer, parts in blocks.items():
        sums = torch.stack(parts).sort(-1, descending=True).values.cumsum(-1)  # [windows, H, T, T]
        expected = ((sums < 0.8 - 1e-6).sum(-1) + 1).double().mean(0)
        assert np.allclose(ranks.by_position[layer], expected.numpy())
    assert ranks.by_position[:, :, 0].max() == 1, "the first token reads itself alone"
    assert (ranks.by_position <= np.arange(1, 41)).all()
    ranks = Ranks(np.array([[[1.0, 2.0, 3.0, 6.0], [1.0, 1.0, 1.0, 1.0]]]))
    assert ranks.mean().tolist() == [[3.0, 1.0]] and ranks.mean(2).tolist() == [[4.5, 1.0]]
    rows = ranks.positions(2)
    assert [(r["first"], r["last"], r["rank"], r["most"]) for r in rows] == [(0, 2, 1.25, 1.5), (2, 4, 2.75, 3.5)]
    with pytest.raises(BadSetting, match="min_pos is"):
        ranks.mean(4)


def test_texts_are_split_by_document_or_by_halves(context):
    first_key, two, three = keys(context, 1, 2, 3)
    split = split_texts(context, [first_key, two, three], None)
    assert [t for _, t in split.calibrate] == [text(1), text(2)] and [t for _, t in split.measure] == [text(3)]
    assert split_texts(context, [first_key], [two]).measure == [("text 2", text(2))]
    alone = split_texts(context, [first_key], None)
    first, second = alone.calibrate[0][1], alone.measure[0][1]
    assert alone.halved and first + second == text(1) and second[0] == " " and abs(len(first) - len(second)) < 20
    assert halves("wordwithoutanyspace") == ("wordwitho", "utanyspace")
    part = context.add_text("a part", text(1)[50:900])
    for texts, against in (
        ([first_key], [first_key]),
        ([first_key, two], [two]),
        ([first_key, first_key], None),
        ([first_key], [part]),
    ):
        with pytest.raises(BadSetting, match="would both calibrate and measure"):
            split_texts(context, texts, against)
    with pytest.raises(BadSetting, match="at least one text"):
        split_texts(context, [], None)


@pytest.mark.parametrize("model", ["tiny", "begins"])
def test_windows_are_whole_evenly_spread_and_begin_as_the_model_expects(home, context, model):
    lm = context.model(str(home / model))
    texts = [("", text(seed, 2000)) for seed in range(3)]
    windows = whole_windows(lm, texts, 32, 32 * 12)
    assert windows.shape == (12, 32) and windows.dtype == np.int64 and len({tuple(row) for row in windows}) == 12
    assert model == "tiny" or (windows[:, 0] == lm.tokenizer("a")["input_ids"][0]).all()
    assert whole_windows(lm, texts, 32, 8).shape == (1, 32), "one window at least"
    assert longest_window(lm, texts) == 64 == whole_windows(lm, texts, None, 640).shape[1]
    long, short = ("", text(5, 3000)), ("", "the cat")
    assert len(whole_windows(lm, [short, long, short], 32, 32 * 6)) == 6, "others make up for what is too short"


@pytest.mark.parametrize(
    "arguments, tokens",
    [
        ((16, 1024, 1024, 60), 16 * 1024),
        ((16, 1024, 2048, 60), 16 * 2048),  # 8 windows hold as many tokens, and would be of 8 texts
        ((16, 1024, 2048, 10), 10 * 2048),
        ((16, 1024, 2048, 3), 8 * 2048),
        ((1, 32, 64, 0), 64),
    ],
)
def test_what_reports_has_as_many_tokens_or_as_many_texts(arguments, tokens):
    assert reporting(*arguments) == tokens


def test_a_calibration_stores_a_policy_that_reads_as_it_says(calibrated, context, tiny, tmp_path):
    result = calibrated(1, 2, caps=[2, 4, 64], window=32, tokens=320, output=str(tmp_path / "p.json"))
    numbers = json.loads(json.dumps(result.numbers, allow_nan=False))
    ranks, budgets = np.array(numbers["ranks"]), np.array(numbers["budgets"])
    assert numbers["total"] == round(ranks.sum()) == budgets.sum() and numbers["beta"] == pytest.approx(1, abs=0.01)
    assert np.array_equal(budgets, allocate_budget(ranks, numbers["total"]))
    assert [row["cap"] for row in numbers["sweep"]] == [2, 4, 64]
    method = METHODS["csa"].build((tmp_path / "p.json").read_text())
    method.check(tiny.lm)
    assert method.budgets == tuple(budgets.ravel()) and method.cap == numbers["policy"]["policy"][-1]
    policy = policy_for(context, tiny)
    assert np.allclose(policy.ranks, ranks) and policy.about["texts"] == [key(1)] and policy.about["mass"] == 0.9
    assert [listed["name"] for listed in stored_policies(context, tiny)] == ["policy"]
    cells = result.tables["ranks"]
    assert cells["budget"].tolist() == budgets.ravel().tolist() and cells["head"].max() == tiny.num_heads - 1
    assert (cells["late"] >= cells["rank"]).all(), "early queries see few keys and pull the mean down"
    assert numbers["bias"]["last_sixteenth"] > numbers["bias"]["all"] == pytest.approx(ranks.mean())
    again = vars(parser("x").parse_args(shlex.split(numbers["protocol"]["command"])[3:]))
    arguments = {"texts": ["TEXT", "TEXT"], "caps": [2, 4, 64], "beta": 1.0, "tolerance": 0.01, "tolerance_bin": 0.02}
    assert (arguments | {"seed": 0}).items() <= again.items(), "the recorded command gives every argument"


def test_totals_floors_and_positions_are_taken(calibrated):
    plain = calibrated(1, **SMALL).numbers
    assert plain["sweep"] == [] and plain["cap"] is None and "90% of a head's attention" in plain["sentence"]
    assert np.mean(calibrated(1, **SMALL, min_pos=16).numbers["ranks"]) > np.mean(plain["ranks"])
    assert calibrated(1, **SMALL, total=777).numbers["total"] == 777
    assert calibrated(1, **SMALL, beta=3.0).numbers["total"] == round(np.sum(plain["ranks"]) * 3)
    assert calibrated(1, **SMALL, beta=0.1).numbers["total"] == 2 * np.size(plain["ranks"]), "the floor"
    raised = calibrated(1, **SMALL, total=400, floor=30, floored="last").numbers
    assert min(map(min, raised["budgets"])) == 30 and raised["total"] == np.sum(raised["budgets"]) > 400
    assert min(map(min, calibrated(1, **SMALL, reads=0.5, floor=1).numbers["budgets"])) >= 1


def test_keys_are_shared_out_by_what_the_loss_rises_without_a_head(calibrated, context, tiny, monkeypatch):
    """Rises of 3, 1 and below nothing get three quarters, a quarter and nothing of the same keys, beside the floor."""
    rises = np.zeros((tiny.num_layers, tiny.num_heads), np.float32)
    rises[0, 1], rises[1, 0], rises[1, 1] = 3.0, 1.0, -5.0
    monkeypatch.setattr("analysis.studies.budgets.calibrate.estimated", lambda *_: rises)
    plain, shared = calibrated(1, **SMALL).numbers, calibrated(1, **SMALL, shared="ablation").numbers
    ranks, total = np.array(shared["ranks"]), np.sum(plain["ranks"])
    assert shared["total"] == plain["total"], "as many keys"
    assert ranks[0, 1] == pytest.approx(0.75 * total) and ranks[1, 0] == pytest.approx(0.25 * total)
    assert np.count_nonzero(ranks) == 2 and np.array(shared["budgets"])[1, 1] == 2
    assert policy_for(context, tiny).about["shared"] == stored_policies(context, tiny)[0]["shared"] == "ablation"
    assert "--shared ablation" in shared["protocol"]["command"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"total": 3}, "below the floor"),
        ({"mass": 1.5}, "mass"),
        ({"min_pos": 32}, "min_pos"),
        ({"name": "../x"}, "names no policy"),
        ({"total": 99, "reads": 0.5}, "give one of them"),
        ({"shared": "luck"}, "'luck'"),
        ({"caps": [0]}, "The caps are"),
        ({"window": 65}, "A window of text is 65"),
        ({"texts": [" "]}, "calibration text has 0 tokens and one window needs 32"),
        ({"texts": ["the cat sat"]}, "calibration text has .* tokens and one window needs 32"),
        ({"texts": [text(1), "dogs run"], "caps": [4]}, "text to measure on has"),
    ],
    ids=str,
)
def test_what_cannot_be_calibrated_is_refused(calibrated, ask, arguments, message):
    with pytest.raises(AnalysisError, match=message):
        ask(Calibrate, **{"texts": [text(1)], **SMALL, **arguments})


def test_a_browser_names_no_file(context, monkeypatch):
    monkeypatch.setattr(context, "browser", True)
    with pytest.raises(BadSetting, match="In a browser no file"):
        Calibrate(model="tiny", texts=["x"], output="p.json").compute(context=context)


def test_it_can_be_stopped_and_keeps_nothing_half_made(calibrated, context, state, monkeypatch):
    def progress(fraction, stage):
        if stage.startswith("cap"):
            raise Cancelled("stop")

    monkeypatch.setattr(context, "progress", progress)
    with pytest.raises(Cancelled):
        calibrated(1, window=32, tokens=64, caps=[4])
    assert not list(state.rglob("*.json"))


def test_a_folder_calibrates_on_its_training_texts_and_measures_on_the_others(calibrated, state, tmp_path):
    for side, seeds in (("train", (1, 2)), ("valid", (3,))):
        (tmp_path / "corpus" / side).mkdir(parents=True)
        for seed in seeds:
            (tmp_path / "corpus" / side / f"{seed}.txt").write_text(text(seed))
    arguments = {"window": 32, "tokens": 64, "caps": [4], "corpus": str(tmp_path / "corpus"), "name": "folder"}
    numbers = calibrated(**arguments).numbers
    assert numbers["split"] == "calibrated on 2 texts, measured on 1 text" and len(numbers["sweep"]) == 1
    stored = json.loads((state / "csa" / "folder.json").read_text())
    assert stored["corpus"] == "corpus" and len(stored["texts"]) == 2
    assert stored["positions"] == numbers["positions"] and stored["bias"] == numbers["bias"]
    with pytest.raises(BadSetting, match="both named"):
        calibrated(1, **arguments)


def test_without_a_stored_policy_the_bundled_samples_calibrate(context, tiny, state):
    policy = policy_for(context, tiny)
    sources = [text_hash(sample) for sample in fitting_samples().values()]
    assert policy.about["texts"] == sources, "the text that pages open on can be measured"
    assert policy.about["corpus"] == FITTED_ON and policy.cap == policy.budgets.max()
    assert policy.budgets.sum() == round(policy.ranks.sum())
    with pytest.raises(BadSetting, match="no policy other here; there are: policy"):
        policy_for(context, tiny, "other")
