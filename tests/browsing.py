"""How the tests use the real app in a browser. Waiting is for text or an address, never for time."""

from playwright.sync_api import expect

PATIENCE = 120_000  # milliseconds; the first request of a machine loads the model


def settle(page):
    """Until the script has run: Streamlit's running sign is gone."""
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0, timeout=PATIENCE)


def unfold(page, box):
    """Open a select box where it stands: a list closes when the page scrolls, and a click scrolls to its target."""
    box.scroll_into_view_if_needed()
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    box.click()


def visit(page, address: str, words: str):
    """Open a page that paints a text, until it stands still with these words."""
    page.goto(address)
    expect(page.get_by_text(words).first).to_be_visible(timeout=PATIENCE)
    settle(page)
    expect(page.locator(".painted .text .t, .contexts mark").first).to_be_visible(timeout=PATIENCE)


def upload(page, name: str, data: bytes, folder=None):
    """Through the sidebar; a large file goes from disk (`folder`), which is faster than through the driver."""
    page.get_by_role("button", name="Use your own text").click()
    file = {"name": name, "mimeType": "text/plain", "buffer": data}
    if folder is not None:
        (folder / name).write_bytes(data)
        file = folder / name
    page.locator("input[type=file]").set_input_files(file)


def painted(page):
    """The painted text."""
    return page.locator(".painted .text")
