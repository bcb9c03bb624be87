"""What is noted beside a run and is no part of its result: pinned, from another machine, and the page that asked."""

import json
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MARKS = "marks.json"
MAX_MARKS = 100_000  # bytes
MOST_CONTROLS, LONGEST = 200, 2_000  # of a link, and characters of one value
_PAGE, _CONTROL = re.compile(r"[a-z][a-z-]{0,39}|"), re.compile(r"[a-z][a-z_]{0,39}")


@dataclass(frozen=True)
class Marks:
    """`pinned`: kept whatever happens; `imported`: when it came in a bundle (ISO 8601), else None; `link`: the page
    that asked for it, as {"page": its address, "controls": name -> text in the URL}, else None."""

    pinned: bool = False
    imported: str | None = None
    link: dict[str, Any] | None = None


def checked_link(link: Any) -> dict[str, Any] | None:
    """`link` when it is the address of a page with controls, all of them short text; else None."""
    if not isinstance(link, dict) or set(link) != {"page", "controls"} or not isinstance(link["controls"], dict):
        return None
    controls = link["controls"].items()
    if not isinstance(link["page"], str) or not _PAGE.fullmatch(link["page"]) or len(controls) > MOST_CONTROLS:
        return None
    if not all(_CONTROL.fullmatch(name) and isinstance(raw, str) and len(raw) <= LONGEST for name, raw in controls):
        return None
    return link


def read_marks(folder: Path) -> Marks:
    """The Marks of a run folder; a damaged note counts as none."""
    try:
        if (folder / MARKS).stat().st_size > MAX_MARKS:
            return Marks()
        noted = json.loads((folder / MARKS).read_text(encoding="utf-8"))
        said = noted.get("imported")
        return Marks(
            noted.get("pinned") is True, said if isinstance(said, str) else None, checked_link(noted.get("link"))
        )
    except FileNotFoundError:
        return Marks()
    except (OSError, ValueError, AttributeError, RecursionError):
        return Marks()


def write_marks(folder: Path, marks: Marks) -> None:
    """Note `marks` beside the run in `folder`, whole or not at all."""
    draft = folder / f".tmp-{secrets.token_hex(4)}"
    try:
        draft.write_text(json.dumps(asdict(marks)), encoding="utf-8")
        draft.replace(folder / MARKS)
    finally:
        draft.unlink(missing_ok=True)
