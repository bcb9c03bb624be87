"""What came out of pretraining with and without groups: both seeds together, drawn, and in words."""

import numpy as np

from analysis.studies.stored.panels import column, decided, difference, nats, of_rows, panel, printed, series
from analysis.studies.stored.trained import Read

READINGS = {  # kept name -> what a reader calls it
    "dense": "dense",
    "trained": "trained groups, hard",
    "trained, literal": "trained groups, literal",
    "trained, soft": "soft gate",
    "trained, soft literal": "soft gate, literal",
    "k-means": "k-means groups",
    "random groups": "random groups",
    "window": "window alone",
    "window of equal pairs": "window of equal pairs",
}
AGAINST = {"against_dense": ("dense", "dense"), "against_random": ("random groups", "random groups")}


def pool(found: dict[tuple[str, int], dict], names: list[str], length: int) -> list[dict]:
    """One row for each model and reading, both seeds together; `found` {(trained with, seed): its part}."""
    each = {
        (name, reading): [Read.kept(kept["readings"][reading]) for (one, _), kept in found.items() if one == name]
        for name in names
        for reading in READINGS
        if any(one == name and reading in kept["readings"] for (one, _), kept in found.items())
    }
    pooled, rows = {key: Read.pool(seeds) for key, seeds in each.items()}, []
    for (name, reading), seeds in each.items():
        both = pooled[name, reading]
        row = {"trained": name, "reading": READINGS[reading], "loss": both.loss, "perplexity": both.perplexity}
        row |= {"first": seeds[0].perplexity, "second": seeds[-1].perplexity}
        row |= {"pairs_share": both.pairs / (length * (length + 1) // 2)}
        row |= {"largest_share": max(both.shares) if reading.startswith(("trained", "k-means")) else None}
        for key, other in AGAINST.items():
            if other in pooled:
                row |= difference(key, both.means, pooled[other].means)
        rows.append(row)
    return rows


def columns() -> list[dict]:
    """The columns of the rows, for a page."""
    return [
        *(column("trained", "trained with"), column("reading", "read with"), column("perplexity", "perplexity")),
        *(column("first", "first seed"), column("second", "second seed")),
        column("against_dense", "above dense training read dense", "nats per token"),
        column("against_random", "above random groups in training and reading", "nats per token"),
        *(column("pairs_share", "pairs read"), column("largest_share", "largest group's share, worst layer")),
    ]


def panels(rows: list[dict], points: list[dict]) -> list[dict]:
    """Perplexity and loss by reading, a line for each way to train; the training's losses; the paper's model."""
    readings = [label for label in READINGS.values() if any(row["reading"] == label for row in rows)]
    names = list(dict.fromkeys(row["trained"] for row in rows))
    table = {(row["trained"], row["reading"]): row for row in rows}
    made = []
    for key, title, unit in (
        ("perplexity", "Perplexity, held out", "perplexity"),
        ("against_dense", "Loss above dense training read dense", "nats per token"),
    ):
        lines = [of_rows(f"trained: {one}", [table.get((one, label), {}) for label in readings], key) for one in names]
        made.append(panel(title, "reading", "read with", readings, unit, lines))
    losses = {}  # (trained with, step) -> losses of the seeds
    for point in points:
        losses.setdefault((point["trained"], point["step"]), []).append(point["loss"])
    seeds = max(map(len, losses.values()), default=0)
    steps = sorted(
        step
        for step in {step for _, step in losses}
        if all(len(losses.get((name, step), ())) == seeds for name in names)
    )
    lines = [series(f"trained: {name}", [float(np.mean(losses[name, step])) for step in steps]) for name in names]
    made.append(panel("Training, as each model reads", "step", "steps", steps, "nats per token", lines))
    paper = ("7B from scratch, full attention", "7B from scratch, Focus (K=4)")
    line = series("7B, paper", [printed("section 3.4", row, "PPL") for row in paper], paper=True)
    return [
        *made,
        panel("Section 3.4: 7B from scratch", "trained", "trained with", ["dense", "focus"], "perplexity", [line]),
    ]


def sentence(rows: list[dict]) -> str:
    """What training with groups costs or brings, each model read as it was trained, whichever way it came out."""
    as_trained = {"focus": "trained groups, hard", "random groups": "random groups"}
    table = {(row["trained"], row["reading"]): row for row in rows}
    if ("dense", "dense") not in table:
        return "Without dense training there is nothing to compare with."
    word, said = {-1: "lower", 0: "not told apart", 1: "higher"}, []
    for name, reading in as_trained.items():
        for how in (reading, "dense"):
            if row := table.get((name, how)):
                told = f"{word[decided(row, 'against_dense')]} ({nats(row, 'against_dense')})"
                said.append(f"trained with {name} and read with {how}: {told}")
    focus = table.get(("focus", as_trained["focus"]), {})
    if "against_random" in focus:
        told = f"{word[decided(focus, 'against_random')]} ({nats(focus, 'against_random')})"
        said.append(f"trained groups against groups that were random from the first step: {told}")
    start = f"Held-out loss against dense training read dense (perplexity {table['dense', 'dense']['perplexity']:.2f})"
    return f"{start}: {'; '.join(said)}."
