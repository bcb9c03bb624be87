"""Focus, beside ours, from table 6 on: speed, groups per token, balance, ablations, selected tokens, the merge."""

from analysis.papers.beside_focus import TASKS, content, timed
from analysis.papers.ours import Beside, Job, Number
from analysis.papers.places import (
    COLLAPSE,
    EQUAL,
    MINE,
    SPEED,
    TESTS,
    ablation,
    at,
    benchmark,
    equal,
    pitfalls,
    scores,
    stored_scores,
    study,
)

LENGTHS = (1024, 4096, 16384, 32768, 65536)
FOUR, DOMINANCE = "top-k4-top1", "dominance"
ARMS = {  # rows of table 8 and section 4 -> rows of the stored study
    "Entropy + balance loss": "entropy and balance loss",
    "Stop-gradient on inputs": "stop-gradient on inputs",
    "EMA centroids + proj": "EMA centroids",
    "Recluster every 100 steps": "recluster every 100 steps",
    "Balance weight x5": "balance weight x5",
    "Sinkhorn (ours)": "sinkhorn",
    "Softmax + balance loss": "balance loss",
    "Sinkhorn": "sinkhorn",
}
FACTORS = {"K": "groups", "w": "window", "τ": "temperature", "Sinkhorn iters": "iterations"}
SELECTED = "dense,focus,sparq,magicpig"
FORMULA = {
    2: "2.0 times is the formula K/k. With the pairs that the row itself keeps, even a perfect kernel reaches 1 over "
    "their share: at most 1.7 times for GPT-2 and 1.4 times for Mistral 7B.",
    3: "With 3 of 4 groups any two tokens share one: the row reads every pair, so 1.3 times cannot be had",
    4: "With all 4 groups the row reads every pair and is dense attention",
}


def speed(row: str) -> Beside:
    """Table 6."""
    return timed(LENGTHS, 4 if row.startswith("K=4") else 8)


def per_token(row: str) -> Beside:
    """Table 7: groups per token; four groups."""
    k = int(row.split("top-k=")[1][0])
    job, gpt = study("top", router="k4-top1"), row.startswith("GPT-2")
    one = at(FOUR, k=k)
    numbers = (
        one(f"k = {k}, held out", "perplexity", column="PPL"),
        Number("reads everything", ("dense", "perplexity"), study=FOUR),
        one("above reading everything", "against_dense", "nats"),
        one("pairs read", "pairs_share", "share", "Pairs retained"),
        one("what these pairs allow at most", "ideal", "x", "Speedup"),
    )
    if k == 2 and gpt:  # the printed gate and the paper's windows, after the longest training
        numbers += tuple(
            Number(f"trained through the printed gate, {says}", ("rows", -1, name), unit, column, "focus-printed")
            for says, name, unit, column in (
                ("hard groups, held out", "perplexity_hard", "ppl", "PPL"),
                ("above reading everything", "hard_against_dense", "nats", ""),
                ("pairs read", "pairs_share", "share", "Pairs retained"),
            )
        )
    cannot = FORMULA.get(k, "")
    if k > 2 and gpt:
        cannot += ", and its perplexity must be that of dense attention, 42.8 and not 47.2"
    cannot = cannot and f"{cannot.rstrip('.')}."
    if k == 4 and not gpt:
        cannot = ""  # dense attention, and printed as such
    return Beside(job, ablation(FOUR, "Ablations"), numbers, cannot=cannot, finding=4 if cannot else None)


def balance(row: str) -> Beside:
    """Table 8 and section 4: what keeps groups balanced."""
    one = at(DOMINANCE, row=ARMS[row])
    numbers = []
    for phase, trained in ((1, "Centroid-only"), (2, "Full fine-tuning")):
        numbers += [
            one(
                f"largest group's share, mean of layers, phase {phase}",
                f"share_{phase}",
                "share",
                f"{trained}: Dominance",
            ),
            one(f"in the worst layer, phase {phase}", f"worst_{phase}", "share"),
            one(f"stability, phase {phase}", f"stability_{phase}", "", f"{trained}: Stability"),
        ]
    numbers.append(one("passed 90% at step", "collapsed_at", ""))
    return Beside(study(DOMINANCE), COLLAPSE, tuple(numbers))


def cell(row: str) -> Beside:
    """Table 9: one setting at a time."""
    name, _, value = row.partition("=")
    number = float(value)
    one = at("ablations", factor=FACTORS[name], value=number if number < 1 else int(number))
    adds = {"rows": [f"{FACTORS[name]}={value}"]} | ({"widths": [int(number)]} if name == "w" else {})
    numbers = (
        one("centroids trained, held out", "perplexity_centroid", column="Centroid PPL"),
        one("fine-tuned", "perplexity_tuned", column="Fine-tuned PPL"),
        one("largest group's share, centroids", "share_centroid", "share", "Dominance (centroid)"),
        one("largest group's share, fine-tuned", "share_tuned", "share", "Dominance (full FT)"),
        one("above random groups, centroids", "centroid_against_random", "nats"),
    )
    damaged = (
        "The text at hand has 5% for the dominance after full fine-tuning. The largest of 8 groups holds at least an "
        "eighth of the tokens, 12.5%, so a digit is lost."
        if row == "Sinkhorn iters=5"
        else ""
    )
    return Beside(study("ablations", adds), ablation("ablations", "Ablations"), numbers, damaged=damaged)


def window(row: str) -> Beside:
    """Appendix B: two groups and the window."""
    panel = ablation("ablations", "Ablations")
    if row != "w=16":
        job = study("ablations", groups=2, rows="window", widths=[16, 128, 512])
        return Beside(job, panel, needs="The grid with 2 groups, which takes the place of the stored one with 8.")
    two = at("ablations", factor="groups", value=2)("two groups, window of 16", "perplexity_centroid", column="PPL")
    return Beside(study("ablations", {"rows": ["groups=2"]}), panel, (two,))


def selected(row: str) -> Beside:
    """Table 10 and appendix C: keys selected for every query."""
    method = {"Pretrained": "dense", "Focus (ours)": "focus", "MagicPIG": "magicpig"}.get(row, "sparq")
    if row in ("Pretrained", "Focus (ours)"):
        arm = at("groups-k8-top1", arm="dense" if method == "dense" else "trained")
        own = (arm(f"{'reads everything' if method == 'dense' else 'trained groups, hard'}, held out", "perplexity"),)
        kept = stored_scores("dense") if method == "dense" else equal("Focus, hard groups") + stored_scores("focus")
        needs = "The four benchmarks' files."
        return Beside(benchmark(*TASKS, methods=SELECTED), TESTS, own + kept + scores(method), needs)
    settings = {"k": 32, "reallocate": "mean" if "realloc" in row else "none"} if method == "sparq" else {}
    listed = [{"name": "dense", "settings": {}}, {"name": method, "settings": settings}]
    args = {**MINE, "text": "", "methods": listed, "window": 1024, "long_text": "first"}
    one = {"method": method}
    numbers = (
        Number("on the story, 1,024 tokens", ("rows", one, "perplexity"), column="PPL"),
        Number("reads everything", ("rows", {"method": "dense"}, "perplexity")),
        Number("keys and values read", ("rows", one, "kv_read"), "share"),
    )
    label = {"MagicPIG": "MagicPIG", "SparQ (mean realloc.)": "SparQ, mean reallocated"}.get(row, "SparQ")
    return Beside(Job("evaluate", args), EQUAL, equal(label, 0.05, 0.25) + numbers)


def retained(row: str) -> Beside:
    """Appendix C: what is kept of the pairs."""
    job = study("top", router="k4-top1")
    if row.startswith("token selection"):
        return selected("SparQ")
    kept = at(FOUR, k=2)("K = 4, k = 2: distant pairs read", "distant_share", "share", "Distant pairs retained")
    return Beside(job, ablation(FOUR, "Ablations"), (kept,))


def overhead(row: str) -> Beside:
    """Section 7: from which length sparse attention wins."""
    found = timed(LENGTHS, 8)
    crossing = Number("sparse wins from", ("crossover",), "tokens", "No speedup below")
    return Beside(found.job, SPEED, (crossing,), found.needs)


def merged(row: str) -> Beside:
    """Appendix D: how the two parts of attention are put together."""
    way = "subtraction" if row.startswith("Subtraction") else "disjoint"
    numbers = [
        Number("cosine to the definition", ("merges", way, "cosine"), "", "Cosine similarity"),
        Number("lowest of a row", ("merges", way, "lowest"), ""),
    ]
    if way == "subtraction":
        numbers.append(Number("with the true overlap taken away", ("merges", "exact overlap", "cosine"), ""))
    return Beside(pitfalls(), SPEED, tuple(numbers))


PARTS_TWO = {
    "table 6": speed,
    "table 7": per_token,
    "table 8": balance,
    "section 4": balance,
    "section 5": content,
    "section 7": overhead,
    "table 9": cell,
    "appendix B": window,
    "table 10": selected,
    "appendix C": retained,
    "appendix D": merged,
}
