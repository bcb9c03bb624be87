"""The panels and jobs that the papers' rows share, and how numbers of one stored study are written down."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from analysis.papers.ours import Beside, Job, Number, Panel
from analysis.studies.registry import of_file

START, WORTH = Panel("", "Start"), Panel("is-it-worth-it", "Is it worth it?")
COLLAPSE = Panel("train-a-router", "Train a router, Routing collapse", {"evidence": "collapse"})
CAUSALITY = Panel("train-a-router", "Train a router, Causality check", {"evidence": "causality"})
GROUPS, PAIRS = Panel("token-groups", "Token groups"), Panel("long-range-pairs", "Long-range pairs")
QUALITY = Panel("quality-vs-speed", "Quality vs speed")
SPEED = Panel("speed", "Speed", {"speed_on": "shapes"})
BUDGETS = Panel("kv-budgets", "KV budgets, Smallest cap", {"budgets": "cap"})
CORPORA = Panel("kv-budgets", "KV budgets, Corpora and contexts", {"budgets_evidence": "yes"})
BREAKS = Panel("kv-budgets", "KV budgets, Where it breaks", {"budgets": "reads"})
RANKS = Panel("kv-budgets", "KV budgets, Keys per head", {"budgets": "map"})
QUERY = Panel("kv-budgets", "KV budgets, Does the query matter?", {"budgets_evidence": "yes"})
RECALL = Panel("routing", "Routing, Recall", {"route_tab": "recall"})
CLOSURE = Panel("routing", "Routing, Gap closure", {"route_tab": "closure"})
TESTS = Panel("long-context-tests", "Long-context tests, Evidence", {"tests_evidence": "yes"})
EQUAL = Panel("quality-vs-speed", "Quality vs speed, Equal reads", {"quality_evidence": "yes"})
MINE = {"model": "", "seed": 0}  # a page puts its model in


def ablation(name: str, label: str) -> Panel:
    """The panel of a stored grid on the page Train a router."""
    return Panel("train-a-router", f"Train a router, {label}", {"evidence": "ablations", "ablation": name})


ELSEWHERE = {  # stored studies that stand beside rows about something else -> the panel of each
    "equal-budget": EQUAL,
    "benchmarks": TESTS,
    "baselines": ablation("baselines", "Ablations"),
    "calibration": CORPORA,
    "finetuning": ablation("finetuning", "Ablations"),
    "focus-printed": ablation("focus-printed", "Ablations"),
}


def maker(stored: str) -> Job:
    """The job that stores a study: `top-k4-top1` is `study top` with that router."""
    kind, router = of_file(stored)
    return study(kind, **({"router": router} if router else {}))


def made(beside: Beside, protocol: Callable[[str], Mapping | None]) -> dict[str, Job]:
    """Stored study -> the job that makes its numbers again, of every one that a row has numbers from; `protocol(name)`
    is that of a stored one. The row's own job stands there where it is that study's."""
    found = {}
    for name in dict.fromkeys(number.study for number in beside.numbers if number.study):
        job, told = beside.job if _stores(beside.job, name) else maker(name), protocol(name)
        found[name] = job.again(told) if told else job
    return found


def measuring(beside: Beside, protocol: Callable[[str], Mapping | None]) -> Job:
    """The row's own job, with what its stored study was asked for."""
    job = beside.job
    own = next((one for name, one in made(beside, protocol).items() if _stores(job, name)), None)
    told = protocol(job.args["name"]) if job.verb == "study" and own is None else None
    return own or (job.again(told) if told else job)


def _stores(job: Job, name: str) -> bool:
    """Whether a job is of the study that is stored by this name."""
    return job.verb == "study" and (job.args["name"], job.args.get("router")) == of_file(name)


def sharper(study: str) -> Panel:
    """The panel of models that were trained with a temperature."""
    return Panel(
        "softmax-temperature", "Softmax temperature, Evidence", {"trained_with": study, "temperature_evidence": "yes"}
    )


def study(name: str, adds: dict | None = None, **args: object) -> Job:
    """The job of a named study; `args` where the row needs others than those of the stored study, or the defaults."""
    return Job("study", {"name": name, "corpus": "", **args}, adds=adds or {})


def benchmark(*tasks: str, methods: str = "dense,focus,streaming_llm", shots: int | None = None) -> Job:
    """The job of benchmarks on local files."""
    listed = [{"name": name, "settings": {}} for name in methods.split(",")]
    args = {**MINE, "tasks": list(tasks), "methods": listed, "shots": shots}
    return Job("benchmark", args, {"data": "DIR"})


def pitfalls() -> Job:
    """The job of what is measured live on the model's own heads."""
    return Job("pitfalls", {**MINE, "text": "", "router": "k8-top1"})


def at(study: str, **where: object):
    """Numbers of one row of a study: `at(study, k=2)("perplexity", "perplexity")` is a Number of `rows`."""

    def number(says: str, name: str, unit: str = "ppl", column: str = "", ends: str | None = None) -> Number:
        return Number(says, ("rows", where, name), unit, column, study, ends=ends)

    return number


def equal(label: str, *shares: float) -> tuple[Number, ...]:
    """A method of the stored table at shares of the causal pairs, on novels in 1,024 tokens."""
    found = []
    for share in shares or (0.25,):
        one = at("equal-budget", domain="novels", context=1024, share=share, label=label)
        says = f"{label}, {share:.0%} of the reads"
        found += [one(says, "perplexity", column="PPL"), one(f"{says}, against dense", "difference", "change")]
    return tuple(found)


def tuned(line: str, *rates: float | None) -> tuple[Number, ...]:
    """A training of the stored baselines at learning rates: the new domain, the old one and the generated tasks."""
    found = []
    for rate in rates:
        one, says = at("baselines", line=line, rate=rate), line if rate is None else f"{line}, rate {rate:g}"
        found += [
            one(f"{says}: new domain", "new_domain", column="PPL"),
            one(f"{says}: new domain, against the base", "new", "nats"),
            one(f"{says}: old domains, against the base", "old", "nats"),
            one(f"{says}: generated tasks, against the base", "tasks", "points"),
        ]
    return tuple(found)


def related(numbers: tuple[Number, ...]) -> tuple[Number, ...]:
    """The same numbers beside no column: measured on another kind of thing than the paper's."""
    return tuple(replace(number, column="") for number in numbers)


SCORES = {  # the papers' columns -> task and metric, as the papers' harness names them
    "HellaSwag": ("hellaswag", "acc_norm"),
    "ARC-E": ("arc_easy", "acc_norm"),
    "PIQA": ("piqa", "acc_norm"),
    "LAMBADA": ("lambada", "acc"),
    "TQA MC1": ("truthfulqa", "acc"),
    "GSM8K": ("gsm8k", "exact_match"),
}


FOCUS = "Focus, window 128"  # the window of the paper, as the stored benchmarks name it
STORED = {"dense": "Dense", "focus": FOCUS}


def stored_scores(method: str, *columns: str, shots: int = 0, change: bool = False) -> tuple[Number, ...]:
    """Stored scores of dense or focus beside the papers' columns, or with `change` their differences to dense."""
    found = []
    for column in columns or ("HellaSwag", "ARC-E", "PIQA", "LAMBADA"):
        task, metric = SCORES[column]
        where = {"task": task, "method": STORED[method], "metric": metric, "shots": shots}
        name, unit = ("difference", "points") if change else ("value", "share")
        says = f"{column}, {metric}, {f'{shots} examples' if shots else 'no examples'}{', against dense' * change}"
        found.append(Number(says, ("rows", where, name), unit, column, "benchmarks"))
    return tuple(found)


def scores(method: str, *columns: str) -> tuple[Number, ...]:
    """Benchmark scores of a method beside the papers' columns, from the run of the row's own job."""
    found = []
    for column in columns or ("HellaSwag", "ARC-E", "PIQA", "LAMBADA"):
        task, metric = SCORES[column]
        where = {"task": task, "name": method, "metric": metric}
        found.append(Number(f"{column}, {metric}, own run", ("rows", where, "value"), "share", column))
    return tuple(found)
