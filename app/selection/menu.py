"""The doors of the menu and their pages: what each is called and uses, what it rests on, and where its finding leads.

A page is a tab of its door: its name stands in the address (/cut?at=budgets), where the first page of a door has none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

# Chips of the top bar.
TEXT, GROUPS = ("text", "model"), ("text", "model", "groups")
_ALL_FOUR = ("focus", "focal_attention", "calibrated_sparse_attention", "gwr_linear_routing")


@dataclass(frozen=True)
class Page:
    """A tab. `was`: the address that it had as a page of its own, which still leads to it; `chips`: what it uses of the
    bar on top; `papers`: what it is about, whatever it shows."""

    name: str
    title: str
    was: str
    chips: tuple[str, ...]
    answers: str
    papers: tuple[str, ...] = ()

    @property
    def door(self) -> "Door":
        """The door that it stands behind."""
        return next(door for door in DOORS.values() if self in door.pages)

    @property
    def called(self) -> str:
        """Its title with that of its door, for a list of pages of all doors."""
        return f"{self.door.title}: {self.title}"

    @property
    def leads(self) -> tuple[tuple[str, ...], ...]:
        """(page, what it tells, controls that the link carries besides) of where its finding leads."""
        return LEADS[self.name]


@dataclass(frozen=True)
class Door:
    """An entry of the menu: a file of app/views, and its address, which the first door does without."""

    name: str
    title: str
    icon: str
    pages: tuple[Page, ...]

    @property
    def view(self) -> str:
        """Its file."""
        return f"views/{self.name}.py"


_ANSWERS = {
    "text": "What the model reads in this text.",
    "links": "Which far-apart tokens belong together.",
    "groups": "Which tokens the model learned to treat alike.",
    "map": "What each head reads, and what one token reads through it.",
    "temperature": "What sharpening does to every head and the predictions.",
    "methods": "What reading less costs on this text, and gains here.",
    "budgets": "How many keys each head needs, and where reading fewer breaks.",
    "routers": "Whether a router finds the attention without looking at every key.",
    "generate": "What it still answers when it reads or keeps less, token by token.",
    "worth": "What sparse attention could gain at most.",
    "speed": "How much time sparse inference saves on this machine, against the fastest dense.",
    "runs": "What was computed here: search, open, pin, compare, take it elsewhere.",
    "tests": "How far back it finds and uses something.",
    "training": "Training, routing collapse, the causality check and ablations.",
    "papers": "Every row they print, beside ours.",
}


def _page(name: str, title: str, was: str, chips: tuple[str, ...], papers: tuple[str, ...] = ()) -> Page:
    return Page(name, title, was, chips, _ANSWERS[name], papers)


_DOORS = (
    Door(
        "read",
        "Read",
        "article",
        (
            _page("text", "Text", "start", GROUPS),
            _page("links", "Links", "long-range-pairs", GROUPS, ("focus",)),
            _page("groups", "Groups", "token-groups", GROUPS, ("focus",)),
        ),
    ),
    Door(
        "heads",
        "Heads",
        "grid_view",
        (
            _page("map", "Map", "attention-heads", TEXT),
            _page("temperature", "Temperature (sharpness)", "softmax-temperature", TEXT, ("focal_attention",)),
        ),
    ),
    Door(
        "cut",
        "Cut",
        "content_cut",
        (
            _page("methods", "Methods", "quality-vs-speed", GROUPS),
            _page("budgets", "Budgets per head", "kv-budgets", TEXT, ("calibrated_sparse_attention",)),
            _page("routers", "Routers (recall)", "routing", TEXT, ("gwr_linear_routing",)),
            _page("generate", "Generate", "generate", GROUPS),
        ),
    ),
    Door(
        "decide",
        "Decide",
        "balance",
        (
            _page("worth", "Is it worth it?", "is-it-worth-it", ("model",)),
            _page("speed", "Speed (launch)", "speed", GROUPS),
        ),
    ),
    Door(
        "lab",
        "Lab",
        "science",
        (
            _page("runs", "Runs", "runs", ()),
            _page("tests", "Tests", "long-context-tests", GROUPS, ("ruler",)),
            _page("training", "Training (dominance)", "train-a-router", GROUPS, ("focus",)),
            _page("papers", "Papers", "papers-vs-measured", ("model",), _ALL_FOUR),
        ),
    ),
)
DOORS = {door.name: door for door in _DOORS}
PAGES = {page.name: page for door in _DOORS for page in door.pages}
FIRST = _DOORS[0]
# Addresses of earlier versions, as links, stored runs and bundles name them, and the name of the door that has none ->
# the name of the page.
MOVED = {page.was: page.name for page in PAGES.values()} | dict.fromkeys((FIRST.name, "tour"), FIRST.pages[0].name)


def page_at(address: str) -> Page | None:
    """The page of a name, or of an address of an earlier version; None where there is none."""
    return PAGES.get(MOVED.get(address or FIRST.name, address))


def place(name: str, controls: Mapping[str, str] | None = None) -> tuple[str, dict[str, str]]:
    """(file of the door, parameters of the URL) that open a page with these controls. The tab is always named: a
    session that has another one open would keep it."""
    page = PAGES[name]
    return page.door.view, {"at": page.name, **(controls or {})}


def address(name: str, controls: Mapping[str, str] | None = None) -> str:
    """The same as text, to be followed by hand: who comes anew needs no word for the first page of a door."""
    door = PAGES[name].door
    tab = {} if door.pages[0].name == name else {"at": name}
    query = urlencode({**tab, **(controls or {})})
    return f"/{'' if door is FIRST else door.name}{'?' * bool(query)}{query}"


_READER = ("map", "The head that reads this pair", "layer", "head", "query", "why_key")
_WORTH = ("worth", "What reading less could gain")
_SAVES = ("speed", "How much time it saves here")
_FAR = ("tests", "Whether it still finds what stands far back")
_COSTS = ("methods", "What reading less costs on your text")
_OF_GROUPS = ("methods", "What reading only these groups costs")
_TAKE = ("runs", "The numbers, as a bundle")
LEADS: dict[str, tuple[tuple[str, ...], ...]] = {  # name -> `Page.leads`
    "text": (_READER, ("links", "All far pairs of this text", "pair"), _WORTH),
    "links": (_READER, ("groups", "The group that holds it", "layer", "group")),
    "map": (
        ("budgets", "How many keys this head needs", "budget_cells"),
        ("temperature", "This head, sharpened", "layer", "head", "query"),
        ("routers", "Whether a router finds what it reads"),
    ),
    "temperature": (
        ("map", "All that this head reads", "layer", "head", "query"),
        ("methods", "What sharpening does to the predictions, beside other methods"),
    ),
    "groups": (("links", "Far pairs of these groups", "layer", "group"), _OF_GROUPS),
    "budgets": (("methods", "This budget beside other methods"), _SAVES),
    "routers": (
        ("methods", "What reading only those buckets costs"),
        ("budgets", "How many keys a head needs at all"),
    ),
    "methods": (_SAVES, ("generate", "What it still answers"), _FAR),
    "generate": (("speed", "The same timed in rounds"), _COSTS, _FAR),
    "worth": (_COSTS, ("speed", "What it saves on this machine")),
    "speed": (("generate", "Watch it write, dense and sparse"), _TAKE, _WORTH),
    "tests": (_COSTS, _TAKE),
    "training": (("groups", "What its groups hold"), _OF_GROUPS),
    "papers": (("training", "Train the router of a row"), ("runs", "All runs")),
    "runs": (("papers", "The papers' numbers beside these"), ("text", "Another text")),
}
