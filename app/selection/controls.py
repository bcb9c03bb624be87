"""Every value that can stand in an address: what all pages share, the state of each page, and the fields of commands.

A control's name is its key in the session, its widget's key and its name in the address. A field of a command stands
there under its `control`, with the default and the range of the command.
"""

from dataclasses import dataclass, replace

from analysis.commands import COMMANDS
from analysis.declaration import Field, field, fields_of
from app.selection.decide import DecideControls
from app.selection.evidence import EvidenceControls
from app.selection.look import LookControls
from app.selection.menu import PAGES as MENU_PAGES
from app.selection.patterns import HASH, MODEL, NAME
from app.selection.sparsify import SparsifyControls


@dataclass(frozen=True)
class EveryPage:
    """What all pages share."""

    model: str = field("demo", pattern=MODEL)
    at: str | None = field(None, options=tuple(MENU_PAGES), label="page")
    text: str | None = field(None, pattern=HASH)
    router: str | None = field(None, pattern=NAME)
    long_text: str = field("windows", options=("windows", "first"), label="long text")
    layer: int | None = field(None, high=9_999)
    group: int | None = field(None, high=9_999)
    head: int | None = field(None, high=9_999)
    # A token of the text, on every page that shows what one reads.
    query: int | None = field(None, high=9_999_999, label="token")
    other_text: str | None = field(None, pattern=HASH, label="second text")
    other_model: str | None = field(None, pattern=MODEL, label="second model")
    job: str | None = field(None, pattern=HASH)
    classroom: bool = field(False, "large type, no tables")


PAGES = (EveryPage, LookControls, SparsifyControls, DecideControls, EvidenceControls)


def _controls() -> dict[str, Field]:
    controls = {item.name: item for page in PAGES for item in fields_of(page)}
    for command in COMMANDS.values():
        for item in fields_of(command):
            # What a page declares itself, such as the text in use, is the page's.
            if item.declared.control:
                controls.setdefault(item.declared.control, replace(item, name=item.declared.control))
    return controls


CONTROLS = _controls()


def named(beginning: str) -> dict[str, Field]:
    """The controls whose names begin so: those of one part of a page."""
    return {name: control for name, control in CONTROLS.items() if name.startswith(beginning)}
