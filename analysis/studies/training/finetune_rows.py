"""What came out of the training baselines: rows, drawn, and in words."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...benchmarks.tasks import TASKS as BENCHMARKS
from ...claims import Comparison, Verdict, detectable, signed
from ...metrics.intervals import DOCUMENTS, SEEDS, Interval, over_seeds
from ...metrics.proportions import share_difference
from ...probes.tasks import TASKS
from ..budgets.cap_rows import two_sides
from ..stored.comparisons import (
    compared,
    difference,
    holm_corrected,
    interval_caveat,
    multiplicity_note,
    scope_of_claim,
)
from ..stored.panels import of_rows, panel, printed, series

DOMAINS = {"new": "the new domain", "old": "the old one"}
SPOKEN = {  # in this order
    Verdict.LOWER: "lower",
    Verdict.HIGHER: "higher",
    Verdict.SAME: "the same",
    Verdict.NOT_SIGNIFICANT: "not significant",
    Verdict.NOT_JUDGED: "not judged, in too few texts",
}


def reporting(units: np.ndarray) -> np.ndarray:
    """Which windows of the new domain report, bool [n], those of as many documents as an interval needs where there are
    so many: the corpora hold 8 Python files, and of half of them nothing could be judged."""
    return two_sides(units, DOCUMENTS)


def choosing(part: dict, new: str, units: dict[str, np.ndarray]) -> float:
    """What a rate is chosen by: nats per token on the new domain's documents that do not report, of which nothing else
    is told. `part` as in `row_of`."""
    return float(np.array(part["means"][new])[~reporting(units[new])].mean())


def row_of(about: dict, parts: list[dict], base: dict, new: str, units: dict[str, np.ndarray]) -> dict:
    """A row: `about` it, the perplexity of every domain, and the differences to the base. `parts`, one of every
    training, and `base`: `means` domain -> nats per token of each window, `tasks` task -> scores of items; `units`
    domain -> the document of each window. `choosing` is of the first training, which every rate has. Where `benchmarks`
    were asked, their shares, and under the name of each its share minus the base's."""
    means = {name: np.array([part["means"][name] for part in parts]) for name in base["means"]}  # [seeds, n] each
    before = {name: np.array(part) for name, part in base["means"].items()}
    reported = reporting(units[new])
    row = about | {"seeds": len(parts), "choosing": choosing(parts[0], new, units)}
    for losses in (means, before):
        losses[new] = losses[new][..., reported]
    old = [name for name in means if name != new]
    row["perplexities"] = {name: float(np.exp(part.mean())) for name, part in means.items()}
    row |= {"new_domain": row["perplexities"][new], **difference("new", means[new], before[new], units[new][reported])}
    row |= dict.fromkeys(("old_domain", "old", "old_low", "old_high", "old_points"))
    if old:
        after, before_old = (np.concatenate([losses[name] for name in old], -1) for losses in (means, before))
        documents = np.concatenate([[f"{name} {part}" for part in units[name]] for name in old])
        row |= {"old_domain": float(np.exp(after.mean()))} | difference("old", after, before_old, documents)
    right, control = np.array([_items(part) for part in parts]), np.array(_items(base))  # [seeds, items], [items]
    row["scores"] = {name: float(np.mean([part["tasks"][name] for part in parts])) for name in base["tasks"]}
    for task, scores in base.get("benchmarks", {}).items():
        of_seeds = np.array([part["benchmarks"][task] for part in parts])
        row.setdefault("benchmarks", {})[task] = float(of_seeds.mean())
        row |= compared(task, apart(of_seeds, np.array(scores)))
    return row | {"task_score": float(right.mean()) if right.size else None} | compared("tasks", apart(right, control))


def _items(part: dict) -> list[float]:
    return sum(part["tasks"].values(), [])


def apart(right: np.ndarray, control: np.ndarray) -> Interval:
    """Share of items right [seeds, items] above a control's, of the same seeds or of none [items], its interval over
    items; from three seeds on as wide as that over items and seeds where this is wider."""
    over_items = share_difference(right.mean(0), np.atleast_2d(control).mean(0))
    if len(right) < SEEDS or not control.size:
        return over_items
    crossed = over_seeds(right - control, np.arange(right.shape[1]))[0]
    lows = [interval.low for interval in (over_items, crossed) if interval.low is not None]
    highs = [interval.high for interval in (over_items, crossed) if interval.high is not None]
    return over_items._replace(low=min(lows, default=None), high=max(highs, default=None))


def panels(rows: list[dict], rates: list[float]) -> list[dict]:
    """Differences to the base against the learning rate, a line for every arm; and what the paper prints."""
    trained = [row for row in rows if row["rate"] is not None]
    names = list(dict.fromkeys(row["line"] for row in trained))
    table = {(row["line"], row["rate"]): row for row in trained}
    drawn = []
    asked = {task: BENCHMARKS[task].title for task in rows[0].get("benchmarks", {})}
    for key, title in ({"new": "New domain", "old": "Old domain", "tasks": "Tasks"} | asked).items():
        unit = "nats per token" if key in DOMAINS else "share of items"
        lines = [of_rows(name, [table.get((name, rate), {}) for rate in rates], key) for name in names]
        drawn.append(panel(f"{title}, minus the base", "rate", "learning rate", rates, unit, lines))
    ranks = ["LoRA (r=4)", "LoRA (r=16)", "Centroids (d_s=16)"]
    tasks = ["HellaSwag", "ARC-E", "PIQA", "LAMBADA"]
    lines = [series(name, [printed("table 3", name, task) for task in tasks], paper=True) for name in ranks]
    return [*drawn, panel("Table 3: GPT-2 124M, change", "task", "task", tasks, "points", lines)]


def sentence(
    rows: list[dict], seeds: int, tasks_are: str = "Tasks right", chance: Mapping[str, float] | None = None
) -> str:
    """What every way does at the rate that the `choosing` windows of the new domain prefer: which are lower or higher
    than the base there and on the old domain, and which get more or fewer tasks right; benchmarks stand beside
    `chance`."""
    best = holm_corrected(_chosen(rows), *DOMAINS, "tasks")
    verdicts = [f"On {where}, in nats against the base, {_decided(best, key)}." for key, where in DOMAINS.items()]
    verdicts.append(f"{tasks_are}: {_tasks_changed(best)}.")
    headline = f"Each at the rate that other texts chose. {' '.join(verdicts)}"
    family = multiplicity_note(best, *DOMAINS, "tasks")
    return f"{headline}{family}{_benchmarks(rows[0], best, chance or {})}{scope_of_claim(seeds, 'model')}"


def _chosen(rows: list[dict]) -> list[dict]:
    """Of every line that was trained, the row at the rate that the `choosing` windows prefer."""
    lines = dict.fromkeys(row["line"] for row in rows if row["rate"] is not None)
    return [min((row for row in rows if row["line"] == line), key=lambda row: row["choosing"]) for line in lines]


def _tasks_changed(best: list[dict]) -> str:
    """The rows that get more or fewer tasks right than the base, and those that do neither."""
    changes = {row["line"]: Comparison.of(row, "tasks", unit="points") for row in best if row["tasks"] is not None}
    changed = [f"{line} ({change.size})" for line, change in changes.items() if change.direction]
    same = {line: change for line, change in changes.items() if not change.direction}
    limit = _smallest(list(same.values()))
    named = {
        line: f"{line} ({'; '.join(filter(None, (change.size, _doubt(change))))})" for line, change in same.items()
    }
    if not changed:
        doubted = [named[line] for line, change in same.items() if _doubt(change)]
        return f"no change is significant{limit}" + "".join(f"; {name}" for name in doubted)
    return ", ".join(changed) + (f"; not significant: {', '.join(named.values())}{limit}" if same else "")


def _benchmarks(base: dict, best: list[dict], chance: Mapping[str, float]) -> str:
    """The sentence on the benchmarks, a family of their own: what the base gets right, beside chance, and what changed.
    It begins with a space; nothing where none were asked."""
    asked = base.get("benchmarks", {})
    if not asked:
        return ""
    best, titles = holm_corrected(best, *asked), {task: BENCHMARKS[task].title for task in asked}
    guessed = {task: f" (chance {share:.0%})" for task, share in chance.items()}
    shares = ", ".join(f"{titles[task]} {share:.0%}{guessed.get(task, '')}" for task, share in asked.items())
    judged = [(row, task) for task in asked for row in best if row[f"{task}_low"] is not None]
    changes = [(row["line"], titles[task], Comparison.of(row, task, unit="points")) for row, task in judged]
    changed = [f"{line} on {title} ({change.size})" for line, title, change in changes if change.direction]
    limit = _smallest([change for _, _, change in changes if not change.direction])
    return (
        f" Of benchmarks the base gets right {shares}. Of {len(changes)} changes, each judged after Holm's correction "
        f"for all of them, significant: {', '.join(changed) or 'none'}{limit}."
    )


def _doubt(change: Comparison) -> str:
    """Why a change whose own interval leaves 0 out is not significant; empty of any other."""
    return f"alone {change.span}, p = {change.p_holm:.2g}" if change.excludes_zero and change.p_holm is not None else ""


def _smallest(changes: list[Comparison]) -> str:
    """What shares that are not significantly changed could have shown, from the surest arm to the least sure. It begins
    with a semicolon; nothing without intervals."""
    limits = sorted(change.minimum_detectable for change in changes if change.minimum_detectable is not None)
    if not limits:
        return ""
    least, most = (f"{100 * limit:.1f}" for limit in (limits[0], limits[-1]))
    if least == most:
        return f"; {detectable(limits[0], 'points')}"
    return f"; the smallest effects this sample could detect are {least} to {most} points, by arm"


def rests_on(protocol: Mapping[str, Any]) -> list[str]:
    """Notes on what the intervals rest on, and on the questions that no method of a window tells from dense attention.
    Studies stored before that was counted say the first alone."""
    notes = [interval_caveat(dict(protocol))]
    if documents := protocol.get("documents_of"):
        old = sum(count for name, count in documents.items() if name != protocol["new_domain"])
        notes.append(
            f"So of the new domain; the old one is {old} documents. Shares of tasks have intervals over their "
            "questions, with three trainings at least as wide as over questions and trainings."
        )
    if any(protocol.get("within_window", {}).values()):
        shares = {_title(name): share for name, share in protocol["within_window"].items()}
        named = ", ".join(f"{share:.0%} of {title}" for title, share in shares.items() if share)
        none = ", ".join(title for title, share in shares.items() if not share)
        notes.append(
            f"Of a text of at most {protocol['always_read']} tokens Focus, Longformer and Routing Transformer read "
            "everything, as dense attention does, and Focus, which trains no weights, changes nothing there: "
            f"{named}{f'; none of {none}' if none else ''}."
        )
    if protocol.get("seeds", 1) >= SEEDS:
        notes.append("With so few trainings and so many comparisons a large change may be left undecided, not absent.")
    return notes


def _title(name: str) -> str:
    task = BENCHMARKS.get(name) or TASKS.get(name)
    return task.title if task else name


def on_rates(rows: list[dict], seeds: int) -> list[str]:
    """Notes on the rates: those that were not chosen were trained less often, and a choice at an end of the grid may
    have its best beyond it."""
    trained, notes = [row for row in rows if row["rate"] is not None], []
    fewest = min(row.get("seeds", seeds) for row in trained)
    if fewest < seeds:
        notes.append(f"Trainings at a rate that no reading chose: {fewest}, with intervals over documents alone.")
    rates = {row["rate"] for row in trained}
    ends = (min(rates), max(rates)) if len(rates) > 1 else ()
    if edge := [f"{row['line']} ({row['rate']:g})" for row in _chosen(rows) if row["rate"] in ends]:
        notes.append(f"At an end of the rates that were tried, so better may lie beyond: {', '.join(edge)}.")
    return notes


def _decided(best: list[dict], key: str) -> str:
    """The rows that are lower, higher and neither, the lowest first."""
    by_verdict: dict[Verdict, list[str]] = {verdict: [] for verdict in SPOKEN}
    for row in sorted((row for row in best if row[key] is not None), key=lambda row: row[key]):
        change = Comparison.of(row, key)
        # An interval says what could have been seen, too.
        limit = f" ({_doubt(change) or change.detectable})" if change.verdict is Verdict.NOT_SIGNIFICANT else ""
        by_verdict[change.verdict].append(f"{row['line']} (rate {row['rate']:g}) {signed(row[key])}{limit}")
    parts = [f"{SPOKEN[verdict]}: {', '.join(lines)}" for verdict, lines in by_verdict.items() if lines]
    return "; ".join(parts) or "nothing else was read"
