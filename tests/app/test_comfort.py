"""What serves readers who see or point otherwise: contrast and keyboard."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
THEME = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))["theme"]
PAPER = {"light": "#ffffff", "dark": "#0e1117"}  # Streamlit's own backgrounds
INK = {"light": "#31333f", "dark": "#fafafa"}  # and its text


def luminance(colour):
    """Relative luminance of #rrggbb (WCAG 2.1)."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(colour, background):
    """The ratio of WCAG 2.1, 1 to 21."""
    light, dark = sorted((luminance(colour), luminance(background)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def mixed(colour, paper, share):
    """What is seen of a colour of this opacity on the paper."""
    pairs = [(int(colour[start : start + 2], 16), int(paper[start : start + 2], 16)) for start in (1, 3, 5)]
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
BEHIND = {"app/budgets/budget_charts.py": {"#101010", "#FFFFFF"}, "app/probes/probe_charts.py": {"#1A1A1A", "#FFFFFF"}}


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


def test_every_part_can_be_reached_without_a_mouse():
    for path in (ROOT / "app" / "ui" / "parts").glob("*.js"):
        script, look = path.read_text(encoding="utf-8"), path.with_suffix(".css")
        style = look.read_text(encoding="utf-8") if look.is_file() else ""  # a library has none
        if re.search(r"\.onclick|addEventListener\(.click", script):
            works = re.search(r"onkeydown|createElement\(.button|querySelector\w*\([^)]*button", script)
            assert works, f"{path.name} listens to clicks and not to keys"
            assert "outline: none" not in style or "focus-visible" in style, f"{path.name} hides where the keyboard is"
