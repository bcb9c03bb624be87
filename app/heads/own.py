"""What the model itself does with a head beside reading: its learned sink, compressed entries, its output gate, the
indexer's selection."""

from app.heads.head_statistics import OWN, cells_of
from app.ui import widgets

# A gate below is nearly closed.
IDLE = 0.05
WORDS = {
    "sink_mass": "Its learned sink takes {value} of the softmax; shares below are among tokens.",
    "entry_mass": "Compressed entries take {value} of the softmax; shares below are among tokens.",
    "gate": "Its output gate is {value} open, on average.",
    "selected_mass": "The model's own indexer selects keys that hold {value} of its dense attention.",
}
CLOSED = "Its output gate is closed ({value} open): what it reads is thrown away, so this reading is idle."


def show(table: dict, cell: tuple[int, int]) -> None:
    """The sentences of a head, from the `table` of the statistics of all heads."""
    row = cells_of(table).index(cell)
    for name in OWN:
        value = table[name][row] if name in table else None
        if value is not None:
            idle = name == "gate" and value < IDLE
            words = CLOSED if idle else WORDS[name]
            widgets.prose(words.format(value=OWN[name].show(value)), "note" if idle else "more")
