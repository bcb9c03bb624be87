"""The report in Chromium, without a network: its numbers are Python's on the same rounded queries and keys."""

import base64
import json
import re

import numpy as np
import pytest
from playwright.sync_api import expect
from scipy.special import entr, softmax

from tests.made.browsing import PATIENCE

pytestmark = pytest.mark.browser
LARGEST = 15_000_000  # bytes
COUNTS = (0.2, 4)  # a share and its place on the slider


def parts(page: str) -> tuple[dict, list[np.ndarray]]:
    """What the file holds: its read, and queries and keys as float64."""
    scripts = {name: re.search(rf'id="{name}">(.*?)</script>', page, re.S)[1] for name in ("read", "queries", "keys")}
    arrays = [np.frombuffer(base64.b64decode(scripts[name]), np.float16).astype(float) for name in ("queries", "keys")]
    return json.loads(scripts["read"])["read"], arrays


def attention(read: dict, arrays: list[np.ndarray], head: dict, t: float) -> np.ndarray:
    """float64 [T, T] of a head, from the definition."""
    length, size = read["length"], head["size"]
    queries, keys = (
        array[head[name] :][: length * size].reshape(length, size) for array, name in zip(arrays, "qk", strict=True)
    )
    scores = np.where(np.tri(length, dtype=bool), queries @ keys.T * head["scaling"] / t, -np.inf)
    return softmax(scores, -1)


def test_the_report_computes_python_s_numbers_at_every_place_of_its_sliders(alone, reported):
    assert reported.stat().st_size <= LARGEST
    page, (read, arrays) = alone(reported), parts(reported.read_text(encoding="utf-8"))
    assert len(read["heads"]) == 48
    body, length = page.locator("body"), read["length"]
    far = (np.arange(length)[:, None] - np.arange(length) >= read["distance"]) & (np.arange(length) > 0)
    warm = page.locator("#warm input")
    for t in (1.0, 0.9):
        if t != 1.0:
            warm.focus()
            for _ in range(2):
                warm.press("ArrowLeft")
        expect(page.locator(f"body[data-t='{t:g}']")).to_be_attached(timeout=PATIENCE)
        weights = [attention(read, arrays, head, t) for head in read["heads"]]
        entropy = [entr(p).sum(-1).mean() for p in weights]
        assert float(body.get_attribute("data-far")) == pytest.approx(
            np.mean([(p * far).sum() / length for p in weights]), abs=1e-3
        )
        assert float(body.get_attribute("data-entropy")) == pytest.approx(np.mean(entropy), abs=1e-3)
        share, step = COUNTS
        keys = next(
            k for k in range(2, length) if k * (k + 1) / 2 + k * (length - k) >= share * length * (length + 1) / 2
        )
        mass = np.mean([np.where(p >= np.sort(p, -1)[:, -keys, None], p, 0).sum() / length for p in weights])
        assert json.loads(body.get_attribute("data-held"))[step] == pytest.approx(mass, abs=1e-3)
    page.locator(".heads [role=gridcell]").nth(20).click()
    row = page.locator(".card .row.key").first
    name, token = row.get_attribute("data-head"), int(row.get_attribute("data-token"))
    query = int(page.locator(".card .measured").get_attribute("data-query"))
    head = next(head for head in read["heads"] if head["name"] == name)
    assert float(row.get_attribute("data-share")) == pytest.approx(
        attention(read, arrays, head, 0.9)[query, token], abs=1e-3
    )
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
