"""How the tests use the real app in a browser. Waiting is for text or an address, never for time."""

from collections.abc import Sequence

from playwright.sync_api import expect

PATIENCE = 120_000  # milliseconds; the first request of a machine loads the model
SHOWN = """([wanted, charts, patience]) => { window.shown = new Promise((done, failed) => {
    let began = null
    addEventListener("keydown", () => { began = performance.now() }, { once: true, capture: true })
    setTimeout(() => failed(new Error(`never shown: ${JSON.stringify([...wanted, ...charts])}`)), patience)
    const all = (root, where) => [...root.querySelectorAll(where), ...[...root.querySelectorAll("*")].flatMap(
        (part) => part.shadowRoot ? all(part.shadowRoot, where) : [])]  // tables and texts have roots of their own
    const there = ([where, words]) => all(document, where).some(
        (part) => part.getClientRects().length > 0 && part.textContent.includes(words))
    const drawing = (chart) => [...document.querySelectorAll(`.st-key-${chart} .main-svg`)].map(
        (picture) => picture.querySelector(".mlayer *") ? picture.outerHTML : "").join("")
    const before = charts.map(drawing)
    const anew = (chart, at) => !["", before[at]].includes(drawing(chart))
    const look = () => began !== null && wanted.every(there) && charts.every(anew)
        ? done((performance.now() - began) / 1000) : requestAnimationFrame(look)
    requestAnimationFrame(look)
}) }"""
CLICKED = """([where, words, name]) => {
    const all = (root, where) => [...root.querySelectorAll(where), ...[...root.querySelectorAll("*")].flatMap(
        (part) => part.shadowRoot ? all(part.shadowRoot, where) : [])]
    const look = () => {
        const button = all(document, "button").find((one) => one.textContent.trim().endsWith(name) && !one.disabled)
        if (button && all(document, where).some((part) => part.textContent.includes(words))) button.click()
        else requestAnimationFrame(look)
    }
    requestAnimationFrame(look)
}"""
RUNNING = "[data-testid=stApp][data-test-script-state=running]"


def settle(page):
    """Until the script has run: Streamlit's running sign is gone."""
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0, timeout=PATIENCE)
    expect(page.locator(RUNNING)).to_have_count(0, timeout=PATIENCE)


def answered(page, answer):
    """Until an answer stands there. On a slow machine the page predicts a high price and asks first: then it is run."""
    run = page.get_by_role("button", name="Run", exact=True)
    expect(answer.or_(run).first).to_be_visible(timeout=PATIENCE)
    if answer.count() == 0:
        run.first.click()
    expect(answer).to_be_visible(timeout=PATIENCE)


def unfold(page, box):
    """Open a select box where it stands: a list closes when the page scrolls, and a click scrolls to its target."""
    box.scroll_into_view_if_needed()
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    box.click()


def moved(
    page, thumb, key: str, *wanted: tuple[str, str], charts: Sequence[str] = (), patience: int = PATIENCE
) -> float:
    """Press a key on a control; seconds until a frame of the page shows, for each (selector, words), the words there,
    and each of the `charts`, by its key, drawn otherwise than before. Playwright's Error after `patience` milliseconds.

    Measured by the page's own clock, frame by frame: the driver looks every 0.1 to 1 s only.
    """
    thumb.focus()
    page.evaluate(SHOWN, [wanted, list(charts), patience])
    thumb.press(key)
    seconds = page.evaluate("() => window.shown")
    settle(page)
    return seconds


def click_when_shown(page, button: str, where: str, words: str):
    """From now on the page itself clicks a button in the first frame that shows, at a selector, these words: the driver
    looks every 0.1 to 1 s only, and a job may be over by then."""
    page.evaluate(CLICKED, [where, words, button])


def visit(page, address: str, words: str):
    """Open a page that paints a text, until it stands still with these words."""
    page.goto(address)
    expect(page.get_by_text(words).first).to_be_visible(timeout=PATIENCE)
    settle(page)
    expect(page.locator(".painted .text .t, .contexts mark").first).to_be_visible(timeout=PATIENCE)


def go(page, title: str):
    """To another page, by the menu; the page itself may link to it as well."""
    page.get_by_test_id("stSidebarNav").get_by_role("link", name=title, exact=True).click()


def upload(page, name: str, data: bytes, folder=None):
    """Through the top bar; a large file goes from disk (`folder`), which is faster than through the driver."""
    page.get_by_role("button", name="Text:").click()
    file = {"name": name, "mimeType": "text/plain", "buffer": data}
    if folder is not None:
        (folder / name).write_bytes(data)
        file = folder / name
    page.locator("input[type=file]").set_input_files(file)


def painted(page):
    """The painted text."""
    return page.locator(".painted .text")
