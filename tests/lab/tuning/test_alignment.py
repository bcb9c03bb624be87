"""Instructions that are generated, a copy tuned on them, and what adapting it leaves of them (Focus, table 4)."""

import numpy as np
import pytest

from analysis.models import load_model
from lab.tuning.instructions import KINDS, Instructions


@pytest.fixture(scope="module")
def made(home):
    return Instructions(load_model(str(home / "long")), seed=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_right_answer_is_what_the_instruction_asks_for(made, kind):
    for item, alone in made.asked(8)[kind]:
        said, answers = made.pieces.show(item.ids), [made.pieces.show(row) for row in item.candidates]
        right = answers[item.right]
        assert said.startswith("Instruction: ") and said.endswith("Answer:") and len(set(answers)) == 4
        listed = said.split(":")[2].split(".")[0].replace(" ", "").split(",") if kind in ("first", "last") else []
        if kind == "first":
            assert listed[0] == right and set(listed) == set(answers)
        elif kind == "last":
            assert listed[-1] == right
        elif kind == "repeat":
            assert right in said and not any(other in said for other in answers if other != right)
        else:
            name = next(i for i, word in enumerate(made.names) if made.pieces.show(word) in said)
            assert right == made.pieces.show(made.marks[name]) and right not in said
        assert made.pieces.show(alone.ids).endswith("Answer:") and "Instruction" not in made.pieces.show(alone.ids)


def test_questions_use_words_that_the_tuning_does_not_but_know_its_marks(made):
    learned = made.pieces.tokenizer.decode(made.stream(200))
    for kind, asked in made.asked(6).items():
        rights = [made.pieces.show(item.answer) for item, _ in asked]
        assert all((right in learned) == (kind == "mark") for right in rights), kind
    assert np.array_equal(made.stream(9), made.stream(9)), "a seed decides everything"


def test_every_arm_begins_with_the_tuned_copy(stored):
    made = stored("alignment")
    assert made["tuning"]["losses"][-1] < made["tuning"]["losses"][0]
    lines = [row["line"] for row in made["rows"]]
    assert lines[0] == "base" and {"LoRA r=4", "Focus K=2, hard groups", "full fine-tuning"} <= set(lines)
    assert made["rows"][0]["scores"] == made["followed"]["tuned"] and set(made["followed"]["before"]) == set(KINDS)
