"""lm-evaluation-harness: its own model beside ours, read densely, on sentences of the sample texts cut in two."""

import json
from pathlib import Path

from analysis.corpus import sample_texts
from analysis.places import CACHE

ROWS = ("log-likelihoods of continuations",)
PAIRS, SIZE = 64, 240  # pairs, and characters of each


def ask(folder: Path) -> None:
    """Pairs of a context and its continuation."""
    all_samples = " ".join(" ".join(text for _, text in sample_texts().values()).split())
    parts = [all_samples[number * SIZE : (number + 1) * SIZE] for number in range(PAIRS)]
    cuts = [part.rindex(" ", 0, SIZE - 40) for part in parts]
    pairs = [(part[:cut], part[cut:]) for part, cut in zip(parts, cuts, strict=True)]
    (folder / "asked.json").write_text(json.dumps({"model": str(CACHE / "demo"), "pairs": pairs}))


def compare(folder: Path) -> list[dict]:
    """The largest difference of a log-likelihood, and the share of continuations that only one finds greedy."""
    from lm_eval.api.instance import Instance

    from analysis.notebook.evaluation import Focuscope

    request, answered = (json.loads((folder / name).read_text()) for name in ("asked.json", "answered.json"))
    model = Focuscope(pretrained="demo", method="dense", dtype="float32", batch_size=1)
    pairs = [Instance("loglikelihood", {}, tuple(pair), number) for number, pair in enumerate(request["pairs"])]
    likelihoods = model.loglikelihood(pairs, disable_tqdm=True)
    model.applied.__exit__(None, None, None)
    apart = {
        "nats": max(abs(ours[0] - its[0]) for ours, its in zip(likelihoods, answered, strict=True)),
        "greedy": sum(ours[1] != its[1] for ours, its in zip(likelihoods, answered, strict=True)) / PAIRS,
    }
    return [{"case": ROWS[0], "same": True, "apart": apart, "most": 1e-3}]
