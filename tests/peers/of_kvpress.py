"""kvpress (NVIDIA): which keys of a prompt each rule keeps, and the greedy tokens after it, on the bundled model."""

import json
from pathlib import Path

import torch

from analysis.corpus import sample_texts
from analysis.methods import METHODS
from analysis.models import load_model
from analysis.places import CACHE
from analysis.seam.attention import apply

TOKENS, NEW, RATIOS = 512, 30, (0.5, 0.75)
# Rules that both compute alike, and those that differ by choice, as their descriptions say.
SAME = ("snapkv", "tova", "keydiff", "ada_kv of snapkv", "ada_kv of keydiff")
CHOICE = ("pyramid_kv", "expected_attention", "h2o")
ROWS = [(rule, ratio) for rule in (*SAME, *CHOICE) for ratio in RATIOS]


def text() -> list[int]:
    """The prompt: the beginning of the first sample text."""
    return load_model("demo").tokenizer(next(iter(sample_texts().values()))[1])["input_ids"][:TOKENS]


def ask(folder: Path) -> None:
    """The model, the prompt and the rules."""
    request = {"model": str(CACHE / "demo"), "ids": text(), "rows": ROWS, "new": NEW}
    (folder / "asked.json").write_text(json.dumps(request))


def compare(folder: Path) -> list[dict]:
    """For each rule the share of keys and of greedy tokens that only one of both has."""
    answered, model = json.loads((folder / "answered.json").read_text()), load_model("demo", dtype="float32")
    ids, rows = torch.tensor([text()]), []
    for (rule, ratio), peer in zip(ROWS, answered, strict=True):
        name, _, score = rule.partition(" of ")
        method = METHODS[name](ratio=ratio, **({"score": score} if score else {}))
        with apply(model, method, kernels=True), torch.no_grad():
            written = model.lm.generate(ids, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False)
        stays = [[row.nonzero().flatten().tolist() for row in method.kept_[layer][0]] for layer in sorted(method.kept_)]
        heads = [
            (set(ours), set(its))
            for a, b in zip(stays, peer["kept"], strict=True)
            for ours, its in zip(a, b, strict=True)
        ]
        tokens = [ours == its for ours, its in zip(written[0, ids.shape[1] :].tolist(), peer["written"], strict=True)]
        keys = 1 - sum(len(a & b) for a, b in heads) / sum(len(a | b) for a, b in heads)
        apart = {"keys": round(keys, 4), "tokens": round(1 - sum(tokens) / NEW, 4)}
        rows.append({"case": f"{rule}, {ratio:.0%} removed", "same": rule in SAME, "apart": apart, "most": 0.0})
    return rows
