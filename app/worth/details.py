"""Below the answer: every context, a second model beside, how it is counted, CSA's own table, and the commands."""

from typing import Any

import streamlit as st

from analysis import papers
from analysis.commands.speed import Bench, Worth
from analysis.runs import Run
from analysis.runs.price import spell
from app import cached
from app.selection import state
from app.selection.decide import CACHES, COUNTED
from app.ui import painted, plots, tables, widgets
from app.ui.reading import rows_of
from app.ui.spelled import size
from app.worth import shapes

GAIN = cached.glossary("largest possible gain")
COLUMNS = {
    "context": tables.Column("context", "whole", help="tokens"),
    "prefill_share": tables.Column("share, first token", "share", help="attention's share of the FLOPs", full=1.0),
    "decode_share": tables.Column("share, later tokens", "share", help="attention's share of the bytes read", full=1.0),
    "kv": tables.Column("KV cache", help=cached.glossary("KV cache")),
    "prefill_gain": tables.Column("gain, first token", "number", help=GAIN),
    "decode_gain": tables.Column("gain, later tokens", "number", help=GAIN),
    "ceiling": tables.Column("free attention", "number", help="the larger gain if attention cost nothing at all"),
}
STEP = {
    "counted": tables.Column("counted beside attention", wrap=True),
    "share": tables.Column("attention's share", "share"),
    "gain": tables.Column("largest gain", "number"),
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
COUNTS = (
    "Before the first token: 2 FLOPs for every weight a token passes, 4 for every number of a query and each key it "
    "can see (causal pairs only, fewer in a layer with a window), the output head once. Each later token: the bytes of "
    "every sequence's keys and values, and of the weights once for all sequences; of a mixture of experts those that "
    "some sequence visits, all being equally likely. States of linear layers, and an indexer's own keys and products, "
    "are counted beside attention: reading fewer keys does not save them. The bound assumes that time follows "
    "arithmetic before the first token and bytes after it, and that finding the keys costs nothing: what is measured "
    "lies below it."
)
# How each kind of layer is called, and those of which a model may have all.
KINDS = {
    "full_attention": "attention over all tokens",
    "sliding_attention": "attention over the last tokens",
    "chunked_attention": "attention within a chunk",
    "indexed_attention": "attention over what its indexer chose",
    "minimax_m3_sparse": "attention over blocks that its indexer chose",
    "compressed_sparse_attention": "attention over the last tokens and chosen compressed ones",
    "heavily_compressed_attention": "attention over the last tokens and all compressed ones",
    "attention_and_mamba": "attention beside Mamba",
    "linear": "linear attention",
    "Mamba": "Mamba",
    "convolution": "short convolution",
    "mlp": "feed-forward alone",
    "moe": "experts alone",
}
BITS = {"weights": "as the weights", "16": "16 bits", "8": "8 bits", "4": "4 bits"}
assert list(BITS) == list(CACHES)
# Number formats that the bench knows.
TIMED = ("bfloat16", "float16", "float32")


def show(run: Run, models: dict[str, str], context: int, batch: int) -> None:
    """All of it, one below the other."""
    with widgets.guarded():
        st.subheader(f"Context by context, {'1 sequence' if batch == 1 else f'{batch} sequences'}", anchor=False)
        rows = rows_of(cached.columns(run, "rows"), batch=batch)
        rows |= {"kv": [size(count) for count in rows["kv_bytes"]]}

        def on_row() -> None:
            if wanted := painted.picked("worth_table", rows["context"]):
                state.choose(st.session_state, context=wanted)

        look: dict[str, Any] = {"selected": rows["context"].index(context), "on_row": on_row, "height": 520}
        label = "Shares and gains by context; choose one to look at it"
        plots.listed(COLUMNS, rows, "worth_table", label, f"{run.id}.{batch}", **look)
    widgets.each(
        lambda: _beside(run, models, context, batch),
        lambda: _counted(run, context),
        paper_beside,
        lambda: _again(run, context, batch),
    )


def _beside(run: Run, models: dict[str, str], context: int, batch: int) -> None:
    """A column for this model at this context and batch, and for a second one where it is chosen."""
    chosen = st.session_state
    further = {key: name for key, name in models.items() if key != chosen["shape"]}
    widgets.settled("shape_beside", [None, *further], None)
    st.subheader("Beside another model", anchor=False, help=cached.glossary("estimated and measured"))
    look: dict[str, Any] = {"index": None, "placeholder": "none", "width": 280, "label_visibility": "collapsed"}
    look |= {"format_func": further.get}
    st.selectbox("Beside another model", list(further), key="shape_beside", **look)
    facts = {models[chosen["shape"]]: facts_of(run, context, batch)}
    if second := chosen["shape_beside"]:
        other = shapes.ask(shapes.chosen(second))
        facts[models[second]] = facts_of(other, context, batch)
    columns = {"estimated": tables.Column("estimated", wrap=True)}
    columns |= {name: tables.Column(name, wrap=True) for name in facts}
    values = {"estimated": list(next(iter(facts.values())))} | {name: list(of.values()) for name, of in facts.items()}
    identity = f"{run.id}.{chosen['shape_beside']}.{context}.{batch}"
    plots.listed(columns, values, "worth_beside", "The models at this context and batch", identity, height=480)


def facts_of(run: Run, context: int, batch: int) -> dict[str, str]:
    """quantity -> its value in words."""
    numbers, shape, keep = run.numbers, run.numbers["shape"], f"reading {run.numbers['keep']:.0%} of the keys"
    row = {name: cells[0] for name, cells in rows_of(cached.columns(run, "rows"), context=context, batch=batch).items()}
    memory, longest = f"{size(row['memory_bytes'])} of {size(numbers['gpu']['memory'])}", numbers["longest_context"]
    return {
        "made for": f"{shape['max_positions']:,} tokens" if shape["max_positions"] else "any length",
        "weights": size(shape["weight_bytes"]),
        "weights read in a step": size(row["weight_bytes"]),
        "cached for a token": f"{size(shape['token_bytes'])}, {shape['cache_bytes']:.3g} bytes a number",
        "KV cache": size(row["kv_bytes"]),
        "attention's share, first token": f"{row['prefill_share']:.1%}",
        "attention's share, later tokens": f"{row['decode_share']:.1%}",
        "largest gain, first token": f"{row['prefill_gain']:.2f} times",
        "largest gain, later tokens": f"{row['decode_gain']:.2f} times",
        "weights and cache": memory if row["fits"] else f"{memory}: does not fit",
        "time to the first token, dense": spell(row["prefill_seconds"]),
        f"the same, {keep}": spell(row["prefill_seconds_sparse"]),
        "time per later token, dense": f"{row['ms_per_token']:,.3g} ms",
        f"per later token, {keep}": f"{row['ms_per_token_sparse']:,.3g} ms",
        "largest batch at this context": f"{row['largest_batch']:,}" if row["largest_batch"] else "none fits",
        "longest context at this batch": f"{longest[str(batch)]:,} tokens" if longest[str(batch)] else "none fits",
    }


def _counted(run: Run, context: int) -> None:
    """What the config says, a step of this model counted in three ways, and what the counts hold."""
    st.subheader("What is counted", anchor=False)
    widgets.source(run)
    help = "All weights: feed-forward blocks, projections and the output head. Feed-forward only: CSA's count."
    look: dict[str, Any] = {"format_func": COUNTED.get, "required": True, "help": help}
    with st.container(horizontal=True):
        st.segmented_control("Counted beside attention", list(COUNTED), key="counted", **look)
        look = {"format_func": BITS.get, "required": True, "help": "4 bits: with a scale and a minimum for every group"}
        st.segmented_control("KV cache in", list(BITS), key="kv_bits", **look)
    widgets.prose(_shape(run.numbers["shape"]), "more")
    accounting = rows_of(cached.columns(run, "accounting"), context=context)
    label = f"A step of 1 sequence with {context:,} tokens, counted in three ways"
    tables.table(STEP, accounting, key="worth_accounting", identity=f"{run.id}.{context}", label=label)
    widgets.prose(COUNTS, "quiet")


def _shape(shape: dict[str, Any]) -> str:
    """What the config says."""
    window, kinds = shape["layers_with_window"], shape["kinds"]
    grouped = f" sharing {shape['kv_heads']} of keys and values" if shape["kv_heads"] < shape["heads"] else ""
    block = f"{shape['feed_forward']:,} wide{', gated' if shape['gated'] else ''}"
    if shape["experts"] > 1:
        where = "" if shape["layers_with_experts"] == shape["layers"] else f" in {shape['layers_with_experts']} layers"
        block = f"{shape['experts']} experts{where}, {shape['visited']} of them for each token, each {block}"
    facts = [
        f"{shape['family']}: about {_many(shape['parameters'])} weights in {shape['dtype']}, "
        f"{_many(shape['active'])} of them for each token",
        f"{shape['layers']} layers of width {shape['width']:,} with {shape['heads']} heads of {shape['head_dim']}"
        + grouped,
        len(kinds) > 1 and ", ".join(f"{count} of {KINDS[kind]}" for kind, count in kinds.items()),
        f"feed-forward blocks: {block}",
        f"{shape['vocabulary']:,} tokens in the vocabulary",
        f"{size(shape['token_bytes'])} cached for each token",
        shape["latent"] and f"of one latent of {shape['latent']} numbers for all heads of a layer",
        shape["state_bytes"] and f"{size(shape['state_bytes'])} of states for each sequence",
        shape["max_positions"] and f"made for {shape['max_positions']:,} tokens of context",
        window and f"{window} of its layers read {shape['window']:,} tokens at most",
    ]
    return f"{'; '.join(fact for fact in facts if fact)}."


def _many(weights: int) -> str:
    return f"{weights / 1e9:,.4g} billion" if weights >= 1e9 else f"{weights / 1e6:,.4g} million"


def paper_beside() -> None:
    """CSA's own table for Pythia 410M, and below each of its rows ours, counted in three ways."""
    term = cached.glossary("attention's share")
    st.subheader("The table of Calibrated Sparse Attention beside ours", anchor=False, help=term)
    widgets.prose("Pythia 410M, a later token, attention made ten times cheaper (its table 2).", "quiet")
    table = cached.columns(shapes.ask(shapes.request(CSA_MODEL, CSA_KEEP)), "accounting")
    # Two columns: the share, the speed-up.
    printed = [(int(cell.row), cell.value) for cell in papers.find(*CSA)]
    rows: list[dict[str, Any]] = []
    for (context, percent), (_, times) in zip(printed[::2], printed[1::2], strict=True):
        rows.append({"context": context, "counted": "CSA, as printed", "share": f"{percent:.0f}%", "gain": times})
        ours = rows_of(table, context=context)
        for way, share, gain in zip(WAYS, ours["share"], ours["gain"], strict=True):
            rows.append({"context": context, "counted": way, "share": f"{share:.1%}", "gain": gain})
    plots.listed(CSA_COLUMNS, rows, "worth_csa", "CSA's table and ours", height=400)


def _again(run: Run, context: int, batch: int) -> None:
    """Commands for a terminal: the same count, and attention of this shape timed there, before the first token and in
    each later step. With 1 / keep groups a query reads about the share `keep` of the keys."""
    chosen, shape = st.session_state, run.numbers["shape"]
    config = shapes.is_config(chosen["shape"])
    model: dict[str, Any] = {"config": "CONFIG.json"} if config else {"model": shapes.spoken(chosen["shape"])}
    further: dict[str, Any] = {} if chosen["counted"] == "all" else {"projections": False}
    further |= {} if CACHES[chosen["kv_bits"]] is None else {"kv_bytes": CACHES[chosen["kv_bits"]]}
    count = Worth(**model, contexts=[context], batches=[batch], keep=chosen["keep"], gpu=shapes.gpu(), **further)
    timed: dict[str, Any] = {"lengths": [context], "heads": shape["heads"], "head_dim": shape["head_dim"]}
    timed |= {"batch": batch, "kv_heads": shape["kv_heads"], "groups": max(2, round(1 / chosen["keep"]))}
    timed |= {"dtype": shape["dtype"]} if shape["dtype"] in TIMED else {}
    commands = {
        "count it again": count,
        "time its attention on your machine: the first token": Bench(what="attention", **timed),
        "time its attention on your machine: each later token": Bench(what="decode", **timed),
    }
    code = "\n\n".join(f"# {comment}\n{command.command_line()}" for comment, command in commands.items())
    st.code(code, language=None, wrap_lines=True)
