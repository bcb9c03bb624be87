"""What a model loses without some of its heads: their outputs replaced, and a first-order estimate for all of them.

A head's output is replaced before the output projection, so that `zero` equals that projection with the head's columns
at 0. `mean` puts the head's own mean over the positions of the text in its place, `resample` its output at another
position of the text (a fixed order drawn from a seed): both leave what does not depend on the position (Wang et al.
2022, section 3; Chan et al. 2022). The estimate is the gradient of the loss times the change of the output, one
backward pass for all heads (attribution patching, Nanda 2023).
"""

from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from ..errors import BadSetting
from ..methods.base import Dense
from ..metrics.quality import divergence, token_losses
from ..seam.attention import Watch, apply
from ..seam.layers import decoder_layers, frozen, running
from ..seam.vocabulary import NextTokens, next_tokens

if TYPE_CHECKING:
    from ..models import Model

WAYS = ("zero", "mean", "resample")
# Of what the layers give, up to which passes begin at the layer that changes.
KEPT_BYTES = 1 << 29
# Of logits that are compared at once.
ROWS_BYTES = 1 << 22
Heads = Iterable[tuple[int, int]]  # (layer, head)


def check_way(by: str) -> None:
    """Refuse a way to replace a head's output that there is not. Errors: BadSetting."""
    if by not in WAYS:
        raise BadSetting(f"A head's output is replaced by {', '.join(WAYS)}, not by {by!r}.")


def replaced(out: torch.Tensor, by: str, seed: int = 0) -> torch.Tensor:
    """What stands in place of every head's output [B, T, H, D], the same shape."""
    if by == "zero":
        return torch.zeros_like(out)
    if by == "mean":
        return out.mean((0, 1), keepdim=True).expand_as(out)
    order = torch.randperm(out.shape[1], generator=torch.Generator().manual_seed(seed))
    return out[:, order.to(out.device)]


class Without(Dense):
    """Dense attention whose `heads` (layer, head) give something else `by` one of WAYS; a layer is its place."""

    def __init__(self, heads: Heads, by: str = "zero", seed: int = 0, resumed: bool = False) -> None:
        """`resumed`: the layers before the first of the heads are not computed (`Passes`)."""
        super().__init__()
        self.by, self.seed, self.resumed = by, seed, resumed
        self.heads: dict[int, list[int]] = {}
        for layer, head in heads:
            self.heads.setdefault(layer, []).append(head)

    @property
    def first_layer(self) -> int:  # type: ignore[override]
        """That of the first head, where a pass begins there."""
        return min(self.heads, default=0) if self.resumed else 0

    def finish_output(self, layer: int, out: torch.Tensor) -> torch.Tensor:
        """The outputs [B, T, H, D] with those of the heads replaced."""
        if layer not in self.heads:
            return out
        chosen = torch.zeros(out.shape[2], dtype=torch.bool, device=out.device)
        chosen[self.heads[layer]] = True
        return torch.where(chosen[None, None, :, None], replaced(out, self.by, self.seed), out)


class Kept(Dense):
    """Dense attention that keeps what leaves its heads, layer by layer, with room for gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.outs: list[torch.Tensor] = []

    def finish_output(self, layer: int, out: torch.Tensor) -> torch.Tensor:
        """The outputs [B, T, H, D], unchanged; those of the first layer are where gradients end."""
        out = out if out.requires_grad else out.detach().requires_grad_()
        out.retain_grad()
        self.outs.append(out)
        return out


def estimated(model: "Model", ids: torch.Tensor, by: str = "zero", seed: int = 0) -> np.ndarray:
    """First-order estimate of what the mean loss rises by without each head, nats per token, float32 [layers, heads].

    ids [B, T] of a `Model`; one pass and its gradient by the outputs of the heads alone.
    """
    lm, recorder = model.lm, Kept()
    with frozen(lm), apply(lm, recorder), torch.enable_grad():
        next_tokens(lm, ids.to(lm.device)).losses(lm, ids[:, 1:]).mean().backward()
    changes = []
    for out in recorder.outs:
        assert out.grad is not None, "its gradient was kept"
        changes.append((replaced(out.detach(), by, seed) - out.detach()).float() * out.grad.float())
    return torch.stack([change.sum((0, 1, 3)) for change in changes]).cpu().numpy()


@torch.no_grad()
def ablated(
    model: "Model", ids: torch.Tensor, heads: Heads, by: str = "zero", seed: int = 0, watch: Watch | None = None
) -> np.ndarray:
    """Nats of each token [B, T - 1] of windows [B, T] without these heads, whose layers are the model's own numbers;
    float32. `watch` sees all attention, as in `apply`."""
    with apply(model.lm, Without(_placed(model, heads), by, seed), watch):
        return token_losses(model, ids)


class Passes:
    """Passes over the same windows [B, T], the first with all heads, the others each without some.

    The first keeps what every layer gives, up to KEPT_BYTES in all, and the others begin at the first layer that loses
    a head. `losses`: nats of each token [B, T - 1] with all heads, float32.
    """

    @torch.no_grad()
    def __init__(
        self, model: "Model", ids: torch.Tensor, by: str = "zero", seed: int = 0, reference: bool = False
    ) -> None:
        """`reference`: what the logits are made of is kept as well, and later passes say how far theirs lie apart."""
        self.model, self.ids, self.by, self.seed = model, ids, by, seed
        self.layers = decoder_layers(model.lm) or []
        self.outs: list[Any] = []
        if len(self.layers) * ids.numel() * model.width * model.dtype.itemsize > KEPT_BYTES:
            self.layers = []
        with ExitStack() as hooks:
            for layer in self.layers:
                hooks.enter_context(layer.register_forward_hook(self._keep))
            hooks.enter_context(apply(model.lm, Without([])))
            predicted = next_tokens(model.lm, ids.to(model.device))
        self.losses, self.reference = (
            predicted.losses(model.lm, ids[:, 1:]).cpu().numpy(),
            predicted if reference else None,
        )

    @torch.no_grad()
    def without(self, heads: Heads) -> tuple[np.ndarray, np.ndarray | None]:
        """(nats of each token [B, T - 1] without these heads, KL divergence from all heads likewise or None). Layers
        are the model's own numbers."""
        lm = self.model.lm
        method = Without(_placed(self.model, heads), self.by, self.seed, resumed=bool(self.layers))
        skipped = zip(self.layers[: method.first_layer], self.outs, strict=False)
        # what it gave before, whatever it is given now; a copy, for a later layer may add to it in place
        given = {layer: lambda *args, before=out, **kwargs: _copied(before) for layer, out in skipped}
        with running(given), apply(lm, method):
            predicted = next_tokens(lm, self.ids.to(lm.device))
        apart = None if self.reference is None else _divergence(lm, self.reference, predicted)
        return predicted.losses(lm, self.ids[:, 1:]).cpu().numpy(), apart

    def _keep(self, layer: nn.Module, args: tuple, out: Any) -> None:
        self.outs.append(_copied(out))


def _placed(model: "Model", heads: Heads) -> Heads:
    """Heads with the places of their layers among those of softmax attention."""
    return [(model.layer_numbers.index(layer), head) for layer, head in heads]


def _copied(out: Any) -> Any:
    """A layer's output, a tensor or a tuple of them and of nothing."""
    if isinstance(out, torch.Tensor):
        return out.clone()
    return tuple(_copied(part) for part in out) if isinstance(out, tuple) else out


def _divergence(lm: Any, reference: NextTokens, said: NextTokens) -> np.ndarray:
    """KL divergence of what is said at each place but the last [B, T - 1], nats: some rows at a time, which stay in a
    processor's caches."""
    parts = []
    for (_, theirs), (_, logits) in zip(reference.chunks(lm), said.chunks(lm), strict=True):
        rows = max(1, ROWS_BYTES // (4 * logits.shape[-1]))
        pairs = zip(theirs.flatten(0, 1).split(rows), logits.flatten(0, 1).split(rows), strict=True)
        parts.append(torch.cat([divergence(*pair) for pair in pairs]).view(logits.shape[:2]))
    return torch.cat(parts, 1)[:, :-1].cpu().numpy()
