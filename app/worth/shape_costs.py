"""Is it worth it?: what is asked of the worker, the tables of the page, a shape in words, and the card at the end."""

import streamlit as st

from analysis import papers
from analysis.commands.speed import Bench, Worth
from analysis.runs import Run
from analysis.runs.price import spell
from app import cached
from app.selection.decide import CONTEXTS, LOADED, SEQUENCES
from app.ui import plots, tables, widgets
from app.ui.reading import rows_of
from app.ui.spelled import size

# The well-known models whose shapes the worker has, by their name there.
SHAPES = {
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
CSA_MODEL, CSA_KEEP = "EleutherAI/pythia-410m", 0.1
WAYS = ("ours, feed-forward alone", "ours, with projections", "ours, with the output head too")
CSA_COLUMNS = {
    "context": tables.Column("context", "whole", help="tokens"),
    "counted": tables.Column("counted"),
    "share": tables.Column("share", help=cached.glossary("attention's share")),
    "gain": tables.Column("gain", "number", help="at ten times cheaper attention"),
}
STEP = {
    "counted": tables.Column("counted beside attention", wrap=True),
    "share": tables.Column("attention's share", "share"),
    "gain": tables.Column("largest gain", "number"),
}
COUNTS = (
    "Before the first token: 2 FLOPs for every weight a token passes, 4 for every number of a query and each key it "
    "can see (causal pairs only, fewer in a layer with a window), the output head once. Each later token: the bytes of "
    "every sequence's keys and values, and of the weights once for all sequences; of a mixture of experts those that "
    "some sequence visits, all being equally likely. The bound assumes that time follows arithmetic before the first "
    "token and bytes after it, and that finding the keys costs nothing: what is measured lies below it."
)
ROOFLINE = (
    "Estimated from the data sheet, a lower bound in time: every byte is read once at full bandwidth and every "
    "multiplication runs at the full bfloat16 rate. Real programs take one and a half to two times as long."
)
# Number formats that the bench knows.
TIMED = ("bfloat16", "float16", "float32")


def request(shape: str, keep: float, counted: str, gpu: str | None = None) -> Worth:
    """The counting of a chosen shape: the loaded model, a well-known one, or a stored config.json."""
    is_config = shape != LOADED and shape not in SHAPES
    return Worth(
        model=st.session_state["model"] if shape == LOADED or is_config else shape,
        config=shape if is_config else None,
        contexts=list(CONTEXTS),
        batches=list(SEQUENCES),
        keep=keep,
        projections=counted == "all",
        **({"gpu": gpu} if gpu else {}),
    )


def ask(worth: Worth) -> Run:
    """The run of `worth` for a request; it takes milliseconds, so no price stands beside it."""
    stored = cached.store().find(worth)
    if stored is not None:
        return stored
    with st.spinner("Counting what the model's shape costs", show_time=True):
        return cached.jobs().request(worth, timeout=cached.PATIENCE)


# --- one context and batch --------------------------------------------------------------------------------------------


def beside(named: list[tuple[str, Run]], context: int, batch: int) -> None:
    """One column for each model at this context and batch; nothing where neither a GPU nor a second model is chosen."""
    gpu = named[0][1].numbers.get("gpu")
    if gpu is None and len(named) == 1:
        return
    sequences = "1 sequence" if batch == 1 else f"{batch} sequences at once"
    title = f"{context:,} tokens, {sequences}" + (f" on {gpu['title']}" if gpu else "")
    st.subheader(title, anchor=False, help=cached.glossary("estimated and measured"))
    facts = {name: _facts(run, context, batch) for name, run in named}
    columns = {"estimated": tables.Column("estimated", wrap=True)}
    columns |= {name: tables.Column(name, wrap=True) for name in facts}
    values = {"estimated": list(next(iter(facts.values())))} | {name: list(of.values()) for name, of in facts.items()}
    identity, height = f"{[run.id for _, run in named]}.{context}.{batch}", 60 + 34 * len(values["estimated"])
    plots.listed(columns, values, "worth_beside", "The models at this context and batch", identity, height=height)
    if gpu:
        widgets.prose(f"{ROOFLINE} Source: {gpu['source']}.", "quiet")


def _facts(run: Run, context: int, batch: int) -> dict[str, str]:
    """quantity -> its value in words."""
    numbers, shape, keep = run.numbers, run.numbers["shape"], f"reading {run.numbers['keep']:.0%} of the keys"
    row = {name: cells[0] for name, cells in rows_of(cached.columns(run, "rows"), context=context, batch=batch).items()}
    facts = {
        "made for": f"{shape['max_positions']:,} tokens" if shape["max_positions"] else "any length",
        "weights": size(shape["parameters"] * shape["value_bytes"]),
        "KV cache held": f"{size(row['kv_bytes'])} in {shape['dtype']}",
        "attention's share, first token": f"{row['prefill_share']:.1%}",
        "attention's share, later tokens": f"{row['decode_share']:.1%}",
        "largest gain, first token": f"{row['prefill_gain']:.2f} times",
        "largest gain, later tokens": f"{row['decode_gain']:.2f} times",
    }
    if "gpu" not in numbers:
        return facts
    memory = f"{size(row['memory_bytes'])} of {size(numbers['gpu']['memory'])}"
    largest, longest = numbers["largest_batch"][str(context)], numbers["longest_context"][str(batch)]
    return facts | {
        "weights and cache": memory if row["fits"] else f"{memory}: does not fit",
        "time to the first token, dense": spell(row["prefill_seconds"]),
        f"the same, {keep}": spell(row["prefill_seconds_sparse"]),
        "time per later token, dense": f"{row['ms_per_token']:,.3g} ms",
        f"per later token, {keep}": f"{row['ms_per_token_sparse']:,.3g} ms",
        "largest batch at this context": f"{largest:,}" if largest else "none fits",
        "longest context at this batch": f"{longest:,} tokens" if longest else "none fits",
    }


def card(worth: Worth, shape: dict, row: dict, verdict: str) -> None:
    """The card at the end: the verdict on one `row` of the counts, and the commands that count and time it again."""
    gain, dtype = cached.glossary("largest possible gain"), shape["dtype"]
    read = "What every step reads beside the KV cache, once for the whole batch."
    figures = [
        ("First token, at most", f"{row['prefill_gain']:.2f} times", None, gain),
        ("Each later token, at most", f"{row['decode_gain']:.2f} times", None, gain),
        (f"KV cache held, {dtype}", size(row["kv_bytes"]), None, cached.glossary("KV cache")),
        (f"Weights read in a step, {dtype}", size(row["weight_bytes"]), None, read),
    ]
    with st.container(border=True, key="worth_card"):
        st.subheader("The verdict", anchor=False, help=cached.glossary("estimated and measured"))
        widgets.prose(verdict)
        with st.container(horizontal=True, gap="large"):
            widgets.metrics(figures)
        st.code(_commands(worth, shape, row["context"], row["batch"]), language=None, wrap_lines=True)
        rows = [{"what": "verdict", "value": verdict}]
        rows += [{"what": label, "value": value} for label, value, *_ in figures]
        widgets.numbers(plots.columns(rows), "worth-verdict", "worth_verdict", "The verdict")


def _commands(worth: Worth, shape: dict, context: int, batch: int) -> str:
    """Commands for a terminal: the same count, and attention of this shape timed there, before the first token and in
    each later step. With 1 / keep groups a query reads about the share `keep` of the keys."""
    model = {"config": "CONFIG.json"} if worth.config else {"model": worth.model}
    further = {} if worth.projections else {"projections": False}
    count = Worth(**model, contexts=[context], batches=[batch], keep=worth.keep, **further)
    timed = {"lengths": [context], "heads": shape["heads"], "head_dim": shape["head_dim"], "batch": batch}
    timed |= {"kv_heads": shape["kv_heads"], "groups": max(2, round(1 / worth.keep))}
    timed |= {"dtype": shape["dtype"]} if shape["dtype"] in TIMED else {}
    commands = {
        "count it again": count,
        "time its attention on your machine: the first token": Bench(what="attention", **timed),
        "time its attention on your machine: each later token": Bench(what="decode", **timed),
    }
    return "\n\n".join(f"# {comment}\n{command.command_line()}" for comment, command in commands.items())


# --- what is counted --------------------------------------------------------------------------------------------------


def counted(run: Run, context: int) -> None:
    """What the config says, one step of this model counted in three ways, and what the counts hold."""
    widgets.prose(_shape(run.numbers["shape"]), "more")
    accounting = rows_of(cached.columns(run, "accounting"), context=context)
    label = f"One step of one sequence with {context:,} tokens, counted in three ways"
    tables.table(STEP, accounting, key="worth_accounting", identity=f"{run.id}.{context}", label=label)
    widgets.prose(COUNTS, "quiet")


def _shape(shape: dict) -> str:
    """What the config says."""
    parameters, window = shape["parameters"], shape["layers_with_window"]
    about = f"{parameters / 1e9:.3g} billion" if parameters >= 1e9 else f"{parameters / 1e6:.3g} million"
    grouped = f" sharing {shape['kv_heads']} of keys and values" if shape["kv_heads"] < shape["heads"] else ""
    block = f"{shape['feed_forward']:,} wide{', gated' if shape['gated'] else ''}"
    if shape["experts"] > 1:
        where = "" if shape["layers_with_experts"] == shape["layers"] else f" in {shape['layers_with_experts']} layers"
        block = f"{shape['experts']} experts{where}, {shape['active']} of them for each token, each {block}"
    facts = [
        f"{shape['family']}: about {about} parameters in {shape['dtype']}",
        f"{shape['layers']} layers of width {shape['width']:,} with {shape['heads']} heads of {shape['head_dim']}"
        + grouped,
        f"feed-forward blocks: {block}",
        f"{shape['vocabulary']:,} tokens in the vocabulary",
        shape["max_positions"] and f"made for {shape['max_positions']:,} tokens of context",
        window and f"{window} of its layers read only the last {shape['window']:,} tokens",
    ]
    return f"{'; '.join(fact for fact in facts if fact)}."


def paper_beside() -> None:
    """CSA's own table for Pythia 410M, and below each of its rows ours, counted in three ways."""
    term = cached.glossary("attention's share")
    st.subheader("The table of Calibrated Sparse Attention beside ours", anchor=False, help=term)
    widgets.prose("Pythia 410M, a later token, attention made ten times cheaper (its table 2).", "quiet")
    table = cached.columns(ask(request(CSA_MODEL, CSA_KEEP, "all")), "accounting")
    # Two columns: the share, the speed-up.
    printed = [(int(cell.row), cell.value) for cell in papers.find(*CSA)]
    rows = []
    for (context, percent), (_, times) in zip(printed[::2], printed[1::2], strict=True):
        rows.append({"context": context, "counted": "CSA, as printed", "share": f"{percent:.0f}%", "gain": times})
        ours = rows_of(table, context=context)
        for way, share, gain in zip(WAYS, ours["share"], ours["gain"], strict=True):
            rows.append({"context": context, "counted": way, "share": f"{share:.1%}", "gain": gain})
    plots.listed(CSA_COLUMNS, rows, "worth_csa", "CSA's table and ours", height=400)
