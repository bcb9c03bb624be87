"""Benchmarks on the page Long-context tests: what is asked, and every score beside dense with what it rests on."""

import streamlit as st

from analysis.benchmarks import SET_UPS, TASKS, here
from analysis.claims import Comparison
from analysis.commands import commandline
from analysis.runs import Run
from app import cached
from app.quality.asked import Asked
from app.selection import state
from app.selection.decide import BENCHMARK_ITEMS, BENCHMARK_SHOTS
from app.ui import jobs, repeat, studied, tables, widgets
from app.ui.charts import SHARE, error_bars, figure, marks, safe, style

NAME = "benchmarks"  # the stored study
PROMPTS = {"own": "The tasks' own prompts", "long": "With examples in the prompt, which make it long"}
USUAL = ("hellaswag", "arc_easy", "piqa", "lambada", "truthfulqa", "gsm8k")
COLUMNS = {
    "title": tables.Column("task"),
    "shots": tables.Column("examples in a prompt", "whole"),
    "method": tables.Column("method", wrap=True),
    "score": tables.Column("score", "share", words="score_words", help=cached.glossary("benchmark score")),
    "stderr": tables.Column("standard error", "share"),
    "difference": tables.Column(
        "points against dense", "number", words="difference_words", help=cached.glossary("paired difference")
    ),
    "longer": tables.Column("longer than read whole", "share", help=cached.glossary("items longer than the window")),
    "gold": tables.Column("right answer, nats", "number", help=cached.glossary("log-probability of the right answer")),
    "gold_difference": tables.Column("against dense, nats", words="gold_words"),
    "items": tables.Column("questions", "whole"),
    "left": tables.Column("do not fit", "whole"),
}


def own(choices: list[Asked]) -> None:
    """The tab: the controls, the run in use with its chart and table, or the button that starts it; `choices` beside
    dense."""
    methods, tasks = [choice.spec for choice in choices], here()
    if not tasks:
        widgets.prose(
            "Put the files of a benchmark, as they were published, into models_cache/benchmarks: one folder for each "
            f"task, named {', '.join(TASKS)}. Nothing is downloaded. From the command line any folder can be named:",
            "more",
        )
        st.code(command(arguments(list(USUAL), methods)), language=None, wrap_lines=True)
        return
    args = arguments(_controls(tasks), methods)
    if not args["tasks"]:
        widgets.prose("Choose at least one task.", "quiet")
        return
    run = cached.store().find("benchmark", args)
    if run is None:
        jobs.run_button("Run these benchmarks", "benchmark", args, "benchmark_run")
    else:
        scores(run)
    repeat.drawer(command(args))


def _controls(available: list[str]) -> list[str]:
    chosen = st.session_state
    raw = chosen["benchmark_tasks"]
    named = [name for name in USUAL if name in available] if raw is None else [] if raw == "none" else raw.split("~")
    chosen["benchmark_pick"] = [name for name in available if name in named]
    st.multiselect(
        "Tasks",
        available,
        key="benchmark_pick",
        format_func=lambda name: TASKS[name].title,
        on_change=_picked,
        width=620,
    )
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        widgets.settled("benchmark_shots", list(BENCHMARK_SHOTS), None)
        st.selectbox(
            "Examples in a prompt",
            BENCHMARK_SHOTS,
            key="benchmark_shots",
            width=190,
            format_func=lambda n: "the task's own" if n is None else f"{n}",
            help="More examples make prompts long, so that reading less makes a difference.",
        )
        widgets.settled("benchmark_items", list(BENCHMARK_ITEMS), 100)
        st.selectbox(
            "Questions",
            BENCHMARK_ITEMS,
            key="benchmark_items",
            width=150,
            format_func=lambda n: f"the first {n}" if n else "all",
        )
        st.segmented_control(
            "The question",
            list(SET_UPS),
            key="benchmark_question",
            required=True,
            format_func=lambda name: f"{SET_UPS[name].short} ({SET_UPS[name].letter})",
            help=cached.glossary("question dense or sparse"),
        )
    set_up = SET_UPS[chosen["benchmark_question"]]
    widgets.prose(f"Set-up {set_up.letter}: {set_up.means}", "quiet")
    return chosen["benchmark_pick"]


def _picked() -> None:
    state.choose(st.session_state, benchmark_tasks="~".join(st.session_state["benchmark_pick"]) or "none")


def arguments(tasks: list[str], methods: list[dict]) -> dict:
    """The arguments of `benchmark` for the present choice."""
    chosen = st.session_state
    return {
        "model": chosen["model"],
        "tasks": tasks,
        "methods": methods,
        "shots": chosen["benchmark_shots"],
        "items": chosen["benchmark_items"] or None,
        "question": chosen["benchmark_question"],
        "seed": 0,
    }


def command(args: dict) -> str:
    """The same from the command line."""
    return commandline("benchmark", args | {"data": "DIR", "methods": args["methods"] or None})


def kept() -> None:
    """The scores that are stored for the model in use, with the tasks' own prompts and with long ones, or the command
    that stores them."""
    st.header("The tasks of the papers", anchor=False, help=cached.glossary("benchmark score"))
    study = studied.opened(NAME, "The tasks of the papers")
    if study is None:
        return
    by = {title: [row for row in study.rows if row["prompts"] == kind] for kind, title in PROMPTS.items()}
    with st.grid(2, min_column_width=460, gap="large"):
        for place, (title, rows) in enumerate(by.items()):
            with st.container():
                drawn(rows, title, f"benchmark_kept_{place}")
    listed(sum(by.values(), []), "benchmark_kept", study.protocol.date)
    widgets.prose(study.notes, "quiet")
    studied.made(study)


def scores(run: Run) -> None:
    """Of every task and method: the score that papers print, with its interval and what it rests on."""
    rows = [row for row in run.numbers["rows"] if row["metric"] == _metric(row["task"])]
    widgets.source(run)
    widgets.prose(run.numbers["sentences"], "more")
    widgets.notes(run)
    drawn(rows, "Scores", "benchmark_scores")
    listed(rows, "benchmark", run.id)


def drawn(rows: list[dict], title: str, key: str) -> None:
    """The chart of scores, with its numbers."""
    values = {"title": [row["title"] for row in rows], "method": [row["method"] for row in rows]}
    values |= {name: [row[name] for row in rows] for name in ("shots", "value", "stderr", "items")}
    widgets.chart(
        chart(rows),
        values,
        title=title,
        key=key,
        alt="Score of every method on every task with its 95% interval, chance dotted where it is one number",
        help=cached.glossary("benchmark score"),
    )


def listed(rows: list[dict], key: str, identity: str) -> None:
    """The table of scores, with what each rests on. `key` begins the keys of table and download."""
    values = {
        "title": [f"{row['title']}, {row['metric']}" for row in rows],
        "shots": [row["shots"] for row in rows],
        "method": [row["method"] for row in rows],
        "score": [row["value"] for row in rows],
        "score_words": [f"{row['value']:.1%} ({row['value_low']:.1%} to {row['value_high']:.1%})" for row in rows],
        "stderr": [row["stderr"] for row in rows],
        "difference": [row["difference"] for row in rows],
        "difference_words": [_against(row, "difference", "points") for row in rows],
        "longer": [row["longer_than_window"] for row in rows],
        "gold": [row["gold"] for row in rows],
        "gold_difference": [row["gold_difference"] for row in rows],
        "gold_words": [_against(row, "gold_difference", "nats") for row in rows],
        "items": [row["items"] for row in rows],
        "left": [row["does_not_fit"] for row in rows],
    }
    tables.table(COLUMNS, values, key=f"{key}_table", identity=identity, label="Scores of methods, task by task")
    widgets.numbers(values, "benchmarks", f"{key}_numbers")


def _metric(task: str) -> str:
    return TASKS[task].metric if task in TASKS else "acc"


def _against(row: dict, name: str, unit: str) -> str:
    if row[name] is None:
        return "–"
    change = Comparison.of(row, name, unit=unit)
    without = "" if change.low is not None else f" ({row.get(f'{name}_state') or 'no interval'})"
    return f"{change.bracketed}{without}"


def chart(rows: list[dict]) -> dict:
    """Scores by task, a mark for each method with its interval; chance where it is one number."""
    titles, methods = (list(dict.fromkeys(row[name] for row in rows)) for name in ("title", "method"))
    data = []
    for place, method in enumerate(methods):
        cells = [row for row in rows if row["method"] == method]
        value, low, high = ([row[f"value{end}"] for row in cells] for end in ("", "_low", "_high"))
        x = [titles.index(row["title"]) + 0.12 * (place - (len(methods) - 1) / 2) for row in cells]
        colour, symbol = style(place)
        look = {"size": 10, "color": colour, "symbol": symbol}
        bounds, hover = error_bars(value, low, high, colour), f"{safe(method)}: %{{y:.1%}}"
        data.append(marks(safe(method), x, value, hover, look, error_y=bounds))
    chance = {row["title"]: TASKS[row["task"]].chance for row in rows if row["task"] in TASKS}
    levels = [(titles.index(title), level) for title, level in chance.items() if level is not None]
    look = {"symbol": "line-ew-open", "size": 44, "color": "#777777", "line": {"width": 1.5}}
    data.append(
        marks("chance", [middle for middle, _ in levels], [level for _, level in levels], "chance %{y:.0%}", look)
    )
    axis = {"tickvals": list(range(len(titles))), "ticktext": [safe(title) for title in titles]}
    axis |= {"range": [-0.6, len(titles) - 0.4], "showgrid": False}
    return figure(data, "task", "score", xaxis=axis, yaxis=SHARE)
