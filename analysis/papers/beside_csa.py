"""CSA, beside ours: what each row of its tables, and of the measurements that its text prints, is held against."""

from analysis.papers.ours import Beside, Job, Number
from analysis.papers.places import BREAKS, BUDGETS, CORPORA, QUERY, RANKS, WORTH, at, maker, study

WEIGHTS = "Its weights: name them with --model."
PYTHIA = "EleutherAI/pythia-410m"
COUNTED = "the feed-forward blocks alone, as CSA counts"
WORTH_ARGS = {
    "model": PYTHIA,
    "config": None,
    "contexts": [1 << power for power in range(8, 21)],
    "batches": [1 << power for power in range(9)],
    "keep": 0.1,
    "projections": True,
}


def capped(row: str) -> Beside:
    """CSA, table 1: the share of reads at which no position changes."""
    ours = {
        "GPT-2 small (124M), 1024, WikiText": ("wikitext", 1024),
        "Pythia 410M, 2048, WikiText": ("wikitext", 2048),
        "Pythia 410M, 1024, Code": ("python", 1024),
    }
    if row not in ours:
        job = Job(said=f"{maker('calibration').command} --model MODEL")
        return Beside(job, BUDGETS, needs=WEIGHTS)
    corpus, context = ours[row]
    one = at("calibration", corpus=corpus, context=context)
    numbers = (
        one("reads everything", "perplexity_dense", column="Dense ppl"),
        one("of T x T pairs", "reads_full", "share", "% of dense reads"),
        one("of the causal pairs", "reads_causal", "share"),
        one("perplexity against dense", "difference", "change", ends=""),
        one("worst bin, change of perplexity", "worst_bin_change", "", "Per-position max Δ"),
        one("worst bin against dense", "worst_bin_difference", "change", ends="worst_bin_"),
        one("largest keys of a head", "cap", "keys"),
    )
    return Beside(study("calibration"), CORPORA, numbers)


def amdahl(row: str) -> Beside:
    """CSA, table 2: attention's share and the largest gain, counted."""
    numbers = []
    ways = {COUNTED: "counted as CSA does", "feed-forward blocks and projections": "with projections"}
    for counted, says in ways.items():
        where = {"counted": counted, "context": int(row)}
        columns = ("Attention fraction (decode)", "Speedup at 10× attention reduction")
        numbers += [
            Number(f"{says}: share", ("accounting", where, "share"), "share", columns[0]),
            Number(f"{says}: gain", ("accounting", where, "gain"), "x", columns[1]),
        ]
    return Beside(Job("worth", WORTH_ARGS), WORTH, tuple(numbers))


def by_position(row: str) -> Beside:
    """CSA, per position: where fewer reads break first."""
    near = {"5.7": (0.114, 128), "3.5": (0.07, 64), "2.0": (0.04, 32)}  # twice the printed share, which is of T x T
    shares = [1, 0.5, 0.25, 0.114, 0.1, 0.08, 0.07, 0.06, 0.05, 0.04, 0.03, 0.02]
    args = {"model": "", "window": None, "policy": "policy", "shares": shares, "seed": 0, "long_text": "windows"}
    job = Job("reads-text", args | {"text": ""})
    share, cap = next((ours for printed, ours in near.items() if f" {printed}%" in row), (0.114, None))
    where = {"share": share}
    numbers = (
        Number(f"{100 * share:.3g}% of causal pairs: worst bin, perplexity", ("rows", where, "worst_bin_change"), ""),
        Number("worst bin, change", ("rows", where, "worst_bin_difference"), "share"),
        Number("mean, change of perplexity", ("rows", where, "difference"), "share"),
    )
    return Beside(job, BREAKS, _capped(cap) + numbers)


def _capped(cap: int | None) -> tuple[Number, ...]:
    """The stored calibration: at a cap of its sweep on WikiText, or without one at the cap that passes, on code."""
    if cap is None:
        where = ("rows", {"corpus": "python", "context": 1024})
        worst = Number(
            "code, the cap that passes: worst bin, change of perplexity",
            (*where, "worst_bin_change"),
            "",
            "Last bin Δ",
            "calibration",
        )
        return (worst,)
    where = ("sweeps", {"corpus": "wikitext", "context": 1024, "beta": 1.0, "cap": cap})
    last, middle = ((*where, "bins", {"bin": place}, "difference") for place in (15, 8))
    columns = ("% of dense reads", "Last bin (positions 945-1008) Δ", "Mid-window Δ, within" if cap == 64 else "")
    return (
        Number(
            f"WikiText, at most {cap} keys: of T x T pairs", (*where, "reads_full"), "share", columns[0], "calibration"
        ),
        Number("last bin, against dense", last, "change", columns[1], "calibration", ends=""),
        Number("middle of the window, against dense", middle, "change", columns[2], "calibration", ends=""),
    )


def ranks(row: str) -> Beside:
    """CSA, the procedure: size of a policy, ranks of the heads."""
    args = {"model": "", "window": None, "policy": {"name": "policy"}}
    job = Job("budgets", args)
    path = ("ranks", {"corpus": "wikitext", "context": 1024}, "ranks")
    if row in ("GPT-2 small", "Pythia 410M"):
        size = [Number("layers", ("integers", "layers"), ""), Number("heads", ("integers", "heads"), "")]
        counted = Number(
            "heads in all, with a budget each; the cap is one more", path, "", "Policy size", "calibration", "count"
        )
        return Beside(job, RANKS, (counted, *size))
    says, fold = ("median", "median") if row == "most heads" else ("largest", "largest")
    kept = Number(f"{says} rank of the heads, WikiText", path, "keys", "Effective rank", "calibration", fold)
    keys = [Number(f"rank of head 0 in layer {layer}", ("ranks", layer, 0), "keys") for layer in (0, 5)]
    return Beside(job, RANKS, (kept, *keys))


def asked(row: str) -> Beside:
    """CSA, routing: does the query matter?"""
    arms = ("the query zeroed at test", "retrained without it") if row.startswith("query") else ("with the query",)
    numbers = [
        Number(f"Pearson, {arm}, {says}", ("correlations", {"arm": arm}, name), "", column, "query-router")
        for arm in arms
        for says, name, column in (
            ("pooled", "pooled", "Pearson"),
            ("within a head", "within_head", ""),
            ("within a head and stretch", "within_head_and_position", ""),
        )
    ]
    numbers += [
        Number(
            f"perplexity, {arm}, cap 128, against fixed budgets",
            ("rows", {"cap": 128, "arm": arm}, "against_static"),
            "change",
            "",
            "query-router",
            ends="against_",
        )
        for arm in arms
    ]
    if not row.startswith("query"):
        numbers.append(Number("parameters", ("parameters",), "", "Parameters", "query-router"))
    return Beside(study("query-router"), QUERY, tuple(numbers))


PARTS_CSA = {
    "table 1": capped,
    "table 2": amdahl,
    "section per-position": by_position,
    "section procedure": ranks,
    "section routing": asked,
}
