"""Is sparse attention worth it? Attention's share and the largest possible gain, from a config.json alone."""

import datetime
import json
import platform
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import pandas as pd

from analysis.corpus import text_hash
from analysis.costs import (
    KNOWN,
    MAX_BYTES,
    Shape,
    amdahl,
    costs,
    decode_bytes,
    estimate,
    first_context,
    gpu as gpu_of,
    largest_batch,
    longest_context,
    read_config,
    read_shape,
)
from analysis.errors import BadSetting
from analysis.places import CACHE, config_file
from analysis.runs import Result

CONTEXTS, BATCHES = (1024, 4096, 16384, 65536, 131072), (1, 8, 64)
MOST_ROWS = 1000
LITTLE, GOAL = 1.1, 1.5  # below the first the answer is No; from the second on it can be worth it
FACTS = ("family", "parameters", "layers", "heads", "kv_heads", "head_dim", "width")
FACTS += ("vocabulary", "tied", "max_positions", "dtype", "value_bytes")
BESIDE = {  # how much is counted beside attention
    "ffn": "the feed-forward blocks alone, as CSA counts",
    "layers": "feed-forward blocks and projections",
    "all": "feed-forward blocks, projections and output head",
}


def worth(
    model: str = "demo",
    config: str | None = None,
    contexts: list[int] | None = None,
    batches: list[int] | None = None,
    keep: float = 0.1,
    projections: bool = True,
    gpu: str = "",
    *,
    context: Any = None,
) -> Result:
    """Attention's share of a prefill's FLOPs and of a decode step's bytes, and what reading fewer keys could gain.

    `model` names whose config.json is read (a well-known one, `demo`, a folder, a Hub id), without its weights;
    `config` is that JSON itself, or the hash of a stored text that holds it. `keep` is the fraction of the keys that
    sparse attention reads; `projections=False` counts the feed-forward blocks alone beside attention, as CSA does.
    `gpu`: one of `costs.GPUS`; then every row also has what `costs.estimate` says of it at best, and numbers `gpu`
    (its data sheet) with the `largest_batch` of each context and the `longest_context` of each batch that fit.
    numbers: `rows` (see `costs`), `sentence` and `further` (for the longest of `contexts` that the model reads, and
    the first batch), `accounting` (that row counted in three ways), `shape`, `notes`; tables: `rows`, and `said` with
    the two sentences of each row, `accounting` of every context.
    """
    name, text = _config(model, config, context)
    shape = read_shape(read_config(text, name))
    counted = "all" if projections else "ffn"
    contexts = list(contexts) if contexts is not None else sorted({*CONTEXTS, shape.max_positions or CONTEXTS[0]})
    batches = list(batches) if batches is not None else list(BATCHES)
    if not 1 <= len(contexts) * len(batches) <= MOST_ROWS:
        raise BadSetting(
            f"{len(contexts):,} contexts and {len(batches):,} batches were asked for: give at least one of each, and "
            f"at most {MOST_ROWS:,} rows in all."
        )
    rows = [costs(shape, length, batch, keep, counted) for batch in batches for length in contexts]
    found = gpu_of(gpu) if gpu else None
    if found is not None:
        rows = [row | estimate(shape, found, row["context"], row["batch"], keep) for row in rows]
    needed = {batch: first_context(shape, batch, keep, GOAL, counted) for batch in set(batches)}
    own = [length for length in contexts if length <= (shape.max_positions or length)]
    at = contexts.index(max(own) if own else min(contexts))
    sentences = [_sentence(row, keep, projections) for row in rows]
    further = [_further(row, needed[row["batch"]], shape) for row in rows]
    said = pd.DataFrame({"sentence": sentences, "further": further})
    counts = [row for length in contexts for row in _accounting(shape, length, keep)]
    about = {"verb": "worth", "model": name, "revision": text_hash(text), "text": None, "tokens": None, "seed": None}
    about |= {"window": shape.max_positions, "dtype": shape.dtype, "device": "none: computed from the shape"}
    about |= {"kernel": "none: estimated", "counted": f"causal pairs in the prefill; {BESIDE[counted]}"}
    about |= {"versions": {"python": platform.python_version()}}
    about |= {"date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
    numbers = {
        "name": name,
        **said.iloc[at].to_dict(),
        "rows": rows,
        "keep": keep,
        "accounting": [row for row in counts if row["context"] == rows[at]["context"]],
        "shape": _facts(shape),
        "notes": list(shape.notes),
        "protocol": about,
    }
    if found is not None:
        numbers["gpu"] = asdict(found)
        numbers["largest_batch"] = {str(length): largest_batch(shape, found, length) for length in contexts}
        numbers["longest_context"] = {str(batch): longest_context(shape, found, batch) for batch in batches}
    return Result(numbers, {"rows": pd.DataFrame(rows), "said": said, "accounting": pd.DataFrame(counts)})


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


def _config(model: str, config: str | None, context: Any) -> tuple[str, str]:
    """(name, text) of the config.json."""
    if config is not None and context is not None and re.fullmatch("[0-9a-f]{12}", config):
        return context.text(config)
    if config is not None:
        return model if model != "demo" else "The given config", config
    if model in KNOWN:
        return model, json.dumps(KNOWN[model])
    with config_file(model, CACHE if context is not None and context.browser else None).open("rb") as file:
        return model, _decoded(file)


def _accounting(shape: Shape, length: int, keep: float) -> list[dict]:
    """A decode step of one sequence, counted in three ways: CSA's, with projections, and with the output head."""
    found = []
    for counted, words in BESIDE.items():
        cache, weights = decode_bytes(shape, length, 1, counted)
        share = cache / (cache + weights)
        found.append({"counted": words, "context": length, "share": share, "gain": amdahl(share, keep)})
    return found


def _facts(shape: Shape) -> dict:
    """The shape as plain numbers for a page."""
    sparse = [block for block in shape.blocks if block.experts > 1]
    block = (sparse or shape.blocks)[0]
    facts = {name: getattr(shape, name) for name in FACTS}
    windows = {"layers_with_window": sum(window is not None for window in shape.windows)}
    windows["window"] = max((window for window in shape.windows if window), default=None)
    facts |= windows | {"feed_forward": block.width, "gated": block.matrices == 3, "experts": block.experts}
    return facts | {"active": block.active, "layers_with_experts": len(sparse)}


def _sentence(row: dict, keep: float, projections: bool) -> str:
    """The answer for one row; it may be No."""
    gain = row["gain_bound"]
    verdict = "No" if gain < LITTLE else "Hardly" if gain < GOAL else "It can be"
    many = "1 sequence" if row["batch"] == 1 else f"{row['batch']:,} sequences at once"
    way = "" if projections else " (beside the feed-forward blocks alone)"
    return (
        f"{verdict}: with {row['context']:,} tokens and {many}, attention is {_share(row['prefill_share'])} of the "
        f"arithmetic before the first token and {_share(row['decode_share'])} of what each later one reads{way}, so "
        f"reading {100 * keep:.3g}% of the keys makes the first at most {row['prefill_gain']:.2f} times and each later "
        f"one at most {row['decode_gain']:.2f} times as fast."
    )


def _further(row: dict, needed: int | None, shape: Shape) -> str:
    """Where the limits of one row's answer lie."""
    said = f"Even free attention would stop at {row['ceiling']:,.2f} times"
    if needed is None:
        said += f", and no context gets to {GOAL} times" + (": its layers read windows." if any(shape.windows) else ".")
    elif row["gain_bound"] < GOAL:
        said += f"; a gain of {GOAL} times would need about {_rounded(needed):,} tokens."
    else:
        said += f"; a gain of {GOAL} times begins at about {_rounded(needed):,} tokens."
    if shape.max_positions and row["context"] > shape.max_positions:
        said += f" The model was made for {shape.max_positions:,} tokens."
    return said


def _share(value: float) -> str:
    return "over 99%" if value > 0.99 else f"{value:.0%}" if value >= 0.095 else f"{value:.1%}"


def _rounded(count: int) -> int:
    """Two digits are all that an estimate says."""
    unit = 10 ** max(0, len(str(count)) - 2)
    return round(count / unit) * unit
