"""Hand-made answers of the verbs behind Train a router and the groups beside others, and stored studies as files."""

import json
from pathlib import Path

import pandas as pd

from analysis.places import CACHE
from analysis.runs import Result, RunStore
from analysis.runs.stored import study_folders
from tests.made.results import GROUPS, LAYERS, protocol, tokens


def balance(args: dict, text: str) -> Result:
    count = args["iterations"]
    layers = {"layer": range(LAYERS), "share": 0.3 + args["temperature"] / 10, "mass": 0.3, "confidence": 0.9}
    curve = [{"iterations": n, "mean": 0.3, "worst": 0.5, "mass": 0.6 - n / 50} for n in (0, 1, 2, 3, 5, 10, 20)]
    numbers = {"K": GROUPS, "tokens": 64, "even": 0.25, "chance": 0.3, "mean": 0.3, "worst": 0.5, "notes": ["A note."]}
    numbers |= {"sentence": f"At temperature {args['temperature']:g} and {count} iterations it holds 30.0%."}
    tables = {"layers": pd.DataFrame(layers), "iterations": pd.DataFrame(curve)}
    return Result(numbers | {"protocol": protocol("balance", args, 64)}, tables)


def train(args: dict, text: str | None) -> Result:
    log = [{"step": n, "loss": 4 - n / 10, "hard": 3.9 if n == 3 else None} for n in range(4)]
    log[3] |= {"largest_share": 0.31, "stability": 0.9}
    shares = [{"step": step, "layer": layer, "share": 0.3} for step in (0, 4) for layer in range(LAYERS)]
    numbers = {f"perplexity_{arm}": 20.0 + n for n, arm in enumerate(("dense", "literal", "causal", "random"))}
    numbers |= {
        "gain_over_random": {"mean": 0.01, "low": 0.004, "high": 0.016, "units": 8}
        | {"unit": "documents", "state": "95% interval over 8 documents", "points": None},
        "dominance": [0.3] * LAYERS,
    }
    numbers |= {"path": "state/finetuned/demo-k8-top1-mine", "protocol": protocol("train-router", args, 512)}
    return Result(numbers, {"log": pd.DataFrame(log), "shares": pd.DataFrame(shares)})


def compare(args: dict, text: str) -> Result:
    pairs = [(layer, group, place) for layer in range(LAYERS) for group in range(GROUPS) for place in range(GROUPS)]
    confusion = pd.DataFrame(pairs, columns=["layer", "group", "place"])
    confusion["other"] = (confusion["place"] + 1) % GROUPS
    confusion["tokens"] = [7 if group == place else 1 for _, group, place in pairs]
    matching = confusion[confusion["group"] == confusion["place"]][["layer", "group", "other", "tokens"]]
    rows = [{"layer": n, "agreement": 0.7, "chance": 0.3, "share": 0.3, "share_other": 0.4} for n in range(LAYERS)]
    numbers = {"K": GROUPS, "K_other": GROUPS, "mean": 0.7, "chance": 0.3, "layers": rows, "notes": []}
    numbers |= {
        "sentence": "They put 70% of the tokens into matching groups.",
        "protocol": protocol("compare", args, 9),
    }
    return Result(numbers, {"matching": matching.assign(shared=0.7), "confusion": confusion})


def group_controls(args: dict, text: str) -> Result:
    arms = {"this router": 0.6, "random centroids": 0.4, "k-means": 0.5}
    rows = [
        {"layer": layer, "arm": arm, "share": 0.3, "smallest": 0.2, "confidence": None if arm == "k-means" else 0.9}
        | {"purity": purity, "purity_random": 0.2, "labels": "name, verb"}
        for layer in range(LAYERS)
        for arm, purity in arms.items()
    ]
    about = protocol("group-controls", args, len(tokens(text)))
    words = "A token's group is 60% of one kind."
    return Result({"K": GROUPS, "rows": rows, "labels_by": "lists", "sentence": words, "notes": [], "protocol": about})


ANSWERS = {"balance": balance, "train-router": train, "compare": compare, "group-controls": group_controls}


def put_studies(store: RunStore, **files: dict | str) -> Path:
    """Write studies into the state of the model demo, as the fake card names its revision."""
    (folder,) = study_folders(store, "demo", "abc")
    folder.mkdir(parents=True, exist_ok=True)
    for name, numbers in files.items():
        words = numbers if isinstance(numbers, str) else json.dumps(numbers)
        (folder / f"{name.replace('_', '-')}.json").write_text(words)
    return folder


def put_bundled(store: RunStore, *names: str) -> list[dict]:
    """Write studies that came with the program there; what they say."""
    texts = {name: (CACHE / "demo" / "studies" / f"{name}.json").read_text(encoding="utf-8") for name in names}
    put_studies(store, **texts)
    return [json.loads(text) for text in texts.values()]
