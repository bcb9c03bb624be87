"""Every method on the same number of keys: perplexity against dense by domain, context and share of the reads."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch

from analysis.attention import apply
from analysis.corpus import text_hash
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.metrics.paired import perplexity_change
from analysis.metrics.quality import token_losses
from analysis.metrics.sparsity import ReadCounter
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.context import STREAMED, Context, check_seed, protocol
from analysis.studies.quality.budget_arms import ENTRIES, Budget, Entry
from analysis.studies.quality.budget_search import nearest
from analysis.studies.quality.budget_shown import columns, means, panels, sentence
from analysis.studies.quality.equal_budget import REACHED
from analysis.studies.routing.states import state_for
from analysis.studies.text.domains import domains
from analysis.studies.text.held_out import (
    check_range,
    held_out_windows,
    ids_hash,
    places,
    read_part,
    sample_windows,
    write,
)
from analysis.studies.text.sizes import command

SHARES = (0.5, 0.25, 0.1, 0.05)  # of the causal pairs
NOTES = (
    "Every method is set to the same keys of a query on average, over all layers and heads (its field and value stand "
    "in the rows); the search counts the first window of a domain, and what is shown was counted on all of them.",
    "Attended keys are those in the softmax; what is fetched from memory besides, to choose them, is in kv_read, "
    "in which CSA, the oracle and SparQ read more than they attend.",
    "Everything is a masked pass, so nothing here was timed: a horizontal axis in times faster is what the pairs read "
    "would allow at most.",
)


def equal_budget_table(
    corpus: str = "",
    model: str = "demo",
    length: int = 1024,
    windows: int = 4,
    rows: str | None = None,
    router: str = "k8-top1",
    seed: int = 0,
    output: str | None = None,
    work: str | None = None,
    *,
    context: Context,
) -> Result:
    """Methods set to 5, 10, 25 and 50 % of the causal pairs, in contexts of `length` and twice it, on every domain of
    `corpus`: `windows` held-out windows of `length`, or as many tokens in longer ones.

    `rows`: only these domains. What was done is kept in `work`; the result goes to `output` (default
    `<state>/studies/equal-budget.json`).
    numbers: `rows` (per domain, context, share and method: `domain context share target method label field value
    settings attended off reached reads_causal kv_read perplexity perplexity_dense difference difference_low
    difference_high units unit tokens`; no quality where the budget was missed by more than 5 %), `columns`, `panels`,
    `sentence`, `notes`, `path`. table: `rows`. Errors: BadSetting, BadText, NotFitted.
    """
    check_seed(seed)
    lm = context.model(model)
    check_range("A window of text", length, 64, lm.max_positions)
    check_range("The number of windows of text", windows, 1, 4096)
    texts = {name: held for name, (_, held) in domains(corpus, rows, context).items()}
    contexts = [size for size in (length, 2 * length) if size <= lm.max_positions]
    path, folder = places(context, lm, "equal-budget", output, work)
    cells = [
        Cell(context, lm, router, name, held_out_windows(lm, texts[name], size, max(1, windows * length // size)))
        for size in contexts
        for name in texts
    ]
    found, began = [], {}
    for at, cell in enumerate(cells):
        for turn, entry in enumerate(ENTRIES):
            part = (at + turn / len(ENTRIES)) / len(cells)
            found += cell.rows(entry, folder, seed, began, (part, 1 / len(cells) / len(ENTRIES)))
    numbers = {
        "sentence": sentence(found),
        "means": means(found),
        "rows": found,
        "columns": columns(),
        "panels": panels(found),
        "notes": list(NOTES),
        "protocol": protocol(
            "study equal-budget", lm, ids_hash(np.concatenate([cell.ids.ravel() for cell in cells])),
            sum(cell.ids.size for cell in cells), window=max(contexts), seed=seed, kernel=STREAMED, router=router,
            contexts=contexts, shares=list(SHARES), corpus=f"{Path(corpus).name}: {', '.join(texts)}",
            command=command(
                "equal-budget", lm, length=length, windows_count=windows, rows=rows, router=router, seed=seed
            ),
        ),
    }  # fmt: skip
    write(path, numbers | {"check": _check(lm)})
    return Result(numbers | {"path": str(path)}, {"rows": pd.DataFrame(found).drop(columns="settings")})


def recheck(stored: dict, *, context: Context) -> dict[str, tuple]:
    """The `check` of a stored study, method -> (what is stored, what comes out now)."""
    again = _check(context.model(stored["protocol"]["model"]))
    return {name: (kept, again[name]) for name, kept in stored["check"].items()}


def _check(lm: Model) -> dict[str, list[float]]:
    """Loss and keys of a query of two methods without anything fitted, on a little of the bundled samples."""
    ids, found = sample_windows(lm, min(256, lm.max_positions), 1), {}
    for name, settings in {"streaming_llm": {"window": 24}, "sparq": {"k": 24, "local": 6}}.items():
        reading = Pass(lm, METHODS[name](**settings), ids)
        reading.on(1)
        found[name] = [float(np.mean(reading.losses)), reading.reads().attended]
    return found


class Pass:
    """A method over windows of token ids [n, T], one after the other: `losses` of those that are done [T - 1 each]."""

    def __init__(self, lm: Model, method: Method, ids: np.ndarray):
        self.lm, self.method, self.ids = lm, method, torch.as_tensor(ids)
        self.losses, self.counter = [], ReadCounter(ids.shape[1])

    def on(self, until: int) -> "Pass":
        """Goes on to the first `until` windows."""
        for ids in self.ids[len(self.losses) : until]:
            with apply(self.lm, self.method, watch=self.counter):
                self.losses.append(token_losses(self.lm, ids[None])[0])
        return self

    def reads(self):
        """What was read in the windows that are done."""
        return self.counter.reads(self.method)


class Cell:
    """One domain in one context: its windows of token ids [n, T], and its dense pass, done when it is needed."""

    def __init__(self, context: Context, lm: Model, router: str, domain: str, ids: np.ndarray):
        self.context, self.lm, self.router, self.domain, self.ids = context, lm, router, domain, ids
        self._dense: np.ndarray | None = None

    def rows(self, entry: Entry, folder: Path, seed: int, began: dict, span: tuple[float, float]) -> list[dict]:
        """The rows of a method, one for every share; `began`: where a search in this context ended before."""
        found, length = [], self.ids.shape[1]
        for turn, share in enumerate(SHARES):
            key = entry.label, length, share
            budget = Budget(share * (length + 1) / 2, share, state_for(self.context, self.lm).settings.buckets)
            decides = [self.lm.revision, str(self.lm.dtype), ids_hash(self.ids), self.router, seed, share]
            decides.append(entry.spec(0, budget))
            name = f"{entry.label} {self.domain}".replace(",", "").replace(" ", "-")
            place = folder / f"equal-{name}-{length}-{text_hash(repr(decides))}.json"
            row = read_part(place)
            if row is None:
                told = f"{self.domain}, {length:,} tokens, {share:.0%}: {entry.label}"
                where = span[0] + span[1] * turn / len(SHARES)
                row = self._row(
                    entry, budget, seed, began.get(key), lambda more, w=where, t=told: self._tell(w, t + more)
                )
                write(place, row)
            began[key] = row["value"]
            found.append(row)
        return found

    def _tell(self, fraction: float, stage: str) -> None:
        self.context.progress(min(1.0, fraction), stage)

    def _row(self, entry: Entry, budget: Budget, seed: int, start: int | None, told) -> dict:
        passes: dict[int, Pass] = {}
        target = budget.target

        def read(value: int) -> float:
            told(f", {entry.field} {value:,}")
            method = entry.make(self.context, self.lm, self.router, entry.spec(value, budget))
            passes[value] = Pass(self.lm, method, self.ids).on(1)
            return passes[value].reads().attended

        low, high, guess = entry.bounds(self.context, self.lm, self.ids.shape[1], budget)
        value = nearest(read, low, high, target, guess if start is None else start)
        chosen = passes.pop(value)
        passes.clear()
        reached = abs(chosen.reads().attended / target - 1) <= REACHED
        for until in range(2, len(self.ids) + 1 if reached else 0):
            told(f", window {until} of {len(self.ids)}")
            chosen.on(until)
        reads, dense = chosen.reads(), self._dense_losses(told) if reached else None
        row = {"domain": self.domain, "context": self.ids.shape[1], "share": budget.share, "target": target}
        row |= {"method": entry.method, "label": entry.label, "field": entry.field, "value": value}
        row |= {"settings": entry.settings(budget), "attended": reads.attended}
        row |= {"off": reads.attended / target - 1, "reached": reached, "reads_causal": reads.reads_causal}
        row |= {"kv_read": reads.kv_read, "tokens": int(self.ids.size) if reached else self.ids.shape[1]}
        names = ("perplexity", "perplexity_dense", "difference", "difference_low", "difference_high", "units", "unit")
        if not reached:
            return row | dict.fromkeys(names)
        losses = np.stack(chosen.losses)
        change = perplexity_change(losses, dense, seed=seed)
        values = [float(np.exp(part.astype(float).mean())) for part in (losses, dense)]
        return row | dict(
            zip(names, (*values, change.change, change.low, change.high, change.units, change.unit), strict=True)
        )

    def _dense_losses(self, told) -> np.ndarray:
        """Losses under dense attention [n, T - 1], through the same path."""
        if self._dense is None:
            reading = Pass(self.lm, METHODS["dense"](), self.ids)
            for until in range(1, len(self.ids) + 1):
                told(f", dense, window {until} of {len(self.ids)}")
                reading.on(until)
            self._dense = np.stack(reading.losses)
        return self._dense
