"""What is folded beneath the curves: all numbers, and where in the window a method loses."""

from collections.abc import Sequence

import streamlit as st

from app import cached
from app.quality.asked import counted
from app.quality.steps import Step
from app.ui import plots, tables, widgets
from app.ui.charts import line, safe, style
from app.ui.plots import against_dense, bounds, columns
from app.ui.spelled import size as bytes_in_words

# Of a bin's width between two methods, so that their bars do not hide each other.
DODGE = 0.09
COLUMNS = {
    "method": tables.Column("method"),
    "perplexity": tables.Column("perplexity", "number", help=cached.glossary("perplexity")),
    "change": tables.Column("against dense", "number", words="words", help=cached.glossary("paired difference")),
    "kl_mean": tables.Column("KL, mean", "number", 3, help=cached.glossary("KL to dense")),
    "kl_p99": tables.Column("KL, 99%", "number", help=cached.glossary("KL to dense")),
    "same_top1": tables.Column("same top-1", "share", help=cached.glossary("same top-1")),
    "attended": tables.Column("keys of a query", "number", 1, help=cached.glossary("KV reads (% of causal)")),
    "attended_kv": tables.Column(
        "keys of a key-value head", "number", 1, help=cached.glossary("reads per key-value head")
    ),
    "kv_read": tables.Column("KV reads", "share", help=cached.glossary("KV reads (% of causal)")),
    "kv_bytes": tables.Column("KV cache held", "number", words="held", help=cached.glossary("KV cache")),
    "kv_share": tables.Column("of dense", "share"),
    "kv_most_bytes": tables.Column(
        "at most, reading the prompt", "number", words="most", help=cached.glossary("KV cache at most")
    ),
    "kept_keys": tables.Column("keys a head holds", "number", 1),
    "blocks": tables.Column("blocks of the prompt read", "share"),
}


def numbers(steps: Sequence[Step]) -> None:
    """All numbers of the methods at the chosen share, and what their intervals rest on."""
    rows = []
    for step in steps:
        row = {"method": step.row["label"], "change": step.change.value, "words": step.change.bracketed}
        row |= {name: step.row[name] for name in COLUMNS if name not in row and step.row.get(name) is not None}
        if "kv_bytes" in row:
            row |= {"held": bytes_in_words(row["kv_bytes"]), "most": bytes_in_words(row["kv_most_bytes"])}
        rows.append(row)
    about = {name: column for name, column in COLUMNS.items() if any(name in row for row in rows)}
    plots.listed(
        about, columns(rows, *about, *filter(None, (c.words for c in about.values()))), "quality_table", "Numbers"
    )
    row = steps[0].row
    units, unit = row.get("difference_units", row.get("units")), row.get("difference_unit", row.get("unit"))
    few = "" if steps[0].change.low is not None else ", too few for one"
    widgets.prose(
        f"Intervals of the change hold 95%, from {units:,} {unit}{few}: how even it is inside this text, not what "
        "another text would give.",
        "quiet",
    )
    widgets.prose(list(dict.fromkeys(note for step in steps for note in step.run.numbers["notes"])), "note")
    widgets.source(steps[0].run)


def positions(steps: Sequence[Step]) -> None:
    """Change of perplexity by position in the window, one line per method, of those whose runs have the bins."""
    steps = [step for step in steps if "bins" in step.row]
    if not steps:
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
        data.append(
            line(
                step.asked.title,
                x,
                [cell["difference"] for cell in bins],
                colour,
                "solid",
                symbol,
                hover,
                1.5,
                **details,
            )
        )
        rows += [{"method": step.asked.title} | cell for cell in bins]
    figure = against_dense(data, "position in the window, tokens", height=380, xaxis={"rangemode": "tozero"})
    plots.draw(figure, rows, "Where in the window it loses", "quality_bins", "worst position bin")
    cells = steps[0].row["bins"]
    st.caption(f"{counted(len(cells), 'bin')} of {counted(cells[0]['n'], 'predicted token')} each, 95% intervals.")
