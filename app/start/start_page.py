"""Text: what the model reads from afar, how far back, and what reading less would cost."""

import streamlit as st

from analysis.commands.text import Start
from analysis.runs import Run
from app import cached
from app.start import far, pair_list, screen
from app.ui import export, other, reading, widgets
from app.ui.screen import answer
from app.ui.tabs import drawer

# Words of the answer for shares near a simple fraction.
FRACTIONS = {1 / 5: "A fifth", 1 / 4: "A quarter", 1 / 3: "A third", 1 / 2: "Half", 2 / 3: "Two thirds"}
NEAR = 0.015


def show() -> None:
    """The finding, the text painted by what is read from afar, and what is folded under it."""
    run, tokens = screen.read_text(each_window=True)
    distance = run.numbers["min_distance"]
    share = run.numbers["far_share"]
    nearest = min(FRACTIONS, key=lambda fraction: abs(fraction - share))
    amount = FRACTIONS[nearest] if abs(nearest - share) <= NEAR else f"{share:.0%}"
    answer(f"{amount} of the attention goes {distance:,} or more tokens back.", run.numbers["sentences"][0])
    screen.read_line(run, tokens)
    paint, palette, legend = far.paint(run, tokens)
    tips = [("read from afar", [widgets.times_chance(value) for value in tokens["received"]])]
    none = f"No two content words {distance:,} or more tokens apart share a learned group here."
    place = screen.the_text()
    look = screen.Look("start_text", paint, palette, legend, run.id, tips, none=none, place=place)
    screen.show(run, tokens, pair_list.listed(run, tokens), look)
    below = st.container()
    details = lambda: _details(run, tokens, paint, palette, legend)  # noqa: E731  drawn where it is open
    drawer("start_more", details, ["start_beside"], "Details", ":material/table_chart:")
    widgets.notes(run)
    with below, widgets.guarded():
        screen.measure()


def _details(run: Run, tokens: dict, paint: list[int], palette: list[dict], legend: str) -> None:
    """How far back, in numbers; a second text or model; the model's card."""
    widgets.prose(run.numbers["sentences"][1:], "more")
    screen.windows()
    title = "The text, painted by what is read from afar"
    export.keep_text(tokens, paint, palette, title=title, key="start_text", legend=legend)
    with st.grid(2, min_column_width=400, gap="large"):
        far.distance(run, "start_distance")
        with st.container():
            far.readers(tokens)
    other.beside("start_beside", run, tokens, Start, "Reading the text", _second)
    st.subheader("The model", anchor=False, help=cached.glossary("parity badge"))
    reading.model_card(st.session_state["model"])
    widgets.source(run)


def _second(run: Run, tokens: dict, place: int, runs: list[Run]) -> None:
    """One side of two texts or models beside each other."""
    widgets.prose(run.numbers["sentences"][:2], "more")
    far.distance(run, f"start_beside_distance_{place}", runs)
    far.text(run, tokens, f"start_beside_text_{place}", "Hover to see a token.")
