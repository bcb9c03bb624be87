"""Does *Why* name the heads that induction heads need? Each is taken away, and beside it others drawn at random."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from analysis.metrics.intervals import interval
from analysis.models import Model
from analysis.probes.ablation import ablated
from analysis.probes.explained import KEY, Explaining
from analysis.statistics.names import PatternReading
from analysis.studies.stored.comparisons import compared, edges, holm_corrected
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import Setting, Study, option
from analysis.studies.text.held_out import check_range
from lab.far.looking_back import circuit_scores, repeated
from lab.harness.telling import counted, lines_of

# Added to the seed of the sequences on which heads are named.
OTHERS = 1 << 16
# First tokens of a second copy, which nothing can tell, and queries of it that *Why* is asked about.
SETTLED, QUERIES = 4, 16
# Sequences that are stored and come again.
CHECKED = 2
CONTROLS = {"fall": "without random heads", "rise": "without random heads"}
Cell = tuple[int, int]  # layer, head


class WhyCircuit(Study):
    """Random tokens written twice. Of each head whose induction score is `above`, the key that follows the first copy
    is held against other tokens: which head of the layers below wrote most of that in the keys' stream? Then, on other
    sequences, the induction head's attention to that key is measured without the named head, and without other heads
    below it, each paired with the induction head at random. A unit is a sequence."""

    above: float = option(0.3, "induction score from which a head is named")
    length: int = option(128, "random tokens that are written twice")
    sequences: int = option(8, "of random tokens", low=2, high=4096)
    heads: int = option(8, "induction heads, the strongest first", low=1, high=99)
    draws: int = option(10, "other heads of the layers below, drawn at random", low=1, high=99)

    def check(self, lm: Model) -> None:
        check_range("The number of random tokens", self.length, 2 * SETTLED, lm.max_positions // 2)

    def texts(self, lm: Model, seed: int) -> np.ndarray:
        """int64 [n, 2 * length]."""
        rng = np.random.default_rng([seed, self.length])
        size = lm.lm.config.vocab_size
        return repeated(self.sequences, 2 * self.length, size, rng, (self.length, self.length)).numpy()

    def explained(self, lm: Model, cell: Cell) -> dict[Cell, np.ndarray]:
        """Head below -> its share of the margin of the keys that an induction head reads, of each sequence [n]."""
        queries = np.linspace(self.length + SETTLED, 2 * self.length - 1, QUERIES).astype(int)
        pairs = np.stack([queries, queries - self.length + 1], 1)
        shares: dict[Cell, list[float]] = {}
        for ids in self.texts(lm, self.seed + OTHERS):
            table = Explaining(lm, ids, *cell, pairs, self.seed).explained().writers
            for row in table[(table["side"] == KEY) & table["writer"].str.contains("H")].itertuples():
                layer, head = map(int, row.writer[1:].split(".H"))
                shares.setdefault((layer, head), []).append(row.share)
        return {cell_of: np.array(values) for cell_of, values in shares.items()}

    def read(self, lm: Model, heads: Sequence[Cell]) -> tuple[np.ndarray, np.ndarray]:
        """Without `heads`: every head's induction score [layers, heads, n], and the loss of the second copy [n]."""
        ids, place = self.texts(lm, self.seed), np.arange(2 * self.length)
        keys = np.broadcast_to(place - self.length + 1, (1, *ids.shape))
        copied = place >= self.length + SETTLED
        reading = PatternReading(
            lm.num_layers, lm.num_heads, ids.shape, {"copied": np.stack([keys, keys + copied], -1)}
        )
        nats = ablated(lm, torch.from_numpy(ids), heads, watch=reading.watch)
        return reading.shares()["copied"][0], nats[:, self.length - 1 + SETTLED :].mean(1).astype(np.float64)

    def row(self, lm: Model, cell: Cell, previous: np.ndarray, others: Sequence[Cell]) -> dict:
        """An induction head, the head that *Why* names for it, and what it reads without that and without others."""
        shares = self.explained(lm, cell)
        ranked = sorted(shares, key=lambda other: -shares[other].mean())
        strongest = ranked[0]
        free = [other for other in others if other[0] < cell[0] and other != strongest]
        drawn = np.random.default_rng([self.seed, *cell]).permutation(len(free))[: self.draws]
        arms: dict[str, list[list[Cell]]] = {"whole": [[]], "without": [[strongest]]}
        arms["beside"] = [[free[place]] for place in drawn]
        read = {arm: [self.read(lm, heads) for heads in several] for arm, several in arms.items()}
        attention = {arm: np.stack([scores[cell] for scores, _ in several]) for arm, several in read.items()}
        losses = {arm: np.stack([nats for _, nats in several]).mean(0) for arm, several in read.items()}
        row = {"induction": _spelled(cell), "found": _spelled(strongest), **edges("share", interval(shares[strongest]))}
        row |= {"next": float(shares[ranked[1]].mean()), "previous": float(previous[strongest])}
        row |= {"rank": int((previous > previous[strongest]).sum()) + 1}
        for arm, values in attention.items():
            row |= edges(arm, interval(values.mean(0)))
        row |= {"least": float(attention["beside"].mean(1).min()), "units": self.sequences}
        row |= compared("fall", interval(attention["without"][0] - attention["beside"].mean(0)))
        return row | compared("rise", interval(losses["without"] - losses["beside"]))

    def rows(self, run: Setting, most: int) -> list[dict]:
        """A row for each of the `most` strongest induction heads."""
        lm = run.lm
        run.context.progress(0.0, "naming heads")
        previous, scores = circuit_scores(lm.lm, self.length, 8, self.seed + OTHERS)
        order = np.argsort(-scores, axis=None, kind="stable")
        cells = [(int(a), int(b)) for a, b in zip(*np.unravel_index(order, scores.shape), strict=True)]
        named = [cell for cell in cells if scores[cell] > self.above and cell[0] > 0][:most]
        candidates = [cell for cell in sorted(cells) if scores[cell] <= self.above]
        rows = []
        for place, cell in enumerate(named):
            run.context.progress(place / len(named), f"head {_spelled(cell)} and who explains it")
            decides = [repr(replace(self, heads=1)), cell]
            rows.append(run.part(_spelled(cell), decides, partial(self.row, lm, cell, previous, candidates)))
        return rows

    def measure(self, run: Setting) -> dict:
        about = {"tokens": 2 * self.length * self.sequences, "window": 2 * self.length, "unit": "sequences"}
        about |= {"units": self.sequences, "draws": self.draws, "by": "zero"}
        rows = holm_corrected(self.rows(run, self.heads), *CONTROLS)
        return {"rows": rows, "above": self.above, "protocol": about}

    def sample(self, run: Setting, numbers: dict) -> dict:
        few, found = replace(self, sequences=CHECKED), [row["found"].split(".") for row in numbers["rows"][:1]]
        scores, nats = few.read(run.lm, [(int(layer), int(head)) for layer, head in found])
        return {"attention": scores.mean((0, 1)).tolist(), "loss": nats.tolist()}

    def part(self, run: Setting, numbers: dict) -> dict:
        return {"rows": self.rows(run, 1)}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows = numbers["rows"]
        if not rows:
            sentence = f"No head above the first layer has an induction score above {numbers['above']:g}."
            return presented("why-circuit", sentence, [])
        named = [f"{row['induction']} by {row['found']} ({row['share']:.0%})" for row in rows]
        first = sum(row["rank"] == 1 for row in rows)
        lead = (
            "What induction heads find their keys by, with its share of the score above other tokens: "
            f"{', '.join(named)}; {first} times of {len(rows)} it is the head that most reads the token before. "
            "Attention to the token that followed the first copy, without the head that is named: "
        )
        sentence = lead + counted(rows, "induction heads", {"fall": CONTROLS["fall"]}, "points")
        lost = counted(rows, "induction heads", {"rise": CONTROLS["rise"]})
        lines = [
            line | {"induction head": row["induction"]} | {f"attention{end}": row[f"{arm}{end}"] for end in ENDS}
            for row in rows
            for arm, line in {arm: {"arm": name} for arm, name in ARMS.items()}.items()
        ]
        axes = ("arm", "induction head", "induction head", "attention to the copied key", "attention")
        panels = [lines_of("What an induction head reads", lines, *axes, share=True)]
        return presented(
            "why-circuit", sentence, panels, f"The loss of the second copy, without the named head: {lost}"
        )


ARMS = {"whole": "all heads", "without": "without the named head", "beside": "without a random head"}
ENDS = ("", "_low", "_high")


def _spelled(cell: Cell) -> str:
    return f"{cell[0]}.{cell[1]}"
