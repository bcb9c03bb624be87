"""What a GPU makes of a model at best, and two models side by side."""

import streamlit as st

from analysis.runs import Run
from analysis.runs.price import spell
from app import cached
from app.selection.decide import GPUS
from app.ui import tables, widgets
from app.ui.spelled import size

ROOFLINE = (
    "Estimated from the data sheet, a lower bound in time: every byte is read once at full bandwidth and every "
    "multiplication runs at the full bfloat16 rate. Real programs take one and a half to two times as long."
)


def controls(offered: dict[str, str]) -> None:
    """Which GPU, and which second model; neither has to be chosen."""
    further = {key: name for key, name in offered.items() if key != st.session_state["shape"]}
    widgets.settled("shape_beside", [None, *further], None)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.selectbox(
            "On a GPU",
            list(GPUS),
            index=None,
            key="gpu",
            format_func=GPUS.get,
            width=280,
            placeholder="none: shares only",
            help=cached.glossary("estimated and measured"),
        )
        st.selectbox(
            "Beside another model",
            list(further),
            index=None,
            key="shape_beside",
            format_func=further.get,
            width=280,
            placeholder="none",
        )


def show(named: list[tuple[str, Run]], context: int, batch: int) -> None:
    """One column for each model at this context and batch; nothing where neither a GPU nor a second model is chosen."""
    gpu = named[0][1].numbers.get("gpu")
    if gpu is None and len(named) == 1:
        return
    sequences = "1 sequence" if batch == 1 else f"{batch} sequences at once"
    where = f" on {gpu['title']}" if gpu else ""
    st.subheader(
        f"{context:,} tokens, {sequences}{where}", anchor=False, help=cached.glossary("estimated and measured")
    )
    facts = [_facts(run, context, batch) for _, run in named]
    values = {"what": list(facts[0])}
    columns = {"what": tables.Column("estimated", wrap=True)}
    for place, (name, _) in enumerate(named):
        values[f"model_{place}"] = list(facts[place].values())
        columns[f"model_{place}"] = tables.Column(name, wrap=True)
    tables.table(
        columns,
        values,
        key="worth_beside",
        identity=f"{[run.id for _, run in named]}.{context}.{batch}",
        label="The models at this context and batch",
        height=60 + 34 * len(facts[0]),
    )
    widgets.numbers({columns[name].title: cells for name, cells in values.items()}, "models", "worth_beside_rows")
    if gpu:
        widgets.prose(f"{ROOFLINE} Source: {gpu['source']}.", "quiet")


def _facts(run: Run, context: int, batch: int) -> dict[str, str]:
    """quantity -> its value in words."""
    rows, shape, keep = cached.columns(run, "rows"), run.numbers["shape"], run.numbers["keep"]
    place = list(zip(rows["context"], rows["batch"], strict=True)).index((context, batch))
    row = {name: cells[place] for name, cells in rows.items()}
    facts = {
        "made for": f"{shape['max_positions']:,} tokens" if shape["max_positions"] else "any length",
        "weights": size(shape["parameters"] * shape["value_bytes"]),
        "KV cache held": f"{size(row['kv_bytes'])} in {shape['dtype']}",
        "attention's share, first token": f"{row['prefill_share']:.1%}",
        "attention's share, later tokens": f"{row['decode_share']:.1%}",
        "largest gain, first token": f"{row['prefill_gain']:.2f} times",
        "largest gain, later tokens": f"{row['decode_gain']:.2f} times",
    }
    if "gpu" not in run.numbers:
        return facts
    batches, contexts = (run.numbers[name] for name in ("largest_batch", "longest_context"))
    memory = f"{size(row['memory_bytes'])} of {size(run.numbers['gpu']['memory'])}"
    return facts | {
        "weights and cache": memory if row["fits"] else f"{memory}: does not fit",
        "time to the first token, dense": spell(row["prefill_seconds"]),
        f"the same, reading {keep:.0%} of the keys": spell(row["prefill_seconds_sparse"]),
        "time per later token, dense": f"{row['ms_per_token']:,.3g} ms",
        f"per later token, reading {keep:.0%} of the keys": f"{row['ms_per_token_sparse']:,.3g} ms",
        "largest batch at this context": f"{batches[str(context)]:,}" if batches[str(context)] else "none fits",
        "longest context at this batch": f"{contexts[str(batch)]:,} tokens" if contexts[str(batch)] else "none fits",
    }
