"""What a head moved from one key to one query: into which tokens of the vocabulary it pushes, by itself."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..seam.vocabulary import NextTokens
from .why import Why
from .writers import Stream

# Of the last states, run again: what they may be off by.
CLOSE = 1e-2


@dataclass(frozen=True)
class Moved:
    """`change` float32 [V]: how much the logits of the next token owe to what the head read from the key, on the direct
    way to the vocabulary with frozen norms, less their mean. `share`: what it is of all that the head wrote there, by
    projection; the shares of all keys add up to 1."""

    change: np.ndarray
    share: float


@torch.no_grad()
def moved(stream: Stream, found: Why) -> Moved | None:
    """Of a score and the stream at its query and key; None where what leaves the last layer goes another way to the
    vocabulary than through a norm."""
    prompt, head = stream.prompt, found.head
    value = prompt.value[0, head * prompt.value.shape[1] // prompt.query.shape[1], found.key]
    read = found.attention * value
    if stream.gate is not None:
        read = read * stream.gate[0, head]
    norms = stream.frozen()
    states = stream.body[0][:, found.query : found.query + 1]
    again: Tensor = stream.run(stream.values, norms.again(), to_end=True)[:, :1]
    if again.shape != states.shape or not (again - states).norm() <= CLOSE * states.norm():
        return None
    nothing = {key: torch.zeros_like(of_key) for key, of_key in stream.values.items()}
    start = stream.run(nothing, norms.again(), to_end=True)[:, :1]

    def wrote(out: Tensor) -> Tensor:
        """What an output of the head [D] becomes at the end, [1, 1, d]."""
        alone = torch.zeros_like(stream.values[stream.place])
        alone[0, 0, head] = out
        given: dict[Any, Tensor] = nothing | {stream.place: alone}
        return stream.run(given, norms.again(), to_end=True)[:, :1] - start

    pair, whole = wrote(read), wrote(stream.values[stream.place][0, 0, head])
    logits = NextTokens(states, stream.body).logits(stream.lm) - NextTokens(states - pair, stream.body).logits(
        stream.lm
    )
    change = logits[0, 0].float()
    share = float((pair * whole).sum() / (whole * whole).sum().clamp(min=torch.finfo(torch.float32).tiny))
    return Moved((change - change.mean()).cpu().numpy(), share)
