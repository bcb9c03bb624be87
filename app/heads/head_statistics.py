"""The statistics of a head: title, unit, definition, and which end of the list is looked at first; letters of names."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app import cached
from app.ui import tables


@dataclass(frozen=True)
class Statistic:
    """One column of the command `statistics`: its title, kind of number (as `tables.Column`), digits, glossary term,
    and the end that the finder shows first."""

    title: str
    kind: str
    digits: int
    term: str
    first: str = "highest"

    @property
    def column(self) -> tables.Column:
        """A table's column of it."""
        return tables.Column(self.title, self.kind, self.digits, help=cached.glossary(self.term))

    @property
    def axis(self) -> dict:
        """How an axis, or a scale of colours, shows it."""
        return {"tickformat": ".0%"} if self.kind == "share" else {}

    @property
    def short(self) -> str:
        """Its title without the unit."""
        return self.title.split(",")[0]

    def show(self, value: float | None) -> str:
        """A value with its unit."""
        return self.column.show(value)


STATISTICS = {
    "far_peaks": Statistic("Far reading, concentrated", "share", 1, "far reading, concentrated"),
    "entropy": Statistic("Entropy, nats", "number", 2, "entropy (attention)", "lowest"),
    "max_prob": Statistic("Largest probability", "share", 2, "largest probability"),
    "top_p_rank": Statistic("Top-p rank (90%), keys", "number", 1, "top-p rank", "lowest"),
    "first_token_mass": Statistic("First-token mass", "share", 2, "first-token mass"),
    "window_mass": Statistic("Window mass (128 tokens)", "share", 2, "window mass"),
    "mean_distance": Statistic("Mean distance, tokens", "number", 1, "mean distance"),
    "previous_token": Statistic("Previous-token score", "share", 2, "previous-token score"),
    "induction": Statistic("Induction score", "share", 2, "induction score"),
}

OWN = {  # what a model itself does beside reading, where it does
    "sink_mass": Statistic("Sink mass", "share", 1, "sink mass"),
    "entry_mass": Statistic("Entry mass", "share", 1, "entry mass"),
    "gate": Statistic("Mean gate", "share", 1, "mean gate"),
    "selected_mass": Statistic("Selected mass", "share", 1, "selected mass", "lowest"),
}
ALL = STATISTICS | OWN

TASKS = {  # statistic -> what its first head does
    "far_peaks": "Reads farthest",
    "induction": "Copies what came next",
    "entropy": "Sharpest",
}

LETTERS = {  # of a name of a head, on the map
    "previous token": "P",
    "duplicate token": "D",
    "induction": "I",
    "retrieval": "R",
    "sink": "S",
    "local": "L",
    "even": "E",
    "positional": "F",
}


def cells_of(table: Mapping[str, Sequence]) -> list[tuple[int, int]]:
    """The (layer, head) of each row of a table."""
    return list(zip(table["layer"], table["head"], strict=True))


def offered(table: Mapping[str, Sequence]) -> dict[str, Statistic]:
    """The statistics that a table has, by name."""
    return {name: about for name, about in ALL.items() if name in table}


def ranked(values: list[float | None], order: str) -> list[int]:
    """Rows from the highest or lowest value on, ties to the first row; what has no value is left out."""
    defined = [(row, value) for row, value in enumerate(values) if value is not None]
    defined.sort(key=lambda one: -one[1] if order == "highest" else one[1])
    return [row for row, _ in defined]


def letters(names: Iterable[str]) -> str:
    """The names of a head as they fit into a cell of the map."""
    return "".join(letter for name, letter in LETTERS.items() if any(label.startswith(name) for label in names))


def spelled(layer: int, head: int) -> str:
    """A head, as it is called everywhere."""
    return f"{layer}.{head}"
