"""Decide in a real browser: numbers that move with the hand, the same as Python's and quick enough to be drawn while it
moves."""

import statistics

import pytest
from playwright.sync_api import expect

from analysis.commands.speed import Worth
from analysis.studies.worth.worth import worth
from app.selection.decide import CONTEXTS
from app.ui.spelled import size
from tests.browser import script
from tests.made.browsing import PATIENCE, redrawn, settle

pytestmark = pytest.mark.browser
LLAMA = "meta-llama/Llama-3.1-8B"
FRAME = 50  # milliseconds
DRAGGED = script("drag_worth")


def opened(page, address: str) -> None:
    page.goto(address)
    expect(page.locator(".worth h1")).to_be_visible(timeout=PATIENCE)
    settle(page)


def test_the_numbers_move_with_the_hand_and_only_the_released_ones_reach_python(app_server, page):
    opened(page, f"{app_server}/decide?shape={LLAMA}&context=32768&sequences=8")
    title = page.locator(".worth h1")
    before = title.inner_text()
    took = [ms for name in ("context", "batch", "keep") for ms in page.evaluate(DRAGGED, name)]
    assert statistics.median(took) <= FRAME
    page.goto(f"{app_server}/decide?shape={LLAMA}&context=32768&sequences=8")
    expect(title).to_have_text(before, timeout=PATIENCE)
    settle(page)
    sliders = {name: page.locator(f".worth.inputs input[data-name={name}]") for name in ("context", "batch", "keep")}
    redrawn(page, lambda: sliders["context"].press("ArrowRight"))
    redrawn(page, lambda: sliders["keep"].press("ArrowRight"))
    about = Worth(model=LLAMA, contexts=list(CONTEXTS), batches=[8], keep=0.15, gpu="H100-SXM")
    run = worth(about)
    place = CONTEXTS.index(65536)
    row = run.rows[place]
    expect(title).to_have_text(run.said["sentence"][place])
    for part in ("context=65536", "keep=0.15", "sequences=8"):
        assert part in page.url
    cards = page.locator(".worth .card").all_inner_texts()
    assert f"{row['prefill_seconds_sparse']:.3g} s" in cards[0] and f"{row['ms_per_token_sparse']:.3g} ms" in cards[1]
    assert f"{row['largest_batch']:,}" in cards[2] and f"{row['largest_batch_sparse']:,}" in cards[2]
    assert size(row["kv_bytes"]) in cards[3] and size(row["kv_bytes"] * 0.15) in cards[3]
