"""Ledgers by hand, how answers of the companion are judged, and what the stored study holds."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from transformers import AutoTokenizer

from analysis.places import CACHE
from lab.equal import long_decoding
from lab.equal.ledgers import DIGITS, LAPS, MODULUS, SUMS, ledgers
from lab.equal.long_decoding import COMPANION, DENSE, Asked, LongDecoding, collapse

STUDY = CACHE / "demo/studies/long-decoding.json"


@pytest.fixture(scope="module")
def questions():
    run = SimpleNamespace(lm=SimpleNamespace(device="cpu"))
    return Asked(run, LongDecoding(names=6, items=2, every=8))


def test_a_ledger_and_where_a_rule_collapses_by_hand():
    """Two names: the list, then three laps of name, digit and the sum so far of all laps."""
    drawn = ledgers(1, 2, np.random.default_rng(5))
    (ids,) = drawn.ids.tolist()
    words = AutoTokenizer.from_pretrained(COMPANION).convert_ids_to_tokens(ids)
    (first, a, second, b), (da, db) = words[1:5], (ids[2] - DIGITS, ids[4] - DIGITS)
    expected = ["^", first, a, second, b, "="]
    for lap in range(LAPS):
        before = lap * (da + db)
        sums = (before + da) % MODULUS, (before + da + db) % MODULUS
        expected += [first, a, f"s{sums[0]}", second, b, f"s{sums[1]}", "." if lap == LAPS - 1 else ";"]
    assert words == expected and (a, b) == (str(da), str(db)) and first != second
    assert drawn.prompt == 6 and drawn.trace.shape == (1, 3 * 2 * LAPS + LAPS)
    rows = [
        {"title": "a", "budget": budget, "ends": ends} for budget, ends in ((10, 0.1), (20, 0.4), (30, 0.6), (40, 0.2))
    ]
    assert collapse(rows, "a", {"ends": 1.0}) == 20 and collapse(rows, "a", {"ends": 0.1}) == 0
    assert SUMS == DIGITS + MODULUS


def test_dense_writes_the_ledgers_and_a_tiny_budget_ends_wrong(questions):
    read = questions.write(questions.method(DENSE, "", 0), questions.ledgers(0))
    trace = questions.ledgers(0).trace.shape[1]
    assert read["ends"] == [1, 1] and read["right"] == [1, 1] and read["tokens"] == trace
    # every key of three layers with two heads of 32 numbers, in float32
    of_token = 3 * 2 * 2 * 32 * 4
    prompt = questions.ledgers(0).prompt
    steps = np.arange(prompt, prompt + trace - 1)
    assert read["read_mib"] * 2**20 == pytest.approx((steps * of_token).sum(), rel=1e-6)
    ample, tiny = (
        questions.write(questions.method("snapkv", "counted", keys), questions.ledgers(0)) for keys in (200, 17)
    )
    assert ample["right"] == [1, 1] and ample["keys"] > 60
    assert max(tiny["right"]) < 1 and tiny["keys"] <= 17 + 8


def test_an_answer_is_judged_by_its_last_sum(questions, monkeypatch):
    """An answer that ends one line early, with the right last sum by chance, still ends right and was right so far."""
    drawn = questions.ledgers(0)
    script = [np.concatenate([row[:-4], row[-2:]]) for row in drawn.trace]
    turns = iter(np.stack(script, 1))
    monkeypatch.setattr(
        long_decoding, "next_token", lambda lm, ids, cache: long_decoding.torch.from_numpy(next(turns))[:, None]
    )
    monkeypatch.setattr(long_decoding, "keys_held", lambda cache: 0.0)
    read = questions.write(questions.method(DENSE, "", 0), drawn)
    assert read["ends"] == [1, 1] and read["tokens"] == drawn.trace.shape[1] - 2
    assert read["right"] == pytest.approx([1 - 4 / drawn.trace.shape[1]] * 2)


def test_the_stored_study_has_every_rule_with_three_seeds():
    numbers = json.loads(STUDY.read_text(encoding="utf-8"))
    assert {row["method"] for row in numbers["rows"]} == {DENSE, *long_decoding.RULES, "random", "newest"}
    dense, *cut = numbers["rows"]
    assert dense["ends"] >= 0.9 and numbers["protocol"]["seeds"] == 3
    for row in cut:
        assert row["ends_lowest"] <= row["ends"] <= row["ends_highest"] and row["held_kib"] <= dense["held_kib"] * 1.1
