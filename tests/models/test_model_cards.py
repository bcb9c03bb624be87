"""The cards of the bundled models: every number follows from what was stored when they were measured."""

import json

import pytest

from analysis.places import CACHE
from analysis.training.bundle import card
from analysis.training.checkpoints import read_log
from analysis.training.far_run import recipe_from
from analysis.training.pretrain import Recipe


def written(name: str, **changed: float) -> str:
    """The card of a bundled model, with a `context_gain` that is changed."""
    folder = CACHE / name
    made = json.loads((folder / "pretrain.json").read_text())
    made["context_gain"] |= changed
    recipe = recipe_from(made["recipe"]) if "marks" in made["recipe"] else Recipe(**made["recipe"])
    return card(recipe, made["mixture"], read_log(folder), made)


@pytest.mark.parametrize("name", ["demo", "demo-gpt2"])
def test_a_bundled_models_card_says_what_was_measured(name):
    assert written(name) == (CACHE / name / "README.md").read_text()


@pytest.mark.parametrize(
    ("nats", "low", "high", "used", "by"),
    [
        (0.02, 0.01, 0.03, "yes", "better by **0.020 nats per token** (95% interval 0.010 to 0.030;"),
        (0.02, -0.01, 0.05, "not shown", "better by **0.020 nats per token** (95% interval -0.010 to 0.050;"),
        (-0.02, -0.05, 0.01, "not shown", "worse by **0.020 nats per token** (95% interval -0.010 to 0.050;"),
        (-0.02, -0.03, -0.01, "no, it misleads", "worse by **0.020 nats per token** (95% interval 0.010 to 0.030;"),
        (0.02, None, None, "not shown", "better by **0.020 nats per token** (too few windows for an interval;"),
    ],
)
def test_a_card_tells_whether_context_helps(nats, low, high, used, by):
    said = written("demo", nats=nats, low=low, high=high)
    assert f"Uses its context: {used}. On the valid novels" in said and f"context predicts {by}" in said
