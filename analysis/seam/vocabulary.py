"""What a model says of the next token, some places of a text at a time: [T, vocabulary] is larger than all else that a
long text takes, and nobody needs it whole."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers.utils import ModelOutput

from ..runs.memory import LOGITS_BYTES
from .layers import running


@dataclass(frozen=True)
class NextTokens:
    """What stands where the logits of texts [B, T] are made of: `states` [B, T, d], which leave the last layer; `body`
    is all that the layers gave."""

    states: Tensor
    body: Any

    def last(self, places: int) -> "NextTokens":
        """Of the last places alone."""
        return NextTokens(self.states[:, -places:], self.body)

    def logits(self, lm: Any, rows: slice = slice(None)) -> Tensor:
        """[B, n, V] of some places: the vocabulary's product and what the family does to it, such as a soft cap."""
        states = self.states[:, rows]
        given = type(self.body)(**dict(self.body) | {"last_hidden_state": states})
        with running({lm.base_model: lambda *args, **options: given}):
            # The model's own code from its last layer on; the ids are read by the body alone, which does not run.
            return lm.forward(states.new_zeros(states.shape[:2], dtype=torch.long), use_cache=False).logits

    def chunks(self, lm: Any) -> Iterator[tuple[slice, Tensor]]:
        """(places, their logits [B, n, V]) of all places, LOGITS_BYTES at a time."""
        for rows in self._rows(lm):
            yield rows, self.logits(lm, rows)

    def losses(self, lm: Any, targets: Tensor) -> Tensor:
        """Nats of the tokens [B, n] that follow the first n places, float32 [B, n]. With a gradient the logits of a
        chunk are made again where there are several."""
        parts, rows = [], self._rows(lm)
        for part in rows:
            wanted = targets[:, part].to(self.states.device)
            if len(rows) > 1 and torch.is_grad_enabled():
                parts.append(checkpoint(self._nats, lm, part, wanted, use_reentrant=False))
            else:
                parts.append(self._nats(lm, part, wanted))
        return torch.cat(parts, 1)

    def _nats(self, lm: Any, rows: slice, targets: Tensor) -> Tensor:
        logits = self.logits(lm, rows)[:, : targets.shape[1]].float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)

    def _rows(self, lm: Any) -> list[slice]:
        batch, length = self.states.shape[:2]
        size = max(1, LOGITS_BYTES // (4 * batch * lm.config.get_text_config().vocab_size))
        return [slice(start, min(start + size, length)) for start in range(0, length, size)]


def next_tokens(lm: Any, ids: Tensor, **options: Any) -> NextTokens:
    """One pass over texts of tokens [B, T] through the layers of a transformers model, the vocabulary left out."""
    outputs: list[ModelOutput] = []

    def shorten(body: Any, args: tuple, output: Any) -> Any:
        outputs.append(output)
        return type(output)(**dict(output) | {"last_hidden_state": output[0][:, -1:]})

    with lm.base_model.register_forward_hook(shorten):
        lm(ids, **{"use_cache": False, **options})
    return NextTokens(outputs[0][0], outputs[0])
