"""How much every screen asks of who looks at it: `python -m tests.screens` opens each tab of each door in Chromium at
1440 x 900, with nothing opened, prints the table, and ends with 1 where a number passes its limit.

`--server http://127.0.0.1:8501` measures an app that runs already, `--width 390 --height 844` another screen, and names
of pages (`map budgets`) measure those alone. What is counted stands in `screens.js`: words of ours are sentences and
captions, not quotations, nor labels of axes, chips and cells; controls take a click or a drag, without the sidebar,
tabs and the marks of a picture.
"""

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from app.selection.menu import PAGES, address
from tests.made.browsing import PATIENCE, settle
from tests.stress.chromium import launched
from tests.stress.server import served

COUNTED = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
# Charts are drawn a few frames after the script has ended.
DRAWN = "() => !document.querySelector('[data-testid=stMain] [data-testid=stSkeleton]')"
LIMITS = {"height": 1800, "words": 60, "lead": 15, "fold": 15, "hints": 6}
COLUMNS = ("height", "words", "lead", "controls", "fold", "exports", "pictures", "hints", "picture")


def passed(counts: dict[str, int]) -> list[str]:
    """The columns that pass their limit; exports may not outnumber what they export."""
    over = [name for name, limit in LIMITS.items() if counts[name] > limit]
    return over + ["exports"] * (counts["exports"] > counts["pictures"])


def measured(server: str, pages: list[str], width: int, height: int) -> Iterator[tuple[str, dict[str, int]]]:
    """Name of each page, and what is counted on it."""
    with launched() as browser:
        tab = browser.new_page(viewport={"width": width, "height": height})
        for name in pages:
            tab.goto(server + address(name), timeout=PATIENCE)
            tab.locator("h1").first.wait_for(timeout=PATIENCE)
            settle(tab)
            tab.wait_for_function(DRAWN, timeout=PATIENCE)
            yield name, tab.evaluate(COUNTED)


def main() -> int:
    """Print the table; 1 where a screen passes a limit."""
    parser = argparse.ArgumentParser(prog="python -m tests.screens", description=__doc__)
    parser.add_argument("pages", nargs="*", choices=[[], *PAGES], default=[], metavar="PAGE")
    parser.add_argument("--server", help="address of an app that runs already")
    parser.add_argument("--width", type=int, default=1440)
    parser.add_argument("--height", type=int, default=900)
    wanted = parser.parse_args()
    failed = 0
    with contextlib.ExitStack() as stack:
        server = wanted.server
        if server is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="focuscope-screens-"))
            server = f"http://{stack.enter_context(served(Path(folder))).address}"
        print(f"{'page':12}" + "".join(f"{name:>9}" for name in COLUMNS) + "  too many")
        for name, counts in measured(server.rstrip("/"), wanted.pages or list(PAGES), wanted.width, wanted.height):
            over = passed(counts)
            failed += bool(over)
            cells = "".join(f"{counts[column]:9,}" for column in COLUMNS)
            print(f"{name:12}{cells}  {', '.join(over)}", flush=True)
    print(f"At most: {', '.join(f'{name} {limit:,}' for name, limit in LIMITS.items())}, exports one a picture.")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
