"""The picture of the door: what each method loses against the share that it keeps, drawn and moved in the browser
(app/ui/parts/curves.js), with the rows of the chosen share in rank groups."""

from collections.abc import Callable, Sequence

import streamlit as st

from analysis.claims import ranks
from analysis.runs import Run
from app.quality import timing
from app.quality.asked import changes
from app.quality.steps import NULLS, Found, Step, Subject
from app.selection.decide import EQUAL_SHARES
from app.ui import export, plots
from app.ui.charts import RANDOM
from app.ui.painted import part

# What a method saves -> what its share is of, and the heads of the last columns.
AXES = {
    "reads": ("share of the attention that is computed", "worst place", "keys a query"),
    "memory": ("share of the KV cache that is kept", "at most", "KV cache"),
    "prefill": ("share of the prompt's blocks that is read", "at most", "KV cache"),
}

_CURVES = part(
    "curves",
    """<div class="curves"><svg role="group" aria-label="perplexity against the share that is kept"></svg>
    <div class="tip" role="status" hidden></div>
    <div class="rows"><table><thead></thead><tbody></tbody></table></div></div>""",
    "numbers",
)


def draw(
    subject: Subject,
    found: Sequence[Found],
    lead: str,
    percent: int | None,
    *,
    launched: Sequence[Run],
    waits: str,
    moved: Callable,
) -> None:
    """The curves; a moved dot calls `moved` with the method and the per cent. `waits`: what is said of a missing
    step."""
    axis, worst, held = AXES[subject.saves]
    methods = [_method(one, subject, launched) for one in found]
    key = f"quality_curves_{subject.saves}"
    data = {
        "axis": axis,
        "worst": worst,
        "held": held,
        "limit": st.session_state["quality_lose"] / 100,
        "stops": [stop / 100 for stop in EQUAL_SHARES],
        "at": None if percent is None else percent / 100,
        "lead": lead,
        "waits": waits,
        "methods": methods,
        "ranks": {_name(stop): _ranks(found, stop) for stop in (*EQUAL_SHARES, None)},
    }

    def released() -> None:
        value = moved_to(st.session_state.get(key, {}).get("moved"), [one.choice.name for one in found])
        if value:
            moved(*value)

    rows = [_numbers(step) for one in found for step in one.steps]
    if rows:
        title = "Perplexity against the share that is kept"
        export.corner(lambda: plots.columns(rows), "quality", key, title, chart=key)
    _CURVES(key=key, data=data, on_moved_change=released)


def moved_to(value: object, names: Sequence[str]) -> tuple[str, int | None] | None:
    """The method and the per cent that the browser sent; None for anything else than one of the `names` and shares."""
    if not (isinstance(value, list) and len(value) == 2 and value[0] in names):
        return None
    stop = round(100 * value[1]) if isinstance(value[1], (int, float)) else None
    return value[0], stop if stop in EQUAL_SHARES else None


def _name(percent: int | None) -> str:
    """A share as JavaScript spells it."""
    return "set" if percent is None else f"{percent / 100:g}"


def _ranks(found: Sequence[Found], percent: int | None) -> dict[str, int]:
    """method -> its rank at a share."""
    steps = [step for step in (one.at(percent) for one in found) if step]
    return {step.asked.name: rank for step, rank in zip(steps, ranks([step.change for step in steps]), strict=True)}


def _method(one: Found, subject: Subject, launched: Sequence[Run]) -> dict:
    null, points = one.choice.name in NULLS, []
    for step in one.reached:
        change = step.change
        note = [changes(step.asked), "" if step.honest else "a ceiling" if step.row["ceiling"] else "reads the future"]
        points.append(
            {
                "stop": None if step.percent is None else step.percent / 100,
                "share": round(step.share, 5),
                "change": round(change.value, 6),
                "low": None if change.low is None else round(change.low, 6),
                "high": None if change.high is None else round(change.high, 6),
                "words": change.bracketed,
                "settings": ", ".join(filter(None, note)),
                "worst": step.worst,
                "speed": timing.cell(step.asked, timing.measured(step.asked, subject.size, launched)),
                "held": step.held,
            }
        )
    return {
        "name": one.choice.name,
        "title": one.choice.title,
        "colour": RANDOM if null else one.choice.colour,
        "null": null,
        "fixed": one.choice.fixed,
        "points": points,
        "missing": [stop / 100 for stop in one.missing],
        "least": one.least,
    }


def _numbers(step: Step) -> dict:
    """All numbers of a step, as they are taken away."""
    about = {"title": step.asked.title, "settings": changes(step.asked), "asked, per cent": step.percent}
    return about | {name: cell for name, cell in step.row.items() if not isinstance(cell, (list, dict))}
