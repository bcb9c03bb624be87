"""Results on the page Speed: what was measured, each number with its spread, the machine and the opponent named."""

from collections.abc import Sequence

import streamlit as st

from analysis import papers
from analysis.runs import Run
from app import cached
from app.speed import charts
from app.speed.texts import texts
from app.ui import tables, widgets
from app.ui.spelled import size

SIDES = {  # key of a row -> (what it is, its unit)
    "prefill_ms": ("time to first token", "ms"),
    "ms_per_token": ("time per output token", "ms"),
    "tokens_per_second": ("tokens per second, prompt included", "rate"),
    "kv_bytes": ("KV cache held, free room to grow included", "bytes"),
    "kv_bytes_read_per_step": ("KV cache read per token", "bytes"),
    "peak_bytes": ("peak memory without weights", "bytes"),
}
MERGES = {
    "disjoint": "two disjoint sets (what runs here)",
    "subtraction": "subtraction, as sorted kernels can",
    "exact overlap": "subtraction of the true overlap (needs a mask)",
}
CACHE = ("kv_bytes", "kv_bytes_read_per_step")
GAINS = {"prefill_ms": "prefill", "ms_per_token": "per_token"}  # whose ratio was taken round by round


def machine(run: Run) -> None:
    """Where the numbers come from: a speed without its machine means nothing."""
    about = run.protocol
    facts = [str(about.get("processor") or about.get("machine", "?"))]
    facts += [f"{about['threads']} {'thread' if about['threads'] == 1 else 'threads'}"]
    facts += [str(about.get("dtype", "?")), f"median of {about.get('repeats', '?')} rounds, dense and sparse in turns"]
    facts += [f"torch {about.get('versions', {}).get('torch', '?')}"]
    facts += [about["memberships"]] if about.get("memberships") else []
    widgets.source(run)
    widgets.prose(" · ".join(facts), "quiet")


def launched(run: Run) -> None:
    """Everything about one launch of the loaded model."""
    numbers = run.numbers
    widgets.prose(numbers["sentence"])
    machine(run)
    widgets.notes(run)
    spread = numbers["speedup"]
    timed = {name: spread[kind] for kind, name in charts.KINDS.items() if spread.get(kind)}
    unclear = [name for name, rounds in timed.items() if rounds["low"] < 1 < rounds["high"]]
    if unclear:
        widgets.prose(f"Rounds fell on both sides of 1 for {' and '.join(unclear)}: no winner there yet.", "note")
    with st.grid(2, min_column_width=420, gap="large"):
        widgets.chart(
            charts.speedups(spread, numbers["bound"]),
            _spread_columns(spread, numbers["bound"]),
            title="Speed-up: the kernel and the whole model",
            key="speed_ups",
            alt="Speed-up of attention alone, of the first token and of each further one, with spread",
            help=cached.glossary("speed-up"),
        )
        with st.container():
            bars = {"first token": numbers["parts"], "each further token": numbers["step_parts"]}
            time_goes(bars, "speed_parts", "Where the time of the sparse model goes")
    st.subheader("Dense and sparse", anchor=False, help=cached.glossary("time to first token"))
    _sides(run)
    texts(run)
    st.subheader("Does it compute what it should?", anchor=False, help=cached.glossary("masked reference"))
    widgets.prose(
        f"Against the masked reference, on the first {numbers['prefix']:,} tokens: cosine "
        f"{numbers['cosine']:.7f} (the lowest of any token), largest difference {numbers['max_difference']:.1e} in the "
        "last hidden states.",
        "more",
    )
    if numbers.get("merges"):
        merged(numbers["merges"], run)
    opponent(numbers["dense_kernel"], numbers["missing_kernels"])
    with st.expander("Which kernel ran in which layer, and why", icon=":material/memory:"):
        table = cached.columns(run, "kernels")
        columns = {name: tables.Column(name, wrap=name == "why") for name in table}
        tables.table(columns, table, key="speed_kernels", identity=run.id, label="Kernels by layer", height=300)


def _sides(run: Run) -> None:
    dense, sparse = ({row["side"]: row for row in run.numbers["rows"]}[side] for side in ("dense", "sparse"))
    values = {name: [] for name in ("what", "dense", "sparse", "gain")}
    for key, (label, unit) in SIDES.items():
        gain = run.numbers["speedup"][GAINS[key]]["median"] if key in GAINS else _ratio(dense[key], sparse[key])
        label += f", {run.protocol['dtype']}" if key in CACHE else ""
        cells = [_cell(row[key], unit) for row in (dense, sparse)]
        gain_words = "–" if gain is None else f"{gain:.2f} times {'the bytes' if unit == 'bytes' else 'as fast'}"
        for name, value in zip(values, (label, *cells, gain_words), strict=True):
            values[name].append(value)
    columns = {"what": tables.Column(""), "dense": tables.Column("dense"), "sparse": tables.Column("sparse")}
    columns["gain"] = tables.Column("sparse is")
    tables.table(columns, values, key="speed_sides", identity=run.id + run.created, label="Dense and sparse")
    widgets.numbers(cached.columns(run, "rounds"), "rounds", "speed_rounds_table")


def _cell(value: object, unit: str) -> str:
    if value is None:
        return "not measurable here"
    if unit == "ms":
        return charts.spread(value)
    return f"{value:,.1f}" if unit == "rate" else size(value)


def _ratio(dense: float | None, sparse: float | None) -> float | None:
    return sparse / dense if dense and sparse is not None else None


def _spread_columns(spread: dict, bound: float | None) -> dict:
    spreads = {name: spread[kind] for kind, name in charts.KINDS.items() if spread.get(kind)}
    columns = {"speed-up of": list(spreads)}
    for end in ("median", "low", "high"):
        columns[end] = [value[end] for value in spreads.values()]
    return columns | {"bound": [bound if name == charts.KINDS["attention"] else None for name in spreads]}


def time_goes(bars: dict[str, dict[str, float]], key: str, title: str) -> None:
    """The bars of where the time goes, name -> {part: milliseconds}, and their numbers."""
    bars = {name: by_part for name, by_part in bars.items() if by_part}
    if not bars:
        return
    values = {"of": list(bars)}
    for part, (label, _, _) in charts.PARTS.items():
        if any(part in by_part for by_part in bars.values()):
            values[f"{label}, ms"] = [by_part.get(part) for by_part in bars.values()]
    widgets.chart(
        charts.parts(bars),
        values,
        title=title,
        key=key,
        alt="Share of router, sorting, set A, set B, merge and the rest in the time",
        help=cached.glossary("set A and set B"),
    )
    st.caption("From one more run with a clock around each part, so the total may differ from the median above.")


def merged(merges: dict[str, dict], run: Run) -> None:
    """Appendix D: merging sets that share no pair against subtracting what was counted twice; `merges` name -> {cosine,
    lowest, error}."""
    printed = ", ".join(str(cell.value) for cell in papers.find("focus", "appendix D") if "ubtract" in cell.row)
    st.subheader("Why the two sets must share no pair", anchor=False, help=cached.glossary("set A and set B"))
    widgets.prose(
        "Appendix D of the paper, against attention computed exactly: adding the whole window and taking away what was "
        "counted twice fails, because a kernel over sorted tokens takes away the last tokens of the group, and those "
        "are not the group's tokens inside the window. Two sets without a common pair merge exactly. The paper prints "
        f"a cosine of {printed} for subtraction.",
        "more",
    )
    values = {"merge": [MERGES.get(name, name) for name in merges]}
    for name in ("cosine", "lowest", "error"):
        values[name] = [errors[name] for errors in merges.values()]
    columns = {"merge": tables.Column("merge"), "cosine": tables.Column("cosine, mean of tokens", "number", 6)}
    columns["lowest"] = tables.Column("lowest of a token", "number", 6)
    columns["error"] = tables.Column("largest difference", "number", 7)
    identity = run.id + run.created
    tables.table(columns, values, key=f"speed_merges_{run.verb}", identity=identity, label="Merges", height=200)


def opponent(dense: str, missing: Sequence[str]) -> None:
    """Which dense kernel was the opponent, and which known ones are not here."""
    absent = f"Known kernels that are not here: {'; '.join(missing)}." if missing else ""
    widgets.prose(f"The opponent is the fastest dense path found here: {dense}. {absent}", "more")
