"""Every method on the same number of keys: perplexity against dense by domain, context and share of the reads."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.metrics.paired import perplexity_change
from analysis.metrics.quality import token_losses
from analysis.metrics.sparsity import ReadCounter, Reads
from analysis.models import Model
from analysis.seam.attention import apply
from analysis.seam.layers import has_rotary
from analysis.studies.context import STREAMED
from analysis.studies.quality.equal_budget import NO_CAP, REACHED, nearest
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import Setting, Study, Texts, Windows, option
from analysis.studies.text.calibration import document_windows, reporting, split
from analysis.studies.text.held_out import check_range, domains, ids_hash, sample_windows
from lab.equal.arms import ENTRIES, Budget, Entry
from lab.equal.panels import fetched, means, panels, sentence, somewhere
from lab.equal.states import States

SHARES = (0.5, 0.25, 0.1, 0.05)  # of the causal pairs
READS = ("attended", "reads_causal", "attended_kv", "reads_kv", "kv_read", "sharing")
NOTES = (
    "Every method is set to the same keys of a query on average, over all layers and heads. Its other settings are all "
    "searched (the column tried says how many), each brought to the budget: the one with the smallest loss on the "
    "selection texts is shown, on the held-out texts. There the last setting meets the budget on the first window.",
    "What is fitted is fitted on the same calibration windows for every method; they, the selection texts and the "
    "held-out texts are different documents. Groups of Focus were trained, on more tokens, which stand in its rows.",
    "SparQ looks at a quarter of the channels: more of them cost fetched keys, which this budget does not count.",
    "Everything is a masked pass, so nothing here was timed: a horizontal axis in times faster is what the pairs read "
    "would allow at most.",
)


@dataclass(frozen=True)
class Sizes(Windows):
    """What the study can be asked for."""

    windows: int = option(16, "held-out windows of each domain, from as many documents as there are")
    select: int = option(4, "windows of each domain that choose the settings")
    calibrate: int = option(16, "windows that calibrate, over all domains together")
    router: str = option("k8-top1", "router of Focus, named by its groups and memberships, such as k8-top1")
    rows: str | None = option(None, "only these domains, separated by commas (default: all)")

    def check(self, lm: Model) -> None:
        Texts.check(self, lm)
        check_range("A window of text", self.length, 64, lm.max_positions)
        check_range("The number of windows of text", self.windows, 1, 4096)
        check_range("The number of selection windows", self.select, 1, 4096)
        check_range("The number of calibration windows", self.calibrate, 1, 4096)


def measure(run: Setting) -> dict:
    """Methods set to 5, 10, 25 and 50% of the causal pairs, in contexts of `length` and twice it, on every domain.

    Of the training documents of a domain every second one calibrates and the others select; its held-out documents
    report. Where the budget was missed by more than 5% there is no quality. Errors: BadSetting, BadText, NotFitted.
    """
    lm, sizes = run.lm, run.sizes
    cells, contexts, windows = _cells(run)
    rows, began = [], {}
    able = [entry for entry in ENTRIES if not entry.rotary or has_rotary(lm.lm)]
    for place, cell in enumerate(cells):
        entries = [entry for entry in able if not entry.short or cell.ids.shape[1] == contexts[0]]
        for turn, entry in enumerate(entries):
            part = (place + turn / len(entries)) / len(cells)
            rows += cell.rows(entry, began, (part, 1 / len(cells) / len(entries)))
    return {
        "means": means(rows),
        "rows": rows,
        "protocol": {
            "text": ids_hash(np.concatenate([cell.ids.ravel() for cell in cells])),
            "tokens": sum(cell.ids.size for cell in cells),
            "window": max(contexts),
            "kernel": STREAMED,
            "router": sizes.router,
            "contexts": contexts,
            "shares": list(SHARES),
            "calibrated_on": ids_hash(windows),
            "selected_on": ids_hash(np.concatenate([cell.select.ravel() for cell in cells])),
            "corpus": f"{Path(sizes.corpus).name}: {', '.join(dict.fromkeys(cell.domain for cell in cells))}",
        },
    }


def _cells(run: Setting) -> tuple[list["Cell"], list[int], np.ndarray]:
    """The cells of every domain in every context, the contexts, and the windows that calibrate [n, T]."""
    lm, sizes = run.lm, run.sizes
    texts = {name: split(*both) for name, both in domains(sizes.corpus, sizes.rows, run.context).items()}
    contexts = [size for size in (sizes.length, 2 * sizes.length) if size <= lm.max_positions]
    count = -(-sizes.calibrate // len(texts))
    learned = [
        document_windows(lm, calibrate, sizes.length, count * sizes.length) for calibrate, _, _ in texts.values()
    ]
    numbers = [1000 * place + documents for place, (_, documents) in enumerate(learned)]  # of all domains, told apart
    windows = np.concatenate([ids for ids, _ in learned])[: sizes.calibrate]
    states = States(run.context, lm, windows, np.concatenate(numbers)[: sizes.calibrate], sizes.router, sizes.seed)
    cells = []
    for size in contexts:
        for name, (_, choose, held_out) in texts.items():
            chosen, _ = document_windows(lm, choose, size, max(size, sizes.select * sizes.length))
            report = reporting(sizes.windows, sizes.length, size, len(held_out))
            cells.append(Cell(run, states, name, chosen, *document_windows(lm, held_out, size, report)))
    return cells, contexts, windows


def shown(numbers: dict) -> dict:
    """How the table is told and drawn."""
    rows = numbers["rows"]
    notes = [*NOTES[:-1], *fetched(rows), *somewhere(rows), NOTES[-1]]
    return presented("equal-budget", sentence(rows), panels(rows), *notes)


def sample(run: Setting, numbers: dict) -> dict[str, list[float]]:
    """Loss and keys of a query of two methods without anything fitted, on a little of the bundled samples."""
    ids, values = sample_windows(run.lm, min(256, run.lm.max_positions), 1), {}
    for name, settings in {"streaming_llm": {"window": 24}, "sparq": {"k": 24, "local": 6}}.items():
        reading = Pass(run.lm, METHODS[name](**settings), ids)
        reading.on(1)
        values[name] = [float(np.mean(reading.losses)), reading.reads().attended]
    return values


def part(run: Setting, numbers: dict) -> dict:
    """StreamingLLM at every share, on the first domain in the shorter context."""
    cells, _, _ = _cells(run)
    text = ids_hash(np.concatenate([cell.ids.ravel() for cell in cells]))
    return {"rows": cells[0].rows(ENTRIES[0], {}, (0.0, 1.0)), "protocol": {"text": text}}


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
    """One domain in one context: windows of token ids that select [m, T] and that report [n, T], with the document of
    each [n], and the dense pass of these, done when it is needed."""

    def __init__(
        self, run: Setting, states: States, domain: str, select: np.ndarray, ids: np.ndarray, documents: np.ndarray
    ) -> None:
        self.context, self.lm, self.work, self.states = run.context, run.lm, run.work, states
        self.router, self.seed, self.domain = run.sizes.router, run.sizes.seed, domain
        self.select, self.ids, self.documents = select, ids, documents
        self._dense: np.ndarray | None = None

    def rows(self, entry: Entry, began: dict, span: tuple[float, float]) -> list[dict]:
        """The rows of a method, one for every share; `began`: where a search in this context ended before."""
        rows, length = [], self.ids.shape[1]
        for turn, share in enumerate(SHARES):
            budget = Budget(share * (length + 1) / 2, share, self.states.buckets)
            decides = [self.lm.revision, str(self.lm.dtype), self.router, self.seed, share, entry.free(budget)]
            decides += [ids_hash(ids) for ids in (self.ids, self.select, self.states.windows)]
            name = f"{entry.label} {self.domain}".replace(",", "").replace(" ", "-")
            label = f"{self.domain}, {length:,} tokens, {share:.0%}: {entry.label}"
            report = partial(self._tell, span[0] + span[1] * turn / len(SHARES), label)
            make = partial(self._row, entry, budget, began, report)
            row = self.context.part(self.work, f"equal-{name}-{length}", decides, lambda doing, make=make: make())
            began[entry.label, length, share, str(row["settings"])] = row["value"]
            rows.append(row)
        return rows

    def _tell(self, fraction: float, label: str, detail: str) -> None:
        self.context.progress(min(1.0, fraction), label + detail)

    def _met(
        self, entry: Entry, settings: dict, ids: np.ndarray, budget: Budget, start: int | None, report: Callable
    ) -> tuple[int, Pass]:
        """The value of the field that meets the budget on the first window, and the method's pass over it."""
        passes: dict[int, Pass] = {}

        def read(value: int) -> float:
            report(f", {entry.field} {value:,}")
            method = entry.make(self.states, settings | {entry.field: value}, self.seed)
            passes[value] = Pass(self.lm, method, ids).on(1)
            return passes[value].reads().attended

        low, high, guess = entry.bounds(self.states, settings, ids.shape[1], budget)
        value = nearest(read, low, high, budget.target, guess if start is None else start)
        return value, passes[value]

    def _chosen(self, entry: Entry, budget: Budget, began: dict, report: Callable) -> tuple[dict, int]:
        """The free settings with the smallest loss on the selection windows, among those that meet the budget there,
        and the value of the field; of settings that all miss it, those that come nearest."""
        tried = []
        for settings in entry.free(budget):
            start = began.get((entry.label, self.ids.shape[1], budget.share, str(settings)))
            value, reading = self._met(entry, settings, self.select, budget, start, report)
            off = abs(reading.reads().attended / budget.target - 1)
            loss = float(np.mean(reading.on(len(self.select)).losses)) if off <= REACHED else np.inf
            tried.append((loss, max(0.0, off - REACHED), len(tried), settings, value))
        *_, settings, value = min(tried, key=lambda trial: trial[:3])
        return settings, value

    def _row(self, entry: Entry, budget: Budget, began: dict, report: Callable[[str], None]) -> dict:
        settings, start = self._chosen(entry, budget, began, report)
        value, first = self._met(entry, settings, self.ids, budget, start, report)
        target = budget.target
        reached = abs(first.reads().attended / target - 1) <= REACHED
        passes = [first]
        for draw in range(1, entry.seeds if reached else 1):
            method = entry.make(self.states, settings | {entry.field: value}, self.seed + draw)
            passes.append(Pass(self.lm, method, self.ids))
        for until in range(1, len(self.ids) + 1 if reached else 0):
            report(f", window {until} of {len(self.ids)}")
            for one in passes:
                one.on(until)
        reads, dense = [one.reads() for one in passes], self._dense_losses(report) if reached else None
        counted = {name: float(np.mean([getattr(one, name) for one in reads])) for name in READS}
        row = {"domain": self.domain, "context": self.ids.shape[1], "share": budget.share, "target": target}
        row |= {"method": entry.method, "label": entry.label, "field": entry.field, "value": value}
        row |= {"settings": settings, "searched": len(entry.free(budget)), **entry.told(self.states)}
        row |= {"said": ", ".join(f"{name} {one}" for name, one in settings.items() if one != NO_CAP)}
        row |= {"seeds": len(passes), **counted, "off": counted["attended"] / target - 1, "reached": reached}
        row |= {"tokens": int(self.ids.size) if reached else self.ids.shape[1]}
        names = ("perplexity", "perplexity_dense", "difference", "difference_low", "difference_high")
        if not reached:
            return row | dict.fromkeys((*names, "units", "unit"))
        losses = np.mean([one.losses for one in passes], axis=0)
        change = perplexity_change(losses, dense, self.documents)
        values = [float(np.exp(part.astype(float).mean())) for part in (losses, dense)]
        row |= dict(zip(names, (*values, change.change, change.low, change.high), strict=True))
        return row | {"units": change.units, "unit": change.unit, "points": list(change.points)}

    def _dense_losses(self, report: Callable[[str], None]) -> np.ndarray:
        """Losses under dense attention [n, T - 1], through the same path."""
        if self._dense is None:
            reading = Pass(self.lm, METHODS["dense"](), self.ids)
            for until in range(1, len(self.ids) + 1):
                report(f", dense, window {until} of {len(self.ids)}")
                reading.on(until)
            self._dense = np.stack(reading.losses)
        return self._dense


equal_budget_table = Study("equal-budget", __doc__, Sizes, measure, shown, sample, tables=("rows", "means"), part=part)
