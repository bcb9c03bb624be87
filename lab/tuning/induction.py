"""Do the heads named induction carry what repetition gains? Taken away, beside as many heads drawn at random."""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from analysis.corpus import sample_texts, tokenize
from analysis.metrics.intervals import interval, over_seeds
from analysis.models import Model
from analysis.probes.ablation import Heads, ablated, check_way
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import Setting, Study, option
from analysis.studies.text.held_out import check_range
from lab.far.looking_back import circuit_scores, repeated
from lab.harness.telling import lines_of

RANDOM, REGISTER = "random tokens twice", "The register"
ALL, NAMED, DRAWN = "all heads", "without the named heads", "without as many others"
UNITS = {RANDOM: "sequences", REGISTER: "answers of one text"}
# Begins the part of the register that asks.
QUESTIONS = "On Saturday the owners"
ANSWER = re.compile(r"\? (.*)")
# First tokens of a second copy, which nothing can tell.
SETTLED = 4
# Added to the seed of the sequences on which heads are named.
OTHERS = 1 << 16
# Sequences that are stored and come again.
CHECKED = 2


class Induction(Study):
    """What is predicted better because it stood before, with and without the heads whose induction score is `above`.
    Random tokens written twice: the second copy against the first, a unit is a sequence. The register: its answers,
    read after its pages against read without them, a unit is an answer, where the model reads so far. Both are read
    without the heads, so that what else they do counts on both sides. Heads are named on other random tokens."""

    above: float = option(0.3, "induction score from which a head is named")
    length: int = option(128, "random tokens that are written twice")
    sequences: int = option(32, "of random tokens", low=2, high=4096)
    draws: int = option(5, "sets of other heads, drawn at random", low=1, high=99)
    by: str = option("zero", "what takes a head's place: zero, mean or resample")

    def check(self, lm: Model) -> None:
        check_range("The number of random tokens", self.length, 2 * SETTLED, lm.max_positions // 2)
        check_way(self.by)

    def tasks(self, lm: Model) -> dict[str, Callable[[Model, Heads], np.ndarray]]:
        """Name -> losses of the tasks that fit into the model's context."""
        size = len(tokenize(lm.tokenizer, sample_texts()["register"][1], 1 << 20, 1).ids)
        return {RANDOM: self.random} | ({REGISTER: self.register} if size <= lm.max_positions else {})

    def random(self, lm: Model, heads: Heads) -> np.ndarray:
        """Loss of the first and of the second copy of each sequence [2, n], without `heads`."""
        rng = np.random.default_rng([self.seed, self.length])
        ids = repeated(self.sequences, 2 * self.length, lm.lm.config.vocab_size, rng, (self.length, self.length))
        nats = np.concatenate([ablated(lm, window[None], heads, self.by, self.seed) for window in ids])
        return np.stack([nats[:, : self.length - 1].mean(1), nats[:, self.length - 1 + SETTLED :].mean(1)])

    def register(self, lm: Model, heads: Heads) -> np.ndarray:
        """Loss of each answer where the pages above are left out, and after them [2, n], without `heads`."""
        text = sample_texts()["register"][1]
        return np.stack([self.answers(lm, part, heads) for part in (text[text.index(QUESTIONS) :], text)])

    def answers(self, lm: Model, text: str, heads: Heads) -> np.ndarray:
        """Mean loss of the tokens of each answer."""
        tokens, means = tokenize(lm.tokenizer, text, lm.max_positions, 1), []
        window = torch.from_numpy(np.asarray(tokens.ids)).long()[None]
        # Of token p at p - 1.
        nats = ablated(lm, window, heads, self.by, self.seed)[0]
        for answer in ANSWER.finditer(text):
            places = np.flatnonzero((tokens.starts >= answer.start(1)) & (tokens.ends <= answer.end(1)))
            if len(places):
                means.append(nats[places - 1].mean())
        return np.array(means)

    def measure(self, run: Setting) -> dict:
        lm = run.lm
        run.context.progress(0.0, "naming heads")
        scores = circuit_scores(lm.lm, self.length, 8, self.seed + OTHERS)[1]
        named = [(int(layer), int(head)) for layer, head in np.argwhere(scores > self.above)]
        unnamed = [(layer, head) for layer, head in np.ndindex(scores.shape) if (layer, head) not in named]
        rng = np.random.default_rng(self.seed)
        few = min(len(named), len(unnamed))
        drawn = [[unnamed[i] for i in rng.permutation(len(unnamed))[:few]] for _ in range(self.draws)] if few else []
        sets: dict[str, list[list[tuple[int, int]]]] = {
            ALL: [[]],
            **({NAMED: [named]} if named else {}),
            **({DRAWN: drawn} if drawn else {}),
        }
        rows = []
        tasks = self.tasks(lm)
        for place, (task, losses) in enumerate(tasks.items()):
            read = {}
            for step, (arm, several) in enumerate(sets.items()):
                run.context.progress((place + step / len(sets)) / len(tasks), f"{task}, {arm}")
                losses_of = [losses(lm, heads) for heads in several]
                read[arm] = np.stack(losses_of).astype(np.float64)  # [draws, new or again, units]
            rows += [_row(task, arm, len(sets[arm][0]), read) for arm in sets]
        return {
            "rows": rows,
            "named": [[layer, head, float(scores[layer, head])] for layer, head in named],
            "heads": int(scores.size),
            "above": self.above,
            "protocol": {
                "tokens": 2 * self.length * self.sequences,
                "window": 2 * self.length,
                "unit": "sequences",
                "units": self.sequences,
                "by": self.by,
                "draws": self.draws,
            },
        }

    def sample(self, run: Setting, numbers: dict) -> dict:
        few, heads = replace(self, sequences=CHECKED), [(layer, head) for layer, head, _ in numbers["named"]]
        return {task: losses(run.lm, heads).ravel().tolist() for task, losses in few.tasks(run.lm).items()}

    def part(self, run: Setting, numbers: dict) -> dict:
        return {name: value for name, value in self.measure(run).items() if name != "protocol"}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows, named, above = numbers["rows"], numbers["named"], numbers["above"]
        by_arm = {(row["task"], row["arm"]): row for row in rows}
        tasks = list(dict.fromkeys(row["task"] for row in rows))
        parts = [
            f"No head has an induction score above {above:g} on random tokens written twice: there is none to take"
        ]
        if named:
            heads = ", ".join(f"{layer}.{head}" for layer, head, _ in named)
            parts = [f"{len(named)} of {numbers['heads']} heads have an induction score above {above:g} ({heads})"]
            for task in tasks:
                full, without = by_arm[task, ALL], by_arm[task, NAMED]
                beside = (
                    f", without as many others {by_arm[task, DRAWN]['kept']:.0%}" if (task, DRAWN) in by_arm else ""
                )
                left = f"{without['kept']:.0%} of it" if without["kept"] > 0 else f"none of it ({without['kept']:.0%})"
                parts.append(
                    f"{task}: {full['gain']:.2f} nats per token are gained; {left} is left without the named heads"
                    f"{beside}"
                )
        units = [f"{row['units']:,} {what}" for task, what in UNITS.items() if (row := by_arm.get((task, ALL)))]
        note = (
            f"Units are {', and '.join(units)}: brackets say how even it is there, and nothing of other texts. Those "
            "of what is left are the gain's, by the mean gain of all heads."
        )
        title, axes = "What is left of the gain of repetition", ("arm", "task", "", "of all heads' gain", "kept")
        return presented("induction", f"{'. '.join(parts)}.", [lines_of(title, rows, *axes, share=True)], note)


def _row(task: str, arm: str, heads: int, read: dict[str, np.ndarray]) -> dict:
    """One arm: its gain over the units, and what part of all heads' mean gain that is: the whole, which has no
    interval, of all heads."""
    gains, full = (losses[:, 0] - losses[:, 1] for losses in (read[arm], read[ALL]))
    gain = over_seeds(gains, np.arange(gains.shape[1]), fewest=2)[0] if len(gains) > 1 else interval(gains[0])
    new, again = read[arm].mean((0, 2))
    edges = {"low": gain.low, "high": gain.high}
    judged = gain.low is not None and arm != ALL
    shares = {f"kept_{name}": edge / full.mean() if judged else None for name, edge in edges.items()}
    about = {"task": task, "arm": arm, "heads": heads, "new": float(new), "again": float(again), "gain": gain.mean}
    return about | edges | {"kept": gain.mean / full.mean()} | shares | {"units": gains.shape[1]}
