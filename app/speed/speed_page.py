"""The page Speed: sparse inference of the loaded model, or bare attention shapes, timed against dense in turns."""

import math
import re

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from analysis import papers
from analysis.commands.speed import Bench, Launch
from analysis.runs import Price, Run
from app import cached
from app.selection.decide import DTYPES, SPEED_MEMBERS, SPEED_ON, SPEED_WHAT
from app.speed import evidence, inherited, measured, speed_charts, speed_requests
from app.ui import asking, fields, jobs, plots, repeat, tables, widgets
from app.ui.spelled import size
from app.ui.tabs import drawer

LAUNCH = "Launch sparse inference"
NO_MORE = {
    "attention": "no exact kernel can pass {times:.2f} times dense at {most:,} tokens",
    "decode": "no exact step can pass {times:.2f} times dense at {most:,} tokens in the KV cache",
    "inference": "attention can gain at most {times:.2f} times at {most:,} tokens, the whole model less",
}
COLUMNS = {
    "length": tables.Column("length", "whole"),
    "speedup": tables.Column("times dense", "number", help=cached.glossary("speed-up")),
    "spread": tables.Column("slowest to fastest round"),
    "bound": tables.Column("bound", "number", help=cached.glossary("bound (speed-up)")),
    "retained": tables.Column("pairs read", "share"),
    "dense": tables.Column("dense"),
    "sparse": tables.Column("sparse"),
    "speedup_per_token": tables.Column("times dense, each token", "number"),
    "token": tables.Column("each token, dense → sparse"),
    "read": tables.Column("KV cache read, dense → sparse"),
    "kernel": tables.Column("kernel"),
    "dense_kernel": tables.Column("opponent"),
    "memory": tables.Column("memory", "number", help="peak, in multiples of queries, keys, values and output"),
    "why": tables.Column("why this kernel", wrap=True),
}


def show() -> None:
    """What is timed here, and the studies beside it."""
    widgets.header(
        "How much time does it save here?",
        "Focus (tables 6 and 7, appendix D): sparse inference and bare attention shapes, timed in turns with the "
        "fastest dense path of this machine",
    )
    _timed()
    drawer("speed_evidence", evidence.show)


def _timed() -> None:
    """The answer, measured or estimated, the controls, the price, the button, and whatever was measured for exactly
    these settings."""
    answer = st.container()
    look = {"format_func": SPEED_ON.get, "required": True, "label_visibility": "collapsed"}
    st.segmented_control("What is timed", list(SPEED_ON), key="speed_on", **look)
    with widgets.guarded():
        (_shapes if st.session_state["speed_on"] == "shapes" else _model)(answer)


def _model(answer: DeltaGenerator) -> None:
    chosen = st.session_state
    card = asking.card(chosen["model"])
    asking.settle_router()
    text_tokens, context = asking.inspected()["tokens"], card["max_positions"]
    router = next((made for made in card["routers"] if made["name"] == chosen["router"]), {})
    usual = router | inherited.settings()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        if "groups" in router:
            _top(router["groups"], str(usual["top"]))
        _window(context, str(usual.get("window", "as made")))
        sinks = str(usual.get("n_sink", "as made"))
        fields.number("Sinks", "speed_sinks", 0, 64, "attention sink", placeholder=sinks, width=100)
        fields.number("Prompt, tokens", "speed_prompt", 2, context, placeholder="all that fit", width=150)
        fields.number("New tokens", "speed_new", 2, 1024, width=120)
        _rounds()
    request = speed_requests.launch()
    stored = cached.store().find(request)
    tokens = chosen["speed_prompt"] or min(text_tokens, context - chosen["speed_new"])
    with widgets.guarded():
        _button(LAUNCH, request, stored, speed_requests.launch_price(request, card, tokens))
        if stored is None:
            _latest()
        else:
            measured.launched(stored)
    commands = [speed_requests.command(request)]
    if "groups" in router:
        with widgets.guarded():
            if stored is not None:
                st.subheader("At other lengths", anchor=False, help=cached.glossary("crossover"))
            commands.append(_lengths(answer, "Measure these lengths", card, router, stored))
    if stored is None:
        widgets.prose(
            f"“{LAUNCH}” runs dense and sparse inference in turns, {chosen['speed_rounds']} rounds, on a prompt of "
            f"{tokens:,} tokens: first token, time of each of {chosen['speed_new']:,} tokens after it, memory.",
            "quiet",
        )
    repeat.drawer(*commands)


def _latest() -> None:
    """The latest launch, where it had other settings than those chosen now, with a button that takes them."""
    run = next(iter(inherited.launches()), None)
    if run is None:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge("latest launch", icon=":material/history:", color="gray")
        widgets.prose(f"With other settings than those above: {inherited.in_words(run)}.", "quiet")
        look = {"on_click": inherited.take, "args": (run.request,), "type": "tertiary"}
        st.button("Take its settings", key="speed_take", **look)
    measured.launched(run)


def _shapes(answer: DeltaGenerator) -> None:
    chosen = st.session_state
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        fields.number("Heads", "speed_heads", 1, 256, "attention head", width=100)
        fields.number("Head size", "speed_size", 8, 256, width=110)
        fields.number("Groups (K)", "speed_groups", 1, 64, "learned group", width=110)
        _top(chosen["speed_groups"], "1")
        _window(1 << 20, "128")
        if chosen["speed_what"] != "decode":
            fields.number("Batch", "speed_batch", 1, 64, width=100)
        st.selectbox("Precision", list(DTYPES), key="speed_dtype", width=130)
        st.selectbox("Groups are", list(SPEED_MEMBERS), format_func=SPEED_MEMBERS.get, key="speed_members", width=210)
        _rounds()
    repeat.drawer(_lengths(answer, LAUNCH, None, None, None))


def _top(groups: int, usual: str) -> None:
    fields.number("Groups per token", "speed_top", 1, groups, "membership (top-k)", placeholder=usual, width=150)


def _window(context: int, usual: str) -> None:
    fields.number("Window, tokens", "speed_window", 1, context, "sliding window", placeholder=usual, width=150)


def _rounds() -> None:
    fields.number("Rounds", "speed_rounds", 1, 50, "round (of a measurement)", width=100)


def _button(label: str, request: Launch | Bench, stored: Run | None, price: Price) -> None:
    again = stored is not None and not stored.example
    jobs.run_button(
        f"{label} again" if again else label,
        request,
        f"speed_{request.verb}",
        price=price,
        instead_of=stored.id if again else None,
        smaller=lambda: speed_requests.smaller(request),
        type="primary" if label == LAUNCH and stored is None else "secondary",
    )


# --- by length --------------------------------------------------------------------------------------------------------


def _lengths(answer: DeltaGenerator, label: str, card: dict | None, router: dict | None, launch: Run | None) -> str:
    """The timing by length and its button; returns the command that measures it. `launch`: the model's own point."""
    chosen, offered = st.session_state, [choice for choice in SPEED_WHAT if card or choice != "inference"]
    widgets.settled("speed_what", offered, "attention")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.selectbox("Measure by length", offered, format_func=SPEED_WHAT.get, key="speed_what", width=240)
        if chosen["speed_what"] != "inference":
            st.text_input("Lengths, tokens", key="speed_lengths", max_chars=80, width=320, help="16K means 16,384.")
    request = speed_requests.bench(card, router)
    lengths, shape = request.lengths, (request.groups, request.top, request.window)
    if request.what == "inference":
        fits = card["max_positions"] - chosen["speed_new"]
        lengths, shape = [max(2, fits // part) for part in (4, 2, 1)], (router["groups"], router["top"], request.window)
        if chosen["speed_top"] not in (None, router["top"]):
            groups = f"each token in {router['top']} of {router['groups']} groups"
            st.caption(f"The whole model is timed with its own router: {groups}.")
    stored = cached.store().find(request)
    bound = [(length, speed_requests.even_bound(length, *shape, request.what)) for length in lengths]
    price = speed_requests.bench_price(request, card, lengths)
    # The button stands below the picture of what it would measure.
    below = stored is None and card is not None
    if not below:
        _button(label, request, stored, price)
    if stored is None and launch is None:
        most, times = bound[-1]
        with answer:
            widgets.prose(f"Estimated, not timed yet: {NO_MORE[request.what].format(times=times, most=most)}.")
    _curve(stored, request.what, bound, launch)
    if below:
        _button(label, request, stored, price)
    if stored is None:
        widgets.prose(
            f"This times {SPEED_WHAT[request.what]} at {', '.join(map(speed_charts.short, lengths))} tokens, dense and "
            "sparse in turns. Hollow marks: the bound with equally full groups.",
            "quiet",
        )
    return speed_requests.command(request)


def _curve(run: Run | None, phase: str, bound: speed_charts.Points, launch: Run | None) -> None:
    """Speed-up against length. `run` of `bench`: `phase` was timed. `launch`: the model's own point, and what its
    longer prompts are estimated at. Without a `run` only `bound` is drawn, as predicted for even groups."""
    rows = run.numbers["rows"] if run else []
    measured_rows, estimated, where = _series(phase, rows) if rows else {}, {}, None
    paper = paper_curves() if phase != "decode" else {}  # the paper timed no single tokens
    for kind, name in speed_charts.KINDS.items() if launch else ():
        rounds = launch.numbers["speedup"].get(kind)
        if rounds and name not in measured_rows:
            ends = {f"speedup_{end}": rounds[end] for end in ("low", "high")}
            measured_rows[name] = [{"length": launch.numbers["length"], "speedup": rounds["median"], **ends}]
        estimated[name] = [tuple(point) for point in launch.numbers["longer"].get(kind, [])[1:]]
    if rows:
        widgets.prose(run.numbers["sentence"])
        measured.machine(run)
        bound, where = [(row["length"], row["bound"]) for row in rows if row["bound"]], run.numbers["crossover"]
        where = where if where is not None and rows[0]["length"] < where < rows[-1]["length"] else None
    figure = speed_charts.by_length(measured_rows, estimated, bound, paper, where)
    numbers = _numbers(measured_rows, estimated, bound, paper)
    plots.draw(figure, numbers, "Speed-up against length", "speed_curve", "crossover")
    if paper:
        cells = papers.find("focus", "table 6")
        doubts = [cell.protocol for cell in cells] + [cell.note for cell in cells if "caution" in cell.note]
        widgets.prose(f"The paper's panel is Focus, table 6: {'; '.join(dict.fromkeys(doubts))}.", "quiet")
    if not rows:
        return
    listed = [_row(row) for row in rows]
    columns = {name: column for name, column in COLUMNS.items() if any(row.get(name) is not None for row in listed)}
    plots.listed(columns, listed, "speed_rows", "Every length", run.id + run.created, height=320)
    bars = {f"{row['length']:,} tokens": _parts(row) for row in rows}
    measured.time_goes(bars, "speed_curve_parts", "Where the time of attention goes")
    if run.numbers.get("merges"):
        measured.merged(run)
    measured.opponent(", ".join(dict.fromkeys(row["dense_kernel"] for row in rows)), run.numbers["missing"])


def _series(kind: str, rows: list[dict]) -> dict[str, list[dict]]:
    """The measured lines of a `bench` run; a whole model has two, and no spread is stored of the second."""
    kinds = speed_charts.KINDS
    if kind != "inference":
        return {kinds[kind]: rows}
    token = [{"length": row["length"], "speedup": row["speedup_per_token"]} for row in rows]
    return {kinds["prefill"]: rows, kinds["per_token"]: token}


def _numbers(measured_rows: dict, estimated: dict, bound: speed_charts.Points, paper: dict) -> list[dict]:
    """Every mark of the chart as a row, what was measured told from what was not."""
    names = {"speedup": "times_dense", "speedup_low": "slowest_round", "speedup_high": "fastest_round"}
    rows = [
        {"what": name, "how": "measured", "length": row["length"]} | {new: row.get(old) for old, new in names.items()}
        for name, series in measured_rows.items()
        for row in series
    ]
    drawn = [(name, "estimated", points) for name, points in estimated.items()] + [("bound", "computed", bound)]
    drawn += [(f"paper, K={groups}", "printed", points) for groups, points in paper.items()]
    blank = dict.fromkeys(names.values())
    for what, how, points in drawn:
        rows += [{"what": what, "how": how, "length": x} | blank | {"times_dense": y} for x, y in points]
    return rows


def _row(row: dict) -> dict:
    words = {"spread": f"{row['speedup_low']:.2f} to {row['speedup_high']:.2f}"}
    words |= {side: speed_charts.milliseconds(row[f"{side}_ms"]) for side in ("dense", "sparse")}
    for name, key, spelled in (
        ("token", "ms_per_token", speed_charts.milliseconds),
        ("read", "kv_bytes_read_per_step", size),
    ):
        if sides := row.get(key):
            words[name] = f"{spelled(sides['dense'])} → {spelled(sides['sparse'])}"
    return row | words


def _parts(row: dict) -> dict[str, float]:
    times = {part: row.get(f"{part}_ms") for part in speed_charts.PARTS}
    return {part: value for part, value in times.items() if value is not None}


def paper_curves() -> dict[int, speed_charts.Points]:
    """The paper's speed-up by length: K -> (length, times), as its table 6 prints them."""
    curves: dict[int, list[tuple[int, float]]] = {}
    for cell in papers.find("focus", "table 6"):
        groups, length = re.search(r"K\s*=\s*(\d+)", f"{cell.row} {cell.column}"), _length(cell.column)
        if groups and length and cell.value is not None:
            curves.setdefault(int(groups[1]), []).append((length, float(cell.value)))
    return {groups: sorted(points) for groups, points in sorted(curves.items())}


def _length(words: object) -> int | None:
    """Tokens of the paper's rounded names, which mean powers of two: 65K -> 65,536."""
    match = re.fullmatch(r"(?:.*\D)?([0-9][0-9,]*)\s*([KM]?)\D*", str(words))
    tokens = match and int(match[1].replace(",", "")) * {"": 1, "K": 1e3, "M": 1e6}[match[2]]
    return tokens and 2 ** round(math.log2(tokens))
