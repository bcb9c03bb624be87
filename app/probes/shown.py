"""What the long-context tests found: maps, scores by length, the numbers, one prompt in full, and every task."""

import html

import streamlit as st

from analysis.runs import Run
from app import cached
from app.probes import charts
from app.probes.words import against, ruler, spread, title
from app.selection.decide import PROBE_TASKS
from app.ui import studied, tables, widgets
from app.ui.reading import rows_of

NUMBERS = ("score", "low", "high", "chance", "n", "plain", "margin", "truncated", "lost", "difference")


def answer(run: Run) -> None:
    """What the map says beside its first sentence, which leads, and where it comes from."""
    widgets.prose(run.numbers["sentences"][1:], "more")
    widgets.source(run)
    widgets.notes(run)


def maps(run: Run, task: str) -> None:
    """One map for each method on one scale, dense first."""
    axis = PROBE_TASKS[task][1]
    with st.grid(2, min_column_width=380, gap="large"):
        for place, label in enumerate(run.numbers["labels"]):
            rows = [row for row in run.numbers["rows"] if row["method"] == label]
            widgets.chart(
                charts.grid(rows, axis),
                {key: [row[key] for row in rows] for key in ("length", "depth", "examples", *NUMBERS)},
                title=widgets.plain(label),
                key=f"probe_map_{place}",
                alt=f"Share of right answers by place and length with {label}",
                help=cached.glossary("needle map"),
            )
    per_cell = run.numbers["rows"][0]["n"]
    where = "Depth 0%: the beginning of the prompt, 100%: right before the question. " if axis == "depth" else ""
    st.caption(
        f"{where}{per_cell:,} questions in each cell; {charts.SURE} marks a cell that is above chance by itself "
        "(95% interval). All maps have one scale."
    )


def lengths(run: Run) -> None:
    """Scores by length, and the table of methods."""
    table = cached.columns(run, "lengths")
    lines = {label: _rows(rows_of(table, method=label)) for label in run.numbers["labels"]}
    widgets.chart(
        charts.by_length(lines, table["chance"][0]),
        table,
        title="Right answers by length",
        key="probe_lengths",
        alt="Share of right answers against the length of the prompt, a line for each method, chance dotted",
        help=cached.glossary("forced choice"),
    )
    _numbers(run)


def _rows(table: dict) -> list[dict]:
    return [dict(zip(table, cells, strict=True)) for cells in zip(*table.values(), strict=True)]


def _numbers(run: Run) -> None:
    st.subheader("The numbers", anchor=False, help=cached.glossary("interval"))
    rows = _rows(cached.columns(run, "summary"))
    values = {
        "method": [row["method"] for row in rows],
        **{name: [row[name] for row in rows] for name in ("score", "difference", "plain", "margin", "n", "truncated")},
        "score_words": [spread(row) for row in rows],
        "difference_words": [against(row) for row in rows],
    }
    columns = {
        "method": tables.Column("method", wrap=True),
        "score": tables.Column("right answers", "share", words="score_words", help=cached.glossary("forced choice")),
        "difference": tables.Column(
            "points against dense", "number", words="difference_words", help=cached.glossary("paired difference")
        ),
        "margin": tables.Column("margin, nats", "number", help=cached.glossary("margin of the answer")),
        "plain": tables.Column("by probability alone", "share", help=cached.glossary("forced choice")),
        "n": tables.Column("questions", "whole"),
        "truncated": tables.Column("prompts cut", "whole"),
    }
    tables.table(columns, values, key="probe_table", identity=run.id, label="Methods and their scores")
    widgets.prose("In brackets: 95% intervals (Wilson; paired differences after Bonett and Price).", "quiet")


def prompt(run: Run) -> None:
    """One question as the model read it, its middle left out."""
    table = cached.columns(run, "shown")
    parts = {name: html.escape(str(column[0])) for name, column in table.items()}
    st.subheader("One question as the model reads it", anchor=False, help=cached.glossary("distractor"))
    evidence = f" <mark>{parts['evidence']}</mark> " if parts["evidence"] else " … "
    st.html(
        f'<p class="fs-more">… {parts["before"]}{evidence}{parts["after"]} …</p>'
        f'<p class="fs-more"><b>Asked at the end:</b> {parts["question"]} <b>?</b></p>'
        f'<p class="fs-more"><b>Right:</b> {parts["answer"]} &nbsp; <b>Others:</b> {parts["others"]}</p>'
    )
    place = table["at"][0]
    sentence = f"The first question of a cell with prompts of {table['length'][0]:,} tokens"
    widgets.prose(
        f"{sentence}; the answer stands at token {int(place):,}." if place is not None else f"{sentence}.", "quiet"
    )


def every_task(run: Run) -> None:
    """What dense attention can do at all, and what a window loses of it: every task at one length, beside chance."""
    table = cached.columns(run, "summary")
    lines = {label: _rows(rows_of(table, method=label)) for label in run.numbers["labels"]}
    dense, names = (
        lines[run.numbers["labels"][0]],
        [title(row["probe"]) for row in _rows(table) if row["name"] == "dense"],
    )
    where, able = run.numbers["rows"][0], run.numbers["able"]
    can = [title(row["probe"]) for row in dense if able[row["probe"]]]
    sentence = (
        f"With prompts of {where['length']:,} tokens, dense attention is shown to be above chance in {len(can)} of "
    )
    sentence += f"{len(dense)} tasks"
    where_able = f": {', '.join(can)}." if can else ". It may still find what is nearer: choose shorter prompts above."
    widgets.prose(
        [sentence + where_able, *(_loses(label, rows, able) for label, rows in list(lines.items())[1:])], "more"
    )
    widgets.chart(
        charts.tasks(names, lines),
        {name: table[name] for name in ("probe", "method", *NUMBERS)},
        title="Every task at one length",
        key="probe_tasks",
        alt="Share of right answers of each method in every task, with intervals and chance",
        help=cached.glossary("forced choice"),
    )
    st.caption(f"{where['n']:,} questions in each task, the answer in the middle. Bars: 95% intervals.")
    widgets.prose(ruler(), "quiet")
    widgets.source(run)


def _loses(label: str, rows: list[dict], able: dict[str, bool]) -> str:
    """In which of the tasks that dense attention can do a method is shown to lose."""
    lost = [title(row["probe"]) for row in rows if able[row["probe"]] and row["difference_high"] < 0]
    named = f": {', '.join(lost)}" if lost else ""
    return f"{label} is shown to lose, on the same questions, in {len(lost)} of these {sum(able.values())}{named}."


def beyond() -> None:
    """Reading twice the context, as it was measured and stored: positions as they are, extended, and fine-tuned."""
    st.header("Reading beyond its context", anchor=False, help=cached.glossary("dynamic NTK"))
    numbers = studied.opened("length-extension", "Reading twice the context")
    if numbers is not None:
        studied.drawn(numbers, "probe_beyond", cached.glossary("dynamic NTK"))


def recall() -> None:
    """What texts whose answers stand far before in them gave the model, as it was measured and stored."""
    st.header("Where its recall comes from", anchor=False, help=cached.glossary("recall documents"))
    numbers = studied.opened("recall-documents", "What recall documents give")
    if numbers is not None:
        studied.drawn(numbers, "probe_recall", cached.glossary("recall documents"), "recall-documents")
