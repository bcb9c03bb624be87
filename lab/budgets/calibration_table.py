"""CSA's own table for a model: corpora by contexts, the share of dense reads that keeps every stretch within 2%."""

from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np

from analysis.corpus import text_hash
from analysis.metrics.budgets import allocate_budget
from analysis.models import Model
from analysis.runs.caps import chosen_cap
from analysis.studies.budgets.cap_rows import CAPS, KERNEL, TOLERANCE, TOLERANCE_BIN, Progress, sweep, window_losses
from analysis.studies.budgets.ranks import measure_ranks
from analysis.studies.stored.comparisons import Row
from analysis.studies.stored.panels import columns
from analysis.studies.stored.runner import Setting, Windows, option
from analysis.studies.text.calibration import document_windows, reporting, split
from analysis.studies.text.held_out import check_range, corpus_hash, domains, sample_windows
from lab.budgets.query_arms import static

MASS = 0.9
READS = ("reads_causal", "reads_full", "kv_read", "reads_kv_least", "reads_kv_most", "attended")
# Budgets by the sum of the ranks, tried in this order until a cap passes.
BETAS = (1.0, 2.0, 4.0)
PASSES, FAILS, UNJUDGED = "passes", "does not pass", "too few documents to judge"
Sides = tuple[list[str], list[str]]  # training and held-out documents


class Calibration(Windows):
    """Calibration and sweep on every domain of the corpus, in contexts of `length` and twice it.

    `windows` of `length` tokens, or as many tokens, calibrate on half of the training texts, as many choose the cap on
    the other half, and as many report it on the held-out ones; in the longer context more, where as many documents can
    give a window each. Budgets are beta times the ranks for beta 1, 2 and 4, until a cap of 32 to 512 or of the whole
    context passes (one-sided 95% limits over documents below 1% of perplexity and 2% of every position bin). A row is
    the smallest cap that passes, else the largest read of the last beta.
    """

    tables = ("rows", "rank_correlations")

    windows: int = option(16, "number of windows that calibrate, and as many that measure", low=1, high=4096)

    def check(self, lm: Model) -> None:
        check_range("A window of text", self.length, 16, lm.max_positions)

    def measure(self, run: Setting) -> dict:
        texts = domains(self.corpus, None, run.context)
        contexts = [size for size in (self.length, 2 * self.length) if size <= run.lm.max_positions]
        places, cells = [(name, size) for name in texts for size in contexts], []
        for place, (name, size) in enumerate(places):
            context = run.context.within(place / len(places), 1 / len(places), f"{name}, {size:,} tokens")
            tokens = self.windows * self.length
            limits = tokens, tokens, reporting(self.windows, self.length, size, len(texts[name][1]))
            decides = [corpus_hash(texts[name][0] + texts[name][1]), size, limits, self.seed, BETAS, CAPS]
            inside = replace(run, context=context)
            make = partial(_cell, inside, name, texts[name], size, limits)
            decides += [TOLERANCE, TOLERANCE_BIN]
            cells.append(inside.part(f"calibration-{text_hash(name)[:6]}-{size}", decides, make))
        rows, sweeps, ranks = [cell["row"] for cell in cells], [], []
        for cell in cells:
            where = {name: cell["row"][name] for name in ("corpus", "context")}
            sweeps += [where | sweep for sweep in cell["sweeps"]]
            ranks.append(where | {"ranks": cell["ranks"]})
        return {
            "rows": rows,
            "sweeps": sweeps,
            "ranks": ranks,
            "rank_correlations": _correlations(ranks),
            "length": self.length,
            "protocol": {
                "text": _hash_of(texts),
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

    def sample(self, run: Setting, numbers: dict) -> dict:
        ids = sample_windows(run.lm, self.length)
        ranks = measure_ranks(run.lm, ids, MASS).mean()
        budgets = allocate_budget(ranks, round(float(ranks.sum())))
        losses = window_losses(run.lm, ids, static(budgets, 64), Progress(run.context.within(0.99, 0.01), 2), "samples")
        return {"ranks": ranks.ravel().tolist(), "losses, cap 64": losses.mean(1).tolist()}

    def part(self, run: Setting, numbers: dict) -> dict:
        texts = domains(self.corpus, None, run.context)
        (name, both), *_ = texts.items()
        tokens = self.windows * self.length
        learn, _ = document_windows(run.lm, split(*both)[0], self.length, tokens, f"corpus {name}")
        ranks = measure_ranks(run.lm, learn, MASS).mean().tolist()
        row = {"corpus": name, "context": self.length, "ranks": ranks}
        return {"ranks": [row], "protocol": {"text": _hash_of(texts)}}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows = numbers["rows"]
        passing, unjudged = ([row for row in rows if row["verdict"] == verdict] for verdict in (PASSES, UNJUDGED))
        sentence = f"No cap is shown to pass in {len(rows)} corpora and contexts."
        if passing:
            reads = [row["reads_causal"] for row in passing]
            sentence = f"{len(passing)} of {len(rows)} corpora and contexts pass, at {min(reads):.1%} to "
            sentence += f"{max(reads):.1%} of a query head's causal reads: perplexity within {TOLERANCE:.0%} of dense, "
            sentence += f"and within {TOLERANCE_BIN:.0%} at every stretch of positions, by one-sided 95% limits on "
            sentence += "texts that chose nothing."
        sentence += f" In {len(unjudged)} there are too few documents to judge." if unjudged else ""
        unit = rows[0]["unit"] if rows[0]["unit"] == "documents" else f"units of {rows[0]['unit']}"
        named = [about | {"label": unit} if about["name"] == "units" else about for about in columns("calibration")]
        return {"sentence": sentence, "columns": named}


def _hash_of(texts: dict[str, Sides]) -> str:
    return corpus_hash([text for sides in texts.values() for side in sides for text in side])


def _cell(run: Setting, name: str, texts: Sides, size: int, limits: tuple[int, int, int]) -> dict:
    """A corpus in a context, measured on at most so many tokens that calibrate, that choose and that report."""
    lm, sides = run.lm, zip(split(*texts), limits, strict=True)
    learn, *others = (document_windows(lm, side, size, count, f"corpus {name}") for side, count in sides)
    windows, documents = (np.concatenate(both) for both in zip(*others, strict=True))
    report = np.arange(len(windows)) >= len(others[0][0])
    # Documents of the two sides are numbered apart.
    documents = documents + len(texts[0]) * report
    progress = Progress(run.context.within(0.0, 0.3), len(learn[0]))
    ranks = measure_ranks(lm, learn[0], MASS, lambda done, stage: progress(stage)).mean()
    caps, sweeps = [cap for cap in CAPS if cap < size] + [size], []
    for turn, beta in enumerate(BETAS):
        context = run.context.within(0.3 + 0.7 * turn / len(BETAS), 0.7 / len(BETAS))
        budgets = allocate_budget(ranks, round(beta * float(ranks.sum())))
        rows = sweep(context, lm, windows, budgets, caps, documents=documents, report=report)
        rows = [{"beta": beta} | row for row in rows]
        sweeps += rows
        cap = chosen_cap(rows)
        chosen = next((row for row in rows if row["cap"] == cap), sweeps[-1])
        if cap is not None:
            break
    row = {"corpus": name, "context": size, "beta": chosen["beta"], "cap": chosen["cap"], "verdict": verdict_of(chosen)}
    row |= {name: value for name, value in chosen["report"].items() if name not in ("lower", "stretches")}
    row |= {key: chosen[key] for key in READS} | {"tokens": int(others[1][0].size)}
    return {"row": row, "sweeps": sweeps, "ranks": ranks.tolist()}


def verdict_of(row: Row) -> str:
    """What the limits say of a row of a sweep: of the chosen one on the texts that report, else on those that chose."""
    side = row["report"] if row["passes"] else row["select"]
    if None in (side["upper"], side["worst_bin_upper"]):
        return UNJUDGED
    return PASSES if row["passes"] and row["holds"] else FAILS


def _correlations(ranks: list[Row]) -> list[Row]:
    """Pearson correlation of the logarithms of the ranks of two corpora in the same context."""
    pairs = []
    for first, two in combinations(ranks, 2):
        if first["context"] == two["context"]:
            pearson = np.corrcoef(np.log([np.ravel(first["ranks"]), np.ravel(two["ranks"])]))[0, 1]
            names = {"corpus": first["corpus"], "other": two["corpus"], "context": first["context"]}
            pairs.append(names | {"pearson_log": float(pearson)})
    return pairs
