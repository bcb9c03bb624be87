"""What passes between the seam and a method's own kernel, and the record of what ran."""

from dataclasses import dataclass

from torch import Tensor

from analysis.cache import CompactLayer, GroupedLayer
from analysis.kernels import Plan
from analysis.kernels.scoring import Scoring

MASKED = "masked blocks"  # the reference: every visible pair is scored, and what is not read is masked


@dataclass(frozen=True)
class Prompt:
    """The first call of one layer, for a method that decides once about a whole text.

    `query` [B, H, T, D], `key` and `value` [B, G, T, D], rotated; `first` [B] place of the first real token (left
    padding comes before it); `module` the attention layer; `tables` (cos, sin) [B or 1, T, D'] that rotated queries and
    keys, or None; `scoring` how the layer makes scores of both.
    """

    layer: int
    query: Tensor
    key: Tensor
    value: Tensor
    first: Tensor
    module: object
    tables: tuple[Tensor, Tensor] | None
    scoring: Scoring

    def part(self, text: int, start: int, stop: int) -> "Prompt":
        """The tokens start..stop of one text."""
        query, key, value = (x[text : text + 1, :, start:stop].detach() for x in (self.query, self.key, self.value))
        tables = self.tables and tuple(x[min(text, len(x) - 1) :][:1, start:stop] for x in self.tables)
        return Prompt(self.layer, query, key, value, self.first.new_zeros(1), self.module, tables, self.scoring)


@dataclass(frozen=True)
class Call:
    """One call of one layer, causal and without a mask, as a method's own kernel sees it.

    `query` [B, H, Tq, D]; `key`, `value` [B, G, Tk, D]: of all tokens, or of the new one where the KV cache `stored` is
    sorted by group or compacted. `past` tokens lie before the first query. `of_tokens` [B, past + Tq, ...] what
    `observe` returned.
    """

    layer: int
    query: Tensor
    key: Tensor
    value: Tensor
    scaling: float
    past: int
    of_tokens: Tensor | None
    stored: GroupedLayer | CompactLayer | None


@dataclass(frozen=True)
class Attended:
    """What a method's kernel made: out [B, H, Tq, D], or None where it cannot; which kernel, why, and its plan."""

    out: Tensor | None
    kernel: str
    why: str
    plan: Plan | None = None


@dataclass
class Ran:
    """A kernel that a layer ran in `calls` calls of a phase (prefill, decode, or more text after a past one).

    `why` and `plan` are those of the last of these calls.
    """

    layer: int
    phase: str
    kernel: str
    why: str
    plan: Plan | None = None
    calls: int = 0


def only_masked(
    kernels: bool, watched: bool, query: Tensor, mask: Tensor | None, dropout: float, softcap: float | None
) -> str | None:
    """Why this call runs the masked reference whatever the method has; None where a kernel may run."""
    reasons = {
        "The masked reference was asked for.": not kernels,
        "Somebody watches the probabilities.": watched,
        "The kernels take no mask, and padding, a sliding window or packed texts need one.": mask is not None,
        "The kernels take no soft cap of the scores.": softcap is not None,
        "The kernels take no dropout.": dropout > 0,
    }
    return next((why for why, holds in reasons.items() if holds), None)
