"""Benchmarks on the page Long-context tests: what is asked, and every score beside dense with what it rests on."""

from typing import Any

import streamlit as st

from analysis.benchmarks import SET_UPS, TASKS, here
from analysis.claims import Comparison
from analysis.commands import commandline
from analysis.commands.probes import Benchmark
from analysis.runs import Run
from analysis.runs.stored import StoredStudy
from app import cached
from app.quality.asked import Asked
from app.selection import state
from app.selection.decide import BENCHMARK_ITEMS, BENCHMARK_SHOTS
from app.ui import fields, jobs, plots, repeat, tables, widgets
from app.ui.charts import SHARE, figure, marks, safe, style

STORED, TITLE = "benchmarks", "The tasks of the papers"  # the stored study
PROMPTS = {"own": "The tasks' own prompts", "long": "With examples in the prompt, which make it long"}
USUAL = ["hellaswag", "arc_easy", "piqa", "lambada", "truthfulqa", "gsm8k"]
COLUMNS = {
    "task": tables.Column("task", words="task_words"),
    "shots": tables.Column("examples in a prompt", "whole"),
    "method": tables.Column("method", wrap=True),
    "value": tables.Column("score", "share", words="score_words", help=cached.glossary("benchmark score")),
    "stderr": tables.Column("standard error", "share"),
    "difference": tables.Column(
        "points against dense", "number", words="difference_words", help=cached.glossary("paired difference")
    ),
    "longer_than_window": tables.Column(
        "longer than read whole", "share", help=cached.glossary("items longer than the window")
    ),
    "gold": tables.Column("right answer, nats", "number", help=cached.glossary("log-probability of the right answer")),
    "gold_difference": tables.Column("against dense, nats", words="gold_words"),
    "items": tables.Column("questions", "whole"),
    "does_not_fit": tables.Column("do not fit", "whole"),
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
        st.code(_command(_request(USUAL, methods)), language=None, wrap_lines=True)
        return
    chosen_tasks = _controls(tasks)
    if not chosen_tasks:
        widgets.prose("Choose at least one task.", "quiet")
        return
    request = _request(chosen_tasks, methods)
    run = cached.store().find(request)
    if run is None:
        jobs.run_button("Run these benchmarks", request, "benchmark_run")
    else:
        _scores(run)
    repeat.drawer(_command(request))


def _controls(available: list[str]) -> list[str]:
    chosen = st.session_state
    raw = chosen["benchmark_tasks"]
    named = [name for name in USUAL if name in available] if raw is None else [] if raw == "none" else raw.split("~")
    chosen["benchmark_pick"] = [name for name in available if name in named]

    def picked() -> None:
        state.choose(chosen, benchmark_tasks="~".join(chosen["benchmark_pick"]) or "none")

    look: dict[str, Any] = {"format_func": lambda name: TASKS[name].title, "on_change": picked, "width": 620}
    st.multiselect("Tasks", available, key="benchmark_pick", **look)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        widgets.settled("benchmark_shots", list(BENCHMARK_SHOTS), None)
        about = "More examples make prompts long, so that reading less makes a difference."
        look = {"width": 190, "format_func": lambda n: "the task's own" if n is None else f"{n}", "help": about}
        st.selectbox("Examples in a prompt", BENCHMARK_SHOTS, key="benchmark_shots", **look)
        widgets.settled("benchmark_items", list(BENCHMARK_ITEMS), 100)
        look = {"width": 150, "format_func": lambda n: f"the first {n}" if n else "all"}
        st.selectbox("Questions", BENCHMARK_ITEMS, key="benchmark_items", **look)
        names = {name: f"{set_up.short} ({set_up.letter})" for name, set_up in SET_UPS.items()}
        fields.switch("The question", names, "benchmark_question", "question dense or sparse")
    set_up = SET_UPS[chosen["benchmark_question"]]
    widgets.prose(f"Set-up {set_up.letter}: {set_up.means}", "quiet")
    return chosen["benchmark_pick"]


def _request(tasks: list[str], methods: list[dict]) -> Benchmark:
    chosen = st.session_state
    return Benchmark(
        model=chosen["model"],
        tasks=tasks,
        methods=methods,
        data="",
        shots=chosen["benchmark_shots"],
        items=chosen["benchmark_items"] or None,
        question=chosen["benchmark_question"],
        seed=0,
    )


def _command(request: Benchmark) -> str:
    return commandline("benchmark", request.spelled | {"data": "DIR", "methods": request.methods or None})


def by_prompts(study: StoredStudy) -> None:
    """The stored scores, with the tasks' own prompts and with long ones."""
    titled = {title: [row for row in study.rows if row["prompts"] == kind] for kind, title in PROMPTS.items()}
    with st.grid(2, min_column_width=460, gap="large"):
        for place, (title, rows) in enumerate(titled.items()):
            with st.container():
                _draw(rows, title, f"benchmark_kept_{place}")
    _list(sum(titled.values(), []), "benchmark_kept", study.protocol.date)


def _scores(run: Run) -> None:
    """Of every task and method: the score that papers print, with its interval and what it rests on."""
    metrics = {name: task.metric for name, task in TASKS.items()}
    rows = [row for row in run.numbers["rows"] if row["metric"] == metrics.get(row["task"], "acc")]
    widgets.source(run)
    widgets.prose(run.numbers["sentences"], "more")
    widgets.notes(run)
    _draw(rows, "Scores", "benchmark_scores")
    _list(rows, "benchmark", run.id)


def _draw(rows: list[dict], title: str, key: str) -> None:
    numbers = plots.columns(rows, "title", "method", "shots", "value", "stderr", "items")
    plots.draw(chart(rows), numbers, title, key, "benchmark score")


def _list(rows: list[dict], key: str, identity: str) -> None:
    """The table of scores, with what each rests on. `key` begins the keys of table and download."""
    spelled = [
        row
        | {"task_words": f"{row['title']}, {row['metric']}"}
        | {"score_words": f"{row['value']:.1%} ({row['value_low']:.1%} to {row['value_high']:.1%})"}
        | {"difference_words": against(row, "difference", "points")}
        | {"gold_words": against(row, "gold_difference", "nats")}
        for row in rows
    ]
    plots.listed(COLUMNS, spelled, f"{key}_table", "Scores of methods, task by task", identity)


def against(row: dict, name: str, unit: str) -> str:
    """The change of a number against dense in words."""
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
        x = [titles.index(row["title"]) + 0.12 * (place - (len(methods) - 1) / 2) for row in cells]
        colour, symbol = style(place)
        mark, hover = {"size": 10, "color": colour, "symbol": symbol}, f"{safe(method)}: %{{y:.1%}}"
        error = plots.bounds(cells, "value", plots.interval("value"), colour)
        data.append(marks(safe(method), x, [row["value"] for row in cells], hover, mark, error_y=error))
    chances = {row["title"]: TASKS[row["task"]].chance for row in rows if row["task"] in TASKS}
    levels = {titles.index(title): level for title, level in chances.items() if level is not None}
    look: dict[str, Any] = {"symbol": "line-ew-open", "size": 44, "color": "#777777", "line": {"width": 1.5}}
    data.append(marks("chance", list(levels), list(levels.values()), "chance %{y:.0%}", look))
    axis = {"tickvals": list(range(len(titles))), "ticktext": [safe(title) for title in titles]}
    axis |= {"range": [-0.6, len(titles) - 0.4], "showgrid": False}
    return figure(data, "task", "score", xaxis=axis, yaxis=SHARE)
