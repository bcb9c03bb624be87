"""CSA's own table for a model: corpora by contexts, the share of dense reads that keeps every stretch within 2%."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from analysis.corpus import text_hash
from analysis.metrics.budgets import allocate_budget
from analysis.models import Model
from analysis.runs.caps import chosen_cap
from analysis.studies.budgets.cap_rows import Progress, window_losses
from analysis.studies.budgets.ranks import measure_ranks
from analysis.studies.budgets.sweep import CAPS, KERNEL, TOLERANCE, TOLERANCE_BIN, sweep
from analysis.studies.stored.panels import columns
from analysis.studies.stored.runner import Setting, Study, Windows, option
from analysis.studies.text.calibration import document_windows, reporting, split
from analysis.studies.text.held_out import check_range, corpus_hash, domains, sample_windows
from lab.budgets.query_arms import static

MASS = 0.9
READS = ("reads_causal", "reads_full", "kv_read", "reads_kv_least", "reads_kv_most", "attended")
BETAS = (1.0, 2.0, 4.0)  # budgets by the sum of the ranks, tried in this order until a cap passes
PASSES, FAILS, UNJUDGED = "passes", "does not pass", "too few documents to judge"


@dataclass(frozen=True)
class Sizes(Windows):
    """What the study can be asked for."""

    windows: int = option(16, "number of windows that calibrate, and as many that measure")

    def check(self, lm: Model) -> None:
        check_range("A window of text", self.length, 16, lm.max_positions)
        check_range("The number of windows of text", self.windows, 1, 4096)


def measure(run: Setting) -> dict:
    """Calibration and sweep on every domain of the corpus, in contexts of `length` and twice it.

    `windows` of `length` tokens, or as many tokens, calibrate on half of the training texts, as many choose the cap on
    the other half, and as many report it on the held-out ones; in the longer context more, where as many documents can
    give a window each. Budgets are beta times the ranks for beta 1, 2 and 4, until a cap of 32 to 512 or of the whole
    context passes (one-sided 95% limits over documents below 1% of perplexity and 2% of every position bin). A row is
    the smallest cap that passes, else the largest read of the last beta. Errors: BadSetting, BadText.
    """
    lm, sizes = run.lm, run.sizes
    texts = domains(sizes.corpus, None, run.context)
    contexts = [size for size in (sizes.length, 2 * sizes.length) if size <= lm.max_positions]
    places_of = [(name, size) for name in texts for size in contexts]
    cells = []
    for place, (name, size) in enumerate(places_of):
        context = run.context.within(place / len(places_of), 1 / len(places_of), f"{name}, {size:,} tokens")
        part_run, tokens = replace(run, context=context), sizes.windows * sizes.length
        limits = tokens, tokens, reporting(sizes.windows, sizes.length, size, len(texts[name][1]))
        decides = [lm.revision, str(lm.dtype), corpus_hash(texts[name][0] + texts[name][1]), size, limits, sizes.seed]
        decides += [BETAS, CAPS, TOLERANCE, TOLERANCE_BIN]
        make = partial(_made, part_run, name, texts[name], size, limits)
        place = f"calibration-{text_hash(name)[:6]}-{size}"
        cells.append(context.part(run.work, place, decides, lambda _, make=make: make()))
    rows = [cell["row"] for cell in cells]
    return {
        "rows": rows,
        "sweeps": [{**_where(cell), **one} for cell in cells for one in cell["sweeps"]],
        "ranks": [{**_where(cell), "ranks": cell["ranks"]} for cell in cells],
        "rank_correlations": _correlations(cells),
        "length": sizes.length,
        "protocol": {
            "text": corpus_hash([text for pair in texts.values() for side in pair for text in side]),
            "tokens": sum(row["tokens"] for row in rows),
            "window": max(contexts),
            "kernel": KERNEL,
            "mass": MASS,
            "tolerance": TOLERANCE,
            "tolerance_bin": TOLERANCE_BIN,
            "betas": list(BETAS),
            "corpora": list(texts),
        },
    }


def sample(run: Setting, numbers: dict) -> dict[str, list[float]]:
    """On two windows of the bundled samples: the ranks of the heads, and losses under budgets made of them."""
    ids = sample_windows(run.lm, numbers["length"])
    ranks = measure_ranks(run.lm, ids, MASS).mean()
    budgets = allocate_budget(ranks, round(float(ranks.sum())))
    losses = window_losses(run.lm, ids, static(budgets, 64), Progress(run.context, (0.99, 1.0), 2), "samples")
    return {"ranks": ranks.ravel().tolist(), "losses, cap 64": losses.mean(1).tolist()}


def part(run: Setting, numbers: dict) -> dict:
    """The ranks of the heads on the first corpus in the shorter context."""
    texts = domains(run.sizes.corpus, None, run.context)
    (name, both), *_ = texts.items()
    length = run.sizes.length
    learn, _ = document_windows(run.lm, split(*both)[0], length, run.sizes.windows * length, f"corpus {name}")
    ranks = measure_ranks(run.lm, learn, MASS).mean()
    every = corpus_hash([text for pair in texts.values() for side in pair for text in side])
    return {"ranks": [{"corpus": name, "context": length, "ranks": ranks.tolist()}], "protocol": {"text": every}}


def _made(run: Setting, name: str, texts: tuple[list[str], list[str]], size: int, limits: tuple[int, int, int]) -> dict:
    """The cell, measured on at most so many tokens that calibrate, that choose and that report."""
    lm, sides = run.lm, zip(split(*texts), limits, strict=True)
    learn, *others = (document_windows(lm, side, size, count, f"corpus {name}") for side, count in sides)
    windows, documents = (np.concatenate(both) for both in zip(*others, strict=True))
    report = np.arange(len(windows)) >= len(others[0][0])
    documents = documents + len(texts[0]) * report  # of both sides, told apart
    progress = Progress(run.context, (0.0, 0.3), len(learn[0]))
    ranks = measure_ranks(lm, learn[0], MASS, lambda done, stage: progress(stage)).mean()
    sweeps, chosen = [], None
    for turn, beta in enumerate(BETAS):
        span = 0.3 + 0.7 * turn / len(BETAS), 0.3 + 0.7 * (turn + 1) / len(BETAS)
        budgets = allocate_budget(ranks, round(beta * float(ranks.sum())))
        caps = [cap for cap in CAPS if cap < size] + [size]
        rows = sweep(run.context, lm, windows, budgets, caps, span=span, documents=documents, report=report)
        sweeps += [{"beta": beta, **row} for row in rows]
        if (cap := chosen_cap(rows)) is not None:
            chosen = next(row for row in sweeps if row["beta"] == beta and row["cap"] == cap)
            break
    found = chosen or sweeps[-1]
    place = {"corpus": name, "context": size, "beta": found["beta"], "cap": found["cap"], "verdict": _verdict(found)}
    row = place | found["report"] | {key: found[key] for key in READS} | {"tokens": int(others[1][0].size)}
    return {"row": row, "sweeps": sweeps, "ranks": ranks.tolist()}


def _verdict(row: dict) -> str:
    """What the limits say of a row of a sweep: of the chosen one on the texts that report, else on those that chose."""
    side = row["report"] if row["passes"] else row["select"]
    if None in (side["upper"], side["worst_bin_upper"]):
        return UNJUDGED
    return PASSES if row["passes"] and row["holds"] else FAILS


def _where(cell: dict) -> dict:
    return {name: cell["row"][name] for name in ("corpus", "context")}


def _correlations(cells: list[dict]) -> list[dict]:
    """Pearson correlation of the logarithms of the ranks of two corpora in the same context."""
    pairs = []
    for at, cell in enumerate(cells):
        for other in cells[at + 1 :]:
            if cell["row"]["context"] == other["row"]["context"]:
                logs = np.log([np.ravel(cell["ranks"]), np.ravel(other["ranks"])])
                names = {"corpus": cell["row"]["corpus"], "other": other["row"]["corpus"]}
                pairs.append(
                    {**names, "context": cell["row"]["context"], "pearson_log": float(np.corrcoef(logs)[0, 1])}
                )
    return pairs


def shown(numbers: dict) -> dict:
    """How many corpora and contexts pass, and what is read there."""
    rows = numbers["rows"]
    passing, unjudged = ([row for row in rows if row["verdict"] == verdict] for verdict in (PASSES, UNJUDGED))
    sentence = f"No cap is shown to pass in {len(rows)} corpora and contexts."
    if passing:
        reads = [row["reads_causal"] for row in passing]
        lowest, highest = min(row["reads_kv_least"] for row in passing), max(row["reads_kv_most"] for row in passing)
        sentence = (
            f"{len(passing)} of {len(rows)} corpora and contexts pass, at {min(reads):.1%} to {max(reads):.1%} of a "
            f"query head's causal reads, and between {lowest:.1%} and {highest:.1%} of a key-value head's: perplexity "
            f"within {TOLERANCE:.0%} of dense, and within {TOLERANCE_BIN:.0%} at every stretch of positions, by "
            "one-sided 95% limits on texts that chose nothing."
        )
    sentence += f" In {len(unjudged)} there are too few documents to judge." if unjudged else ""
    unit = rows[0]["unit"] if rows[0]["unit"] == "documents" else f"units of {rows[0]['unit']}"
    named = [about | {"label": unit} if about["name"] == "units" else about for about in columns("calibration")]
    return {"sentence": sentence, "columns": named}


TABLES = ("rows", "rank_correlations")
calibration_table = Study("calibration", __doc__, Sizes, measure, shown, sample, tables=TABLES, part=part)
