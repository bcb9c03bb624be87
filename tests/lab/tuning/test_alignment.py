"""Instructions that are generated, a copy tuned on them, and what adapting it leaves of them (Focus, table 4)."""

import json

import numpy as np
import pytest

from analysis.models import load_model
from analysis.studies import NAMED
from analysis.studies.context import Context
from lab.tuning.instructions import KINDS, Instructions
from tests.made.models import save_models
from tests.made.studied import asker, part_again, studied_home

SIZES = {"length": 32, "windows": 6, "window": 4, "n_sink": 1, "steps": 2, "tokens_per_step": 64, "seeds": 1}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return save_models(studied_home(tmp_path_factory.mktemp("alignment")), long=256)


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


@pytest.mark.slow
def test_every_arm_begins_with_the_tuned_copy(home, tmp_path, monkeypatch):
    for name, few in (("ITEMS", 2), ("COPIES", 40)):
        monkeypatch.setattr(f"lab.tuning.alignment.{name}", few)
    given = {"model": str(home / "long"), "corpus": str(home / "corpus"), "output": str(tmp_path / "a.json")}
    ask = asker(NAMED["alignment"], home, **given, rates=[1e-2], instruct_steps=30, instruct_rate=1e-2, **SIZES)
    ask()
    stored = json.loads((tmp_path / "a.json").read_text(), parse_constant=pytest.fail)
    assert stored["tuning"]["losses"][-1] < stored["tuning"]["losses"][0]
    lines = [row["line"] for row in stored["rows"]]
    assert lines[0] == "base" and {"LoRA r=4", "Focus K=2, hard groups", "full fine-tuning"} <= set(lines)
    assert stored["rows"][0]["scores"] == stored["followed"]["tuned"] and set(stored["followed"]["before"]) == set(
        KINDS
    )
    assert stored["sentence"].startswith(
        "Tuning on instructions takes the share that the copy follows from and to: repeat"
    )
    assert "Instructions followed: " in stored["sentence"] and len(stored["panels"]) == 4
    assert {column["name"] for column in stored["columns"]} <= set(stored["rows"][0])
    assert part_again(NAMED["alignment"], stored, home)
    again = NAMED["alignment"].recheck(stored, context=Context(state=home / "state", browser=False))
    assert all(now == pytest.approx(kept) for kept, now in again.values())
