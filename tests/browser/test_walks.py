"""Four readers, each from the first page to what they came for, every step by what the page offers: a researcher with a
text of one's own, an engineer with a configuration, the author of a method, a student on the tour; and the minute of
the README.

FOCUSCOPE_WIDTHS=390,900,1280,1440,1920 walks at these widths; the narrowest is by night. FOCUSCOPE_PICTURES names the
folder for a picture of every step (`docs` for those of the README); without it they are thrown away.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import expect

from analysis.costs import KNOWN
from app.selection.look import TOUR_STEPS
from tests.made import own_method
from tests.made.browsing import PATIENCE, answered, chosen, painted, read, redrawn, settle, visit
from tests.stress.server import served

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]  # seconds, beside whatever else runs
JOB = 600_000  # milliseconds a timing of dense and sparse inference may take, beside whatever else runs
LARGEST = 200_000  # bytes of a picture
# Pixels of a screen.
WIDTHS = [int(width) for width in os.environ.get("FOCUSCOPE_WIDTHS", "1440,390").split(",")]
PHONE, HEIGHT, README = 390, {390: 844}, 1440
WIDTH = "() => document.scrollingElement.scrollWidth"
SCHEME = "() => getComputedStyle(document.querySelector('.stApp')).colorScheme"
OPENED = "of the attention goes 128 or more tokens back"
NAMES = re.compile(r"^“[A-Z][a-z]+” looks back [\d,]+ tokens to “[A-Z][a-z]+”$")
STOPS = {  # step of the tour -> what its screen has drawn, and what its sentence asks to touch
    "token": (".painted .text .t", ".painted .text .t"),
    "head": (".heads .map button", ".heads [role=gridcell]"),
    "pair": (".read .card .row.link[aria-pressed=true]", ".read .card .row.link"),
    "sharpen": (".sharpen .text .t", ".sharpen input[type=range]"),
    "cut": (".budgets .map .cell", ".budgets input[type=range]"),
}
ROWS = 2  # of chips, on a telephone
CLICKS = 6  # from a configuration to a copied line
CONFIG = KNOWN["meta-llama/Llama-3.1-8B"] | {"num_hidden_layers": 2}


@pytest.fixture
def folder(tmp_path) -> Path:
    """Where the pictures go."""
    place = Path(os.environ.get("FOCUSCOPE_PICTURES") or tmp_path)
    place.mkdir(parents=True, exist_ok=True)
    return place


def screen(page, width: int, folder: Path, ending: str) -> Callable:
    """Gives a page a screen; what comes back takes a picture of it, a part brought to its middle first."""
    scheme = "dark" if width == PHONE else "light"
    page.set_viewport_size({"width": width, "height": HEIGHT.get(width, 900)})
    page.emulate_media(color_scheme=scheme)
    # A menu that another walk closed is open again.
    page.add_init_script("localStorage.clear()")

    def take(name: str, element=None) -> None:
        settle(page)
        if element is not None:
            element.evaluate("element => element.scrollIntoView({block: 'center'})")
        assert page.evaluate(WIDTH) <= width, "the page itself does not scroll sideways"
        assert page.evaluate(SCHEME) == scheme
        path = folder / f"{name}{ending}.png"
        page.screenshot(path=path)
        Image.open(path).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
        assert path.stat().st_size <= LARGEST, f"{path.name} has {path.stat().st_size:,} bytes"

    return take


@pytest.fixture(params=WIDTHS)
def picture(page, folder, request) -> Callable:
    """Takes pictures of the page, on a screen of each width."""
    return screen(page, request.param, folder, f"-{request.param}")


@pytest.fixture(scope="module")
def with_an_own_method(root, tmp_path_factory) -> str:
    """The address of an app of a copy of the program to which a method was added by the steps of CONTRIBUTING.md."""
    copy = tmp_path_factory.mktemp("program")
    own_method.program(root, copy)
    entry = str(copy / "app" / "serve" / "served.py")
    with served(tmp_path_factory.mktemp("own"), entry, PYTHONPATH=str(copy)) as server:
        yield f"http://{server.address}"


def on(page, label: str, title: str) -> None:
    """Follow a link of the page's own, to the page whose title has these words (a pattern)."""
    page.get_by_test_id("stMain").get_by_role("link", name=label).last.click()
    expect(page.get_by_role("heading", name=re.compile(title), level=1)).to_be_visible(timeout=PATIENCE)
    settle(page)


def test_a_researcher_follows_a_link_of_a_text_to_its_head_and_keeps_a_report(
    app_server, page, picture, root, browser, tmp_path
):
    visit(page, app_server, OPENED)
    text = (root / "docs" / "log.md").read_text(encoding="utf-8")[:4500]
    read(page, "log.txt", text.encode())
    expect(painted(page)).to_contain_text(text.split("\n")[0].strip("# ")[:20], timeout=PATIENCE)
    picture("researcher-1-text")

    on(page, "All far pairs of this text", r"read each other [\d.]+ times chance")
    rows = page.locator(".read .card .row.link")
    answered(page, rows)
    words = [re.escape(name.strip()) for name in rows.nth(2).locator(".name").inner_text().split("→")]
    rows.nth(2).click()
    page.wait_for_url(re.compile("pair="))
    settle(page)
    card = page.locator(".read .card")
    card.get_by_role("tab", name="This word").click()
    expect(card.locator("h3")).to_have_text(re.compile(rf"^“{words[0]}” looks back [\d,]+ tokens to “{words[1]}”$"))
    expect(card.locator(".quote mark")).to_have_count(2)
    picture("researcher-2-pair", card.locator("h3"))
    measured = card.locator(".measured")
    (layer, head), token = measured.get_attribute("data-head").split("."), measured.get_attribute("data-query")

    # the card follows the click, the links below it the answer of the server
    link = page.get_by_test_id("stMain").get_by_role("link", name="The head that reads this pair").last
    leads = re.compile(f"layer={layer}&head={head}&query={token}")
    expect(link).to_have_attribute("href", leads, timeout=PATIENCE)
    on(page, "The head that reads this pair", r"^Head \d+\.\d+ reads farthest")
    expect(page.get_by_role("heading", name=f"Head {layer}.{head}", exact=True)).to_be_visible(timeout=PATIENCE)
    assert all(f"{name}={value}" in page.url for name, value in (("layer", layer), ("head", head), ("query", token)))
    reads = page.locator(".fs-more", has_text=re.compile(rf"^\s*“{words[0]}” looks at “.+”, .+: \d+% of its attention"))
    expect(reads.first).to_be_visible(timeout=PATIENCE)
    picture("researcher-3-head", reads.first)
    page.locator(".st-key-heads_distance_0").scroll_into_view_if_needed()
    chosen(page, "heads_distance_0", "Add to report")
    page.get_by_role("button", name="Share (1)").click(timeout=PATIENCE)
    with page.expect_download() as saved:
        page.get_by_role("button", name="The report, as one HTML file").click()

    report = tmp_path / "report.html"
    saved.value.save_as(report)
    fresh = browser.new_context(viewport={"width": 1000, "height": 900}, offline=True).new_page()
    fresh.goto(report.as_uri())
    expect(fresh.get_by_role("heading", name=f"How far back, head {layer}.{head}")).to_be_visible()
    expect(fresh.get_by_text("log.txt").first).to_be_visible()
    assert fresh.locator("img").evaluate("image => image.complete && image.naturalWidth > 100")
    fresh.context.close()


def test_an_engineer_comes_from_a_pasted_config_to_a_copied_line_in_six_clicks(app_server, page, picture):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{app_server}/decide")
    expect(page.locator(".worth h1")).to_be_visible(timeout=PATIENCE)
    settle(page)
    clicks = []

    def click(place) -> None:
        clicks.append(place)
        place.click()

    click(page.get_by_test_id("stMain").get_by_role("button", name="config.json"))
    page.get_by_label("Paste a config.json").fill(json.dumps(CONFIG))
    redrawn(page, lambda: click(page.get_by_role("button", name="Read this config")))
    lines = page.locator(".st-key-use_lines")
    expect(lines).to_contain_text('attn_implementation="focuscope"', timeout=PATIENCE)
    picture("engineer-1-verdict", page.locator(".worth h1"))
    make, zip_button = (page.get_by_role("button", name=name) for name in ("Make the zip", "focuscope-snapkv.zip"))
    expect(make.or_(zip_button)).to_be_visible(timeout=PATIENCE)
    if make.is_visible():  # no walk of another width has made it
        redrawn(page, lambda: click(make))
    with page.expect_download() as download:
        click(zip_button)
    assert download.value.suggested_filename == "focuscope-snapkv.zip"
    lines.hover()
    click(lines.get_by_role("button", name="Copy to clipboard"))
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert copied.startswith("# focuscope_attention.py") and copied.strip().endswith("attach(model)")
    assert len(clicks) <= CLICKS
    picture("engineer-2-lines", lines)


def test_the_author_of_a_method_sees_it_on_cut_with_its_settings(with_an_own_method, page, picture):
    page.goto(f"{with_an_own_method}/cut")
    answered(page, page.locator(".curves svg .handle"))
    methods = page.get_by_role("combobox", name="Methods, beside dense")
    methods.click()
    methods.press_sequentially("Strided")
    redrawn(page, page.get_by_role("option", name="Strided", exact=True).click)
    page.keyboard.press("Escape")
    answered(page, page.get_by_role("slider", name=re.compile("^Strided:")))
    redrawn(page, page.locator(".curves").get_by_role("button", name="Strided").click)
    title = page.get_by_role("heading", name=re.compile(r"^Read \d+% with Strided: [+−][\d.]+%"), level=1)
    expect(title).to_be_visible(timeout=PATIENCE)
    picture("author-1-curves", page.locator(".curves svg"))
    page.get_by_role("button", name="Settings").click()
    card = page.locator(".st-key-quality_card_strided")
    expect(card).to_contain_text("farther back every stride-th token")
    expect(card.get_by_role("slider")).to_have_count(2)


def test_a_student_takes_the_tour_keeps_its_end_and_shows_it_to_a_class(app_server, page, picture):
    visit(page, app_server, OPENED)
    chips = page.locator(".st-key-topbar").get_by_test_id("stPopoverButton")
    assert len({round(chip.bounding_box()["y"]) for chip in chips.all()}) <= ROWS
    menu = page.get_by_test_id("stExpandSidebarButton")
    if menu.is_visible():  # on a narrow screen
        menu.click()
    page.get_by_test_id("stSidebar").get_by_role("link", name="Tour").click()
    for place, step in enumerate(TOUR_STEPS, start=1):
        expect(page.locator(".fs-said", has_text=f"{place} of {len(TOUR_STEPS)}")).to_be_visible(timeout=PATIENCE)
        assert f"step={step}" in page.url
        settle(page)
        for part in STOPS[step]:
            expect(page.locator(part).first).to_be_visible(timeout=PATIENCE)
        picture(f"student-{place}-{step}")
        if place < len(TOUR_STEPS):
            page.get_by_role("link", name="Next", exact=True).click()
    for name, begins in (("PNG", b"\x89PNG"), ("SVG", b"<svg")):
        with page.expect_download() as saved:
            chosen(page, "budget_positions", name)
        data = Path(saved.value.path()).read_bytes()
        assert data.startswith(begins)
    assert "model demo" in data.decode()
    chosen(page, "budget_positions", "Add to report")
    page.get_by_role("button", name="Share (1)").click(timeout=PATIENCE)
    with page.expect_download() as saved:
        page.get_by_role("button", name="The report, as one HTML file").click()
    report = Path(saved.value.path()).read_text(encoding="utf-8")
    assert "data:image/svg+xml;base64," in report and "step=cut" in report and "<script" not in report
    page.locator(".st-key-report_remove_0 button").click()
    expect(page.get_by_role("button", name="Share", exact=True)).to_be_visible(timeout=PATIENCE)

    classroom = page.get_by_text("Classroom")
    if not classroom.is_visible():
        page.get_by_role("button", name="Share", exact=True).click()
    redrawn(page, classroom.click)
    page.wait_for_url(re.compile("classroom=yes"))
    page.keyboard.press("Escape")
    for left_out in (page.get_by_test_id("stSidebar"), menu, *page.locator(".menu, .table .frame").all()):
        expect(left_out).to_be_hidden()
    expect(page.get_by_role("button", name="Export", exact=True)).to_have_count(0)
    expect(page.locator(STOPS["cut"][0]).first).to_be_visible()
    picture("student-6-class", page.get_by_role("heading", level=1).first)


def test_a_minute_with_a_long_story(app_server, page, folder):
    picture = screen(page, README, folder, "")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit(page, app_server, OPENED)
    expect(painted(page).locator(".t").nth(2000)).to_be_attached(timeout=PATIENCE)
    picture("start")
    card = page.locator(".read .card")
    sentence = card.locator("h3", has_text=NAMES)
    grips = page.locator(".painted path.grip")
    for place in range(1, grips.count()):
        grips.nth(place).dispatch_event("click")
        page.wait_for_url(re.compile("pair="))
        settle(page)
        if sentence.count():
            break
    expect(sentence).to_be_visible(timeout=PATIENCE)
    expect(card.locator(".measured")).to_have_text(re.compile(r"head \d+\.\d+ · [\d.]+% .* chance [\d.]+%"))
    expect(card.locator(".quote mark")).to_have_count(2)
    on(page, "The head that reads this pair", r"^Head \d+\.\d+ reads farthest")
    expect(page.locator(".heads .map button[aria-selected=true]")).to_be_visible(timeout=PATIENCE)
    picture("heads")

    page.goto(f"{app_server}/kv-budgets?budgets=reads&budget_reads=0.02")
    heading = page.get_by_role("heading", name="By position, reading 2%")
    expect(heading).to_be_visible(timeout=PATIENCE)
    settle(page)
    facts = page.locator(".budgets .facts")
    expect(facts).to_contain_text(re.compile(r"\+[\d.]+%.*\+[\d.]+% at worst"), timeout=PATIENCE)
    mean, worst = (float(number) for number in re.findall(r"\+([\d.]+)%", facts.inner_text()))
    assert worst > mean > 10

    page.goto(f"{app_server}/cut")
    answered(page, page.get_by_role("heading", level=1).filter(has_text=re.compile(r"^Read \d+% with ")))
    picture("cut")

    page.goto(f"{app_server}/quality-vs-speed?tab=quality&quality=focus")
    verdict = page.locator(".fs-more", has_text="Speed unknown")
    expect(verdict).to_be_visible(timeout=PATIENCE)
    settle(page)
    # What is quick is timed without a click.
    button = page.get_by_role("button", name="Time it")
    expect(button.or_(page.get_by_text("Timing it against dense")).first).to_be_visible(timeout=JOB)
    if button.is_visible():
        button.click()
    expect(verdict).to_have_count(0, timeout=JOB)
    settle(page)
    page.get_by_role("button", name="Share", exact=True).click()
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Link copied")).to_be_visible(timeout=PATIENCE)
    assert page.evaluate("navigator.clipboard.readText()") == page.url and "quality=focus" in page.url
