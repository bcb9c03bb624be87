"""Results on the page Speed: what was measured, each number with its spread, the machine and the opponent named."""

import os
import re
from collections.abc import Sequence
from typing import Any

import streamlit as st

from analysis import papers
from analysis.runs import Run
from app import cached
from app.speed import speed_charts
from app.ui import painted, plots, tables, widgets
from app.ui.spelled import size

# Key of a row -> (what it is, its unit).
SIDES = {
    "prefill_ms": ("time to first token", "ms"),
    "ms_per_token": ("time per output token", "ms"),
    "tokens_per_second": ("tokens per second, prompt included", "rate"),
    "kv_bytes": ("KV cache held, free room to grow included", "bytes"),
    "kv_bytes_read_per_step": ("KV cache read per token", "bytes"),
    "peak_bytes": ("peak memory without weights", "bytes"),
}
# Whose ratio was taken round by round.
GAINS = {"prefill_ms": "prefill", "ms_per_token": "per_token"}
SIDE = {name: tables.Column(name) for name in ("what", "dense", "sparse", "sparse is")}
MERGES = {
    "disjoint": "two disjoint sets (what runs here)",
    "subtraction": "subtraction, as sorted kernels can",
    "exact overlap": "subtraction of the true overlap (needs a mask)",
}
MERGE = {
    "merge": tables.Column("merge"),
    "cosine": tables.Column("cosine, mean of tokens", "number", 6),
    "lowest": tables.Column("lowest of a token", "number", 6),
    "error": tables.Column("largest difference", "number", 7),
}
# Characters of the prompt's end that are shown.
BEFORE = 160
READS = {"dense": "reads every earlier token", "sparse": "reads its groups and the window"}


def machine(run: Run) -> None:
    """Where the numbers come from: a speed without its machine means nothing."""
    about = run.protocol
    facts = [
        about.get("processor") or about.get("machine", "?"),
        f"{about['threads']} {'thread' if about['threads'] == 1 else 'threads'}",
        about.get("dtype", "?"),
        f"median of {about.get('repeats', '?')} rounds, dense and sparse in turns",
        f"torch {about.get('versions', {}).get('torch', '?')}",
        about.get("memberships"),
    ]
    widgets.source(run)
    widgets.prose(" · ".join(str(fact) for fact in facts if fact), "quiet")


def launched(run: Run) -> None:
    """Everything about one launch of the loaded model."""
    numbers = run.numbers
    widgets.prose(numbers["sentence"])
    bars = {"first token": numbers["parts"], "each further token": numbers["step_parts"]}
    st.subheader("Dense and sparse", anchor=False, help=cached.glossary("time to first token"))
    _sides(run)
    time_goes(bars, "speed_parts", "Where the time of the sparse model goes")
    _texts(run)
    st.subheader("Does it compute what it should?", anchor=False, help=cached.glossary("masked reference"))
    widgets.prose(
        f"Against the masked reference, on the first {numbers['prefix']:,} tokens: cosine "
        f"{numbers['cosine']:.7f} (the lowest of any token), largest difference {numbers['max_difference']:.1e} in the "
        "last hidden states.",
        "more",
    )
    if numbers.get("merges"):
        merged(run)
    opponent(numbers["dense_kernel"], numbers["missing_kernels"])
    st.subheader("Which kernel ran in which layer, and why", anchor=False)
    table = cached.columns(run, "kernels")
    columns = {name: tables.Column(name, wrap=name == "why") for name in table}
    tables.table(columns, table, key="speed_kernels", identity=run.id, label="Kernels by layer", height=300)


def method(run: Run) -> None:
    """Everything about a method that was timed by its own kernels."""
    widgets.prose(run.numbers["sentence"])
    rows = run.numbers["rows"]
    columns = (
        {name: tables.Column(name.replace("_ms", ", ms").replace("_", " "), "number") for name in rows[0]}
        if rows
        else {}
    )
    if rows:
        plots.listed(columns, rows, "speed_timed", "Every length", run.id + run.created, height=240)
    for phase, why in run.numbers["why"].items():
        widgets.prose(f"{phase.capitalize()}: {run.numbers['kernels'][phase] or 'no kernel'}. {why}", "more")


def _sides(run: Run) -> None:
    by_side, rows = {row["side"]: row for row in run.numbers["rows"]}, []
    for key, (label, unit) in SIDES.items():
        dense, sparse = by_side["dense"][key], by_side["sparse"][key]
        gain = sparse / dense if key not in GAINS and dense and sparse is not None else None
        gain = run.numbers["speedup"][GAINS[key]]["median"] if key in GAINS else gain
        label += f", {run.protocol['dtype']}" if key.startswith("kv_bytes") else ""
        gained = None if gain is None else f"{gain:.2f} times {'the bytes' if unit == 'bytes' else 'as fast'}"
        cells = {"dense": _cell(dense, unit), "sparse": _cell(sparse, unit), "sparse is": gained}
        rows.append({"what": label, **cells})
    table = plots.columns(rows)
    tables.table(SIDE, table, key="speed_sides", identity=run.id + run.created, label="Dense and sparse")
    widgets.numbers(cached.columns(run, "rounds"), "rounds", "speed_rounds_table")


def _cell(value: Any, unit: str) -> str:
    if value is None:
        return "not measurable here"
    if unit == "ms":
        return speed_charts.spread(value)
    return f"{value:,.1f}" if unit == "rate" else size(value)


def time_goes(bars: dict[str, dict[str, float]], key: str, title: str) -> None:
    """The bars of where the time goes, name -> {part: milliseconds}, and their numbers."""
    bars = {name: by_part for name, by_part in bars.items() if by_part}
    if not bars:
        return
    rows = [
        {"of": name} | {f"{label}, ms": by_part.get(part) for part, (label, _, _) in speed_charts.PARTS.items()}
        for name, by_part in bars.items()
    ]
    plots.draw(speed_charts.parts(bars), rows, title, key, "set A and set B")
    st.caption("From one more run with a clock around each part, so the total may differ from the median above.")


def merged(run: Run) -> None:
    """Appendix D: merging sets that share no pair against subtracting what was counted twice."""
    printed = ", ".join(str(cell.value) for cell in papers.find("focus", "appendix D") if "ubtract" in cell.row)
    st.subheader("Why the two sets must share no pair", anchor=False, help=cached.glossary("set A and set B"))
    widgets.prose(
        "Appendix D of the paper, against exact attention: a kernel over sorted tokens that takes away what was "
        "counted twice takes away the last tokens of the group, and those are not its tokens inside the window. It "
        f"prints a cosine of {printed} for subtraction.",
        "more",
    )
    rows = [{"merge": MERGES.get(name, name), **errors} for name, errors in run.numbers["merges"].items()]
    identity = run.id + run.created
    plots.listed(MERGE, rows, f"speed_merges_{run.verb}", "Merges", identity, height=200)


def opponent(dense: str, missing: Sequence[str]) -> None:
    """Which dense kernel was the opponent, and which known ones are not here."""
    absent = f"Known kernels that are not here: {'; '.join(missing)}." if missing else ""
    widgets.prose(f"The opponent is the fastest dense path found here: {dense}. {absent}", "more")


# --- what both wrote --------------------------------------------------------------------------------------------------


def _texts(run: Run) -> None:
    """Both new texts after the end of the prompt; new words are shaded and the first one that differs stands out."""
    numbers, difference = run.numbers, run.numbers["first_difference"]
    st.subheader("What both wrote", anchor=False, help=cached.glossary("first difference"))
    same = f"All {numbers['new_tokens']:,} new tokens are the same."
    apart = same if difference is None else f"They differ from new token {difference + 1:,} on."
    widgets.prose(f"{apart} Greedy decoding; the shaded words are new.", "more")
    panels = []
    for side, compared in (("dense", "sparse"), ("sparse", "dense")):
        cut = pieces(numbers["prompt_end"], numbers[f"text_{side}"], numbers[f"text_{compared}"])
        panels.append(panel(side, READS[side], cut))
    painted.beside(panels, key="speed_texts", identity=run.id + run.created)


def panel(title: str, about: str, cut: dict, begins: bool = True) -> dict:
    """A text that was written as a panel of `painted.beside`; `begins`: after the end of a prompt."""
    return {"role": "query", "title": title, "note": about, "cut_before": begins, "cut_after": False, "same": []} | cut


def pieces(prompt: str, text: str, compared: str) -> dict:
    """The end of the prompt and the new text, cut around the first word in which it differs from the other text (or
    the blanks before it, where these differ)."""
    begin = prompt[-BEFORE:].split(" ", 1)[-1] if len(prompt) > BEFORE else prompt
    common = len(os.path.commonprefix([text, compared]))
    if common == len(text):
        return {"pieces": [begin, text], "word": [1, 2], "hit": -1}
    start = common - len(_begins(r"\S*\s*", text[:common][::-1]))
    blank, otherwise = (_begins(r"\s*", words[start:]) for words in (text, compared))
    end = start + len(blank if blank and blank != otherwise else _begins(r"\s*\S*", text[start:]))
    return {"pieces": [begin, text[:start], text[start:end], text[end:]], "word": [1, 4], "hit": 2}


def _begins(pattern: str, text: str) -> str:
    """What a text begins with, of a pattern that always fits."""
    match = re.match(pattern, text)
    return match[0] if match else ""
