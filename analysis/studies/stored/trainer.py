"""What the studies that train share: the documents as tokens, units of work, parts that are done and not done again."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from analysis.corpus import token_stream
from analysis.models import Model
from analysis.studies.context import Context
from analysis.studies.text.held_out import corpus_hash


@dataclass(kw_only=True)
class Trainer:
    """Trains on `documents` and measures on held-out `windows` [n, T].

    What is done lies in `work`, named by a hash of all that decides it, and is not done again; a training that was
    stopped goes on from its checkpoint. `expected` units of work are to do, of which `done` are.
    """

    lm: Model
    documents: list[str]
    windows: np.ndarray
    work: Path
    context: Context
    expected: int
    done: int = 0

    @cached_property
    def texts(self) -> str:
        """Twelve digits that name the training texts."""
        return corpus_hash(self.documents)

    @cached_property
    def ids(self) -> np.ndarray:
        """The training texts as one run of tokens; made when something has to be trained."""
        self.context.progress(min(1.0, self.done / self.expected), "tokenising the training texts")
        return token_stream(self.lm.tokenizer, self.documents)

    def part(self, name: str, decides: list, make: Callable[[Path], dict]) -> dict:
        """What `make(doing)` gives, kept and found again as `Context.part` does; one unit of work."""
        found = self.context.part(self.work, name, decides, make)
        self.done += 1
        return found

    def within(self, name: str, share: float = 1.0, began: float = 0.0) -> Context:
        """The context of a piece of the current unit: a `share` of it, from the fraction `began` on."""
        return self.context.within((self.done + began) / self.expected, share / self.expected, name)

    def told(self, name: str, share: float = 1.0, began: float = 0.0) -> Callable[[float, str], None]:
        """The progress of such a piece."""
        return self.within(name, share, began).progress
