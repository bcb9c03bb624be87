"""Is sparse attention worth it? Attention's share and the largest possible gain, from a config.json alone."""

import datetime
import json
import platform
import re
import sys
from collections import Counter
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import IO, Any

import pandas as pd

from ...answer import Answer, doc, record
from ...commands.speed import Worth
from ...corpus import text_hash
from ...costs import (
    KNOWN,
    MAX_BYTES,
    Shape,
    amdahl,
    coefficients,
    costs,
    decode_bytes,
    estimate,
    first_context,
    largest_batch,
    longest_context,
    named_gpu,
    read_config,
    read_shape,
)
from ...errors import BadSetting
from ...places import CACHE, config_file

CONTEXTS, BATCHES = (1024, 4096, 16384, 65536, 131072), (1, 8, 64)
MOST_ROWS = 1000
# A gain from which on it can be worth it.
GOAL = 1.5
# Of the router whose size is told.
GROUPS, ROUTING = 4, 16
# Gains are bounds, hence "up to".
VERDICTS = {
    "yes": "Yes. At {context}, reading {keep}: prefill up to {prefill}x, each token up to {token}x.",
    "later": "Only from {needed} tokens. At {context}: prefill up to {prefill}x, each token up to {token}x.",
    "no": "No. At {context}, reading {keep}: prefill at most {prefill_more}% faster, each token {token_more}%.",
}
FACTS = "family parameters active layers heads kv_heads head_dim width vocabulary tied max_positions dtype".split()
FACTS += ["token_bytes", "cache_bytes", "latent"]
BESIDE = {  # how much is counted beside attention
    "ffn": "the feed-forward blocks alone, as CSA counts",
    "layers": "feed-forward blocks and projections",
    "all": "feed-forward blocks, projections and output head",
}


@record
class Gains(Answer):
    """What sparse attention could gain at most, from the shape of a model."""

    name: str = doc("the model, or where its config came from")
    sentence: str = doc("the answer for the longest context that the model reads, and the first batch")
    further: str = doc("where the limits of that answer lie")
    rows: list[dict] = doc("per batch and context what `costs` says, and with a GPU `estimate`")
    keep: float = doc("share of the keys that sparse attention reads")
    accounting: list[dict] = doc("that row counted in three ways: attention's share, and what it could gain")
    shape: dict = doc("sizes of the model")
    made_of: dict = doc(
        "what gains and times are counted from, see `costs.coefficients`, with the words of the verdict"
    )
    notes: list[str] = doc("what the config left open")
    table: pd.DataFrame = doc("the rows", name="rows")
    said: pd.DataFrame = doc("sentence and further of each row")
    accounts: pd.DataFrame = doc("the accounting of every context", name="accounting")
    gpu: dict | None = doc("data sheet of the GPU", default=None)
    largest_batch: dict | None = doc("sequences that fit it at each context", default=None)
    longest_context: dict | None = doc("tokens that fit it at each batch", default=None)
    router: dict | None = doc(
        "a Focus router of 4 groups and 16 dimensions: its parameters, and their share of the model's", default=None
    )


def worth(request: Worth, *, context: Any = None) -> Gains:
    """Attention's share of a prefill's FLOPs and of a decode step's bytes, and what reading fewer keys could gain, by a
    model's config.json, without its weights. `projections=False` counts the feed-forward blocks alone beside attention,
    as CSA does. With a GPU every row also has what `costs.estimate` says of it at best."""
    name, text = config_text(request.model, request.config, context)
    shape, keep = read_shape(read_config(text, name)), request.keep
    if request.kv_bytes is not None:
        shape = replace(shape, cache_bytes=request.kv_bytes)
    counted = "all" if request.projections else "ffn"
    contexts, batches = request.contexts, request.batches
    if contexts is None:
        contexts = sorted({*CONTEXTS, shape.max_positions or CONTEXTS[0]})
    batches = list(BATCHES) if batches is None else batches
    if not 1 <= len(contexts) * len(batches) <= MOST_ROWS:
        raise BadSetting(
            f"{len(contexts):,} contexts and {len(batches):,} batches were asked for: give at least one of each, and "
            f"at most {MOST_ROWS:,} rows in all."
        )
    rows: list[dict[str, Any]] = [
        costs(shape, length, batch, keep, counted) for batch in batches for length in contexts
    ]
    fits: dict[str, Any] = {}
    if request.gpu:
        sheet = named_gpu(request.gpu)
        rows = [row | estimate(shape, sheet, row["context"], row["batch"], keep) for row in rows]
        fits["gpu"] = asdict(sheet)
        fits["largest_batch"] = {str(length): largest_batch(shape, sheet, length) for length in contexts}
        fits["longest_context"] = {str(batch): longest_context(shape, sheet, batch) for batch in batches}
    needed = {batch: first_context(shape, batch, keep, GOAL, counted) for batch in set(batches)}
    sentences = [verdict(row, keep, needed[row["batch"]], shape.max_positions) for row in rows]
    further = [_further(row, needed[row["batch"]], shape, request.projections) for row in rows]
    # A decode step of one sequence, counted in three ways: CSA's, with projections, and with the output head.
    accounts = []
    for length, (way, words) in product(contexts, BESIDE.items()):
        keys, rest = decode_bytes(shape, length, 1, way)
        share = keys / (keys + rest)
        accounts.append({"counted": words, "context": length, "share": share, "gain": amdahl(share, keep)})
    # the answer is that of the longest context which the model reads
    readable = [length for length in contexts if length <= (shape.max_positions or length)]
    shown = contexts.index(max(readable) if readable else min(contexts))
    # In each layer a projection and centroids (Focus, section 2).
    router = shape.layers * ROUTING * (shape.width + GROUPS)
    about: dict[str, Any] = {"verb": "worth", "model": name, "revision": text_hash(text)}
    about |= {"text": None, "tokens": None, "seed": None}
    about |= {"window": shape.max_positions, "dtype": shape.dtype, "device": "none: computed from the shape"}
    about |= {"kernel": "none: estimated", "counted": f"causal pairs in the prefill; {BESIDE[counted]}"}
    about |= {"versions": {"python": platform.python_version()}}
    about |= {"date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
    return Gains(
        name=name,
        sentence=sentences[shown],
        further=further[shown],
        rows=rows,
        keep=keep,
        accounting=[row for row in accounts if row["context"] == contexts[shown]],
        shape=_facts(shape),
        made_of={
            "gain": coefficients(shape, counted),
            "time": coefficients(shape),
            "model_bytes": shape.weight_bytes,
            "goal": GOAL,
            "verdicts": VERDICTS,
        },
        notes=list(shape.notes),
        router={"parameters": router, "share": router / shape.parameters},
        table=pd.DataFrame(rows),
        said=pd.DataFrame({"sentence": sentences, "further": further}),
        accounts=pd.DataFrame(accounts),
        **fits,
        protocol=about,
    )


def config_of(place: str) -> dict[str, str]:
    """The arguments of `worth` for what a command line names: a config.json, - for standard input, or a model."""
    if place == "-":
        return {"model": "standard input", "config": _decoded(sys.stdin.buffer)}
    path = Path(place)
    if not path.is_file():
        return {"model": place}
    with path.open("rb") as file:
        return {"model": path.name, "config": _decoded(file)}


def _decoded(file: IO[bytes]) -> str:
    """What a file holds, up to one byte more than a config.json may have."""
    return file.read(MAX_BYTES + 1).decode("utf-8-sig", "replace")


def config_text(model: str, config: str | None, context: Any) -> tuple[str, str]:
    """(name, text) of the config.json."""
    if config is not None and context is not None and re.fullmatch("[0-9a-f]{12}", config):
        return context.text(config)
    if config is not None:
        return model if model != "demo" else "The given config", config
    if model in KNOWN:
        return model, json.dumps(KNOWN[model])
    with config_file(model, CACHE if context is not None and context.browser else None).open("rb") as file:
        return model, _decoded(file)


def _facts(shape: Shape) -> dict:
    """The shape as plain numbers for a page."""
    sparse = [block for block in shape.blocks if block.experts > 1]
    block, windows = (sparse or shape.blocks)[0], [window for window in shape.windows if window is not None]
    facts = {name: getattr(shape, name) for name in FACTS}
    facts |= {"kinds": dict(Counter(layer.kind for layer in shape.stack)), "weight_bytes": shape.weight_bytes}
    facts |= {"layers_with_window": len(windows), "window": max(windows, default=None)}
    facts |= {"feed_forward": block.width, "gated": block.matrices == 3, "experts": block.experts}
    facts |= {"visited": block.active, "layers_with_experts": len(sparse)}
    return facts | {"state_bytes": shape.state}


def verdict(row: dict, keep: float, needed: int | None, longest: int | None) -> str:
    """The answer for one row, in at most 15 words. `needed`: the context from which the gain reaches `GOAL`, of no use
    beyond the `longest` that the model reads."""
    reachable = needed is not None and needed <= max(longest or needed, row["context"])
    word = "yes" if row["gain_bound"] >= GOAL else "later" if reachable else "no"
    return VERDICTS[word].format(
        context=short(row["context"]),
        keep=f"{100 * keep:.3g}%",
        prefill=f"{row['prefill_gain']:.1f}",
        token=f"{row['decode_gain']:.1f}",
        prefill_more=round(100 * (row["prefill_gain"] - 1)),
        token_more=round(100 * (row["decode_gain"] - 1)),
        needed=needed and short(_two_digits(needed)),
    )


def short(tokens: int) -> str:
    """Tokens as people say them: 131072 is 128k, 31000 is 31k."""
    thousand = 1024 if tokens % 1024 == 0 else 1000
    for size, unit in ((thousand**2, "M"), (thousand, "k")):
        if tokens >= size:
            return f"{tokens / size:.3g}{unit}"
    return str(tokens)


def _two_digits(tokens: int) -> int:
    """All that an estimate says; halves go up, as in the browser."""
    unit = 10 ** max(0, len(str(tokens)) - 2)
    return (tokens + unit // 2) // unit * unit


def _further(row: dict, needed: int | None, shape: Shape, projections: bool) -> str:
    """What one row's answer rests on, and where its limits lie."""
    if needed is None:
        goal = f", and no context gets to {GOAL} times"
        if any(entries.selects for entries, _ in shape.cached):
            goal += ": it already chooses what it reads, and that choosing stays"
        elif any(shape.windows):
            goal += ": its layers read windows"
    else:
        verb = "would need about" if row["gain_bound"] < GOAL else "begins at about"
        goal = f"; a gain of {GOAL} times {verb} {_two_digits(needed):,} tokens"
    way = "" if projections else ", beside the feed-forward blocks alone"
    sentence = (
        f"Attention is {_share(row['prefill_share'])} of the arithmetic before the first token and "
        f"{_share(row['decode_share'])} of what each later one reads{way}. Even free attention would stop at "
        f"{row['ceiling']:,.2f} times{goal}."
    )
    if shape.max_positions and row["context"] > shape.max_positions:
        sentence += f" The model was made for {shape.max_positions:,} tokens."
    return sentence


def _share(value: float) -> str:
    if value > 0.99:
        return "over 99%"
    return f"{value:.0%}" if value >= 0.095 else f"{value:.1%}"
