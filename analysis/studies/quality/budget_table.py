"""Every method on the same number of keys: perplexity against dense by domain, context and share of the reads."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from analysis.attention import apply
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.metrics.paired import perplexity_change
from analysis.metrics.quality import token_losses
from analysis.metrics.sparsity import ReadCounter, Reads
from analysis.models import Model
from analysis.studies.context import STREAMED
from analysis.studies.quality.budget_arms import ENTRIES, Budget, Entry
from analysis.studies.quality.budget_search import nearest
from analysis.studies.quality.budget_shown import columns, means, panels, sentence
from analysis.studies.quality.equal_budget import REACHED
from analysis.studies.routing.states import state_for
from analysis.studies.stored.runner import Setting, Study, Texts, Windows, option
from analysis.studies.text.domains import domains
from analysis.studies.text.held_out import check_range, held_out_windows, ids_hash, sample_windows

SHARES = (0.5, 0.25, 0.1, 0.05)  # of the causal pairs
NOTES = (
    "Every method is set to the same keys of a query on average, over all layers and heads (its field and value stand "
    "in the rows); the search counts the first window of a domain, and what is shown was counted on all of them.",
    "Attended keys are those in the softmax; what is fetched from memory besides, to choose them, is in kv_read, "
    "in which CSA, the oracle and SparQ read more than they attend.",
    "Everything is a masked pass, so nothing here was timed: a horizontal axis in times faster is what the pairs read "
    "would allow at most.",
)


@dataclass(frozen=True)
class Sizes(Windows):
    """What the study can be asked for."""

    windows: int = option(4, "held-out windows of a domain, or as many tokens in longer ones")
    router: str = option("k8-top1", "which router: kGROUPS-topMEMBERSHIPS")
    rows: str | None = option(None, "only these domains, joined by commas (default: all)")

    def check(self, lm: Model) -> None:
        Texts.check(self, lm)
        check_range("A window of text", self.length, 64, lm.max_positions)
        check_range("The number of windows of text", self.windows, 1, 4096)


def measure(at: Setting) -> dict:
    """Methods set to 5, 10, 25 and 50 % of the causal pairs, in contexts of `length` and twice it, on every domain.

    `rows`: per domain, context, share and method `domain context share target method label field value settings
    attended off reached reads_causal kv_read perplexity perplexity_dense difference difference_low difference_high
    units unit tokens`; no quality where the budget was missed by more than 5 %; `means` over domains and contexts.
    Errors: BadSetting, BadText, NotFitted.
    """
    lm, sizes = at.lm, at.sizes
    texts = {name: held for name, (_, held) in domains(sizes.corpus, sizes.rows, at.context).items()}
    contexts = [size for size in (sizes.length, 2 * sizes.length) if size <= lm.max_positions]
    cells = []
    for size in contexts:
        count = max(1, sizes.windows * sizes.length // size)
        cells += [Cell(at, name, held_out_windows(lm, held, size, count)) for name, held in texts.items()]
    found, began = [], {}
    for place, cell in enumerate(cells):
        for turn, entry in enumerate(ENTRIES):
            part = (place + turn / len(ENTRIES)) / len(cells)
            found += cell.rows(entry, began, (part, 1 / len(cells) / len(ENTRIES)))
    return {
        "means": means(found),
        "rows": found,
        "protocol": {
            "text": ids_hash(np.concatenate([cell.ids.ravel() for cell in cells])),
            "tokens": sum(cell.ids.size for cell in cells),
            "window": max(contexts),
            "kernel": STREAMED,
            "router": sizes.router,
            "contexts": contexts,
            "shares": list(SHARES),
            "corpus": f"{Path(sizes.corpus).name}: {', '.join(texts)}",
        },
    }


def shown(numbers: dict) -> dict:
    """How the table is told and drawn."""
    rows = numbers["rows"]
    return {"sentence": sentence(rows), "columns": columns(), "panels": panels(rows), "notes": list(NOTES)}


def sample(at: Setting, numbers: dict) -> dict[str, list[float]]:
    """Loss and keys of a query of two methods without anything fitted, on a little of the bundled samples."""
    ids, found = sample_windows(at.lm, min(256, at.lm.max_positions), 1), {}
    for name, settings in {"streaming_llm": {"window": 24}, "sparq": {"k": 24, "local": 6}}.items():
        reading = Pass(at.lm, METHODS[name](**settings), ids)
        reading.on(1)
        found[name] = [float(np.mean(reading.losses)), reading.reads().attended]
    return found


class Pass:
    """A method over windows of token ids [n, T], one after the other: `losses` of those that are done [T - 1 each]."""

    def __init__(self, lm: Model, method: Method, ids: np.ndarray) -> None:
        self.lm, self.method, self.ids = lm, method, torch.as_tensor(ids)
        self.losses, self.counter = [], ReadCounter(ids.shape[1])

    def on(self, until: int) -> "Pass":
        """Goes on to the first `until` windows."""
        for ids in self.ids[len(self.losses) : until]:
            with apply(self.lm, self.method, watch=self.counter):
                self.losses.append(token_losses(self.lm, ids[None])[0])
        return self

    def reads(self) -> Reads:
        """What was read in the windows that are done."""
        return self.counter.reads(self.method)


class Cell:
    """One domain in one context: its windows of token ids [n, T], and its dense pass, done when it is needed."""

    def __init__(self, at: Setting, domain: str, ids: np.ndarray) -> None:
        self.context, self.lm, self.work = at.context, at.lm, at.work
        self.router, self.seed, self.domain, self.ids = at.sizes.router, at.sizes.seed, domain, ids
        self._dense: np.ndarray | None = None

    def rows(self, entry: Entry, began: dict, span: tuple[float, float]) -> list[dict]:
        """The rows of a method, one for every share; `began`: where a search in this context ended before."""
        found, length = [], self.ids.shape[1]
        for turn, share in enumerate(SHARES):
            key = entry.label, length, share
            budget = Budget(share * (length + 1) / 2, share, state_for(self.context, self.lm).settings.buckets)
            decides = [self.lm.revision, str(self.lm.dtype), ids_hash(self.ids), self.router, self.seed, share]
            decides.append(entry.spec(0, budget))
            name = f"{entry.label} {self.domain}".replace(",", "").replace(" ", "-")
            said = f"{self.domain}, {length:,} tokens, {share:.0%}: {entry.label}"
            told = partial(self._tell, span[0] + span[1] * turn / len(SHARES), said)
            make = partial(self._row, entry, budget, began.get(key), told)
            row = self.context.part(self.work, f"equal-{name}-{length}", decides, lambda doing, make=make: make())
            began[key] = row["value"]
            found.append(row)
        return found

    def _tell(self, fraction: float, said: str, more: str) -> None:
        self.context.progress(min(1.0, fraction), said + more)

    def _row(self, entry: Entry, budget: Budget, start: int | None, told: Callable[[str], None]) -> dict:
        passes: dict[int, Pass] = {}
        target = budget.target

        def read(value: int) -> float:
            told(f", {entry.field} {value:,}")
            method = entry.make(self.context, self.lm, self.router, entry.spec(value, budget))
            passes[value] = Pass(self.lm, method, self.ids).on(1)
            return passes[value].reads().attended

        low, high, guess = entry.bounds(self.context, self.lm, self.router, self.ids.shape[1], budget)
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
        change = perplexity_change(losses, dense, seed=self.seed)
        values = [float(np.exp(part.astype(float).mean())) for part in (losses, dense)]
        return row | dict(
            zip(names, (*values, change.change, change.low, change.high, change.units, change.unit), strict=True)
        )

    def _dense_losses(self, told: Callable[[str], None]) -> np.ndarray:
        """Losses under dense attention [n, T - 1], through the same path."""
        if self._dense is None:
            reading = Pass(self.lm, METHODS["dense"](), self.ids)
            for until in range(1, len(self.ids) + 1):
                told(f", dense, window {until} of {len(self.ids)}")
                reading.on(until)
            self._dense = np.stack(reading.losses)
        return self._dense


equal_budget_table = Study("equal-budget", __doc__, Sizes, measure, shown, sample, tables=("rows", "means"))
