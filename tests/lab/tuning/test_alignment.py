"""Instructions that are generated, a copy tuned on them, and what adapting it leaves of them (Focus, table 4)."""

import numpy as np
import pytest

from analysis.models import load_model
from lab.tuning.instructions import KINDS, Instructions


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
