"""The verb `probe`: a made model that copies, one that finds all alike, what is refused, counts and sentences."""

import json

import numpy as np
import pytest
import torch

from analysis.corpus import sample_texts
from analysis.errors import AnalysisError, BadSetting, TooLarge
from analysis.metrics.proportions import share, share_difference
from analysis.probes.tasks import TASKS
from analysis.studies import STUDIES
from tests.made.models import save_models
from tests.probes.test_sets import folder  # noqa: F401

COPIED = ("uuid_needle", "several_needles", "json", "passages")
DENSE, WINDOW = {"name": "dense"}, {"name": "streaming_llm", "settings": {"window": 16}}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A random model that reads 1,024 tokens, and `even`, which finds every token alike."""
    return save_models(tmp_path_factory.mktemp("models"), random=1024, even=1024)


@pytest.fixture
def run(context, home):
    def ask(model="even", **arguments):
        text = context.add_text("story", sample_texts()["story"][1])
        usual = {"probes": ["uuid_needle"], "lengths": [256], "depths": [0.5], "items": 2, "examples": [4]}
        return STUDIES["probe"](model=str(home / model), text=text, **usual | arguments, context=context)

    return ask


def copies(model, method, item, turn=None, other=None):
    """Log-probabilities of a reader that copies what followed the question's last eight tokens before, and reads all
    with dense attention only."""
    before = item.ids[-8:] if type(method).__name__ == "Dense" else np.array([-1])
    ending = np.concatenate([before, item.candidates[0]])
    windows = np.lib.stride_tricks.sliding_window_view(item.ids, len(ending))
    return np.array([(windows == np.concatenate([before, row])).all(1).any() for row in item.candidates], dtype=float)


def test_a_model_that_copies_is_right_and_one_that_cannot_reach_is_at_chance(run, monkeypatch):
    monkeypatch.setattr("analysis.studies.probes.probe.answer_logs", copies)
    result = run(probes=list(COPIED), lengths=[1000], depths=[0, 1], items=4, methods=[WINDOW])
    rows = result.numbers["rows"]
    assert [(row["probe"], row["depth"]) for row in rows[::2]] == [(name, d) for name in COPIED for d in (0, 1)]
    assert all(row["score"] == 1 for row in rows[::2]) and all(row["score"] == 0.25 for row in rows[1::2])
    assert all(row["chance"] == 0.25 and row["n"] == 4 and row["difference"] == -0.75 for row in rows[1::2])
    assert result.numbers["able"] == dict.fromkeys(COPIED, True)


@pytest.mark.slow
def test_a_model_that_finds_all_alike_scores_chance_exactly_and_cannot_do_the_task(run):
    result = run(probes=None, lengths=[1000], methods=[WINDOW], choices=3, examples=[6])
    assert [row["probe"] for row in result.numbers["rows"][::2]] == list(TASKS)
    for name in ("score", "plain"):
        assert [row[name] for row in result.numbers["rows"]] == pytest.approx([1 / 3] * 2 * len(TASKS))
    assert not any(result.numbers["able"].values()) and len(result.numbers["sentences"]) == len(TASKS)


def test_dense_stands_first_numbers_are_json_and_a_seed_comes_again(run):
    result = run("random", methods=[WINDOW, DENSE, {"name": "focal", "settings": {}}], seed=3)
    assert result.numbers["labels"] == ["Dense", "StreamingLLM, window 16", "Focal Attention"]
    row = result.numbers["rows"][1]
    names = "probe method length depth score chance n low high plain margin truncated lost difference".split()
    assert set(names) <= set(row) and result.numbers["rows"][0]["difference"] is None
    about = json.loads(json.dumps(result.numbers, allow_nan=False))["protocol"]
    assert about["verb"] == "probe" and about["candidates"] == 4 and about["seed"] == 3 and about["tokens"] == 3 * 512
    assert list(result.tables) == ["rows", "lengths", "summary", "shown"]
    assert result.tables["summary"]["n"].tolist() == [2, 2, 2]
    (example,) = result.tables["shown"].to_dict("records")
    assert example["evidence"] == example["answer"] and example["answer"] not in example["others"]
    first, again, other_seed = (run("random", seed=seed).numbers["rows"][0]["margin"] for seed in (1, 1, 2))
    assert first == again != other_seed


def test_a_method_that_drops_keys_is_asked_before_and_after_it_saw_the_question(run):
    snapkv = {"name": "snapkv", "settings": {"ratio": 0.9, "window": 8}}
    result = run("random", methods=[WINDOW, snapkv])
    turns = ["question unknown", "question known", "second question"]
    labels = [f"SnapKV, ratio 0.9, window 8, {turn}" for turn in turns]
    assert result.numbers["labels"] == ["Dense", "StreamingLLM, window 16", *labels]
    assert len({row["margin"] for row in result.numbers["rows"]}) == 5
    full = run("random", methods=[snapkv], lengths=[1000])
    assert full.numbers["labels"] == ["Dense", *labels[:2]]
    assert "no room for a second question" in full.numbers["notes"][0]


@pytest.mark.slow
def test_answers_are_written_where_that_is_asked_for(run, monkeypatch):
    """Dense writes the answer, the window another candidate."""

    def writes(model, method, item, tokens, turn=None, other=None):
        return item.answer if type(method).__name__ == "Dense" else item.candidates[item.right - 1]

    monkeypatch.setattr("analysis.studies.probes.probe.answer_written", writes)
    plain, written = (run(methods=[WINDOW], probes=["uuid_needle", "reranking"], items=4, lengths=[700], write=write)
                    for write in (False, True))  # fmt: skip
    assert all(row.get("written") is None for row in plain.numbers["rows"])
    dense, window, ranked, _ = written.numbers["rows"]
    assert (dense["written"], dense.get("written_difference")) == (1, None) and window["written"] == 0
    assert window["written_difference"] == -1 and window["written_difference_high"] < 0 < ranked["written"] < 1
    assert [row["score"] for row in written.numbers["rows"]] == [row["score"] for row in plain.numbers["rows"]]
    needle, of_window, *_ = sentences = written.numbers["sentences"]
    assert "answers that dense attention writes: 100% hold the right one" in needle and "worse" in of_window
    (reranked,) = (line for line in sentences if "answers that dense attention writes" in line and line != needle)
    assert "NDCG@10" in reranked and "NDCG@10" not in needle + of_window


@pytest.mark.slow
def test_sets_of_texts_are_asked_from_their_files(run, folder):  # noqa: F811
    """Answers of unequal length too: of a model that finds all tokens alike the gain is the same for all."""
    names = ["banking77", "nq", "alce_asqa", "msmarco", "narrativeqa"]
    result = run(probes=names, data=str(folder), lengths=[700], methods=[WINDOW], choices=3, write=True)
    rows = result.numbers["rows"][::2]
    assert [row["probe"] for row in rows] == names and all(row["n"] == 2 for row in rows)
    assert [row["score"] for row in rows] == pytest.approx([1 / 3] * 5) and all(row["written"] == 0 for row in rows)
    assert "Natural Questions" in result.numbers["sentence"] and result.numbers["tasks"]["nq"]["title"]
    with pytest.raises(BadSetting, match="a folder called popqa"):
        run(probes=["popqa"], data=str(folder))


def test_prompts_beyond_the_context_are_refused_or_cut_and_counted(run):
    with pytest.raises(TooLarge, match="A prompt of 1,200 tokens was asked for and 1,024 are read at once"):
        run(lengths=[1200])
    result = run(lengths=[600, 1200], depths=[0, 1], too_long="cut")
    losses = {(row["length"], row["depth"]): (row["truncated"], row["lost"]) for row in result.numbers["rows"]}
    assert losses == {(600, 0): (0, 0), (600, 1): (0, 0), (1200, 0): (2, 2), (1200, 1): (2, 0)}
    assert result.numbers["truncated"] == {"prompts": 4, "of": 8, "lost": 2}
    note = result.numbers["notes"][0]
    assert "4 of 8 prompts were longer" in note and "in 2 of them" in note


def test_positions_can_be_extended_and_are_left_as_they_were(run, context, home):
    module = context.model(str(home / "even")).lm.model.rotary_emb
    before = module.inv_freq.clone()
    result = run(lengths=[1200], rope="dynamic_ntk")
    assert result.numbers["limit"] == 2048 and "dynamic NTK" in result.numbers["notes"][-1]
    assert torch.equal(module.inv_freq, before)
    near, far = (run("random", lengths=[600], rope=rope).numbers["rows"][0] for rope in ("dynamic_ntk", "base"))
    plain = run("random", lengths=[600]).numbers["rows"][0]
    assert near["margin"] == plain["margin"] != far["margin"], "within the context dynamic NTK changes nothing"


def test_cells_that_cannot_be_are_left_out_and_said(run):
    result = run(probes=["labels"], lengths=[256, 1000], examples=[4, 16])
    places = [(row["length"], row["examples"]) for row in result.numbers["rows"]]
    assert places == [(1000, 4), (1000, 16)] or (256, 16) not in places
    assert "cells are empty" in result.numbers["notes"][0]
    with pytest.raises(BadSetting, match="choose a greater length"):
        run(probes=["json"], lengths=[64])
    result = run(probes=["json", "uuid_needle"], lengths=[128])
    assert {row["probe"] for row in result.numbers["rows"]} == set(result.numbers["able"]) == {"uuid_needle"}
    assert result.numbers["notes"][0].startswith("JSON pairs: 1 of 1 cells are empty.")


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"probes": ["haystack"]}, "no task 'haystack'; there are: uuid_needle"),
        ({"probes": []}, "there are: uuid_needle"),
        ({"methods": [{"name": "nothing"}]}, "no method 'nothing'"),
    ],
)
def test_nonsense_is_one_sentence(run, wrong, message):
    with pytest.raises(AnalysisError, match=message) as caught:
        run(**wrong)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def test_a_page_cannot_ask_for_more_than_it_should(run, context):
    context.browser = True
    try:
        with pytest.raises(TooLarge, match="a page reads at most"):
            run(items=512, lengths=list(range(200, 1000, 20)))
    except AnalysisError as error:
        assert "models_cache" in str(error)  # a folder outside is refused before
    finally:
        context.browser = False


# --- intervals of shares ----------------------------------------------------------------------------------------------


def test_shares_by_hand():
    estimate = share([1] * 8 + [0] * 2)
    assert (estimate.mean, estimate.units) == (0.8, 10)
    assert (estimate.low, estimate.high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))
    assert share([1, 1, 1]).high == 1 and share([1, 1, 1]).low == pytest.approx(0.4385, abs=1e-4)
    assert share([]).mean is None
    # n = 10, 6 up and 1 down: (7 - 2) / 12 ± 1.96 sqrt((9/12 - (5/12)²) / 12).
    difference = share_difference([1] * 6 + [0] + [1] * 3, [0] * 6 + [1] + [1] * 3)
    assert difference.mean == pytest.approx(0.5)
    assert difference.low == pytest.approx(5 / 12 - 1.95996 * (0.75 - (5 / 12) ** 2) ** 0.5 / 12**0.5, abs=1e-4)
    equal = share_difference([1, 0, 1], [1, 0, 1])
    assert equal.mean == 0 and equal.low < 0 < equal.high, "agreement on three items is no certainty"
    for wrong in (([1, 0], [1]), ([2.0], [0.0])):
        with pytest.raises(BadSetting):
            share_difference(*wrong)
