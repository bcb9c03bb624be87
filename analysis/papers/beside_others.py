"""Focal Attention and GWR Linear, beside ours: what each row of their tables is held against."""

from analysis.commandline import commandline
from analysis.papers.ours import Beside, Job, Number, Panel
from analysis.papers.places import CLOSURE, RECALL, at, sharper, study

LARGER = "2.7 billion parameters and 315 billion tokens; small models are trained instead."
SETTING = "Nothing to measure: the row is a setting of the paper's trainings, not a result."
ARMS = {  # rows of tables 1 and 2 -> arms of the stored study
    "Baseline": "dense",
    "Focal Attn (Constant)": "t 0.4",
    "Focal Attn (Learned)": "learned",
    "t=1": "dense, further",
    "t=0.4": "t 0.4, adapted",
    "t=0.4 (from scratch)": "t 0.4",
}
ROUTERS = {
    "Random": "random",
    "Whitening-Only": "whitening",
    "Symmetric K-Means": "kmeans",
    "GWR Geometric": "gwr_geometric",
    "GWR Linear (Ours)": "gwr_linear",
    "Saap-MLP": "mlp",
}
HEADS = ("L2-H0", "L7-H0", "L14-H0", "L14-H14", "L21-H0", "L26-H0")  # those of table 2
QWEN = {  # the paper's setting; keys lie more than 2,047 tokens back
    "model": "Qwen/Qwen2.5-7B",
    "corpus": "DIR",
    "heads": ",".join(head.replace("-H", ":").removeprefix("L") for head in HEADS),
    "min_distance": 2048,
    "buckets": 1024,
    "length": 32768,
    "prompts": 12,
}


def tempered(row: str) -> Beside:
    """Focal, tables 1 and 2: trained with a temperature."""
    one = at("focal-temperatures", arm=ARMS[row])
    numbers = (one("small models, held out", "perplexity"), one("above dense training", "against_dense", "nats"))
    job = study("focal-temperatures")
    return Beside(job, sharper("temperatures"), numbers, LARGER)


def setting(row: str) -> Beside:
    """Focal, tables 3 and 4: sizes and schedules."""
    return Beside(study("focal-scaling"), sharper("scaling"), needs=SETTING)


def saved(row: str) -> Beside:
    """Focal, figures 2 and 3: parameters and tokens that a temperature saves."""
    arms = ({"arm": "t 0.4", "width": 128}, {"arm": "learned", "width": 128})
    numbers = [
        Number(f"{arm['arm']}: {what} saved", (what, arm, "saved"), "share", study="focal-scaling")
        for arm in arms
        for what in ("parameters", "tokens")
    ]
    shown = at("focal-scaling", arm="t 0.4", width=128, context=512)
    against = shown("t = 0.4, above dense training", "against_dense", "nats")
    return Beside(study("focal-scaling"), sharper("scaling"), (against, *numbers), LARGER)


def far(row: str) -> Beside:
    """Focal, figure 5: HELMET's tasks at 32K with a temperature, against without. Ours are generated ones."""
    numbers = [
        at("focal-tasks", task=task, model="t 0.4, further")(
            f"{task}, right, against without", "against_dense", "points"
        )
        for task in ("Labels from examples", "Several needles", "Passage among passages")
    ]
    needs = "HELMET's tasks on two models fine-tuned at 32,768 tokens, one with a temperature."
    return Beside(study("focal-tasks"), sharper("tasks"), tuple(numbers), needs)


def best(row: str) -> Beside:
    """Focal, figures 8a and 8b: the best temperature, and the limits of a learned one."""
    if "0.3" in row:
        numbers = [
            at("focal-temperatures", arm=f"t {t}")(f"t = {t}, above dense training", "against_dense", "nats")
            for t in ("0.3", "0.4", "0.5", "0.6")
        ]
        return Beside(study("focal-temperatures"), sharper("temperatures"), tuple(numbers), LARGER)
    pairs = [(5, 10.0), (5, 11.31)] if "11.31" in row else [(low, 10.0) for low in range(1, 8)]
    numbers = [
        at("focal-limits", tau_min=low, tau_max=high)(f"τ from {low} to {high:g}, above dense", "against_dense", "nats")
        for low, high in pairs
    ]
    return Beside(study("focal-limits"), sharper("limits"), tuple(numbers), LARGER)


def routed(row: str) -> Beside:
    """GWR, table 1: routers at one budget, 2 of 64 buckets here, 32 of 1,024 in the paper (3.1% both)."""
    means, closed = {"router": ROUTERS[row]}, {"router": ROUTERS[row], "l": 2}
    numbers = (
        Number("recall at 2 of 64 buckets", ("means", means, "recall"), "share", "Recall@32", "routing"),
        Number("selectivity", ("means", means, "selectivity"), "share", "Selectivity@32", "routing"),
        Number("gap closure, mean of heads", ("closure", closed, "mean_of_ratios"), "share", "Gap Closure", "routing"),
    )
    return Beside(study("routing"), RECALL, numbers)


def closed(row: str) -> Beside:
    """GWR, table 2 and figures 2 and 3: gap closure by head and by budget."""
    buckets = {"ℓ=32": 2, "ℓ=128": 8}.get(row)
    if row != "Mean" and buckets is None:
        visited = int(row.removeprefix("ℓ=")) if row.startswith("ℓ=") else 32
        job = Job(said=commandline("route", QWEN | {"visited": visited}))
        return Beside(job, CLOSURE, needs=f"Qwen2.5-7B: a GPU. {row} is a head or a budget of its own.")
    number = buckets or 2
    where = {"router": "gwr_linear", "l": number}
    says = f"GWR linear, {number} of 64 buckets: gap closure"
    names = {"Symmetric K-Means": "kmeans", "GWR Linear": "gwr_linear", "Saap-MLP": "mlp"}
    numbers = [
        Number(f"{says}, mean of heads", ("closures", where, "mean_of_ratios"), "share", "Gap Closure", "routing"),
        Number(f"{says}, ratio of means", ("closures", where, "ratio_of_means"), "share", "", "routing"),
    ]
    numbers += [
        Number(f"recall of {column}", ("curve", {"router": name, "l": number}, "recall"), "share", column, "routing")
        for column, name in names.items()
    ]
    return Beside(study("routing"), CLOSURE, tuple(numbers))


def summarised(row: str) -> Beside:
    """The summary in Chinese: no number of it stands in its paper."""
    cannot = (
        "The summary's table is not its paper's: every number differs from table 1 of Focal Attention, and one average "
        "is not the mean of its own row. The paper counts."
    )
    panel = Panel("softmax-temperature", "Softmax temperature, Evidence", {"temperature_evidence": "yes"})
    return Beside(study("focal-temperatures"), panel, cannot=cannot, finding=10)


PARTS = {
    ("focal_attention", "table 1"): tempered,
    ("focal_attention", "table 2"): tempered,
    ("focal_attention", "table 3"): setting,
    ("focal_attention", "table 4"): setting,
    ("focal_attention", "figure 2"): saved,
    ("focal_attention", "figure 3"): saved,
    ("focal_attention", "figure 5"): far,
    ("focal_attention", "figure 8a"): best,
    ("focal_attention", "figure 8b"): best,
    ("gwr_linear_routing", "table 1"): routed,
    ("gwr_linear_routing", "table 2"): closed,
    ("gwr_linear_routing", "figure 2"): closed,
    ("gwr_linear_routing", "figure 3"): closed,
    ("focal_summary_zh", "table 1"): summarised,
}
