"""The long-context tests on their page: one test with its map, every test at one length, and what was stored."""

import html
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from analysis.claims import signed
from analysis.commands.probes import Probe
from analysis.runs import Run
from analysis.runs.run import command
from app import cached
from app.probes import probe_charts, probe_form
from app.probes.probe_form import title
from app.quality.asked import changes
from app.selection.decide import PROBE_TASKS
from app.ui import asking, jobs, plots, repeat, screen, tables, widgets

# Of a page that has no number yet.
QUESTION = "How far back can it find something and use it?"
# Methods that an answer names.
NAMED = 2
NUMBERS = ("score", "low", "high", "chance", "n", "plain", "margin", "truncated", "lost", "difference")
WRITTEN = ("written", "written_low", "written_high", "written_difference", "n")
RULER = {  # task -> the closest one of RULER (arXiv 2404.06654), by its name in lm-evaluation-harness
    "uuid_needle": "niah_single_3",
    "several_needles": "niah_multikey_1",
    "json": "niah_multikey_3",
    "frequent_words": "ruler_fwe",
}
COLUMNS = {
    "method": tables.Column("method", wrap=True),
    "score": tables.Column("right answers", "share", words="score_words", help=cached.glossary("forced choice")),
    "difference": tables.Column(
        "points against dense", "number", words="difference_words", help=cached.glossary("paired difference")
    ),
    "margin": tables.Column("margin, nats", "number", help=cached.glossary("margin of the answer")),
    "written": tables.Column("written", "share", words="written_words", help=cached.glossary("written answers")),
    "written_difference": tables.Column("written, against dense", "number", words="written_against"),
    "plain": tables.Column("by probability alone", "share", help=cached.glossary("forced choice")),
    "n": tables.Column("questions", "whole"),
    "truncated": tables.Column("prompts cut", "whole"),
}


def one_test(top: DeltaGenerator) -> None:
    """The answer, which stands at the `top`, the maps with the controls beside them, and folded the numbers and one
    question as the model read it."""
    picture, card = screen.picture_and_card("probe", 0.4)
    with card:
        choices = probe_form.controls()
        if changed := "; ".join(f"{choice.title}, {changes(choice)}" for choice in choices if choice.changed):
            widgets.prose(f"Settings as in Cut: Methods. {changed}.", "quiet")
        request = probe_form.chosen_map(choices)
        run = cached.store().find(request)
        if run is None:
            tokens, less = probe_form.tokens(request), partial(probe_form.smaller, request)
            jobs.run_button("Run this test", request, "probe_run", tokens, smaller=less, type="primary")
    with picture:
        if run is None:
            run = _example(request)
        if run is not None:
            # One map for each method on one scale, dense first.
            axis = probe_form.TASKS[st.session_state["probe"]][1]
            with st.grid(2, min_column_width=380, gap="large"):
                for place, label in enumerate(run.numbers["labels"]):
                    rows = [row for row in run.numbers["rows"] if row["method"] == label]
                    numbers = plots.columns(rows, "length", "depth", "examples", *NUMBERS)
                    figure = probe_charts.grid(rows, axis)
                    plots.draw(figure, numbers, widgets.plain(label), f"probe_map_{place}", "needle map")
            st.caption(f"{run.numbers['rows'][0]['n']:,} questions a cell; {probe_charts.SURE} above chance by itself.")
            if not all(run.numbers["able"].values()):
                widgets.prose(run.numbers["sentences"], "note")
    with top:
        if run is None:
            screen.answer(QUESTION)
        else:
            screen.answer(headline(run), " ".join([*run.numbers["sentences"], *run.numbers.get("notes", [])]))
    if run is not None:
        with st.expander("By length, in numbers, one question", icon=":material/show_chart:"):
            widgets.each(lambda: _lengths(run), lambda: _prompt(run))
            widgets.source(run)
            widgets.notes(run)
    repeat.drawer(command("probe", request.spelled | {"methods": request.methods or None}))


def headline(run: Run) -> str:
    """Right answers of each method, and chance, in a few words."""
    scores = {row["method"]: row for row in _rows(run, "summary")}
    label, chance = title(run.request["probes"][0]), next(iter(scores.values()))["chance"]
    scored = [f"{widgets.plain(name)} {scores[name]['score']:.0%}" for name in list(scores)[:NAMED]]
    more = f", {len(scores) - NAMED} more" if len(scores) > NAMED else ""
    return f"{label}, right answers: {', '.join(scored)}{more}; chance {chance:.0%}."


def _example(request: Probe) -> Run | None:
    """The same test in a bundled text, until it has run in the chosen one; None where there is none."""
    for text, name in cached.samples():
        run = cached.store().find(request.but(text=text))
        if run is not None:
            widgets.prose(f"Example meanwhile: the same test in “{name}”. Run it to see your text.", "note")
            return run
    return None


def _lines(run: Run, name: str) -> dict[str, list[dict]]:
    """The rows of a table by the label of their method."""
    rows = _rows(run, name)
    return {label: [row for row in rows if row["method"] == label] for label in run.numbers["labels"]}


def _rows(run: Run, name: str) -> list[dict]:
    table = cached.columns(run, name)
    return [dict(zip(table, cells, strict=True)) for cells in zip(*table.values(), strict=True)]


def _lengths(run: Run) -> None:
    """Scores by length, and the table of methods."""
    table = cached.columns(run, "lengths")
    figure = probe_charts.by_length(_lines(run, "lengths"), table["chance"][0])
    plots.draw(figure, table, "Right answers by length", "probe_lengths", "forced choice")
    st.subheader("The numbers", anchor=False, help=cached.glossary("interval"))
    rows = _rows(run, "summary")
    for row in rows:
        row["score_words"] = tables.spread(row["score"], row["low"], row["high"])
        row["difference_words"] = against(row, "difference")
        # Nothing where it was not asked for.
        if row.get("written") is not None:
            row["written_words"] = tables.spread(row["written"], row["written_low"], row["written_high"])
            row["written_against"] = against(row, "written_difference")
    plots.listed(COLUMNS, rows, "probe_table", "Methods and their scores", run.id)
    widgets.prose("In brackets: 95% intervals (Wilson; paired differences after Bonett and Price).", "quiet")


def against(row: dict, name: str) -> str:
    """Points against dense, with their interval."""
    if row[name] is None:
        return "–"
    points = [signed(100 * row[f"{name}{end}"], ".0f") for end in ("", "_low", "_high")]
    return f"{points[0]} ({points[1]} to {points[2]})"


def _prompt(run: Run) -> None:
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
    stands = "" if place is None else f"; the answer stands at token {int(place):,}"
    sentence = f"The first question of a cell with prompts of {table['length'][0]:,} tokens{stands}."
    widgets.prose(sentence, "quiet")


def every_test(top: DeltaGenerator) -> None:
    """What dense attention can do at all, and what a window loses of it: every test at one length, beside chance, the
    answer at the `top`; or the button that runs them."""
    # Dense attention and a window, one length, one place.
    length = min(probe_form.USUAL, asking.card(st.session_state["model"])["max_positions"])
    sizes = {"lengths": [length], "depths": [0.5], "examples": [16], "items": 16, "write": True}
    methods = [{"name": name, "settings": {}} for name in probe_form.FIRST]
    request = probe_form.request(probes=list(PROBE_TASKS), methods=methods, **sizes)
    run = cached.store().find(request)
    if run is None:
        jobs.run_button("Try every test", request, "probe_every", probe_form.tokens(request))
        run = _example(request)
    with top:
        told = QUESTION
        if run is not None:
            can = sum(run.numbers["able"].values())
            told = f"Dense attention is above chance in {can} of {len(run.numbers['able'])} tasks."
        screen.answer(told)
    if run is None:
        return
    (dense, *others), where = _lines(run, "summary").items(), run.numbers["rows"][0]
    names, able = [title(row["probe"]) for row in dense[1]], run.numbers["able"]
    can = [title(task) for task in able if able[task]]
    listed = f": {', '.join(can)}." if can else ". It may still find what is nearer: choose shorter prompts above."
    sentences = [
        f"With prompts of {where['length']:,} tokens, dense attention is shown to be above chance in {len(can)} of "
        f"{len(names)} tasks{listed}"
    ]
    for label, rows in others:
        lost = [title(row["probe"]) for row in rows if able[row["probe"]] and row["difference_high"] < 0]
        listed = f": {', '.join(lost)}" if lost else ""
        sentences.append(
            f"{label} is shown to lose, on the same questions, in {len(lost)} of these {len(can)}{listed}."
        )
    widgets.prose(sentences, "more")
    table = plots.columns(cached.columns(run, "summary"), "probe", "method", *NUMBERS)
    figure = probe_charts.tasks(names, dict([dense, *others]))
    plots.draw(figure, table, "Every task at one length", "probe_tasks", "forced choice")
    if "written" in cached.columns(run, "summary"):
        table = plots.columns(cached.columns(run, "summary"), "probe", "method", *WRITTEN)
        figure = probe_charts.tasks(names, dict([dense, *others]), "written")
        plots.draw(figure, table, "The same, as the model writes its answers", "probe_written", "written answers")
    st.caption(f"{where['n']:,} questions in each task, the answer in the middle. Bars: 95% intervals.")
    widgets.prose(ruler(), "quiet")
    widgets.source(run)


def ruler() -> str:
    """Which tasks correspond to RULER's, in sentences."""
    named = ", ".join(f"{title(task)} is like {name}" for task, name in RULER.items())
    none = ", ".join(title(task) for task in PROBE_TASKS if task not in RULER)
    return f"Tasks of RULER: {named}. None there: {none}. RULER lets the model write its answer."
