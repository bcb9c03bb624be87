"""What the tables of equal bytes and of prompts read by blocks store of a tiny model, and their parts by hand."""

import numpy as np
import pytest
import torch

from analysis.methods import METHODS
from analysis.models import Model
from analysis.seam.attention import apply
from analysis.studies.quality.continuation import KNOWN, UNKNOWN
from analysis.studies.quality.following import Turn, follow
from lab.equal.bytes_rows import LEVELS, OVER, ranked
from lab.equal.equal_bytes import BUDGETS, READING, RULES, Late, Random
from lab.equal.held import FULL, Read, Scored, head_bytes
from lab.equal.prefill import SCALES, law_of
from lab.equal.rungs import APPEND, AS_MEASURED, HEAD, LAYER, PROTECTED, RUNGS, on_rung
from tests.made.tiny import tiny, token_ids

LENGTH = 48


@pytest.fixture(scope="module")
def read():
    return Read(Model(tiny("qwen3"), None, "tiny", "", 3, 4, 2, 8, 512), token_ids(1, LENGTH)[0])


def test_every_arm_stands_in_both_settings(stored):
    study = stored("equal-bytes")
    settings = dict.fromkeys(row["setting"] for row in study["rows"])
    assert list(settings) == [UNKNOWN, KNOWN]
    # DuoAttention keeps sinks and a window, here more than the prompt
    assert set(RULES) - {"duo_attention"} <= {row["method"] for row in study["rows"]}
    choosing = [row for row in study["rows"] if ":" in row["method"]]
    assert len(choosing) == 2 * len(READING) * len(BUDGETS)
    for row in choosing:
        # three pages of 16, or 64 keys, are more than a prompt of 32 has: all is read, and what chooses is read besides
        assert row["against_dense"] == pytest.approx(0, abs=1e-4) and row["read_share"] > 1, row["title"]
    for row in study["rows"]:
        assert row["held"] > 0 and row["worst"] >= row["against_dense"] - 1e-6
        if row["level"] in LEVELS:
            assert row["rank"] >= 1 and row["share"] <= row["level_share"] * OVER, row["title"]
    assert {row["rung"] for row in study["ladder"]} == set(RUNGS)
    for row in study["ladder"]:
        assert row["rung"] != AS_MEASURED or row["against_measured"] == 0


def test_a_method_that_comes_late_reads_what_it_chooses_from_there_on():
    """SparQ with all channels is the oracle: two keys and itself for every query from place 8 on, all before it."""
    lm, ids = Model(tiny("qwen3"), None, "tiny", "", 3, 4, 2, 8, 512), token_ids(1, 12)
    late = Late(METHODS["sparq"](k=2, channels=8, local=0, reallocate="none"), 8)
    rows: dict[int, set[int]] = {}

    def watch(block, probabilities):
        late(block, probabilities)
        for row, read in zip(
            block.rows.tolist(), block.read.expand_as(probabilities).sum(-1)[0].T.tolist(), strict=True
        ):
            rows.setdefault(row, set()).update(read)

    with torch.no_grad(), apply(lm, late.hooks, watch):
        lm.lm(ids, use_cache=False)
    assert all(read == ({row + 1} if row < 8 else {3}) for row, read in rows.items()), rows
    # of 9 + 10 + 11 + 12 keys that could be read, 12 in full and half of each for the estimate
    assert late.share == pytest.approx(12 / 42 + 0.5)


@pytest.mark.parametrize(("name", "storage"), [("snapkv", FULL), ("ada_kv", "int4"), ("keydiff", "fp8")])
def test_a_prompt_read_once_is_followed_as_by_the_method_itself(read, name, storage):
    rule = METHODS[name].build(lambda tokens: None, **({} if name == "keydiff" else {"window": 4}))
    stays = Scored(read, rule).within(storage, 0.4 * read.bytes_of(read.everything, FULL))
    question, answer = torch.tensor([5, 6]), torch.tensor([7, 8, 9, 10])
    with read.following():
        losses = read.losses(stays, storage, question, answer)
    rule.storage = storage
    reference = follow(read.lm, rule, torch.cat([read.ids, answer]), LENGTH, Turn("", [], question.tolist()))
    assert losses == pytest.approx(reference.losses, abs=1e-5) and 0 < read.bytes_of(stays, storage)
    bytes_held = reference.kv_bytes if storage != FULL else reference.kv_bytes / 2  # 32 bits a number
    assert storage == "int4" or read.bytes_of(stays, storage) == pytest.approx(bytes_held)


def test_bytes_ranks_and_the_law_of_the_scale_by_hand():
    """64 keys and values of 32 numbers: 16 bits each; 4 bits with a step and a least number for 64 tokens of a channel,
    the values all among the last 128 in full; and the most that fits is found."""
    assert head_bytes(FULL, 64, 32) == 64 * 2 * 32 * 2
    assert head_bytes("int4", 64, 32) == 64 * 32 // 2 + 32 * 4 + 64 * 32 * 2
    assert head_bytes("int4", 0, 32) == 0
    # Two arms alike, a third worse by 1 in each of six documents: it is told apart from both, they from none.
    noise = np.random.default_rng(0).normal(0, 0.01, (2, 6))
    losses = [noise[0], noise[1], noise[0] + 1.0]
    assert ranked(losses, np.arange(6)) == [1, 1, 3] and ranked([noise[0]], np.arange(6)) == [1]
    # scale = 2 exp(5 s) at three shares; a share that saturates is left out, one point is no law.
    points = [{"scale": 2 * np.exp(5 * s), "skipped": s} for s in (0.2, 0.5, 0.8)]
    law = law_of([*points, {"scale": 1e4, "skipped": 1.0}])
    assert law == pytest.approx({"a": 2.0, "b": 5.0, "error": 1.0}) and law_of(points[:1]) is None


@pytest.mark.parametrize("name", ["ada_kv", "pyramid_kv", "h2o", "tova", "kvzip_plus"])
def test_a_rung_holds_as_much_as_the_rule_as_measured(read, name):
    """Also of a rule that gives layers or heads unlike shares; whole pages hold less, but one at least."""
    rule = METHODS[name].build(lambda tokens: None, **({"window": 4} if name in ("ada_kv", "pyramid_kv") else {}))
    scored = Scored(read, rule)
    as_measured = scored.at(1 - 24.5 / LENGTH)
    on = {rung: on_rung(name, rung, read, rule, scored, as_measured) for rung in RUNGS}
    assert (on[HEAD] is None) == (name in ("tova", "kvzip_plus")) and (on[APPEND] is None) == (name == "kvzip_plus")
    for rung, of in on.items():
        if rung in ("pages of 64", "pages of 128"):
            continue  # longer than the prompt
        for stays, measured in zip(of, as_measured, strict=True) if of else ():
            count, wanted = int(stays.sum()), int(measured.sum())
            heads = stays.shape[1]
            pages = max(1, wanted // heads // 16) * 16 * heads
            assert count == (pages if rung == "pages of 16" else wanted), rung


def test_every_rung_holds_no_more_and_is_what_it_says(read):
    rule = METHODS["snapkv"](window=4)
    scored = Scored(read, rule)
    as_measured = scored.at(1 - 16.5 / LENGTH)
    on = {rung: on_rung("snapkv", rung, read, rule, scored, as_measured) for rung in RUNGS}
    assert all(int(stays.sum(-1).max()) <= 16 for rung, of in on.items() if "page" not in rung for stays in of)
    assert rule.window == 4 and on[AS_MEASURED] is as_measured and on[HEAD][0].shape == as_measured[0].shape
    assert all((stays == stays[:, :1]).all() for stays in on[LAYER])
    (pages,) = {stays[0, 0].view(3, 16).sum(-1).tolist().count(16) for stays in on["pages of 16"]}
    assert pages == 1 and all(stays[..., :6].all() for stays in on[PROTECTED])
    first = on_rung("snapkv", APPEND, Read(read.lm, read.ids), rule, scored, as_measured)
    assert all(torch.equal(a, b) for a, b in zip(on[APPEND], first, strict=True))


def test_chance_is_the_same_again(read):
    first, second = (Scored(read, Random(seed=3)).at(0.5) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert int(first[0].sum(-1).max()) == LENGTH // 2


def test_rules_by_length(stored):
    study = stored("prefill")
    rules = ("skip_softmax", "flex_prefill")
    assert [(row["method"], row["length"]) for row in study["rows"]] == [(rule, n) for n in (32, 48) for rule in rules]
    for row in study["rows"]:
        assert row["read"] == 1 and row["against_dense"] == pytest.approx(0, abs=1e-5)  # one block of 128
        assert 0 < row["speedup_low"] <= row["speedup"] <= row["speedup_high"] and row["prompt_ms"] > 0
    assert [(row["length"], row["scale"]) for row in study["calibration"]] == [(n, s) for n in (32, 48) for s in SCALES]
    assert study["law"] is None and 0 < study["check"]["read"] < 1
