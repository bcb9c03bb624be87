"""What is folded beneath the curves: what the numbers rest on, and where in the window a method loses."""

from collections.abc import Sequence

import streamlit as st

from app.quality import painted_change
from app.quality.asked import counted
from app.quality.steps import Step
from app.ui import plots, widgets
from app.ui.charts import line, safe, style
from app.ui.plots import against_dense, bounds

# Of a bin's width between two methods, so that their bars do not hide each other.
DODGE = 0.09


def show(steps: Sequence[Step], front: Step) -> None:
    """Change by position, what the numbers of all `steps` rest on, and of the one in `front` the tokens that lose
    most."""
    with widgets.guarded():
        positions(steps)
    with widgets.guarded():
        row = steps[0].row
        units, unit = row.get("difference_units", row.get("units")), row.get("difference_unit", row.get("unit"))
        few = "" if steps[0].change.low is not None else ", too few for one"
        words = f"Intervals of the change hold 95%, from {units:,} {unit}{few}: how even it is inside this text, not "
        widgets.prose(f"{words}what another text would give.", "quiet")
        widgets.prose(list(dict.fromkeys(note for step in steps for note in step.run.numbers["notes"])), "note")
        widgets.source(steps[0].run)
    if "bins" in front.row:
        with widgets.guarded():
            painted_change.worst(front)


def positions(steps: Sequence[Step]) -> None:
    """Change of perplexity by position in the window, one line per method, of those whose runs have the bins."""
    if "bins" not in steps[0].row:
        widgets.prose("Only methods that save reads are scored at every position: choose reads above.", "quiet")
        return
    data, rows = [], []
    for place, step in enumerate(steps):
        bins, (colour, symbol) = step.row["bins"], style(step.asked.place)
        shift = (place - (len(steps) - 1) / 2) * DODGE * (bins[0]["last"] - bins[0]["first"])
        x = [(cell["first"] + cell["last"] + 1) / 2 + shift for cell in bins]
        labels = [f"tokens {cell['first'] + 1:,}–{cell['last']:,}, n = {cell['n']:,}" for cell in bins]
        hover = f"{safe(step.asked.title)}<br>%{{text}}<br>%{{y:+.1%}}"
        details = {"error_y": bounds(bins, "difference", ("low", "high"), colour), "text": labels}
        change = [cell["difference"] for cell in bins]
        data.append(line(step.asked.title, x, change, colour, "solid", symbol, hover, 1.5, **details))
        rows += [{"method": step.asked.title} | cell for cell in bins]
    figure = against_dense(data, "position in the window, tokens", height=380, xaxis={"rangemode": "tozero"})
    plots.draw(figure, rows, "Where in the window it loses", "quality_bins", "worst position bin")
    cells = steps[0].row["bins"]
    st.caption(f"{counted(len(cells), 'bin')} of {counted(cells[0]['n'], 'predicted token')} each, 95% intervals.")
