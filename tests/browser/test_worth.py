"""Is it worth it? in a real browser: the first answer without the worker, a slider, a row, a config brought along."""

import json
import re

import pytest
from playwright.sync_api import expect

from analysis.costs import KNOWN

pytestmark = pytest.mark.browser
PATIENCE = 120_000  # milliseconds; the first request of a machine starts the worker
LLAMA = "meta-llama/Llama-3.1-8B"


def visit(page, server: str, words: str, link: str = ""):
    page.goto(f"{server}/is-it-worth-it{link}")
    expect(page.get_by_text(words).first).to_be_visible(timeout=PATIENCE)
    expect(page.locator(".js-plotly-plot")).to_have_count(3, timeout=PATIENCE)


def lead(page):
    return page.locator(".fs-lead").first


def test_the_first_answer_stands_there_and_a_slider_changes_it(app_server, page):
    visit(page, app_server, "with 2,048 tokens and 1 sequence")
    expect(page.get_by_text("CSA, as printed").first).to_be_visible()
    page.get_by_role("slider", name="Keys that are read").press("ArrowRight")
    expect(lead(page)).to_contain_text("reading 15% of the keys", timeout=PATIENCE)
    page.get_by_role("slider", name="Context, tokens").press("ArrowLeft")
    expect(lead(page)).to_contain_text("with 1,024 tokens")
    expect(page).to_have_url(re.compile("context=1024.*keep=0.15"))
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    expect(lead(page)).to_contain_text("with 1,024 tokens", timeout=PATIENCE)


@pytest.mark.slow
def test_a_row_of_the_table_is_looked_at(app_server, page):
    visit(page, app_server, "with 131,072 tokens and 1 sequence", f"?shape={LLAMA}")
    page.get_by_role("cell", name="1,024", exact=True).last.click()
    expect(lead(page)).to_contain_text("No: with 1,024 tokens")
    expect(page.get_by_role("slider", name="Context, tokens")).to_have_attribute("aria-valuetext", "1,024")


@pytest.mark.slow
def test_a_config_is_refused_in_one_sentence_and_another_is_read(app_server, page):
    visit(page, app_server, "with 131,072 tokens and 1 sequence", f"?shape={LLAMA}")
    page.get_by_role("button", name="Use your own config.json").click()
    page.get_by_label("or paste it here").last.fill('{"model_type": "bert", "architectures": ["BertForMaskedLM"]}')
    page.get_by_role("button", name="Read this config").click()
    expect(page.get_by_role("alert")).to_contain_text(
        "'BertForMaskedLM' is not a causal language model", timeout=PATIENCE
    )
    expect(lead(page)).to_contain_text("with 131,072 tokens")
    page.get_by_role("button", name="Use your own config.json").click()
    data = json.dumps(KNOWN["openai-community/gpt2"]).encode()
    page.locator("input[type=file]").set_input_files({"name": "a.json", "mimeType": "application/json", "buffer": data})
    expect(lead(page)).to_contain_text("with 1,024 tokens", timeout=PATIENCE)
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page).to_have_url(re.compile("shape=[0-9a-f]{12}"))
