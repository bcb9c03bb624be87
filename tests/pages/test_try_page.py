"""docs/try.html: what its command makes of the sources and weights that stand here, small, and in Chromium without a
network."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import expect

from analysis import load_model
from analysis.corpus import sample_texts
from analysis.methods import METHODS
from analysis.metrics.budgets import budget_for_reads
from analysis.pages.try_page import LENGTH, made
from analysis.places import CACHE
from analysis.seam.attention import apply
from tests.made.browsing import PATIENCE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "try.html"
LARGEST, PICTURE = 17_000_000, 200_000  # bytes
SLOWEST = 5000  # milliseconds for 512 tokens on two cores


@pytest.mark.slow
def test_the_page_is_what_its_command_makes_and_small():
    assert PAGE.stat().st_size <= LARGEST
    assert PAGE.read_text(encoding="utf-8") == made(CACHE / "demo"), "run: python -m analysis try-page"


def losses(ids: list[int], *shares: float) -> list[float]:
    """Nats per token with each share of the reads, every query of every head keeping its best."""
    lm, losses_of = load_model(), []
    for share in shares:
        keys = budget_for_reads(np.ones((1, 1)), share, len(ids)) if share < 1 else len(ids)
        with torch.no_grad(), apply(lm, METHODS["oracle_topk"](k=keys)):
            logits = lm.lm(torch.tensor([ids])).logits[0].float()
        losses_of.append(float(-logits.log_softmax(-1)[range(len(ids) - 1), ids[1:]].mean()))
    return losses_of


@pytest.mark.browser
def test_a_text_of_ones_own_is_read_without_a_network(alone, tmp_path):
    page = alone(PAGE)
    body, text = page.locator("body"), page.locator(".painted .text")
    ids = load_model().tokenizer(sample_texts()["story"][1][:LENGTH]).input_ids
    assert text.inner_text().startswith("The Lamp at Gannet House")
    expect(page.locator("body[data-measured='1']")).to_be_attached(timeout=PATIENCE)
    dense, tenth = losses(ids, 1.0, 0.1)
    assert float(body.get_attribute("data-loss")) == pytest.approx(dense, abs=1e-3)
    slider, output = page.locator(".keep input").first, page.locator(".keep output").first
    slider.focus()
    for _ in range(6):
        slider.press("ArrowRight")
    expect(page.locator(".keep .share").first).to_have_text("10%")
    assert float(output.get_attribute("data-loss")) == pytest.approx(tenth, abs=1e-3)
    assert float(text.locator(".t").nth(3).evaluate("span => span.style.opacity || 1")) <= 1

    cell = page.locator(".heads [role=gridcell]").first
    cell.focus()
    cell.press("ArrowRight")
    expect(page.locator(".heads .said")).to_contain_text("from afar")
    expect(page.locator(".card h4").first).to_contain_text("in head")
    assert text.locator(".key").count() > 0
    page.locator("#own").fill("A word, and the same word again: a word.")
    expect(page.locator("body[data-text='2']")).to_be_attached(timeout=PATIENCE)
    own_ids = load_model().tokenizer("A word, and the same word again: a word.").input_ids
    assert int(body.get_attribute("data-tokens")) == len(own_ids)
    assert float(body.get_attribute("data-loss")) == pytest.approx(losses(own_ids, 1.0)[0], abs=1e-3)
    for width, scheme in ((390, "dark"), (1440, "light")):
        page.set_viewport_size({"width": width, "height": 844 if width == 390 else 900})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#own").fill("")
    expect(page.locator("#scope")).to_have_text(re.compile("two words"))


@pytest.mark.browser
@pytest.mark.alone
def test_the_longest_text_is_read_in_time(alone):
    page = alone(PAGE)
    page.locator("#own").fill(sample_texts()["essay"][1][: 3 * LENGTH])
    expect(page.locator("body[data-text='2']")).to_be_attached(timeout=PATIENCE)
    assert page.locator("body").get_attribute("data-tokens") == "512"
    assert float(page.locator("body").get_attribute("data-took")) <= SLOWEST


def test_the_picture_of_the_readme_is_a_screen_of_it():
    with Image.open(PAGE.with_suffix(".png")) as picture:
        assert picture.size == (1440, 900)
    assert PAGE.with_suffix(".png").stat().st_size <= PICTURE
