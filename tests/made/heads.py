"""Hand-made answers of the verbs behind Attention heads and Softmax temperature."""

import numpy as np
import pandas as pd

from analysis.runs import Result
from app.heads.head_statistics import LETTERS
from app.selection.look import STATISTICS
from tests.made.results import CONTEXT, HEADS, LAYERS, protocol, tokens

SENTENCE = "1 of 6 heads leaves more than half on the first token."
CELL = 2  # tokens of a cell of the pattern


def statistics(args: dict, text: str) -> Result:
    table = tokens(text)
    cells = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    frame = pd.DataFrame(cells, columns=["layer", "head"])
    for place, name in enumerate(STATISTICS):
        frame[name] = [0.1 + (7 * cell + place) % 6 / 10 for cell in range(len(cells))]
    frame["top_p_rank"] = [4.0**cell for cell in range(len(cells))]
    frame["induction"] = [None, 0.5, 0.4, 0.3, 0.2, 0.1]
    frame["label"] = ["sink", "induction", "far", "diffuse", "local", "mixed"]
    chance = pd.DataFrame({"layer": range(LAYERS)} | dict.fromkeys(STATISTICS, 0.01))
    numbers = {"sentence": SENTENCE, "without_first": args["without_first"], "notes": ["A note to <read>."]}
    exact = pd.DataFrame({"layer": range(LAYERS), "largest_score": [9.0, 61.5, 20.0], "difference": [1e-7, 3e-6, 1e-6]})
    exact["own_difference"] = [1e-3, 0.125, 2e-3]
    numbers["numerics"] = {"largest_score": 61.5, "difference": 3e-6, "own_difference": 0.125, "dtype": "bfloat16"}
    numbers["numerics"] |= {"queries": 16}
    return Result(
        numbers | {"protocol": protocol("statistics", args, len(table))},
        {"tokens": table, "heads": frame, "chance": chance, "numerics": exact},
    )


def window(args: dict, table: pd.DataFrame) -> tuple[int, int, int]:
    """(offset, length, query) of the window that is asked for, or of all."""
    offset = (args["part"] or 0) * CONTEXT
    length = len(table) if args["part"] is None else min(CONTEXT, len(table) - offset)
    return offset, length, length - 1 if args["query"] is None else args["query"]


def head(args: dict, text: str) -> Result:
    table = tokens(text)
    offset, length, query = window(args, table)
    row = np.zeros(length, np.float32)
    row[: query + 1] = 1 / (query + 1)
    row[0] += 0.5
    side = -(-length // CELL)
    keys = table.iloc[offset : offset + min(2, query + 1)]
    listed = pd.DataFrame({"key": range(len(keys)), "position": keys["position"], "piece": keys["piece"]})
    listed["word"], listed["distance"], listed["attention"] = keys["word"], query - listed["key"], row[: len(keys)]
    distance = pd.DataFrame({"low": [0, 1], "high": [1, 2], "mass": [0.7, 0.3], "uniform": [0.5, 0.5]})
    numbers = {name: args[name] for name in ("layer", "head")} | {"query": query, "cell": CELL, "length": length}
    numbers |= {"offset": offset, "summary": dict.fromkeys(STATISTICS, 0.5), "chance": dict.fromkeys(STATISTICS, 0.1)}
    numbers |= {"pooling": "A cell is 2 queries and 2 keys.", "notes": []}
    numbers["sentence"] = f"Head {args['head']} of layer {args['layer']} reads <b>."
    arrays = {"pattern": np.tril(np.full((side, side), 0.1, np.float32)), "row": row}
    if args.get("rows"):
        shape = [edges[1] - edges[0] for edges in (args["rows"], args["columns"])]
        arrays["tile"] = np.full(shape, 0.25, np.float32)
    queries = pd.DataFrame({"position": range(length)} | dict.fromkeys(STATISTICS, np.linspace(0, 1, length)))
    tables = {"keys": listed, "distance": distance, "tokens": table, "queries": queries}
    return Result(numbers | {"protocol": protocol("head", args, length)}, tables, arrays)


def why(args: dict, text: str) -> Result:
    table = tokens(text)
    offset, length, query = window(args, table)
    parts = pd.DataFrame(
        {"query_writer": ["L0.mlp", "bias"], "key_writer": ["L1.H1", "embedding"], "score": [8.0, -1.0]}
    )
    writers = pd.DataFrame({"side": ["key", "query"], "writer": ["L1.H1", "L0.mlp"], "margin": [6.0, 2.0]})
    writers["low"], writers["high"], writers["share"] = [5.0, None], [7.0, None], [0.75, 0.25]
    row = {"side": "key", "writer": "L1.H1", "by": "mean", "predicted": -6.0, "measured": -5.4, "slope": 0.9}
    numbers = {name: args[name] for name in ("layer", "head")} | {"query": query, "offset": offset, "capped": 7.5}
    numbers |= {"key": args.get("key_token") or 0, "logit": 7.5, "attention": 0.6, "rest": 0.5}
    row |= {"low": 0.8, "high": 1.0, "rescaled": 1.1, "followed": 0.5, "followed_low": None, "followed_high": None}
    numbers |= {"share": 0.7, "margin": 8.0, "pairs": 12, "rows": [row], "slopes": "1 of 1 slopes lie near."}
    numbers |= {"sentence": "Head finds its keys by L1.H1.", "notes": []}
    tables = {"tokens": table, "parts": parts, "writers": writers}
    tables["distance"] = pd.DataFrame({"distance": [1, 2], "logit": [7.0, 6.0]})
    tables["spectrum"] = pd.DataFrame({"wavelength": [6.28], "score": [7.5], "most": [8.0], "distance": [3.0]})
    tables["vocabulary"] = pd.DataFrame({"token": ["a", "b"], "change": [2.0, -1.0]})
    return Result(numbers | {"protocol": protocol("why", args, length)}, tables)


def temperature(args: dict, text: str) -> Result:
    table = tokens(text)
    offset, length, query = window(args | {"part": args.get("part", 0), "query": args.get("query")}, table)
    measured = sorted({1.0, *args["t"]})
    rows = [(t, layer, head) for t in measured for layer in range(LAYERS) for head in range(HEADS)]
    frame = pd.DataFrame(rows, columns=["t", "layer", "head"])
    frame["entropy"], frame["effective_support"], frame["max_prob"] = 2 * frame["t"], 7 * frame["t"], 0.3 / frame["t"]
    names = ["entropy", "effective_support", "max_prob"]
    listed = table.iloc[offset : offset + query + 1][["position", "piece", "word"]].reset_index(drop=True)
    listed["key"], listed["distance"] = range(query + 1), range(query, -1, -1)
    weights = np.array([np.full(query + 1, 1 / (query + 1)) if t == 1 else np.eye(query + 1)[0] for t in measured])
    reads = [{"entropy": 1.0, "effective_support": 2.7, "max_prob": 0.5 if t == 1 else 1.0} for t in measured]
    sentences = [f"At temperature {t:g} a token reads fewer keys." for t in measured]
    numbers = {"t": measured, "layer": args.get("layer", 0), "head": args.get("head", 0), "query": query}
    numbers |= {"length": length, "offset": offset, "reads": reads, "sentences": sentences, "notes": []}
    numbers["sentence"] = sentences[measured.index(args["t"][0])]
    layers = frame.groupby(["t", "layer"], as_index=False)[names].mean()
    tables = {"heads": frame, "layers": layers, "query": listed, "tokens": table}
    return Result(numbers | {"protocol": protocol("temperature", args, length)}, tables, {"weights": weights})


def queries_keys(args: dict, text: str) -> Result:
    """Heads that read the more sharply the higher their layer: keys are one direction each, queries the next one's."""
    table, part = tokens(text), args.get("part", 0)
    offset, length, _ = window({"part": part, "query": None}, table)
    layers = list(range(LAYERS)) if args.get("layer") is None else [args["layer"]]
    random = np.random.default_rng(0)
    query, key = (random.normal(size=(len(layers), count, length, 4)).astype(np.float16) for count in (HEADS, 1))
    numbers = {"layers": layers, "scaling": [0.5] * len(layers), "softcap": [None] * len(layers)}
    numbers |= {"window": [None] * len(layers), "places": [0, length - 1], "length": length, "offset": offset}
    numbers |= {"support": {"1": 20.4, "0.4": 7.2, "0.1": 2.0}, "rounding": {"1": 0.001, "0.4": 0.002, "0.1": 0.01}}
    numbers |= {"sentence": "Sharper.", "notes": [], "protocol": protocol("queries-keys", args, length)}
    return Result(numbers, {"tokens": table}, {"query": query, "key": key})


def temperature_curve(args: dict, text: str) -> Result:
    def row(value: float) -> dict:
        change = {"difference": value, "low": value - 0.01, "high": value + 0.01}
        return {"perplexity": 10 * (1 + value), **change, "units": 4, "unit": "blocks of 64 tokens in this text"} | {
            "state": "95% interval over 4 blocks of 64 tokens in this text"
        }

    curve = pd.DataFrame([{"t": t, **row(1 - t)} for t in args["t"]])
    cells = [{"t": t, "bin": b, "first": 8 * b, "last": 8 * b + 8, "n": 8} for t in args["t"] for b in range(2)]
    bins = pd.DataFrame(cells).assign(perplexity=9.0, difference=0.1)
    alone = [{"layer": layer, "t": t, **row(0.02)} for t in args.get("layers") or [] for layer in range(LAYERS)]
    layers = pd.DataFrame(alone, columns=["layer", "t", *row(0)])
    by_layer = row(0.05) | {"t": args["by_layer"]} if args.get("by_layer") else None
    numbers = {"by_layer": by_layer, "perplexity_dense": 10.0, "sentence": "No temperature beats dense.", "notes": []}
    numbers["protocol"] = protocol("temperature-curve", args, 64)
    return Result(numbers, {"curve": curve, "bins": bins, "layers": layers})


def ablate(args: dict, text: str) -> Result:
    """Every head's estimate is its place; the exact passes are of those asked for, or of the last two."""
    table = tokens(text)
    offset, length, _ = window(args | {"query": None}, table)
    cells = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    names = ["2.1", "2.0"] if args["heads"] == "top" else args["heads"].split(",")
    rows, changes = [], []
    for name in names:
        layer, head = map(int, name.split("."))
        rise = np.linspace(0.0, 5.0, length - 1).astype(np.float32) * (1 + layer)
        changes.append(rise)
        row = {"without": name, "offset": offset, "loss_change": float(rise.mean())}
        row |= {
            "low": None,
            "high": None,
            "units": 2,
            "kl": None,
            "worst": offset + length - 1,
            "worst_word": "<last>",
            "worst_change": 5.0,
        }
        rows.append(row | {"layer": layer, "head": head, "estimate": cells.index((layer, head)) / 10 - 0.2})
    exact = {(row["layer"], row["head"]): row["loss_change"] for row in rows}
    listed = [{"layer": a, "head": b, "estimate": place / 10 - 0.2} for place, (a, b) in enumerate(cells)]
    heads = pd.DataFrame([row | {"loss_change": exact.get((row["layer"], row["head"]))} for row in listed])
    numbers = {"rows": rows, "scope": "this text", "sentence": f"Without {names[0]} <this> is worse."}
    numbers |= {"notes": ["First order."]}
    numbers["protocol"] = protocol("ablate", args, length)
    arrays = {"estimate": np.zeros((LAYERS, HEADS), np.float32), "change": np.stack(changes)}
    return Result(numbers, {"heads": heads, "tokens": table}, arrays)


def names(args: dict, text: str | None) -> Result:
    """Two names of one head, the second confirmed, and one of another."""
    about = {"score": 0.7, "low": 0.6, "high": 0.8, "null": 0.1, "null_high": 0.2, "others": 0.05, "clear": True}
    lost = {"rise": 0.5, "low_rise": 0.4, "high_rise": 0.6, "others_rise": 0.1, "verdict": "confirmed"}
    bare = {"rise": None, "low_rise": None, "high_rise": None, "others_rise": None, "verdict": "no text needs it"}
    rows = [{"layer": 1, "head": 0, "name": "sink"} | about | bare]
    rows += [{"layer": 1, "head": 0, "name": "induction"} | about | lost]
    rows += [{"layer": 2, "head": 1, "name": "previous token"} | about | lost | {"verdict": "not confirmed"}]
    terms = {"measure": "mean attention to <it>", "source": "Somebody 2020", "above": 0.3, "needs": ""}
    numbers = {"rows": rows, "definitions": [{"name": name} | terms for name in LETTERS], "controls": {}, "heads": 6}
    numbers |= {"sentence": "2 of 6 heads have a name.", "notes": [], "protocol": protocol("names", args, 3072)}
    return Result(numbers, {"scores": pd.DataFrame(rows)}, {})


def head_texts(args: dict, text: str | None) -> Result:
    """Of every head and statistic a line from 0 to 1, the highest query and one of a tenth; of one head its tokens."""
    cells = [(layer, head, name) for layer in range(LAYERS) for head in range(HEADS) for name in STATISTICS]
    spread = pd.DataFrame(cells, columns=["layer", "head", "statistic"]).assign(mean=0.5)
    for step in range(0, 101, 10):
        spread[f"q{step}"] = step / 100
    where = {"text": 0, "position": 7, "value": 0.9, "query": " <owl>", "before": "the grey "}
    rows = [dict(zip(spread.columns, cell, strict=False)) | where | {"decile": n} for cell in cells for n in (0, 3)]
    read = [{"kind": "pair", "query": " owl", "key": "grey", "count": 5, "lift": 12.5}]
    read += [{"kind": "key", "query": None, "key": "grey", "count": 9, "lift": 2.0}]
    tokens = pd.DataFrame([{"layer": 2, "head": 1} | row for row in read])
    texts = pd.DataFrame({"text": [0], "begins": ["Once <upon>"], "tokens": [640]})
    numbers = {"read": 640, "drawn": 64, "texts": 1, "sentence": "640 tokens of <one> text.", "notes": ["No sink."]}
    numbers["protocol"] = protocol("head-texts", args, 640)
    return Result(numbers, {"spread": spread, "examples": pd.DataFrame(rows), "tokens": tokens, "texts": texts}, {})


def alike(args: dict, text: str) -> Result:
    """Two heads like the chosen one."""
    rows = [{"layer": 1, "head": 0, "likeness": 0.75, "low": 0.7, "high": 0.8}]
    rows += [{"layer": 0, "head": 1, "likeness": 0.5, "low": None, "high": None}]
    numbers = {"even": 0.2, "median": 0.3, "queries": 8, "sentence": "Head 0 of layer 1 reads <most> like it."}
    numbers |= {"notes": [], "protocol": protocol("alike", args, len(tokens(text)))}
    return Result(numbers, {"heads": pd.DataFrame(rows)})


def head_preference(args: dict, text: str) -> Result:
    """A head that prefers the token before it."""
    table = pd.DataFrame({"distance": [0, 1, 5], "logit": [0.5, 2.0, -1.0]})
    numbers = {"layer": args["layer"], "head": args["head"], "concentration": 0.75, "notes": []}
    numbers |= {"sentence": "It prefers 1 token back.", "protocol": protocol("head-preference", args, 6)}
    return Result(numbers, {"preference": table})


def head_tokens(args: dict, text: str) -> Result:
    """Every token reads the one before most, and is read by the one after."""
    table = tokens(text)
    offset, length, _ = window(args | {"query": None}, table)
    places = np.arange(length, dtype=np.int32)
    arrays = {"keys": np.maximum(places - 1, 0)[:, None], "readers": np.minimum(places + 1, length - 1)[:, None]}
    arrays |= {"given": np.full((length, 1), 0.8, np.float32), "received": np.full((length, 1), 0.4, np.float32)}
    arrays["received"][-1] = 0.0
    listed = table.iloc[offset : offset + length][["position", "piece"]].reset_index(drop=True)
    listed["key"], listed["given"] = offset + arrays["keys"][:, 0], arrays["given"][:, 0]
    numbers = {"offset": offset, "length": length, "sentence": "A token reads the one before.", "notes": []}
    numbers["protocol"] = protocol("head-tokens", args, length)
    return Result(numbers, {"strongest": listed}, arrays)


def head_cards(args: dict, text: str | None) -> Result:
    layer, head = map(int, args["heads"].split("."))
    card = {"layer": layer, "head": head, "name": "", "note": "", "names": [], "statistics": [], "why": [], "texts": []}
    return Result({"cards": [card], "notes": [], "protocol": protocol("head-cards", args, 32)})


ANSWERS = {
    "head-tokens": head_tokens,
    "alike": alike,
    "head-preference": head_preference,
    "head-texts": head_texts,
    "ablate": ablate,
    "names": names,
    "head": head,
    "why": why,
    "head-cards": head_cards,
    "statistics": statistics,
    "temperature": temperature,
    "queries-keys": queries_keys,
    "temperature-curve": temperature_curve,
}
