"""Studies of models that are trained on: named heads and what is left of them, rows and curves of the circuit by hand,
instructions that are generated and what adapting leaves of them (Focus, table 4), copies with and without recall
documents."""

import math

import numpy as np
import pytest

from analysis.corpus import sample_texts
from analysis.errors import BadSetting
from analysis.models import load_model
from lab.far.looking_back import Circuit
from lab.tuning import circuit as circuit_study, induction as induction_study
from lab.tuning.instructions import KINDS, Instructions
from lab.tuning.recall_documents import KEY


def test_gains_by_hand():
    full = np.array([[[4.0, 4.0, 4.0], [1.0, 2.0, 3.0]]])  # [draws, new or again, units]: gains 3, 2, 1
    without = np.array([[[5.0, 5.0, 5.0], [4.5, 4.5, 4.5]]])
    row = induction_study._row("task", "arm", 2, {"arm": without, induction_study.ALL: full})
    assert (row["new"], row["again"], row["gain"]) == (5.0, 4.5, 0.5) and row["kept"] == pytest.approx(0.25)
    drawn = np.concatenate([full, full + 1])
    row = induction_study._row("task", "arm", 2, {"arm": drawn, induction_study.ALL: full})
    assert row["kept"] == pytest.approx(1.0) and row["again"] == 2.5, "over the draws"


def test_what_is_left_without_the_named_heads_and_where_there_are_none(stored, ask):
    study = stored("induction")
    rows = {(row["task"], row["arm"]): row for row in study["rows"]}
    assert [head[:2] for head in study["named"]] == [[1, 0], [1, 1]]
    assert list(rows) == [
        (induction_study.RANDOM, arm) for arm in (induction_study.ALL, induction_study.NAMED, induction_study.DRAWN)
    ], "64 tokens"
    assert rows[induction_study.RANDOM, induction_study.ALL]["kept"] == 1
    assert rows[induction_study.RANDOM, induction_study.DRAWN]["heads"] == 2
    assert (
        rows[induction_study.RANDOM, induction_study.NAMED]["gain"]
        != rows[induction_study.RANDOM, induction_study.ALL]["gain"]
    )
    numbers = ask("induction", above=1.0).numbers
    assert numbers["named"] == [] and {row["arm"] for row in numbers["rows"]} == {induction_study.ALL}


def test_the_answers_of_the_register_are_found_with_and_without_its_pages(monkeypatch):
    text = sample_texts()["register"][1]
    windows = []

    def ablated(lm, window, heads, by, seed):
        windows.append(lm.tokenizer.decode(window[0].tolist()))
        return np.arange(1, window.shape[1], dtype=np.float32)[None]  # the loss of a token is its place

    monkeypatch.setattr(induction_study, "ablated", ablated)
    new, again = induction_study.Induction().register(load_model("demo"), [])
    assert len(new) == len(again) == 28 and (np.diff(new) > 0).all() and (np.diff(again) > 0).all()
    shift = again - new
    assert shift == pytest.approx(shift[0], abs=2), "the same tokens, further down"
    assert "Perpetua lies at berth 41. The master" in windows[1] and "The master of the Perpetua" not in windows[0]
    assert text.endswith(windows[1][-200:])


CHANCE = math.log(Circuit.vocabulary)


def curve(*seconds: float) -> list[dict]:
    """A training measured every 50 steps."""
    return [
        {"step": 50 * place, "tokens": 100 * place, "loss": 5.0, "first": CHANCE, "second": second}
        for place, second in enumerate(seconds, 1)
    ]


def test_rows_and_curves_by_hand():
    plain = [curve(5.0, 0.9, 0.1), curve(4.0, 3.0, 2.0, 0.2), curve(0.25)]
    curves = {Circuit(seed=seed): curve_of for seed, curve_of in enumerate(plain)}
    curves |= {Circuit(family="llama", seed=seed): curve(5.5, 5.5, 5.5, 5.4) for seed in range(3)}
    numbers = circuit_study.numbers(curves)
    plain, normed = numbers["rows"]
    assert (plain["known"], plain["trainings"], plain["steps"], plain["trained"]) == (3, 3, 100, 200)
    assert plain["second"] == pytest.approx((0.1 + 0.2 + 0.25) / 3) and plain["second_low"] < plain["second"]
    assert (normed["known"], normed["steps"], normed["second"]) == (0, None, pytest.approx(5.4))
    (panel,) = circuit_study.CircuitStudy.shown(numbers | {"chance": CHANCE, "protocol": {"seeds": 3}})["panels"]
    assert panel["x_values"] == [50, 100, 150, 200]
    assert panel["series"][0]["y"] == pytest.approx([9.25 / 3, 4.15 / 3, 2.35 / 3, 0.55 / 3]), "an ended one stays"
    assert panel["series"][-1]["y"] == [CHANCE] * 4


def test_tiny_ones_know_nothing_yet(stored):
    rows = stored("circuit")["rows"]
    assert len(rows) == 4 and all(row["second"] == pytest.approx(CHANCE, abs=0.5) for row in rows)


@pytest.fixture(scope="module")
def tuning(home):
    return Instructions(load_model(str(home / "long")), seed=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_right_answer_is_what_the_instruction_asks_for(tuning, kind):
    for item, alone in tuning.asked(8)[kind]:
        text, answers = tuning.pieces.show(item.ids), [tuning.pieces.show(row) for row in item.candidates]
        right = answers[item.right]
        assert text.startswith("Instruction: ") and text.endswith("Answer:") and len(set(answers)) == 4
        listed = text.split(":")[2].split(".")[0].replace(" ", "").split(",") if kind in ("first", "last") else []
        if kind == "first":
            assert listed[0] == right and set(listed) == set(answers)
        elif kind == "last":
            assert listed[-1] == right
        elif kind == "repeat":
            assert right in text and not any(wrong in text for wrong in answers if wrong != right)
        else:
            name = next(i for i, word in enumerate(tuning.names) if tuning.pieces.show(word) in text)
            assert right == tuning.pieces.show(tuning.marks[name]) and right not in text
        assert tuning.pieces.show(alone.ids).endswith("Answer:") and "Instruction" not in tuning.pieces.show(alone.ids)


def test_questions_use_words_that_the_tuning_does_not_but_know_its_marks(tuning):
    learned = tuning.pieces.tokenizer.decode(tuning.stream(200))
    for kind, questions in tuning.asked(6).items():
        rights = [tuning.pieces.show(item.answer) for item, _ in questions]
        assert all((right in learned) == (kind == "mark") for right in rights), kind
    assert np.array_equal(tuning.stream(9), tuning.stream(9)), "a seed decides everything"


def test_every_arm_begins_with_the_tuned_copy(stored):
    study = stored("alignment")
    assert study["tuning"]["losses"][-1] < study["tuning"]["losses"][0]
    lines = [row["line"] for row in study["rows"]]
    assert lines[0] == "base" and {"LoRA r=4", "Focus K=2, hard groups", "full fine-tuning"} <= set(lines)
    assert study["rows"][0]["scores"] == study["followed"]["tuned"] and set(study["followed"]["before"]) == set(KINDS)


def test_copies_read_on_and_differ_in_their_recall_documents_alone(stored, ask, home):
    study = stored("recall-documents")
    untrained, none, half = study["texts"]
    assert [row["share"] for row in study["texts"]] == [None, 0, 0.5]
    assert [row["model"] for row in study["texts"]] == [
        *("as it is", "without recall documents", "with 50% recall documents"),
    ]
    assert none[KEY] == 0 != half[KEY] and none["perplexity"] != untrained["perplexity"]
    assert study["recipe"]["last_share"] == 0 and study["recipe"]["tokens"] == 32_768
    tasks = {row["task"] for row in study["rows"]}
    assert "Needle" in tasks and len(study["rows"]) == 3 * len(tasks)
    assert all(row["items"] == 2 and row["chance"] == 0.25 for row in study["rows"])
    assert study["panels"][0]["x_values"] == [0, 0.5]
    with pytest.raises(BadSetting, match="was not trained by `lab.far.run`"):
        ask("recall-documents", model=str(home / "tiny"), length=32)
