"""Train a router in a real browser with the real model: from form to router, live balance, stored studies."""

import json
import re
import statistics

import pytest
from playwright.sync_api import expect

from analysis.runs import Result, RunStore
from tests.browser.test_quality import state_folder
from tests.made.browsing import PATIENCE, go, moved, settle, unfold

pytestmark = pytest.mark.browser
LIVE = 1.5  # seconds from a slider to its charts: 0.35 alone on two cores, here beside whatever else runs


def training(page, address: str, words: str, **link: object):
    page.goto(f"{address}/train-a-router?" + "&".join(f"{name}={value}" for name, value in link.items()))
    expect(page.get_by_role("heading", name="Do the groups stay balanced while a router learns?")).to_be_visible(
        timeout=PATIENCE
    )
    expect(page.get_by_text(words).first).to_be_visible(timeout=PATIENCE)
    settle(page)


def test_the_first_view_shows_what_the_router_in_use_has_learned(app_server, page, root):
    training(page, app_server, "The router in use: k8-top1")
    steps = json.loads((root / "models_cache" / "demo" / "focus" / "k8-top1.json").read_text())["about"]["steps"]
    expect(
        page.get_by_text(re.compile(f"^The router k8-top1 learned for {steps} steps; on text it never saw"))
    ).to_be_visible()
    expect(page.locator(".js-plotly-plot")).to_have_count(2, timeout=PATIENCE)
    expect(page.get_by_role("region", name="Perplexities").locator("tbody tr")).to_have_count(4)
    expect(page.get_by_text("First time on this machine")).to_be_visible()


@pytest.mark.slow
def test_a_router_is_trained_from_the_form_and_used(app_server, page, browser, root):
    """And nothing is lost by it: results of other routers stay in the list of runs."""
    store = RunStore(state_folder(app_server))
    asked = {"model": "demo", "text": "0" * 12, "methods": [{"name": "focus", "settings": {}, "router": "k8-top1"}]}
    kept = store.put("evaluate", asked, Result({"protocol": {}}), {}, 1.0)
    store.close()
    training(page, app_server, "The router in use", train_steps=2, train_tokens=1024, train_groups=4, train_label="two")
    page.get_by_role("button", name="Train", exact=True).click()
    page.wait_for_url(re.compile("job=[0-9a-f]{12}"))
    other = browser.new_context().new_page()
    other.goto(page.url)
    expect(other.get_by_text("Done: Training of a Focus router")).to_be_visible(timeout=PATIENCE)
    other.context.close()
    page.get_by_role("button", name="Use the router k4-top1-two").first.click(timeout=PATIENCE)
    page.wait_for_url(re.compile("router=k4-top1-two"))
    settle(page)
    expect(page.get_by_text(re.compile("^The router k4-top1-two learned for 2 steps"))).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text(re.compile("^The soft loss went from"))).to_be_visible()
    expect(page.get_by_role("region", name="Perplexities").locator("tbody tr")).to_have_count(4)
    expect(page.get_by_role("button", name="Train it again")).to_be_visible()
    go(page, "Token groups")
    expect(page.get_by_text("trained, 2 steps").first).to_be_visible(timeout=PATIENCE)
    assert not list((root / "models_cache" / "demo" / "focus").glob("*two*")), "the bundled folder stays as it came"
    page.goto(f"{app_server}/runs?run={kept.id}")
    expect(page.get_by_role("heading", name=f", run {kept.id}")).to_be_visible(timeout=PATIENCE)
    store = RunStore(state_folder(app_server))
    store.delete(kept.id)  # it holds no rows, which other pages of this server look for
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "link, words",
    [
        ({"train_groups": 64, "train_tokens": 32}, "64 groups are balanced over the tokens of a step, and it has 32"),
        ({"train_temperature": "0"}, "temperature must be above 0"),
        ({"train_corpus": "SHORT"}, "one window needs 1,024"),
        ({"train_top": 9}, "cannot be in 9 of 8 groups"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence(app_server, page, link, words):
    if link.get("train_corpus"):
        training(page, app_server, "The router in use")
        page.get_by_role("button", name="Text:").click()
        page.get_by_role("textbox", name="or paste it here").fill("A text of a few words.\n\n" * 20)
        page.get_by_role("button", name="Read this text").click()
        page.wait_for_url(re.compile("text=[0-9a-f]{12}"))
        link = {"train_corpus": re.search("text=([0-9a-f]{12})", page.url)[1]}
    training(page, app_server, "The router in use", **link)
    page.get_by_role("button", name="Train", exact=True).click()
    alert = page.get_by_test_id("stMain").get_by_role("alert")
    expect(alert).to_contain_text(words, timeout=PATIENCE)
    assert "Traceback" not in page.content() and alert.count() == 1
    expect(page.get_by_text("The router in use: k8-top1")).to_be_visible()


STEP = re.compile("Training of a Focus router: router, step ([0-9]+) of 40")


def step(page) -> int:
    """The step that the strip shows."""
    return int(STEP.search(page.locator(".st-key-job_strip").inner_text(timeout=PATIENCE))[1])


@pytest.mark.slow
def test_a_training_is_seen_on_every_page_draws_its_curve_and_goes_on_where_it_was_cancelled(app_server, page):
    training(page, app_server, "The router in use", train_steps=40, train_tokens=1024, train_label="long")
    page.get_by_role("button", name="Train", exact=True).click()
    strip, curve = page.locator(".st-key-job_strip"), page.locator(".st-key-train_growing .js-plotly-plot")
    expect(strip.get_by_role("progressbar")).to_be_in_viewport(timeout=PATIENCE)
    expect(strip.get_by_text(STEP)).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_test_id("stSidebar").get_by_role("progressbar")).to_have_count(0)
    page.evaluate("window.here = true")
    expect(curve).to_be_visible(timeout=PATIENCE)
    points = "plot => plot.data[0].y.length"
    grown = f"more => ({points})(document.querySelector('.st-key-train_growing .js-plotly-plot')) >= more"
    page.wait_for_function(grown, arg=curve.evaluate(points) + 2, timeout=PATIENCE)
    page.mouse.move(700, 500)
    page.mouse.wheel(0, 900)
    expect(strip.get_by_role("button", name="Cancel")).to_be_in_viewport()
    go(page, "Is it worth it?")
    expect(page.get_by_text("Largest possible gain").first).to_be_visible(timeout=PATIENCE)
    page.set_viewport_size({"width": 390, "height": 844})
    expect(strip.get_by_role("button", name="Cancel")).to_be_in_viewport()
    expect(strip.get_by_text(re.compile("step ([6-9]|[1-3][0-9]) of 40"))).to_be_visible(timeout=PATIENCE)
    strip.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible(timeout=PATIENCE)
    said = re.search("([0-9]+) of 40 steps are kept", page.get_by_test_id("stMain").inner_text())
    kept = int(said[1]) if said else 1  # a worker whose step takes longer than the grace is replaced
    page.set_viewport_size({"width": 1400, "height": 1000})
    go(page, "Train a router")
    page.get_by_role("button", name="Train", exact=True).click(timeout=PATIENCE)
    expect(strip.get_by_text(STEP)).to_be_visible(timeout=PATIENCE)
    assert step(page) > kept
    strip.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible(timeout=PATIENCE)
    assert page.evaluate("window.here"), "the page was never loaded anew"


@pytest.mark.slow
@pytest.mark.alone
def test_sliders_balance_the_groups_live_and_the_link_restores_them(app_server, page):
    training(page, app_server, "The trap of 3 iterations", evidence="balance")
    thumb = page.get_by_role("slider", name="Sinkhorn iterations")
    took = []
    for key, count in (("ArrowLeft", 9), ("ArrowLeft", 8), ("ArrowLeft", 7), ("ArrowRight", 8), ("ArrowRight", 9)):
        said = ("[data-testid=stMain] p", f"At temperature 0.1 and {count} iterations")
        took.append(moved(page, thumb, key, said, charts=["balance_layers"]))
    print(f"slider to new numbers: {statistics.median(took):.2f} s")
    assert statistics.median(took) <= LIVE
    page.get_by_role("slider", name="Temperature").press("ArrowLeft")
    expect(page.get_by_text("At temperature 0.05 and 9 iterations")).to_be_visible(timeout=PATIENCE)
    expect(page).to_have_url(re.compile("balance_iterations=9"))
    expect(page).to_have_url(re.compile("balance_temperature=0.05"))
    page.goto(page.url)
    expect(page.get_by_text("At temperature 0.05 and 9 iterations")).to_be_visible(timeout=PATIENCE)


@pytest.mark.slow
def test_the_causality_check_and_what_is_not_there_yet(app_server, page):
    training(page, app_server, "reads the future", evidence="causality")
    rows = page.get_by_role("region", name="Arms of the causality check").locator("tbody tr")
    expect(rows.filter(has_text="reads the future")).not_to_have_count(0)
    expect(rows.first).to_contain_text("dense")
    settle(page)
    page.get_by_role("button", name="Groups:").click()
    unfold(page, page.get_by_role("combobox", name="Groups, by the router that made them"))
    page.get_by_role("option", name="k8-top2").click()
    expect(page.get_by_text(re.compile("The causality of the router k8-top2"))).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text("python -m analysis study causality --corpus DIR --router k8-top2")).to_be_visible()


@pytest.mark.slow
def test_groups_are_held_against_controls_and_another_router(app_server, page):
    page.goto(f"{app_server}/token-groups?other=k8-top2&layer=1")
    expect(page.get_by_text(re.compile("^k8-top1 and k8-top2 put [0-9]+% of the tokens"))).to_be_visible(
        timeout=PATIENCE
    )
    settle(page)
    expect(page.get_by_text("Groups of layer 1, matched")).to_be_visible()
    page.get_by_text("Every layer beside random centroids and k-means").click()
    table = page.get_by_role("region", name="Groups of every layer and controls")
    expect(table.locator("tbody tr")).to_have_count(7, timeout=PATIENCE)
    expect(table.locator("tbody tr").first).to_contain_text("paper")
    expect(table.locator("tbody tr").first).to_contain_text("Punctuation (96% pure)")
