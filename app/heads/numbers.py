"""A head in numbers beside reading all alike, the heads that read like it, and how exact the numbers are."""

import json
from collections.abc import Mapping

import streamlit as st

from analysis.commands.heads import Alike, HeadCards, HeadPreference
from analysis.runs import Run
from app import cached
from app.heads import head_charts, scope
from app.heads.head_statistics import STATISTICS, cells_of, spelled
from app.heads.overview import choose
from app.selection import state
from app.ui import asking, head_cards, jobs, painted, plots, tables, widgets
from app.ui.head_cards import Names

# Of a weight: more than this is no rounding any more.
WIDE = 0.01


def show(
    statistics: Run, sides: Mapping[str, Run], tokens: dict, table: dict, cell: tuple[int, int], names: Names
) -> None:
    """The tab; `statistics` is the run about all heads, whose `table` has their values."""
    _numbers(sides, tokens, table, cell)
    # How exact the scores are, in the worst layer.
    precision = statistics.numbers["numerics"]
    wide = precision["own_difference"] > WIDE
    help = f"Scores up to {precision['largest_score']:,.1f}, weights within {precision['difference']:.0e} of float64. "
    help += cached.glossary("numerics of the scores")
    st.badge("numerically exact", icon=":material/calculate:", color="orange" if wide else "green", help=help)
    if wide:
        off = f"In {precision['dtype']} a weight would be off by up to {precision['own_difference']:.1%}"
        widgets.prose(f"{off}: computed in float32 here.", "note")
    widgets.source(statistics)
    widgets.notes(statistics)
    with widgets.guarded():
        # Which distances the head prefers before it has seen a text, and how much its queries leave to the distance.
        layer, head = cell
        request = HeadPreference(**state.study_args(st.session_state, layer=layer, head=head))
        request = request.but(part=next(iter(sides.values())).request["part"])
        name = f"head {spelled(*cell)}"
        run = asking.ask(request, f"Looking where the queries of {name} point", len(tokens["piece"]))
        distances = cached.columns(run, "preference")
        title = f"Preferred distance, R = {run.numbers['concentration']:.2f}"
        drawn = head_charts.preference(distances, name)
        plots.draw(drawn, distances, title, "heads_preference", "preferred distance")
    _alike(table, tokens, cell, names)
    _card(cell, len(tokens["piece"]))


def _card(cell: tuple[int, int], tokens: int) -> None:
    """The head's card as a file, once it is made; own words are those of now."""
    name = spelled(*cell)
    about = {"texts": [st.session_state["text"]], "heads": name, "writers": "all"}
    request = cached.request(HeadCards, model=st.session_state["model"], **about)
    run = cached.store().find(request)
    if run is None:
        help = "Its names with their proof, your words, its statistics and who explains it, as JSON."
        jobs.run_button(f"Make the card of head {name}", request, "heads_card", tokens, help)
        return
    (card,) = run.numbers["cards"]
    content = run.numbers | {"cards": [card | {"name": "", "note": ""} | head_cards.notes().get(name, {})]}
    file, words = f"head-{name}.json", json.dumps(content, indent=1)
    st.download_button(f"Card of head {name}", words, file, "application/json", key="heads_card_file")


def _numbers(named: Mapping[str, Run], tokens: dict, table: dict, cell: tuple[int, int]) -> None:
    """The statistics of one or two heads in a window, the first one's of all windows where there are several, and
    reading all alike."""
    st.subheader("In numbers", anchor=False, help=cached.glossary("chance level (uniform reading)"))
    first, count = next(iter(named)), tokens["window"][-1] + 1
    where = scope.spelled(named[first].request["part"], tokens)
    sides = {name: run.numbers["summary"] for name, run in named.items()}
    apart = len({(run.request["text"], run.request["model"]) for run in named.values()}) > 1
    for name, run in named.items():
        sides[f"all alike, {name}" if apart else "all alike"] = run.numbers["chance"]
    if count > 1:
        row = cells_of(table).index(cell)
        sides[f"{first}, all {count} windows"] = {name: table[name][row] for name in STATISTICS}
    columns = {"statistic": tables.Column(f"mean over the queries of {where}")}
    values = {"statistic": [about.title for about in STATISTICS.values()]}
    for name, summary in sides.items():
        shown = f"{name}, shown"
        columns[name] = tables.Column(name, "number", words=shown)
        values[name] = [summary[key] for key in STATISTICS]
        values[shown] = [about.show(summary[key]) for key, about in STATISTICS.items()]
    identity = ".".join(run.id for run in named.values())
    plots.listed(columns, values, "heads_numbers", "Statistics of the head", identity)


# --- heads like this one ----------------------------------------------------------------------------------------------


def _alike(table: dict, tokens: dict, cell: tuple[int, int], names: Names) -> None:
    """The heads most like the chosen one in the window in use, or in all."""
    layer, head = cell
    st.subheader("Which heads read like this one?", anchor=False, help=cached.glossary("likeness of heads"))
    settings = {"layer": layer, "head": head, "without_first": st.session_state["without_first"]}
    request = Alike(**state.study_args(st.session_state, **settings))
    part, size = scope.windows("alike_all", request, tokens)
    run = asking.ask(request.but(part=part), f"Comparing head {spelled(layer, head)} with the others", size)
    even = f"A head that reads all tokens alike: {run.numbers['even']:.0%}."
    widgets.prose(even, "quiet")
    heads = cached.columns(run, "heads")
    labels = dict(zip(cells_of(table), table["label"], strict=True))
    ends = zip(heads["likeness"], heads["low"], heads["high"], strict=True)
    values = heads | {
        "cell": [spelled(*cell) for cell in cells_of(heads)],
        "label": [labels[cell] for cell in cells_of(heads)],
        "name": [", ".join(names.get(cell, ())) for cell in cells_of(heads)],
        "spelled": [tables.spread(*each) for each in ends],
    }
    columns = {
        "cell": head_cards.HEAD,
        "likeness": tables.Column("likeness", "share", words="spelled", help=cached.glossary("likeness of heads")),
        "label": tables.Column("label", help=cached.glossary("label of a head")),
    }
    if names:
        columns["name"] = tables.Column("name", wrap=True, help=cached.glossary("name of a head"))
    head_table(columns, values, "heads_alike", "Heads like this one", run.id, None)
    widgets.notes(run)


def head_table(
    columns: dict[str, tables.Column], table: dict, key: str, label: str, identity: str, now: tuple[int, int] | None
) -> None:
    """A table of heads in which a row chooses its head; that of the head `now` in use is marked."""
    cells = cells_of(table)

    def on_row() -> None:
        if cell := painted.picked(key, cells):
            choose(*cell)

    selected = cells.index(now) if now in cells else None
    label = f"{label}; choose one to look at it"
    plots.listed(columns, table, key, label, identity, selected=selected, on_row=on_row, height=330)
