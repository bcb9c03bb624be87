"""What serves readers who see or point otherwise: contrast, keyboard, tables behind charts; a new method."""

import ast
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from analysis.declaration import field
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.models import load_model
from analysis.seam.attention import apply

ROOT = Path(__file__).resolve().parents[2]
THEME = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))["theme"]
PAPER = {"light": "#ffffff", "dark": "#0e1117"}  # Streamlit's own backgrounds
INK = {"light": "#31333f", "dark": "#fafafa"}  # and its text


def luminance(colour):
    """Relative luminance of #rrggbb (WCAG 2.1)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    """The ratio of WCAG 2.1, 1 to 21."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def mixed(colour, paper, share):
    """What is seen of a colour of this opacity on the paper."""
    pairs = [(int(colour[at : at + 2], 16), int(paper[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in pairs)


def test_contrast_is_measured_as_wcag_does():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("mode", PAPER)
def test_buttons_and_lines_stand_out_in_light_and_dark(mode):
    assert contrast(THEME[mode]["primaryColor"], PAPER[mode]) >= 3
    weak = {c: round(contrast(c, PAPER[mode]), 2) for c in THEME[mode]["chartCategoricalColors"]}
    assert min(weak.values()) >= 3, weak


# Colours that are no line and no mark: words on a cell, and the ground behind painted words.
BEHIND = {"app/budgets/maps.py": {"#101010", "#FFFFFF"}, "app/probes/charts.py": {"#1A1A1A", "#FFFFFF"}}
BEHIND |= {"app/ui/painted.py": {"#E58A12"}}


@pytest.mark.parametrize("mode", PAPER)
def test_every_colour_of_a_chart_stands_out_in_light_and_dark(mode):
    weak = {}
    for path in ROOT.glob("app/**/*.py"):
        name = str(path.relative_to(ROOT))
        for colour in set(re.findall(r"#[0-9A-Fa-f]{6}\b", path.read_text(encoding="utf-8"))) - BEHIND.get(name, set()):
            if contrast(colour, PAPER[mode]) < 3:
                weak[f"{name}: {colour}"] = round(contrast(colour, PAPER[mode]), 2)
    assert not weak, weak


@pytest.mark.parametrize("mode", PAPER)
def test_quiet_text_can_be_read(mode):
    style = (ROOT / "app" / "ui" / "parts" / "page.css").read_text(encoding="utf-8")
    for share in map(float, re.findall(r"opacity: ([\d.]+)", style)):
        assert contrast(mixed(INK[mode], PAPER[mode], share), PAPER[mode]) >= 4.5


def calls(name):
    """Every call of a function of that name in the app, with its file."""
    for path in ROOT.glob("app/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == name:
                yield path.relative_to(ROOT), node


def test_every_chart_has_its_table_and_its_words_for_who_cannot_see_it():
    drawn = [(path, node.lineno) for path, node in calls("plotly_chart")]
    assert {str(path) for path, _ in drawn} <= {"app/ui/widgets.py"}, f"charts that bypass widgets.chart: {drawn}"
    bare = [
        f"{path}:{node.lineno}"
        for path, node in calls("chart")
        if ast.unparse(node.func) == "widgets.chart"
        and (len(node.args) < 2 or not {"title", "key", "alt"} <= {word.arg for word in node.keywords})
    ]
    assert not bare, f"charts without numbers or a description: {bare}"


def test_every_image_and_every_part_can_be_reached_without_a_mouse():
    assert not [str(path) for path, _ in calls("image")]
    for path in (ROOT / "app" / "ui" / "parts").glob("*.js"):
        script, style = path.read_text(encoding="utf-8"), path.with_suffix(".css").read_text(encoding="utf-8")
        if re.search(r"\.onclick|addEventListener\(.click", script):
            works = re.search(r"onkeydown|createElement\(.button|querySelector\w*\([^)]*button", script)
            assert works, f"{path.name} listens to clicks and not to keys"
            assert "outline: none" not in style or "focus-visible" in style, f"{path.name} hides where the keyboard is"


# ---- "How to add a method", as the README says it


@dataclass
class EveryOther(Method):
    """Reads every other token, counted back from the query.

    Source: the README, "How to add a method".
    """

    step: int = field(2, "how far apart the tokens are that are read", low=1, high=64)

    def mask(self, block):
        return (block.distances() % self.step == 0)[None, None]


def test_a_method_added_as_the_readme_says_runs_and_gets_its_controls(monkeypatch):
    monkeypatch.setitem(METHODS, "every_other", EveryOther)
    from analysis.methods import describe

    said = describe()["every_other"]
    assert said["fields"][0]["name"] == "step" and "every other token" in str(said)
    model, ids = load_model(), torch.arange(40)[None] + 5
    with torch.no_grad():
        dense = model.lm(ids).logits
        with apply(model, EveryOther(step=1)):
            torch.testing.assert_close(model.lm(ids).logits, dense, rtol=1e-4, atol=1e-4)
        with apply(model, EveryOther(step=2)):
            sparse = model.lm(ids).logits
            changed = ids.clone()
            changed[0, 38] = 7  # token 39 reads odd tokens alone, in every layer
            torch.testing.assert_close(model.lm(changed).logits[0, 39], sparse[0, 39])
        assert not torch.allclose(sparse, dense) and torch.equal(model.lm(ids).logits, dense)
