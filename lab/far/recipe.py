"""The recipe of a model that reads far: the phases of its training, the shares of recall documents, and the rates."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from analysis.errors import BadSetting
from analysis.training.recipe import Recipe

PREVIOUS, AFTER = "the token before", "what followed the earlier copy"


class Asked(NamedTuple):
    """A head of a layer and what it shall read, PREVIOUS or AFTER, on random tokens that come again."""

    layer: int
    head: int
    reads: str


class Phase(NamedTuple):
    """A part of the training: `upto` this token of the run (None: to its end), the `length` of a sequence and the
    `tokens` of a step, the shares of rows that are `recall` documents and random tokens that come again (`repeats`),
    the `rate` as a factor of the peak rates, and the weight in the loss of what heads are `asked` for on repeats."""

    upto: int | None
    length: int
    tokens: int
    recall: float
    repeats: float = 0.0
    rate: float = 1.0
    asked: float = 0.0


# Text without repeats took the heads that look back away again within 0.4 M tokens, so a few rows stay repeats.
PHASES = (
    Phase(1_000_000, 256, 2048, 0.2, 0.5, 0.6, 1.0),
    Phase(3_000_000, 512, 4096, 0.25, 0.2, 0.8, 1.0),
    Phase(6_000_000, 1024, 8192, 0.25, 0.08, 1.0, 1.0),
    Phase(None, 2048, 8192, 0.25, 0.03, 1.0, 1.0),
)
# Of the heads that the bundled model began with, one read the token before in half of its weight; the others little.
ASKED = (Asked(2, 4, PREVIOUS), Asked(3, 6, AFTER), Asked(4, 4, AFTER), Asked(5, 0, AFTER), Asked(5, 4, AFTER))
# From this part of the falling rate on, recall documents have their last share.
FADES = 0.5
# Read on with by a model that is done: half of the rows ask it to look back, most of them among pairs and labels. Its
# bits per byte end where they began, and it finds more (`docs/log.md`).
MORE = (Phase(800_000, 1024, 8192, 0.5, 0.02, 0.5, 1.0), Phase(None, 2048, 8192, 0.5, 0.02, 0.5, 1.0))
MORE_OF = {"loops": 0.02, "copies": 0.1, "facts": 0.2, "pairs": 0.35, "labels": 0.2, "code": 0.08, "register": 0.05}
MADE_OF = (
    " Recall rows are generated texts whose answers stand far before in the same text (copies, facts, lists of pairs, "
    "labels, code, a register; repeats are random tokens that come again), every name and value drawn anew; their "
    "answers weigh {:g} in the loss. {} A row lies in one document."
)


@dataclass(frozen=True)
class FarRecipe(Recipe):
    """Everything that decides the weights. `tokens` in all; the last `decay` of them at a falling rate, with
    `last_share` recall rows at its end. `read_before`: tokens that the weights it begins with have read (0: it begins
    with none), `natural_before` those of them that were natural text (None: all), `told_before` how they were read.
    `kinds`: share of each kind of recall document (empty: the usual ones)."""

    family: str = "llama_plain"
    tokens_per_pass: int = 1024
    matrix_rate: float = 0.005
    other_rate: float = 0.0016
    tokens: int = 100_000_000
    decay: int = 10_000_000
    answer_weight: float = 2.0
    last_share: float = 0.1
    read_before: int = 0
    natural_before: int | None = None
    told_before: str = ""
    kinds: tuple[tuple[str, float], ...] = ()
    marks: tuple[Phase, ...] = PHASES
    heads_asked: tuple[Asked, ...] = ASKED

    def __post_init__(self) -> None:
        if not 0 < self.decay < self.tokens:
            raise BadSetting(f"The rate falls over fewer tokens than there are, not {self.decay:,}/{self.tokens:,}.")
        # As JSON keeps them, these are lists.
        object.__setattr__(self, "marks", tuple(Phase(*mark) for mark in self.marks))
        object.__setattr__(self, "heads_asked", tuple(Asked(*head) for head in self.heads_asked))
        object.__setattr__(self, "kinds", tuple((name, share) for name, share in self.kinds))
        for part in self.marks:
            generated = part.recall + part.repeats
            asked_of_text = part.asked and not part.repeats
            if part.tokens % part.length or part.length > self.context or not 0 <= generated <= 1 or asked_of_text:
                raise BadSetting(f"This phase cannot be trained: {part}.")
        object.__setattr__(self, "steps", self.spans()[-1][1])
        super().__post_init__()

    def spans(self) -> list[tuple[int, int, int, int]]:
        """(first step, end step, sequence length, tokens of a step) of every phase."""
        spans, first, tokens_read = [], 0, 0
        for upto, length, size, *_ in self.marks:
            end = first + max(0, (self.tokens if upto is None else min(upto, self.tokens)) - tokens_read) // size
            if end > first:
                spans.append((first, end, length, size))
            tokens_read += (end - first) * size
            first = end
        return spans

    def told(self) -> str:
        """How it was trained, for the model card."""
        parts = []
        for (_, end, length, size), mark in zip(self.spans(), self.marks, strict=False):
            part = f"to {self.seen(end) / 1e6:.1f} M tokens of length {length:,} in steps of {size:,}, "
            part += "all repeats" if mark.repeats == 1 else f"{mark.recall:.0%} recall rows"
            part += f", {mark.repeats:.0%} repeats" if 0 < mark.repeats < 1 else ""
            part += f" at {mark.rate:g} times the rates" if mark.rate != 1 else ""
            part += f", heads asked for their keys with weight {mark.asked:g}" if mark.asked else ""
            parts.append(part)
        fall = f"Constant rates, then over the last {self.decay / 1e6:.1f} M tokens a fall to 0 (1 - sqrt), in its "
        fall += f"second half with {self.last_share:.0%} recall rows."
        if not self.told_before:
            return f"{'; '.join(parts)}.{MADE_OF.format(self.answer_weight, fall)}"
        kinds = ", ".join(f"{share:.0%} were {name}" for name, share in self.kinds)
        begun = f"{self.told_before} Then, {self.read_before / 1e6:.1f} M tokens in all, it read on "
        return f"{begun}{'; '.join(parts)}.{f' Of the recall rows {kinds}.' if kinds else ''} {fall}"

    def natural(self) -> int:
        """Tokens of natural text that the weights have read in the end, as expected from the shares."""
        ends = np.diff([self.seen(step) for step in range(self.steps + 1)])
        before = self.read_before if self.natural_before is None else self.natural_before
        return before + round(sum(size * (1 - sum(self.shares(step))) for step, size in enumerate(ends)))

    def phases(self) -> list[tuple[int, int, int]]:
        return [span[:3] for span in self.spans()]

    def seen(self, step: int) -> int:
        return sum((min(step, end) - first) * size for first, end, _, size in self.spans() if step > first)

    def falling(self, step: int) -> float:
        """How much of the last part is done at the start of a step: 0 before it, to 1."""
        return max(0.0, (self.seen(step) - (self.tokens - self.decay)) / self.decay)

    def rate(self, step: int) -> float:
        """Factor of the peak rates: linear warm-up, that of the phase, in the end 1 - sqrt to 0."""
        warm = min(1.0, (step + 1) / self.warm_up)
        return warm * self.marks[self.phase(step)].rate * (1 - math.sqrt(min(1.0, self.falling(step))))

    def shares(self, step: int) -> tuple[float, float]:
        """Shares of the rows of a step that are recall documents and repeats."""
        part = self.marks[self.phase(step)]
        return self.last_share if self.falling(step) >= FADES else part.recall, part.repeats


def recipe_from(stored: dict) -> FarRecipe:
    """A recipe as a checkpoint and pretrain.json keep it."""
    return FarRecipe(**{name: value for name, value in stored.items() if name != "steps"})


def reading_on(tokens: int, before: dict) -> FarRecipe:
    """The recipe with which a model that is done reads on; `before` is its folder's pretrain.json."""
    recipe = recipe_from(before["recipe"])
    return FarRecipe(
        seed=recipe.seed + 1,
        warm_up=10,
        tokens=tokens,
        decay=tokens * 9 // 10,
        marks=MORE,
        last_share=MORE[-1].recall,
        kinds=tuple(MORE_OF.items()),
        read_before=before["tokens"],
        natural_before=recipe.natural(),
        told_before=recipe.told(),
    )
