"""Perplexity against the softmax temperature: of every domain, by position, and of one layer at a time, stored."""

from pathlib import Path

import numpy as np

from analysis.claims import SIGNIFICANCE, Comparison
from analysis.corpus import natural_samples, tokenize
from analysis.metrics.intervals import DOCUMENTS, holm
from analysis.models import Model
from analysis.studies.stored.panels import columns, of_rows, panel, series
from analysis.studies.stored.runner import Setting, Windows, option
from analysis.studies.temperature.curve import ALL_LAYERS, KERNEL, UNTRAINED, Curve, curve_of, sentence
from analysis.studies.text.held_out import check_range, chosen, domains, held_out_windows, ids_hash, sample_windows
from analysis.studies.text.scoring import Progress

ONE_LAYER = (0.6, 0.8, 1.25)
# Of the temperatures, by position.
SHOWN = (0.4, 0.6, 0.8, 1.25)


class Temperatures(Windows):
    """Perplexity against the temperature for every domain, by position, and one layer at a time on the first domain
    whose documents are enough for an interval. A row's `layer` is None where it is of all of them."""

    name = "temperature"

    corpus: str = option("", "a folder of texts, or of one folder per domain (default: the bundled samples)")
    windows: int = option(64, "held-out windows of text", low=1, high=4096)
    rows: str | None = option(None, "only these domains, separated by commas (default: all)")

    def check(self, lm: Model) -> None:
        check_range("A window of text", self.length, 16, lm.max_positions)

    def measure(self, run: Setting) -> dict:
        lm = run.lm
        parts = self.domains(run)
        # The first domain with an interval over its documents; where none has one, the first.
        several = (name for name, (_, of) in parts.items() if of is not None and len(np.unique(of)) >= DOCUMENTS)
        by_layer = next(several, next(iter(parts)))
        windows = sum(len(ids) for ids, _ in parts.values()) * (1 + len(ALL_LAYERS))
        passes = windows + len(parts[by_layer][0]) * lm.num_layers * len(ONE_LAYER)
        report = Progress(run.context, passes)
        rows, bins = [], []
        for name, (ids, documents) in parts.items():
            curve = Curve(lm, ids, report, documents)
            table, its_bins = curve_of(curve, list(ALL_LAYERS))
            of_domain = [{"domain": name, "layer": None, **row} for row in table]
            if name == by_layer:
                one_by_one = [curve.one_layer(layer, t) for t in ONE_LAYER for layer in lm.layer_numbers]
                of_domain += [{"domain": name, **row} for row in one_by_one]
            for row in of_domain:
                edges = {f"difference_{edge}": row.pop(edge) for edge in ("low", "high")}
                rows.append(row | edges | {"tokens": int(ids.size)})
            bins += [{"domain": name, **row} for row in its_bins]
        tokens = np.concatenate([ids.ravel() for ids, _ in parts.values()])
        corpus = Path(self.corpus).name if self.corpus else "bundled samples"
        about = {"text": ids_hash(tokens), "tokens": tokens.size, "window": self.length}
        return {"rows": rows, "bins": bins, "protocol": about | {"kernel": KERNEL, "corpus": corpus}}

    def domains(self, run: Setting) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
        """Name -> windows of token ids [n, length] of every domain, and which document each is of [n]: None of a
        bundled sample, which is one text."""
        parts: dict[str, tuple[np.ndarray, np.ndarray | None]] = {}
        if self.corpus:
            for name, (_, held_out) in domains(self.corpus, self.rows, run.context).items():
                parts[name] = held_out_windows(run.lm, held_out, self.length, self.windows)
            return parts
        samples = natural_samples()
        for name in chosen(self.rows, list(samples), "domain"):
            ids = tokenize(run.lm.tokenizer, samples[name], run.lm.max_positions).ids
            size = min(self.length, len(ids))
            parts[name] = ids[: len(ids) // size * size].reshape(-1, size)[: self.windows], None
        return parts

    def sample(self, run: Setting, numbers: dict) -> dict:
        curve = Curve(run.lm, sample_windows(run.lm, min(256, run.lm.max_positions)), lambda name: None)
        return {f"t {t:g}": curve.row(t=t)[0]["perplexity"] for t in (0.4, 1.0)}

    def part(self, run: Setting, numbers: dict) -> dict:
        parts = self.domains(run)
        (name, (ids, documents)), *_ = parts.items()
        row, _ = Curve(run.lm, ids, lambda _: None, documents).row(t=0.4)
        edges = {f"difference_{edge}": row.pop(edge) for edge in ("low", "high")}
        tokens = np.concatenate([windows.ravel() for windows, _ in parts.values()])
        return {
            "rows": [{"domain": name, "layer": None, "t": 0.4} | row | edges],
            "protocol": {"text": ids_hash(tokens)},
        }

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows = numbers["rows"]
        names = list(dict.fromkeys(row["domain"] for row in rows))
        alone = [row for row in rows if row["layer"] is not None]
        sentences = [
            sentence([row for row in rows if row["domain"] == name and row["layer"] is None], name) for name in names
        ]
        return {
            "sentence": " ".join(sentences),
            "columns": columns("temperature"),
            "panels": _panels(rows, numbers["bins"], names, alone),
            "notes": [UNTRAINED, *_best_layer(alone)],
        }


def _best_layer(rows: list[dict]) -> list[str]:
    """What the best single layer of these rows says when it is the best of many: Holm's p-value of the claims that a
    layer helps, each one-sided, and what could have been detected."""
    alone = [row for row in rows if row["difference_low"] is not None]
    if not alone:
        return []
    one_sided = [row["p"] / 2 if row["difference"] < 0 else 1 - row["p"] / 2 for row in alone]
    at = min(range(len(alone)), key=lambda place: alone[place]["difference"])
    best, adjusted = alone[at], float(holm(one_sided)[at])
    significant = adjusted < SIGNIFICANCE and best["difference"] < 0
    text = f"{best['domain']}, one layer at a time, {len(alone)} comparisons: "
    text += f"layer {best['layer']} at {best['t']:g} is lowest ({best['difference']:+.2%}), "
    if significant:
        return [f"{text}and significantly below dense attention after Holm's correction (p = {adjusted:.2g})."]
    limit = Comparison.of(best, "difference", unit="fine change").detectable
    return [
        f"{text}and after Holm's correction not significantly different from dense attention (p = {adjusted:.2g}); "
        f"judged alone, {limit}."
    ]


def _panels(rows: list[dict], bins: list[dict], names: list[str], alone: list[dict]) -> list[dict]:
    """Change against temperature by domain; by position in each domain; layer by layer in one, of the rows `alone`."""
    all_layers = [row for row in rows if row["layer"] is None]
    lines = [of_rows(name, [row for row in all_layers if row["domain"] == name], "difference") for name in names]
    change = "change of perplexity"
    charts = [panel("All layers at one temperature", "t", "temperature", ALL_LAYERS, change, lines, share=True)]
    for name in names:
        points = [row for row in bins if row["domain"] == name]
        places, title = sorted({row["first"] for row in points}), f"By position in the window, {name}"
        charts.append(panel(title, "first", "position", places, change, _by_t(points, SHOWN), share=True))
    title, lines = f"One layer at a time, {alone[0]['domain']}", _by_t(alone, ONE_LAYER)
    layers = 1 + max(row["layer"] for row in alone)
    return [*charts, panel(title, "layer", "layer", range(layers), change, lines, share=True)]


def _by_t(rows: list[dict], temperatures: tuple[float, ...]) -> list[dict]:
    """One line for each temperature."""
    return [series(f"t {t:g}", [row["difference"] for row in rows if row["t"] == t]) for t in temperatures]
