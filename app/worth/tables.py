"""Is it worth it?: what is asked of the worker, the tables of the page, and a shape in words."""

import streamlit as st

from analysis import papers
from analysis.runs import Run
from app import cached
from app.selection import state
from app.selection.decide import CONTEXTS, LOADED, SEQUENCES
from app.ui import painted, reading, tables, widgets
from app.ui.spelled import size

SHAPES = {  # the well-known models whose shapes the worker has, by their name there
    "openai-community/gpt2": "GPT-2 small",
    "EleutherAI/pythia-410m": "Pythia 410M",
    "Qwen/Qwen2.5-0.5B": "Qwen 2.5 0.5B",
    "meta-llama/Llama-3.2-1B": "Llama 3.2 1B",
    "Qwen/Qwen2.5-1.5B": "Qwen 2.5 1.5B",
    "google/gemma-2-2b": "Gemma 2 2B",
    "mistralai/Mistral-7B-v0.1": "Mistral 7B (v0.1)",
    "Qwen/Qwen2.5-7B": "Qwen 2.5 7B",
    "meta-llama/Llama-3.1-8B": "Llama 3.1 8B",
    "google/gemma-2-9b-it": "Gemma 2 9B",
    "mistralai/Mixtral-8x7B-v0.1": "Mixtral 8x7B",
    "meta-llama/Llama-3.1-70B": "Llama 3.1 70B",
}
CSA = "calibrated_sparse_attention", "table 2"
PAPER_NAME = "Calibrated Sparse Attention, table 2"
CSA_MODEL, CSA_KEEP = "EleutherAI/pythia-410m", 0.1
WAYS = ("ours, feed-forward alone", "ours, with projections", "ours, with the output head too")
CSA_COLUMNS = {
    "context": tables.Column("context", "whole", help="tokens"),
    "counted": tables.Column("counted"),
    "share": tables.Column("share", help=cached.glossary("attention's share")),
    "gain": tables.Column("gain", "number", help="at ten times cheaper attention"),
}
COUNTS = (
    "Before the first token: 2 FLOPs for every weight a token passes, 4 for every number of a query and each key it "
    "can see (causal pairs only, fewer in a layer with a window), the output head once. Each later token: the bytes of "
    "every sequence's keys and values, and of the weights once for all sequences; of a mixture of experts those that "
    "some sequence visits, all being equally likely. The bound assumes that time follows arithmetic before the first "
    "token and bytes after it, and that finding the keys costs nothing: what is measured lies below it."
)
COLUMNS = {
    "context": tables.Column("context", "whole", help="tokens"),
    "prefill_share": tables.Column("share, first token", "share", help="attention's share of the FLOPs", full=1.0),
    "decode_share": tables.Column("share, later tokens", "share", help="attention's share of the bytes read", full=1.0),
    "kv": tables.Column("KV cache", help=cached.glossary("KV cache")),
    "prefill_gain": tables.Column("gain, first token", "number", help=cached.glossary("largest possible gain")),
    "decode_gain": tables.Column("gain, later tokens", "number", help=cached.glossary("largest possible gain")),
    "ceiling": tables.Column("free attention", "number", help="the larger gain if attention cost nothing at all"),
}


def arguments(shape: str, keep: float, counted: str, gpu: str | None = None) -> dict:
    """The arguments of `worth` for a chosen shape: the loaded model, a well-known one, or a stored config.json."""
    is_config = shape != LOADED and shape not in SHAPES
    return {
        "model": st.session_state["model"] if shape == LOADED or is_config else shape,
        "config": shape if is_config else None,
        "contexts": list(CONTEXTS),
        "batches": list(SEQUENCES),
        "keep": keep,
        "projections": counted == "all",
    } | ({"gpu": gpu} if gpu else {})


def ask(args: dict) -> Run:
    """The run of `worth` for these arguments; it takes milliseconds, so no price stands beside it."""
    stored = cached.store().find("worth", args)
    if stored is not None:
        return stored
    with st.spinner("Counting what the model's shape costs", show_time=True):
        return cached.jobs().request("worth", args, timeout=cached.PATIENCE)


def take_row(rows: dict) -> None:
    """A clicked row of the table is the context to look at."""
    if context := painted.picked("worth_table", rows["context"]):
        state.choose(st.session_state, context=context)


def figures(rows: dict, row: int, dtype: str) -> list[tuple[str, str, str]]:
    """(label, value, help) of the numbers that stand large."""
    gain = cached.glossary("largest possible gain")
    read = "What every step reads beside the KV cache, once for the whole batch."
    return [
        ("First token, at most", f"{rows['prefill_gain'][row]:.2f} times", gain),
        ("Each later token, at most", f"{rows['decode_gain'][row]:.2f} times", gain),
        (f"KV cache held, {dtype}", size(rows["kv_bytes"][row]), cached.glossary("KV cache")),
        (f"Weights read in a step, {dtype}", size(rows["weight_bytes"][row]), read),
    ]


def loaded(shape: dict, kv_bytes: int) -> str | None:
    """What the cache of the model in use takes in the type that it is loaded in, where its config names another."""
    card = cached.card(st.session_state["model"])
    if st.session_state["shape"] != LOADED or card is None or card.numbers["dtype"] == shape["dtype"]:
        return None
    numbers = card.numbers
    held = kv_bytes * (numbers["weight_bytes"] / numbers["parameters"]) / shape["value_bytes"]
    return (
        f"Counted in {shape['dtype']}, as its config says. It is loaded here in {numbers['dtype']} and then holds "
        f"{size(held)} of keys and values."
    )


def table(rows: dict) -> dict:
    """The rows of one batch as the table shows them."""
    return rows | {"kv": [size(count) for count in rows["kv_bytes"]]}


def facts(shape: dict) -> list[str]:
    """What the config says, in sentences."""
    grouped = f" sharing {shape['kv_heads']} of keys and values" if shape["kv_heads"] < shape["heads"] else ""
    block = f"{shape['feed_forward']:,} wide{', gated' if shape['gated'] else ''}"
    if shape["experts"] > 1:
        where = "" if shape["layers_with_experts"] == shape["layers"] else f" in {shape['layers_with_experts']} layers"
        block = f"{shape['experts']} experts{where}, {shape['active']} of them for each token, each {block}"
    said = [
        f"{shape['family']}: about {_count(shape['parameters'])} parameters in {shape['dtype']}; {shape['layers']} "
        f"layers of width {shape['width']:,} with {shape['heads']} heads of {shape['head_dim']}{grouped}; feed-forward "
        f"blocks: {block}; {shape['vocabulary']:,} tokens in the vocabulary"
        + (f"; made for {shape['max_positions']:,} tokens of context." if shape["max_positions"] else ".")
    ]
    if shape["layers_with_window"]:
        said.append(
            f"{shape['layers_with_window']} of its {shape['layers']} layers read only the last {shape['window']:,} "
            "tokens."
        )
    return said


def _count(number: int) -> str:
    return f"{number / 1e9:.3g} billion" if number >= 1e9 else f"{number / 1e6:.3g} million"


def paper_rows() -> dict:
    """CSA's table for Pythia 410M, and below each of its rows ours, counted in three ways."""
    table = cached.columns(ask(arguments(CSA_MODEL, CSA_KEEP, "all")), "accounting")
    rows = {name: [] for name in CSA_COLUMNS}
    printed = [(int(cell.row), cell.value) for cell in papers.find(*CSA)]  # two columns: the share, the speed-up
    for (context, percent), (_, times) in zip(printed[::2], printed[1::2], strict=True):
        ours = reading.rows_of(table, context=context)
        found = [(f"{share:.1%}", gain) for share, gain in zip(ours["share"], ours["gain"], strict=True)]
        for way, (share, gain) in zip(("CSA, as printed", *WAYS), [(f"{percent:.0f}%", times), *found], strict=True):
            for name, value in zip(rows, (context, way, share, gain), strict=True):
                rows[name].append(value)
    return rows


def beside() -> None:
    """CSA's own table with ours next to it."""
    st.subheader(
        "The table of Calibrated Sparse Attention beside ours", anchor=False, help=cached.glossary("attention's share")
    )
    widgets.prose(f"Pythia 410M, a later token, attention made ten times cheaper ({PAPER_NAME}).", "quiet")
    rows = paper_rows()
    tables.table(CSA_COLUMNS, rows, key="worth_csa", identity="csa", label="CSA's table and ours", height=400)
    widgets.numbers(rows, "csa", "worth_csa_rows")


def counted(run: Run, context: int) -> None:
    """What the config says, one step of this model counted in three ways, and what the counts hold."""
    widgets.prose(facts(run.numbers["shape"]), "more")
    here = reading.rows_of(cached.columns(run, "accounting"), context=context)
    tables.table(
        {
            "counted": tables.Column("counted beside attention", wrap=True),
            "share": tables.Column("attention's share", "share"),
            "gain": tables.Column("largest gain", "number"),
        },
        here,
        key="worth_accounting",
        identity=f"{run.id}.{context}",
        label=f"One step of one sequence with {context:,} tokens, counted in three ways",
    )
    widgets.prose(COUNTS, "quiet")
