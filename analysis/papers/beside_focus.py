"""Focus, beside ours: what each row of its tables is held against, up to table 5."""

import re

from analysis.package import PROGRAM
from analysis.papers.ours import Beside, Job, Number
from analysis.papers.places import (
    FOCUS,
    GROUPS,
    MINE,
    PAIRS,
    SPEED,
    TESTS,
    ablation,
    at,
    benchmark,
    equal,
    maker,
    related,
    scores,
    stored_scores,
    study,
    tuned as baseline,
)

ARMS, TOP2, FINE = "groups-k8-top1", "top-k8-top1", "finetuning"
TASKS = ("hellaswag", "arc_easy", "piqa", "lambada")
BASELINES = "dense,focus,longformer,performer,routing_transformer"
TRAINED = ablation("baselines", "Ablations")
WEB = "A file of web text: put it into the corpus folder as web.txt, its documents between blank lines."
LARGE = "Its weights: name them with --model; 7 billion parameters and more need a GPU."


def first(row: str) -> Beside:
    """Table 1: methods on GPT-2."""
    job = benchmark(*TASKS, methods=BASELINES)
    beside = {
        "Pretrained (full attn)": ((*_arm("dense", "reads everything"), *stored_scores("dense")), "dense"),
        "Longformer": (equal("Longformer, growing windows"), "longformer"),
        "Performer": (_read_by("Performer"), "performer"),
        "Routing Trans.": (
            (*_read_by("Routing Transformer"), *related(equal("Routing Transformer"))),
            "routing_transformer",
        ),
        "Full attention FT": ((_tuned("novels", "full attention", "PPL"), *baseline("full fine-tuning", 1e-4)), ""),
        "Focus (ours)": (
            (*_arm("trained", "trained groups, hard"), *equal("Focus, hard groups"), *stored_scores("focus")),
            "focus",
        ),
    }
    numbers, method = beside[row]
    if not method:
        return Beside(study("finetuning"), ablation(FINE, "Ablations"), numbers)
    needs = "The four benchmarks' files, for the scores."
    if method == "longformer":
        numbers = related(numbers + scores(method))
        return Beside(job, TESTS, numbers, f"{needs} The paper trained the model with this method, here none is.")
    if method in ("performer", "routing_transformer"):
        return Beside(study("baselines"), TRAINED, numbers + related(scores(method)), needs)
    return Beside(job, TESTS, numbers + scores(method), needs)


def _read_by(title: str) -> tuple[Number, ...]:
    """A model read by another method: fine-tuned with it, as the paper's, but on source code; and as it was
    pretrained."""
    return related((*baseline(f"{title}, fine-tuned", 1e-4, 1e-3), *baseline(f"{title}, as pretrained", None)))


def dimensions(row: str) -> Beside:
    """Section 2: dimensions of the routing vectors, and sorting a million tokens."""
    if row == "1M tokens":
        return timed((1048576,), 8, "A GPU: a million tokens take more memory and time than a processor has.")
    value = "full" if "full" in row else int(row.removeprefix("d_s="))
    cell = at("ablations", factor="dimensions", value=value)
    return Beside(
        study("ablations", {"rows": [f"dimensions={value}"]}),
        ablation("ablations", "Ablations"),
        (
            cell("perplexity, centroids trained", "perplexity_centroid", column="PPL"),
            cell("above random groups", "centroid_against_random", "nats"),
        ),
    )


def models(row: str) -> Beside:
    """Table 2: one model in each row, two groups for each token."""
    if row != "GPT-2 124M":
        job = Job(said=f"{maker('top-k4-top1').command} --model MODEL")
        return Beside(job, ablation(TOP2, "Ablations"), needs=LARGE)
    both, dense = at(TOP2, k=2, router="k8-top2"), Number("reads everything", ("dense", "perplexity"), study=TOP2)
    numbers = (
        dense,
        both("trained groups, k = 2", "perplexity", column="PG-19 PPL Focus"),
        both("above reading everything", "against_dense", "nats"),
        both("pairs read", "pairs_share", "share"),
    )
    return Beside(benchmark(*TASKS), ablation(TOP2, "Ablations"), numbers + stored_scores("focus") + scores("focus"))


def drops(row: str) -> Beside:
    """Section 3.2: scores that do not fall, and those that do."""
    if row.startswith("Mistral"):
        job, method = benchmark("gsm8k", shots=8), "focus" if row.endswith("Focus") else "dense"
        kept = stored_scores(method, "GSM8K", shots=8)
        needs = "A model that can do arithmetic; a small one scores 0."
        return Beside(job, TESTS, kept + scores(method, "GSM8K"), needs)
    if row == "all models and benchmarks":
        numbers = [*stored_scores("focus", change=True)]
        for says, shots in (("own prompts", 0), ("8 examples", 8)):
            where = [{"task": task, "method": FOCUS, "shots": shots} for task in TASKS]
            numbers += [
                Number(
                    f"{one['task']}, {says}: longer than the window",
                    ("rows", one, "longer_than_window"),
                    "share",
                    study="benchmarks",
                )
                for one in where
            ]
        numbers += stored_scores("focus", shots=8, change=True)
        return Beside(benchmark(*TASKS, methods="dense,focus"), TESTS, tuple(numbers), "The four benchmarks' files.")
    return Beside(Job(said=f"{PROGRAM} model --model MODEL"), GROUPS, needs=LARGE)


def instructed(row: str) -> Beside:
    """Table 4: LoRA beside trained centroids on an instruct model. Ours is a small copy that was tuned on generated
    instructions, and asked others: what it shows is related."""
    rates = (float(row.split("lr=")[1].rstrip(")")),) if "lr=" in row else (1e-4, 1e-3)
    tuned = at("alignment", line="base")("instructions followed by the tuned copy", "task_score", "share")
    numbers = [tuned] if row.startswith("Instruct") else []
    for rate in () if numbers else rates:
        numbers += _adapted("LoRA r=4" if "LoRA" in row else "Focus K=2, hard groups", rate)
    known = related(tuple(one for one in lora(row).numbers if one.study))
    job, panel = study("alignment"), ablation("alignment", "Ablations")
    return Beside(job, panel, (*numbers, *known), "An instruct model: name it with --model.")


def _adapted(line: str, rate: float) -> tuple[Number, ...]:
    """What adapting the tuned copy changes: of the instructions that it follows, and on the new domain."""
    one, says = at("alignment", line=line, rate=rate), f"{line}, rate {rate:g}"
    return (
        one(f"{says}: instructions followed, against the tuned copy", "tasks", "points"),
        one(f"{says}: new domain, against the tuned copy", "new", "nats"),
    )


def lora(row: str) -> Beside:
    """Tables 3 and 4: LoRA beside trained centroids."""
    groups = "Focus K=2, hard groups" if "K=2" in row else "Focus K=8, hard groups"
    if row.startswith(("Centroids", "+ Centroids", "Instruct")):
        arm, says = ("dense", "reads everything") if row.startswith("Instruct") else ("trained", "trained groups, hard")
        method = "dense" if arm == "dense" else "focus"
        tasks = ("hellaswag", "arc_easy", "lambada", "truthfulqa" if "K=2" in row or arm == "dense" else "piqa")
        columns = ("HellaSwag", "ARC-E", "LAMBADA", "TQA MC1" if tasks[-1] == "truthfulqa" else "PIQA")
        kept = stored_scores(method, *columns, change=row.startswith("Centroids"))
        own = baseline("base", None) if arm == "dense" else baseline(groups, 1e-4, 1e-3)
        job = benchmark(*tasks, methods="dense,focus")
        return Beside(job, GROUPS, _arm(arm, says) + kept + own + scores(method, *columns))
    found = re.fullmatch(r"(?:\+ )?LoRA \(r=(\d+)(?:, lr=(.+))?\)", row)
    rates = (1e-4, 1e-3) if found[2] is None else (float(found[2]),)
    numbers = baseline(f"LoRA r={found[1]}", *rates)
    return Beside(study("baselines"), TRAINED, numbers, needs="Training LoRA: the command does it.")


def tuned(row: str) -> Beside:
    """Table 5 and section 3.4: fine-tuning with groups and with full attention, and training from scratch."""
    job, panel = study("finetuning"), ablation(FINE, "Ablations")
    domain = {"PG-19 (books)": "novels", "WikiText-103 (Wikipedia)": "wikitext", "OpenWebText (web)": "web"}.get(row)
    if row.startswith("7B from scratch"):
        name, read = ("focus", "trained groups, hard") if "Focus" in row else ("dense", "dense")
        one = at("pretraining", trained=name, reading=read)
        numbers = (
            one("small models, held out", "perplexity", column="PPL"),
            one("above dense training", "against_dense", "nats"),
        )
        scratch = study("pretraining")
        return Beside(scratch, ablation("pretraining", "Ablations"), numbers)
    if row.startswith("GPT-2 124M"):
        arms = ("full attention",) if "Full" in row else ("Focus, soft", "Focus, hard")
        return Beside(job, panel, tuple(_tuned("novels", arm, "PPL") for arm in arms))
    if domain is None:
        return Beside(job, panel, needs=LARGE)
    arms = ("full attention", "Focus, soft", "Focus, hard")
    change = at(FINE, domain=domain, arm="Focus, hard")("Focus, hard, above full attention", "against_full", "nats")
    return Beside(job, panel, (*(_tuned(domain, arm) for arm in arms), change), WEB if domain == "web" else "")


def lengths(row: str) -> Beside:
    """Section 3.5: longer texts than those of the training."""
    length = int(row.replace(",", ""))
    job = study("lengths")
    one, both = at("lengths", length=length, k=1), at("lengths", length=length, k=2)
    numbers = (
        one("reads everything", "perplexity_dense", column="Full attn"),
        both("k = 2", "perplexity", column="Focus top-k=2 (2x speedup)"),
        both("k = 2, above reading everything", "against_dense", "nats"),
        one("k = 1", "perplexity"),
    )
    panel = ablation("lengths", "Ablations")
    if length != 8192:
        return Beside(job, panel, numbers)
    cannot = (
        "With 3 of 4 groups any two tokens share one, so top-k = 3 is full attention and must equal it: 6.10 and 6.05 "
        "cannot both be right."
    )
    return Beside(job, panel, needs=LARGE, cannot=cannot, finding=4)


def timed(lengths: tuple[int, ...], groups: int, needs: str = "") -> Beside:
    """Table 6 and what the text says of it: sparse attention against dense, by length."""
    job = Job("bench", {**MINE, "what": "attention", "lengths": list(lengths), "groups": groups})
    named = {1024: "1K", 4096: "4K", 16384: "16K", 32768: "32K", 65536: "65K", 262144: "262K", 1048576: "1M"}
    numbers = [
        Number(f"{length:,} tokens", ("rows", {"length": length}, "speedup"), "x", named[length]) for length in lengths
    ]
    return Beside(job, SPEED, tuple(numbers), needs or "A quiet machine: nothing is timed unasked.")


def content(row: str) -> Beside:
    """Section 5: what groups hold, and pairs far apart."""
    if " - " in row:
        far = {**MINE, "long_text": "windows", "router": "k8-top1", "min_distance": 128, "top": 100, "layer": None}
        far = {name: value for name, value in far.items() if name != "seed"}
        job = Job("pairs", far | {"group": None, "head": None, "text": ""} | {"content": True})
        best = (
            Number("strongest far pair: distance", ("pairs", {}, "distance"), "tokens", "Distance"),
            Number("its affinity", ("pairs", {}, "affinity"), "", "Group affinity"),
        )
        return Beside(job, PAIRS, best)
    args = {"model": "", "text": "", "long_text": "windows", "router": "k8-top1"}
    job = Job("groups", args)
    label = {
        "G4": "punctuation",
        "G3": "determiner",
        "G0": "preposition",
        "G5": "conjunction",
        "G7": "pronoun",
        "G1": "content word",
    }.get(row)
    if label is None:
        last = [
            Number(f"layer {layer}: {says}", ("layers", {"layer": layer}, key), unit)
            for layer in (0, 5)
            for says, key, unit in (("largest group's share", "dominance", "share"), ("confidence", "confidence", ""))
        ]
        return Beside(job, GROUPS, tuple(last))
    purest = {"label": label}
    return Beside(
        job,
        GROUPS,
        (
            Number(f"purest group of label {label}: purity", ("groups", purest, "purity"), "share"),
            Number("purity of random sets of its size", ("groups", purest, "purity_random"), "share"),
            Number("its share of the tokens", ("groups", purest, "share"), "share"),
        ),
    )


def _arm(arm: str, says: str) -> tuple[Number, ...]:
    one = at(ARMS, arm=arm)
    found = (one(f"{says}, held out", "perplexity", column="PPL"),)
    return (
        found
        if arm == "dense"
        else (*found, Number("recovered of the window's loss", ("rows", {"arm": arm}, "recovery"), "share", "", ARMS))
    )


def _tuned(domain: str, arm: str, column: str = "") -> Number:
    column = column or {"full attention": "Full FT", "Focus, hard": "Focus FT"}.get(arm, "")
    return at(FINE, domain=domain, arm=arm)(f"{arm}, {domain}, fine-tuned", "perplexity", column=column)


PARTS_ONE = {
    "table 1": first,
    "section 2": dimensions,
    "table 2": models,
    "section 3.2": drops,
    "table 3": lora,
    "table 4": instructed,
    "table 5": tuned,
    "section 3.4": tuned,
    "section 3.5": lengths,
    "section 5": content,
}
