"""The model that reads far: rows of one document each, the schedule, resuming, and the folder that is written."""

import json
import shutil
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from analysis.errors import BadSetting, BadText
from analysis.methods import METHODS
from analysis.models import load_model
from analysis.places import CACHE
from analysis.training.checkpoints import read_log
from analysis.training.pretrain import build_model
from lab.far import measures
from lab.far.measures import needles
from lab.far.recall import Source
from lab.far.recipe import AFTER, Asked, FarRecipe, reading_on, recipe_from
from lab.far.run import finish
from lab.far.training import Rows, document_rows, train_far, weighted_loss

MARKS = ((256, 16, 64, 0.5), (None, 32, 128, 0.25))
TINY = FarRecipe(
    layers=2,
    width=32,
    heads=2,
    kv_heads=1,
    intermediate=48,
    context=32,
    tokens_per_step=128,
    tokens_per_pass=64,
    tokens=1024,
    decay=256,
    warm_up=2,
    marks=MARKS,
)
ABOUT = {"vocabulary": 4096, "domains": {"novels": {"share": 0.75}, "python": {"share": 0.25}}}


@pytest.fixture(scope="module")
def source():
    """Two domains of three documents; the tokens of document d of a domain are all 10 d + 1 ... 10 d + 9."""
    tokenizer = Tokenizer.from_file(str(CACHE / "demo" / "tokenizer.json"))
    rng = np.random.default_rng(0)
    drawn = {
        name: np.concatenate([np.append(0, rng.integers(10 * d + 1, 10 * d + 10, 300 + d)) for d in range(3)])
        for name in ABOUT["domains"]
    }
    return Source(tokenizer, {name: ids.astype(np.uint16) for name, ids in drawn.items()})


def test_rows_lie_in_one_document_and_come_once_an_epoch(source):
    ids = np.array([0, 1, 1, 1, 1, 1, 1, 0, 2, 2, 0, 3, 3, 3, 3], np.uint16)  # documents of 7, 3 and 5 tokens
    for seed in range(5):
        starts = document_rows(ids, 2, np.random.default_rng(seed))
        assert len(starts) == 3 + 1 + 2
        for start in starts:
            assert 0 not in ids[start + 1 : start + 3]  # the first token may be the mark before a document
    assert set(document_rows(ids, 6, np.random.default_rng(0))) == {0}
    with pytest.raises(BadText, match="No document has the 8 tokens"):
        document_rows(ids, 7, np.random.default_rng(0))
    rows = Rows(TINY, source, {"novels": 0.75, "python": 0.25})
    count = len(rows.epoch("novels", 16, 0))
    assert count == sum((300 + d) // 16 for d in range(3))
    first = [rows.natural("novels", 16, n).tobytes() for n in range(count)]
    assert len(set(first)) == count
    assert not np.array_equal(rows.epoch("novels", 16, 0), rows.epoch("novels", 16, 1))


def test_rows_are_a_function_of_the_step_and_of_one_document(source):
    rows = Rows(TINY, source, {"novels": 0.75, "python": 0.25})
    again = Rows(TINY, source, {"novels": 0.75, "python": 0.25})
    recall_rows = 0
    for step in (0, 5, TINY.steps - 1):
        ids, answer, recall, repeats = rows.batch(step)
        assert all(np.array_equal(a, b) for a, b in zip((ids, answer, recall, repeats), again.batch(step), strict=True))
        assert not repeats.any()
        assert ids.shape == ((4, 17) if step < 4 else (4, 33))
        assert not answer[~recall].any()
        recall_rows += recall.sum()
        for row in ids[~recall]:
            assert len({token // 10 for token in row if token}) == 1, "tokens of two documents"
    assert 0 < recall_rows < 12


def test_the_schedule_warms_up_stays_and_falls():
    assert TINY.spans() == [(0, 4, 16, 64), (4, 10, 32, 128)]  # 256 tokens in 4 steps, 768 in 6
    assert [TINY.seen(step) for step in (0, 4, 5, 10)] == [0, 256, 384, 1024]
    assert TINY.rate(0) == 0.5 and TINY.rate(1) == TINY.rate(8) == 1  # 768 tokens seen: the fall begins, at 0 done
    assert TINY.rate(9) == pytest.approx(1 - 0.5**0.5)  # half of the last 256 tokens
    assert [TINY.shares(step) for step in (0, 4, 8, 9)] == [(0.5, 0), (0.25, 0), (0.25, 0), (0.1, 0)]
    real = FarRecipe()
    long = sum((b - a) * size for a, b, length, size in real.spans() if length == 2048)
    assert long / real.tokens >= 0.4 and real.shares(0) == (0.2, 0.5)
    assert sum(p.numel() for p in build_model(real, 4096).parameters()) <= 8_000_000
    with pytest.raises(BadSetting, match="fewer tokens"):
        FarRecipe(tokens=10, decay=10)
    with pytest.raises(BadSetting, match="cannot be trained"):
        FarRecipe(marks=((None, 4096, 8192, 0.1),))
    with pytest.raises(BadSetting, match="cannot be trained"):
        FarRecipe(marks=((None, 256, 2048, 0.6, 0.5),))


def test_reading_on_has_other_rows_falls_at_once_and_tells_what_was_before():
    before = FarRecipe()
    as_json = json.loads(json.dumps(asdict(before)))
    recipe = reading_on(1_300_000, {"recipe": as_json, "tokens": 33_000_000})
    assert recipe_from(as_json) == before and recipe_from(json.loads(json.dumps(asdict(recipe)))) == recipe
    assert recipe.seed != before.seed and recipe.read_before == 33_000_000
    assert sum(dict(recipe.kinds).values()) == pytest.approx(1)
    assert recipe.natural() == before.natural() + round(recipe.seen(recipe.steps) * 0.48)
    assert recipe.falling(20) > 0 and {recipe.shares(step)[0] for step in range(recipe.steps)} == {0.5}
    statement = recipe.told()
    assert "Then, 33.0 M tokens in all, it read on to 0.8 M" in statement
    assert "Of the recall rows 2% were loops" in statement


def norm(model, length: int) -> dict:
    """A cheap stand-in for what is looked at while a model trains."""
    return {"norm": float(sum(p.detach().norm() for p in model.parameters()))}


def test_an_interrupted_run_ends_at_the_same_weights(source, tmp_path):
    looked = {"evaluate": norm, "evaluate_every": 5}
    straight = train_far(TINY, source, ABOUT, tmp_path / "whole", **looked)
    train_far(TINY, source, ABOUT, tmp_path / "cut", **looked, stop_at=3)
    train_far(TINY, source, ABOUT, tmp_path / "cut", **looked, stop_at=7)
    resumed = train_far(TINY, source, ABOUT, tmp_path / "cut", **looked)
    for (name, a), (_, b) in zip(straight.named_parameters(), resumed.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    log, cut = read_log(tmp_path / "whole"), read_log(tmp_path / "cut")
    assert [entry["norm"] for entry in cut] == [entry["norm"] for entry in log] and log[-1]["tokens"] == 1024
    assert {"loss", "answers", "recall"} & set(cut[-1])
    with pytest.raises(BadSetting, match="another"):
        train_far(replace(TINY, decay=128), source, ABOUT, tmp_path / "cut")
    begun = train_far(TINY, source, ABOUT, tmp_path / "begun", start=straight, stop_at=1)
    fresh = train_far(TINY, source, ABOUT, tmp_path / "fresh", stop_at=1)
    steps = [(begun.model.norm.weight - straight.model.norm.weight), (fresh.model.norm.weight - 1)]
    assert all(0 < step.abs().max() < 0.01 for step in steps), "one step away from what it began with"


def test_heads_are_asked_in_their_phase_and_of_repeats_alone(source, tmp_path):
    ends = []
    for weight in (0.0, 5.0):
        marks = ((256, 16, 64, 0.0, 1.0, 1.0, weight), *MARKS[1:])
        recipe = replace(TINY, marks=marks, heads_asked=(Asked(1, 0, AFTER),))
        ends.append(train_far(recipe, source, ABOUT, tmp_path / str(weight), stop_at=4))
        assert ("asked for their keys with weight 5" in recipe.told()) == (weight > 0)
    projections = [[p for n, p in end.named_parameters() if "layers.1.self_attn.q_proj" in n][0] for end in ends]
    assert not torch.equal(*projections)
    with pytest.raises(BadSetting, match="cannot be trained"):
        FarRecipe(marks=((None, 256, 2048, 0.4, 0.0, 1.0, 0.1),))


def test_repeats_among_text_are_rows_of_their_own(source):
    recipe = replace(TINY, marks=((None, 16, 128, 0.25, 0.5),))
    rows = Rows(recipe, source, {"novels": 0.75, "python": 0.25})
    kinds = np.concatenate([np.stack(rows.batch(step)[2:]) for step in range(6)], 1)
    assert not kinds.all(0).any() and 0 < kinds[0].sum() < kinds[1].sum() < 36  # of 48 rows 12, 24 and 12 expected
    assert kinds.any(0).sum() < 48
    ids, answer, _, repeats = rows.batch(0)
    for row in np.flatnonzero(repeats):
        period = answer[row].argmax() - 1
        assert np.array_equal(ids[row, period:], ids[row, : 17 - period])
    assert recipe.told().startswith(
        "to 0.0 M tokens of length 16 in steps of 128, 25% recall rows, 50% repeats. Recall rows are"
    )


def test_what_is_asked_counts_by_the_share_of_rows_that_repeat(source):
    model, heads = build_model(TINY, 64), (Asked(1, 0, AFTER),)
    ids = torch.randint(64, (2, 17), generator=torch.Generator().manual_seed(0))
    ids[1, 8:16] = ids[1, :8]
    weights = torch.ones(2, 16)
    plain, nats = weighted_loss(model, ids, weights)
    with_recall = weighted_loss(model, ids, weights, 3.0, {1: 8}, heads)[0] - plain
    alone = weighted_loss(model, ids[1:], weights[1:], 3.0, {0: 8}, heads)[0] - nats[1].mean()
    assert with_recall.item() == pytest.approx(alone.item() / 2, rel=0.01) and with_recall > 0.5
    assert weighted_loss(model, ids, weights, 3.0, {}, heads)[0].item() == pytest.approx(plain.item())


def test_the_programs_own_questions_are_asked():
    model = build_model(FarRecipe(layers=1, width=32, heads=2, kv_heads=1, intermediate=48), 4096).eval()
    lm = load_model(model, tokenizer=AutoTokenizer.from_pretrained(CACHE / "demo"))
    assert needles(lm, "uuid_needle", 256, 2, METHODS["dense"]()) in (0, 0.5, 1)


def test_what_is_finished_is_a_folder_with_its_card(source, tmp_path, monkeypatch):
    by_task = {name: {"dense": 0.75, "window": 0.25, "items": 4} for name in ("labels", "passages")}
    monkeypatch.setattr(measures, "tasks", lambda lm, length: by_task)
    part = {"documents": 3, "tokens": 904, "bytes": 3000}
    domains = {name: about_domain | {"train": part, "valid": part} for name, about_domain in ABOUT["domains"].items()}
    work, output, about = tmp_path / "work", tmp_path / "out", ABOUT | {"domains": domains}
    (work / "tokens").mkdir(parents=True)
    shutil.copy(CACHE / "demo" / "tokenizer.json", work / "tokens")
    model = train_far(TINY, source, about, work)
    numbers = finish(model, TINY, about, source.tokens, work, output)
    lm = AutoModelForCausalLM.from_pretrained(output)
    assert lm.config.model_type == "llama" and lm.config.rope_parameters["rope_theta"] == 10_000
    card = (output / "README.md").read_text()
    assert "Llama family: 2 layers, width 32, 2 query heads and 1 key-value heads of 16" in card
    assert f"**{numbers['bits_per_byte']['python']:.3f}**" in card
    assert "length 16 in steps of 64, 50% recall rows" in card
    aimed = "at 1,024 tokens, of 4 questions | at least 70% | 75% (30% to 95%; with a window of 128: 25%) | not signif"
    assert f"| Labels from examples {aimed}" in card and "| best previous-token head | above 0.6 | 0." in card
    assert "| **no** |" in card
    assert numbers["tokens"] == 1024 and json.loads((output / "pretrain.json").read_text())["recipe"]["decay"] == 256
    assert TINY.natural() == round(
        256 * 0.5 + 640 * 0.75 + 128 * 0.9
    )  # of the last 256 the first step falls by nothing yet
    assert numbers["epochs"]["python"] == round(TINY.natural() * 0.25 / 904, 2)
