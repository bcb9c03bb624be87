"""How the training baselines are told and drawn: rows paired to the base, columns, panels, one sentence."""

import numpy as np

from analysis.metrics.proportions import share_difference
from analysis.studies.stored.panels import column, decided, difference, of_rows, panel, printed, series

PAPER = {"GPT-2 124M": "table 3", "Mistral 7B": "table 4"}
DRAWN = ("new", "old", "tasks")  # differences to the base
DOMAINS = {"new": "the new domain", "old": "the old one"}


def row_of(about: dict, found: dict, base: dict, new: str) -> dict:
    """A row: `about` it, the perplexity of every domain, and the differences to the base. `found` and `base`: `means`
    domain -> nats per token of each window, `tasks` task -> scores of items. The first half of the new domain's windows
    is kept for `choosing` among rates (nats per token): nothing else is told of it."""
    means, before = ({name: np.array(one) for name, one in given["means"].items()} for given in (found, base))
    row = about | {"choosing": float(means[new][: len(means[new]) // 2].mean())}
    for given in (means, before):
        given[new] = given[new][len(given[new]) // 2 :]
    old = [name for name in means if name != new]
    row |= {"perplexities": {name: float(np.exp(one.mean())) for name, one in means.items()}}
    row |= {"new_domain": row["perplexities"][new]}
    row |= difference("new", means[new], before[new])
    empty = {f"old{end}": None for end in ("", "_low", "_high")} | {"old_domain": None}
    if old:
        mine, theirs = (np.concatenate([given[name] for name in old]) for given in (means, before))
        row |= {"old_domain": float(np.exp(mine.mean()))} | difference("old", mine, theirs)
    else:
        row |= empty
    right, before = (sum(one["tasks"].values(), []) for one in (found, base))
    apart = share_difference(right, before)
    row |= {"scores": {name: float(np.mean(one)) for name, one in found["tasks"].items()}}
    row |= {"task_score": float(np.mean(right)) if right else None}
    return row | {"tasks": apart.mean, "tasks_low": apart.low, "tasks_high": apart.high}


def columns() -> list[dict]:
    """The columns of the rows, for a page."""
    return [
        *(column("label", "trained"), column("read", "read as"), column("rate", "learning rate")),
        *(column("trained_parameters", "parameters trained"), column("new_domain", "perplexity, new domain")),
        *(column("old_domain", "perplexity, old domain"), column("task_score", "tasks right", "share")),
        *(column("new", "change on the new domain", "nats"), column("old", "change on the old", "nats")),
        column("tasks", "change of the tasks", "share"),
    ]


def panels(rows: list[dict], rates: list[float]) -> list[dict]:
    """Differences to the base against the learning rate, a line for every arm; and what the paper prints."""
    trained = [row for row in rows if row["rate"] is not None]
    names = list(dict.fromkeys(row["line"] for row in trained))
    titles = {"new": "New domain", "old": "Old domain", "tasks": "Tasks"}
    made = []
    for key in DRAWN:
        unit = "share of items" if key == "tasks" else "nats per token"
        lines = []
        for name in names:
            mine = {row["rate"]: row for row in trained if row["line"] == name}
            lines.append(of_rows(name, [mine.get(rate, {}) for rate in rates], key))
        made.append(panel(f"{titles[key]}, minus the base", "rate", "learning rate", rates, unit, lines))
    ranks = ["LoRA (r=4)", "LoRA (r=16)", "Centroids (d_s=16)"]
    tasks = ["HellaSwag", "ARC-E", "PIQA", "LAMBADA"]
    lines = [series(name, [printed("table 3", name, task) for task in tasks], paper=True) for name in ranks]
    return [*made, panel("Table 3: GPT-2 124M, change", "task", "task", tasks, "points", lines)]


def sentence(rows: list[dict]) -> str:
    """What every way does at the rate that the `choosing` windows of the new domain prefer: which are lower or higher
    than the base there and on the old domain, and which get more or fewer tasks right."""
    lines = dict.fromkeys(row["line"] for row in rows if row["rate"] is not None)
    best = [min((row for row in rows if row["line"] == line), key=lambda row: row["choosing"]) for line in lines]
    said = [f"On {where}, in nats against the base, {_decided(best, key)}." for key, where in DOMAINS.items()]
    tasks = [f"{row['line']} ({100 * row['tasks']:+.1f} points)" for row in best if decided(row, "tasks")]
    said.append(f"Tasks right: {', '.join(tasks) or 'no change is told apart from none'}.")
    return f"Each at the rate that other windows chose. {' '.join(said)}"


def _decided(best: list[dict], key: str) -> str:
    """The rows that are lower, higher and neither, the lowest first."""
    words, said = {-1: "lower", 1: "higher", 0: "not told apart"}, []
    known = sorted((row for row in best if row[key] is not None), key=lambda row: row[key])
    for sign, word in words.items():
        mine = [f"{row['line']} (rate {row['rate']:g}) {row[key]:+.4f}" for row in known if decided(row, key) == sign]
        said += [f"{word}: {', '.join(mine)}"] if mine else []
    return "; ".join(said) or "nothing else was read"
