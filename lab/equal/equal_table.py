"""Every method on the same number of keys: perplexity against dense by domain, context and share of the reads."""

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from analysis.claims import signed
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
from analysis.studies.stored.comparisons import Row
from analysis.studies.stored.panels import of_rows, panel, presented
from analysis.studies.stored.runner import Setting, Texts, Windows, option
from analysis.studies.text.calibration import document_windows, reporting, split
from analysis.studies.text.held_out import check_range, domains, ids_hash, sample_windows
from lab.equal.entries import ENTRIES, Budget, Entry, States
from lab.harness.telling import distinct

SHARES = (0.5, 0.25, 0.1, 0.05)  # of the causal pairs
READS = ("attended", "reads_causal", "attended_kv", "reads_kv", "kv_read", "sharing")
QUALITY = ("perplexity", "perplexity_dense", "difference", "difference_low", "difference_high")
# Of reads that are the same.
ROUNDING = 1e-6


class EqualBudget(Windows):
    """Methods set to 5, 10, 25 and 50% of the causal pairs, in contexts of `length` and twice it, on every domain.

    Of the training documents of a domain every second one calibrates and the others select; its held-out documents
    report. Where the budget was missed by more than 5% there is no quality.
    """

    tables = ("rows", "means")

    windows: int = option(16, "held-out windows of each domain, from as many documents as there are", low=1, high=4096)
    select: int = option(4, "windows of each domain that choose the settings", low=1, high=4096)
    calibrate: int = option(16, "windows that calibrate, over all domains together", low=1, high=4096)
    router: str = option("k8-top1", "router of Focus, named by its groups and memberships, such as k8-top1")
    rows: str | None = option(None, "only these domains, separated by commas (default: all)")

    def check(self, lm: Model) -> None:
        Texts.check(self, lm)
        check_range("A window of text", self.length, 64, lm.max_positions)

    def measure(self, run: Setting) -> dict:
        cells, contexts, windows = self.cells(run)
        rows: list[Row] = []
        began: dict[tuple, int] = {}
        able = [entry for entry in ENTRIES if not entry.rotary or has_rotary(run.lm.lm)]
        for place, cell in enumerate(cells):
            entries = [entry for entry in able if not entry.short or cell.ids.shape[1] == contexts[0]]
            for turn, entry in enumerate(entries):
                done = (place + turn / len(entries)) / len(cells)
                rows += cell.rows(entry, began, done)
        ids, select = (np.concatenate([getattr(cell, name).ravel() for cell in cells]) for name in ("ids", "select"))
        return {
            "means": means(rows),
            "rows": rows,
            "protocol": {
                "text": ids_hash(ids),
                "tokens": len(ids),
                "window": max(contexts),
                "kernel": STREAMED,
                "router": self.router,
                "contexts": contexts,
                "shares": list(SHARES),
                "calibrated_on": ids_hash(windows),
                "selected_on": ids_hash(select),
                "corpus": f"{Path(self.corpus).name}: {', '.join(dict.fromkeys(cell.domain for cell in cells))}",
            },
        }

    def cells(self, run: Setting) -> tuple[list["Cell"], list[int], np.ndarray]:
        """The cells of every domain in every context, the contexts, and the windows that calibrate [n, T]."""
        lm, length = run.lm, self.length
        texts = {name: split(*both) for name, both in domains(self.corpus, self.rows, run.context).items()}
        contexts = [size for size in (length, 2 * length) if size <= lm.max_positions]
        count, learned, numbers = -(-self.calibrate // len(texts)), [], []
        for place, (calibrate, _, _) in enumerate(texts.values()):
            ids, documents = document_windows(lm, calibrate, length, count * length)
            learned.append(ids)
            # Documents of all domains are numbered apart.
            numbers.append(1000 * place + documents)
        windows = np.concatenate(learned)[: self.calibrate]
        states = States(run.context, lm, windows, np.concatenate(numbers)[: self.calibrate], self.router, self.seed)
        cells = []
        for size in contexts:
            for name, (_, choose, held_out) in texts.items():
                chosen, _ = document_windows(lm, choose, size, max(size, self.select * length))
                report = reporting(self.windows, length, size, len(held_out))
                cells.append(Cell(run, states, name, chosen, *document_windows(lm, held_out, size, report)))
        return cells, contexts, windows

    def sample(self, run: Setting, numbers: dict) -> dict:
        ids, values = sample_windows(run.lm, min(256, run.lm.max_positions), 1), {}
        for name, settings in {"streaming_llm": {"window": 24}, "sparq": {"k": 24, "local": 6}}.items():
            reading = Pass(run.lm, METHODS[name](**settings), ids).upto(1)
            values[name] = [float(np.mean(reading.losses)), reading.reads().attended]
        return values

    def part(self, run: Setting, numbers: dict) -> dict:
        cells, _, _ = self.cells(run)
        text = ids_hash(np.concatenate([cell.ids.ravel() for cell in cells]))
        return {"rows": cells[0].rows(ENTRIES[0], {}, 0.0), "protocol": {"text": text}}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows = numbers["rows"]
        return presented("equal-budget", sentence(rows), panels(rows), *fetched(rows), *somewhere(rows))


class Pass:
    """A method over windows of token ids [n, T], one after the other: `losses` of those that are done [T - 1 each]."""

    def __init__(self, lm: Model, method: Method, ids: np.ndarray) -> None:
        self.lm, self.method, self.ids = lm, method, torch.as_tensor(ids)
        self.counter = ReadCounter(ids.shape[1])
        self.losses: list[np.ndarray] = []

    def upto(self, until: int) -> "Pass":
        """Goes on to the first `until` windows."""
        for ids in self.ids[len(self.losses) : until]:
            with apply(self.lm, self.method, watch=self.counter):
                self.losses.append(token_losses(self.lm, ids[None])[0])
        return self

    def reads(self) -> Reads:
        """What was read in the windows that are done."""
        return self.counter.reads(self.method)


@dataclass
class Cell:
    """One domain in one context: windows of token ids that select [m, T] and that report [n, T], with the document of
    each [n]."""

    run: Setting
    states: States
    domain: str
    select: np.ndarray
    ids: np.ndarray
    documents: np.ndarray
    done: float = 0.0
    label: str = ""

    def tell(self, detail: str) -> None:
        """Say how far the table is, and what is read."""
        self.run.context.progress(min(1.0, self.done), f"{self.label}, {detail}")

    def rows(self, entry: Entry, began: dict[tuple, int], done: float) -> list[Row]:
        """The rows of a method, one for every share; `began`: where a search in this context ended before."""
        rows, length, states = [], self.ids.shape[1], self.states
        hashes = [ids_hash(ids) for ids in (self.ids, self.select, states.windows)]
        for share in SHARES:
            budget = Budget(share * (length + 1) / 2, share, states.buckets)
            self.done, self.label = done, f"{self.domain}, {length:,} tokens, {share:.0%}: {entry.label}"
            name = f"equal-{entry.label} {self.domain}-{length}".replace(",", "").replace(" ", "-")
            decides = [states.router, states.seed, share, entry.free(budget), *hashes]
            row = self.run.part(name, decides, partial(self.row, entry, budget, began))
            began[entry.label, length, share, str(row["settings"])] = row["value"]
            rows.append(row)
        return rows

    def met(self, entry: Entry, settings: dict, ids: np.ndarray, budget: Budget, start: int | None) -> tuple[int, Pass]:
        """The value of the field that meets the budget on the first window, and the method's pass over it."""
        passes: dict[int, Pass] = {}

        def read(value: int) -> float:
            self.tell(f"{entry.field} {value:,}")
            method = entry.make(self.states, settings | {entry.field: value}, self.states.seed)
            passes[value] = Pass(self.run.lm, method, ids).upto(1)
            return passes[value].reads().attended

        low, high, guess = entry.bounds(self.states, settings, ids.shape[1], budget)
        value = nearest(read, low, high, budget.target, guess if start is None else start)
        return value, passes[value]

    def chosen(self, entry: Entry, budget: Budget, began: dict[tuple, int]) -> tuple[dict, int]:
        """The free settings with the smallest loss on the selection windows, among those that meet the budget there,
        and the value of the field; of settings that all miss it, those that come nearest."""
        tried: list[tuple[float, float, int, dict, int]] = []
        for settings in entry.free(budget):
            start = began.get((entry.label, self.ids.shape[1], budget.share, str(settings)))
            value, reading = self.met(entry, settings, self.select, budget, start)
            off = abs(reading.reads().attended / budget.target - 1)
            loss = float(np.mean(reading.upto(len(self.select)).losses)) if off <= REACHED else np.inf
            tried.append((loss, max(0.0, off - REACHED), len(tried), settings, value))
        *_, settings, value = min(tried, key=lambda trial: trial[:3])
        return settings, value

    def row(self, entry: Entry, budget: Budget, began: dict[tuple, int]) -> Row:
        """A method at a share: its setting chosen on the selection windows, its quality on those that report."""
        settings, start = self.chosen(entry, budget, began)
        value, first = self.met(entry, settings, self.ids, budget, start)
        reached = abs(first.reads().attended / budget.target - 1) <= REACHED
        passes = [first]
        for draw in range(1, entry.seeds if reached else 1):
            method = entry.make(self.states, settings | {entry.field: value}, self.states.seed + draw)
            passes.append(Pass(self.run.lm, method, self.ids))
        for until in range(1, len(self.ids) + 1 if reached else 0):
            self.tell(f"window {until} of {len(self.ids)}")
            for reading in passes:
                reading.upto(until)
        reads = [reading.reads() for reading in passes]
        counted = {name: float(np.mean([getattr(reading, name) for reading in reads])) for name in READS}
        row: Row = {"domain": self.domain, "context": self.ids.shape[1], "share": budget.share, "target": budget.target}
        row |= {"method": entry.method, "label": entry.label, "field": entry.field, "value": value}
        row |= {"settings": settings, "searched": len(entry.free(budget))}
        row |= self.states.told(entry.method, entry.variant == "random groups")
        row |= {"said": ", ".join(f"{name} {reading}" for name, reading in settings.items() if reading != NO_CAP)}
        row |= {"seeds": len(passes), **counted, "off": counted["attended"] / budget.target - 1, "reached": reached}
        row |= {"tokens": int(self.ids.size) if reached else self.ids.shape[1]}
        if not reached:
            return row | dict.fromkeys((*QUALITY, "units", "unit"))
        losses = np.mean([reading.losses for reading in passes], axis=0)
        change = perplexity_change(losses, self.dense, self.documents)
        levels = [float(np.exp(part.astype(float).mean())) for part in (losses, self.dense)]
        row |= dict(zip(QUALITY, (*levels, change.change, change.low, change.high), strict=True))
        return row | {"units": change.units, "unit": change.unit, "points": list(change.points)}

    @cached_property
    def dense(self) -> np.ndarray:
        """Losses under dense attention [n, T - 1], through the same path."""
        self.tell("dense")
        return np.stack(Pass(self.run.lm, METHODS["dense"](), self.ids).upto(len(self.ids)).losses)


def means(rows: list[Row]) -> list[Row]:
    """Per budget and method the mean change of perplexity over all domains and contexts, best first: `share label
    difference`; only methods that meet the budget in every one of them."""
    places, averages = {(row["domain"], row["context"]) for row in rows}, []
    for share in sorted(distinct(rows, "share")):
        met = [row for row in rows if row["share"] == share and row["reached"]]
        for label in distinct(met, "label"):
            values = [row["difference"] for row in met if row["label"] == label]
            if len(values) == len(places):
                averages.append({"share": share, "label": label, "difference": sum(values) / len(values)})
    return sorted(averages, key=lambda row: (row["share"], row["difference"]))


def panels(rows: list[Row]) -> list[dict]:
    """Figure 1 of Focus at equal budgets: quality, better up, against what the pairs read allow, better right; a panel
    for every domain and context, and what is fetched for the first domain."""
    places, charts = list(dict.fromkeys((row["domain"], row["context"]) for row in rows)), []
    for domain, size in places:
        title, label = f"{domain}, {size:,} tokens", "perplexity against dense (up is better)"
        charts.append(_panel(title, label, rows, domain, size, "difference") | {"up": "low"})
    for size in distinct(rows, "context"):
        title = f"Fetched, {places[0][0]}, {size:,} tokens"
        charts.append(_panel(title, "keys and values fetched", rows, places[0][0], size, "kv_read"))
    return charts


def _panel(title: str, y_label: str, rows: list[Row], domain: str, size: int, key: str) -> dict:
    points = [row for row in rows if (row["domain"], row["context"]) == (domain, size)]
    shares, lines = sorted(distinct(points, "share"), reverse=True), []
    for label in distinct(points, "label"):
        # What missed its budget is nowhere.
        by_share = {row["share"]: row for row in points if row["label"] == label and row["reached"]}
        lines.append(of_rows(label, [by_share.get(share, {}) for share in shares], key))
    x = [round(1 / share, 2) for share in shares]
    return panel(title, "share", "attention at most so many times faster", x, y_label, lines, share=True)


def fetched(rows: list[Row]) -> list[str]:
    """Notes: which methods fetch no more than they attend, and by how much key-value heads read more than a query
    head."""
    table = pd.DataFrame(rows)
    costlier = set(table["label"][table["kv_read"] > table["reads_kv"] * (1 + ROUNDING)])
    alike = [label for label in distinct(rows, "label") if label not in costlier]
    none = f"only {'; '.join(alike)} fetch no more than they attend" if alike else "every method fetches more"
    return [
        "Attended keys are those in the softmax. What is fetched from memory besides, to choose them, is in the column "
        f"fetched; {none}. Query heads that share a key-value head fetch the union of their keys, up to "
        f"{table['sharing'].max():.2f} times the mean here, where they choose apart."
    ]


def somewhere(rows: list[Row]) -> list[str]:
    """Notes: which methods were not measured in every context."""
    notes = []
    for label in distinct(rows, "label"):
        contexts = {row["context"] for row in rows if row["label"] == label}
        if contexts != set(distinct(rows, "context")):
            sizes = " and ".join(f"{size:,}" for size in sorted(contexts))
            notes.append(f"{label} takes long and was measured in contexts of {sizes} tokens only, so it has no mean.")
    return notes


def sentence(rows: list[Row]) -> str:
    """Which methods lose least and most at each budget, on the mean over all domains and contexts; and which methods
    cannot meet which budget."""
    parts = []
    missed: dict[str, list[str]] = {}
    for share in sorted(distinct(rows, "share")):
        ranked = [
            f"{row['label']} ({signed(row['difference'], '+.1%')})" for row in means(rows) if row["share"] == share
        ]
        best, worst = " and ".join(ranked[:2]), f"; most, {ranked[-1]}" if len(ranked) > 2 else ""
        losing = f"{best} lose least{worst}" if ranked else "no method meets the budget everywhere"
        parts.append(f"At {share:.0%} of the reads, {losing}.")
        for label in distinct([row for row in rows if row["share"] == share and not row["reached"]], "label"):
            missed.setdefault(label, []).append(f"{share:.0%}")
    if missed:
        named = "; ".join(f"{label}, at {' and '.join(shares)}" for label, shares in missed.items())
        parts.append(f"Left out where they miss the budget: {named}.")
    if any(row["method"] == "focus" for row in rows):
        parts.append("The rows of Focus are of this one router, not of the method.")
    places = len({(row["domain"], row["context"]) for row in rows})
    lead = f"Mean change of perplexity over {places} domains and contexts; the means carry no interval, and the budget "
    return f"{lead}counts the reads of a query head. {' '.join(parts)}"
