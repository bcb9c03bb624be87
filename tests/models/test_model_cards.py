"""The cards of the bundled models: every number follows from what was stored when they were measured."""

import json

import pytest

from analysis.places import CACHE
from analysis.training.bundle import card
from analysis.training.checkpoints import read_log
from analysis.training.recipe import Recipe
from lab.far.measures import targets
from lab.far.recipe import recipe_from


def written(name: str, **changed: float) -> str:
    """The card of a bundled model, with a `context_gain` that is changed."""
    folder = CACHE / name
    recipe_of_model = json.loads((folder / "pretrain.json").read_text())
    recipe_of_model["context_gain"] |= changed
    recipe = (
        recipe_from(recipe_of_model["recipe"])
        if "marks" in recipe_of_model["recipe"]
        else Recipe(**recipe_of_model["recipe"])
    )
    return card(
        recipe,
        recipe_of_model["mixture"],
        read_log(folder),
        recipe_of_model,
        targets(recipe_of_model) if "tasks" in recipe_of_model else "",
    )


def test_the_readme_names_the_gain_and_targets_inside_the_interval_are_not_told_apart():
    gain = json.loads((CACHE / "demo" / "pretrain.json").read_text())["context_gain"]["nats"]
    readme = (CACHE.parent / "README.md").read_text(encoding="utf-8")
    assert f"On novels far context gives it {gain:.3f} nats per token" in " ".join(readme.split())
    # Wilson's interval of 37 of 48 is 63% to 87%, of 48 of 48 it begins at 93%.
    rows = {line.split(" at 1,024")[0][2:]: line for line in written("demo").splitlines() if " at 1,024" in line}
    assert "77% (63% to 87%; with" in rows["JSON pairs"] and "| not significantly different |" in rows["JSON pairs"]
    assert "100% (93% to 100%; with" in rows["Needle"] and rows["Needle"].endswith("| yes |")
    assert "chance is 25%" in written("demo")


@pytest.mark.parametrize("name", ["demo", "demo-gpt2"])
def test_a_bundled_models_card_says_what_was_measured(name):
    assert written(name) == (CACHE / name / "README.md").read_text()


@pytest.mark.parametrize(
    ("nats", "low", "high", "used", "by"),
    [
        (0.02, 0.01, 0.03, "yes", "better by **0.020 nats per token** (95% interval: 0.010 to 0.030;"),
        (0.02, -0.01, 0.05, "not shown", "better by **0.020 nats per token** (95% interval: -0.010 to 0.050;"),
        (-0.02, -0.05, 0.01, "not shown", "worse by **0.020 nats per token** (95% interval: -0.010 to 0.050;"),
        (
            -0.02,
            -0.03,
            -0.01,
            "no, not in these texts",
            "worse by **0.020 nats per token** (95% interval: 0.010 to 0.030;",
        ),
        (0.02, None, None, "not shown", "better by **0.020 nats per token** (too few windows for an interval;"),
    ],
)
def test_a_card_tells_whether_context_helps(nats, low, high, used, by):
    card_text = written("demo", nats=nats, low=low, high=high).replace(" for elsewhere in these 3 documents", "", 1)
    assert f"Uses its context: {used}. On the valid novels" in card_text and f"context predicts {by}" in card_text
