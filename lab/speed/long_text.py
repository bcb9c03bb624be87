"""What do 32,768 tokens take in all layers of a real shape, and a million in one head's attention?"""

import copy
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from analysis.corpus import natural_samples, tokenize
from analysis.errors import BadSetting
from analysis.files import clear
from analysis.models import Model
from analysis.runs import RunStore
from analysis.runs.price import spell, spell_bytes
from analysis.shapes import make_shape
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import TIMES, Setting, Study, option
from analysis.timing import exponent, processor
from lab.harness.telling import lines_of
from lab.speed.long_passes import (
    DENSE,
    GROUPED,
    GROUPS,
    SHORTEST,
    STATISTICS,
    Passes,
    alone_rows,
    attention_rows,
    by_layer,
    pairs_rows,
    quality_rows,
)

WORKS = {"attention": attention_rows, "pairs": pairs_rows, "quality": quality_rows, "statistics": alone_rows}


class LongText(Study):
    """A text through all layers of a known shape with random weights, made for it and removed afterwards: `statistics`
    of all heads in one window, layer by layer; statistics with far pairs, and `evaluate` of a sliding window, window by
    window. Each layer and window is kept, so that one who was stopped goes on. Then attention alone, one head, where
    dense attention is measured as far as it is asked for and `fitted` beyond. Bytes are those of the largest piece
    beside the weights, as taken and as said before, and of the whole process."""

    whole = TIMES

    shape: str = option("Qwen2.5-0.5B", "a known shape, such as Qwen2.5-0.5B")
    length: int = option(32768, "tokens of the text", low=SHORTEST)
    window: int = option(2048, "tokens of a window in which pairs and Quality are read", low=16)
    rows: str = option(",".join(WORKS), "what is measured; what was before is kept beside the result")
    longest: int = option(1 << 20, "the longest text of bare attention, in tokens", low=1024)
    dense: int = option(1 << 17, "the longest text of bare dense attention that is measured", low=1024)

    def check(self, lm: Model) -> None:
        if self.length % self.window or self.length < 4 * SHORTEST:
            raise BadSetting(f"{self.length:,} tokens are no whole number of windows of {self.window:,}.")
        if not self.rows or not set(self.rows.split(",")) <= set(WORKS):
            raise BadSetting(f"Rows are some of {', '.join(WORKS)}, not {self.rows[:40]!r}.")

    def measure(self, run: Setting) -> dict:
        context = copy.copy(run.context)
        context.browser, context._model, context.kept = False, None, {}
        # a folder of its own: what passes leave there for the next window goes when all is measured
        work = run.folder / f"long-text-{self.shape.rpartition('/')[2]}-{self.length}-{self.window}"
        context.store, context.state = RunStore(work), None
        made = work / "model"
        if not made.is_dir():
            make_shape(self.shape, str(made), context.progress)
        lm = context.model(str(made))
        passes = Passes(self, lm, context, work, partial(run.part, "long-text"))
        rows = [row for name, measure in WORKS.items() if name in self.rows.split(",") for row in measure(passes)]
        clear(work)
        about = {"text": None, "tokens": self.length, "window": self.window, "kernel": "see the rows"}
        about |= {"dtype": lm.precision, "device": str(lm.device), "processor": processor(str(lm.device))}
        return {"rows": rows, "parameters": lm.parameters, "protocol": about}

    def sample(self, run: Setting, numbers: dict) -> dict:
        text = "".join(natural_samples().values())
        ids = tokenize(run.lm.tokenizer, text, SHORTEST, 1).ids
        with tempfile.TemporaryDirectory() as folder:
            layers = [*by_layer(run.lm, ids, Path(folder), lambda place, make: make())]
        return {"entropy": float(np.mean([layer["entropy"] for layer in layers]))}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows, about = numbers["rows"], numbers["protocol"]
        # a processor has other work too: what its cores did says more than a clock
        time, unit = ("cpu_seconds", "core seconds") if about["device"] == "cpu" else ("seconds", "seconds")
        alone = [row for row in rows if row["what"] in (GROUPED, DENSE)]
        read = [row for row in rows if row not in alone and row["length"] == about["tokens"]]
        took = {id(row): spell(row[time]) + (" of one core" if time == "cpu_seconds" else "") for row in rows}
        sentences = []
        if read:
            parts = [f"{row['what']} {took[id(row)]} and {spell_bytes(row['bytes'])}" for row in read]
            most = spell_bytes(max(row["process_bytes"] for row in read))
            sentences.append(
                f"{about['tokens']:,} tokens through all layers take: {', '.join(parts)} beside the weights; the whole "
                f"process {most} at most."
            )
        if alone:
            longest = {row["what"]: row for row in alone if row["length"] == alone[-1]["length"]}
            how = "by the fitted power" if longest[DENSE]["fitted"] else "measured"
            sentences.append(
                f"One head alone reads {alone[-1]['length']:,} tokens in {took[id(longest[GROUPED])]} with {GROUPS} "
                f"groups; dense attention takes {took[id(longest[DENSE])]}, {how}."
            )
        drawn = []
        for row in rows:
            # What is reckoned is a line of its own.
            line = f"{row['what']}, by the fitted power" if row["fitted"] else row["what"]
            drawn.append(row | {"line": line, "gigabytes": row["bytes"] and row["bytes"] / 1e9})
        panels = []
        for title, whats in (("One head's attention", (GROUPED, DENSE)), ("Statistics of all heads", (STATISTICS,))):
            own = [row for row in drawn if row["what"] in whats]
            for kind, label, key in (("time", unit, time), ("peak", "GB", "gigabytes")) if own else ():
                points = [row for row in own if row[key] is not None]
                panels.append(lines_of(f"{title}: {kind}", points, "line", "length", "tokens", label, key))
        fits = {name: powers(rows, key) for name, key in (("the time", time), ("the peak", "bytes"))}
        notes = [f"Fitted power of the length with which {name} grows: {fit}." for name, fit in fits.items() if fit]
        return presented("long-text", " ".join(sentences), panels or None, *notes)


def powers(rows: list[dict], key: str) -> str:
    """The fitted power of each work that was measured at two lengths or more."""
    fits = []
    for what in dict.fromkeys(row["what"] for row in rows):
        points = [(row["length"], row[key]) for row in rows if row["what"] == what and row[key] and not row["fitted"]]
        if len(points) > 1:
            fits.append(f"{what} {exponent(points):.2f}")
    return ", ".join(fits)
